//! Tests of the guest's device tree: the slots that init fills have their final size.

use std::fs;

use gearv_manifest::{
    BINDING_VERSION, Blob, Channel, Console, CpuList, GicMode, Manifest, Memory, Node, Payload,
    Restart, RestartLimit, Rtc, Service, VhostUser, VirtioDevice, VirtioKind, Vm, VmId, VmKind,
};

use super::{escape, source};
use crate::manifest::{Aligned, compile_text};
use crate::tools::Tools;
use crate::workspace::scratch;

fn guest(console: Option<Console>) -> Vm<'static> {
    Vm {
        name: "linux",
        id: VmId::new(0).unwrap(),
        kind: VmKind::Guest,
        vcpu_count: 3,
        cpus: CpuList::default(),
        pool: None,
        memory: Memory {
            bytes: 256 << 20,
            address: None,
            ipa: None,
            align: gearv_manifest::MEMORY_ALIGN,
        },
        payload: Payload::Linux {
            kernel: "k",
            initrd: None,
            cmdline: "a=\"b c\" d\\e",
        },
        console,
        rtc: None,
        may_power_off: false,
        digests: [None; 2],
        autostart: true,
        boot_order: 0,
        debug: false,
        pmu: false,
        pointer_auth: false,
        sve_bits: 0,
        firmware_trng: false,
        last_words: false,
        dump: false,
        restart: Restart::Never,
        restart_limit: RestartLimit::DEFAULT,
        on_give_up: gearv_manifest::OnGiveUp::Stop,
        standby: None,
        tells: None,
        parameters: Default::default(),
        watchdog_ms: 0,
        progress_ms: 0,
        dma_fault_limit: 0,
        watchdog_ipa: 0,
        gic: GicMode::Emulated,
        devices: Default::default(),
        trusts_dma: false,
        peers: Default::default(),
        window_ipa: Vm::DEFAULT_WINDOW,
        virtio_ipa: Vm::DEFAULT_VIRTIO,
    }
}

/// Returns a manifest of the guest with two virtio devices, and one of another VM before.
fn manifest(vm: Vm<'static>) -> Manifest<'static> {
    let mut manifest = Manifest {
        version: BINDING_VERSION,
        ..Manifest::EMPTY
    };
    manifest.vms.push(vm).unwrap();
    for (id, index) in [(1, 0), (0, 0), (0, 1)] {
        let device = VirtioDevice {
            vm: VmId::new(id).unwrap(),
            index,
            name: "random",
            kind: Some(VirtioKind::Random),
            backend: None,
            read_only: false,
            mac: None,
            service: Service::default(),
            socket: None,
            cid: None,
            vhost_user: VhostUser::default(),
        };
        manifest.virtio.push(device).unwrap();
    }
    manifest
}

/// Compiles the guest's tree and looks at its root.
fn look(test: &str, vm: Vm<'static>, check: impl FnOnce(Node<'_>)) {
    look_in(test, &manifest(vm), &vm, check);
}

/// Compiles the tree of a guest of this manifest and looks at its root.
fn look_in(
    test: &str,
    manifest: &Manifest<'static>,
    vm: &Vm<'static>,
    check: impl FnOnce(Node<'_>),
) {
    let folder = scratch(test);
    let dtb = compile_text(
        &source(manifest, vm),
        &Tools::prepare().unwrap(),
        &folder.join("g.dtb"),
    )
    .unwrap();
    let bytes = Aligned::new(&dtb);
    check(Blob::new(bytes.as_slice()).unwrap().root());
    fs::remove_dir_all(folder).unwrap();
}

fn bytes<'a>(node: Node<'a>, path: &str, property: &str) -> &'a [u8] {
    let names = path.split('/').filter(|name| !name.is_empty());
    let node = names.fold(node, |node, name| node.child(name).expect(name));
    node.property(property).expect(property).value
}

#[test]
fn slots_have_their_final_size() {
    look("slots", guest(Some(Console::DEFAULT)), |root| {
        let slots = [
            ("", "interrupt-parent", 4),
            ("chosen", "linux,initrd-start", 8),
            ("chosen", "linux,initrd-end", 8),
            ("chosen", "rng-seed", 32),
            ("chosen", "kaslr-seed", 8),
            ("memory@0", "reg", 16),
            ("interrupt-controller-v3", "reg", 32),
            ("interrupt-controller-v3", "phandle", 4),
            ("interrupt-controller-v2", "reg", 32),
            ("interrupt-controller-v2", "phandle", 4),
        ];
        for (path, property, size) in slots {
            assert_eq!(
                bytes(root, path, property).len(),
                size,
                "/{path} {property}"
            );
        }
        let redistributors = &bytes(root, "interrupt-controller-v3", "reg")[24..];
        assert_eq!(redistributors, 0x6_0000_u64.to_be_bytes());
    });
}

#[test]
fn has_the_vms_cpus_command_line_and_console() {
    let console = Console {
        ipa: 0x1_1000_0000,
        intid: 40,
    };
    look("content", guest(Some(console)), |root| {
        let cpus = root.child("cpus").unwrap();
        assert!(
            cpus.children()
                .map(|cpu| cpu.name())
                .eq(["cpu@0", "cpu@1", "cpu@2"])
        );
        let chosen = root.child("chosen").unwrap();
        assert_eq!(
            chosen.property("bootargs").unwrap().text(),
            Some("a=\"b c\" d\\e")
        );
        assert_eq!(
            chosen.property("stdout-path").unwrap().text(),
            Some("/uart@110000000")
        );
        let uart = root.child("uart@110000000").unwrap();
        assert!(
            uart.property("reg")
                .unwrap()
                .cells()
                .unwrap()
                .eq([1, 0x1000_0000, 0, 0x1000])
        );
        assert!(
            uart.property("interrupts")
                .unwrap()
                .cells()
                .unwrap()
                .eq([0, 8, 4])
        );
    });
}

#[test]
fn has_the_vms_virtio_devices() {
    look("virtio", guest(None), |root| {
        let virtio = root
            .children()
            .filter(|node| node.name().starts_with("virtio"));
        assert!(
            virtio
                .map(|node| node.name())
                .eq(["virtio_mmio@a000000", "virtio_mmio@a000200"])
        );
        let second = root.child("virtio_mmio@a000200").unwrap();
        let cells = |name: &str| second.property(name).unwrap().cells().unwrap();
        assert!(cells("reg").eq([0, 0x0a00_0200, 0, 0x200]));
        assert!(cells("interrupts").eq([0, 17, 1]));
        assert!(second.property("dma-coherent").unwrap().value.is_empty());
    });
}

#[test]
fn without_console_there_is_no_uart() {
    look("silent", guest(None), |root| {
        assert!(root.children().all(|node| !node.name().starts_with("uart")));
        assert!(
            root.child("chosen")
                .unwrap()
                .property("stdout-path")
                .is_none()
        );
    });
}

#[test]
fn escapes_what_would_end_a_string() {
    assert_eq!(escape("a\"b\\c"), "a\\\"b\\\\c");
    assert_eq!(escape("\u{e4}\n"), "\\xc3\\xa4\\x0a");
}

#[test]
fn a_real_time_clock_is_a_pl031_without_an_interrupt() {
    let mut vm = guest(None);
    vm.rtc = Some(Rtc { ipa: 0x1_0901_0000 });
    look("rtc", vm, |root| {
        let reg = [1, 0x0901_0000, 0, 0x1000_u32].map(u32::to_be_bytes);
        assert_eq!(bytes(root, "rtc@109010000", "reg"), reg.as_flattened());
        assert_eq!(
            bytes(root, "rtc@109010000", "clocks"),
            bytes(root, "clock", "phandle")
        );
        let rtc = root.child("rtc@109010000").unwrap();
        assert!(rtc.property("interrupts").is_none());
    });
    look("no-rtc", guest(None), |root| {
        assert!(root.child("clock").is_none());
    });
}

#[test]
fn a_watchdog_is_two_frames_with_an_interrupt() {
    let mut vm = guest(None);
    vm.watchdog_ms = 10_500;
    vm.watchdog_ipa = 0x1_0902_0000;
    look("watchdog", vm, |root| {
        let node = "watchdog@109020000";
        let reg = [1, 0x0902_0000, 0, 0x1000, 1, 0x0902_1000, 0, 0x1000_u32];
        let reg = reg.map(u32::to_be_bytes);
        assert_eq!(bytes(root, node, "reg"), reg.as_flattened());
        // SPI 2, high level: INTID 34.
        let interrupts = [0, 2, 4_u32].map(u32::to_be_bytes);
        assert_eq!(bytes(root, node, "interrupts"), interrupts.as_flattened());
        assert_eq!(bytes(root, node, "timeout-sec"), 10_u32.to_be_bytes());
        assert_eq!(bytes(root, node, "compatible"), b"arm,sbsa-gwdt\0");
    });
}

#[test]
fn a_heartbeat_is_a_page() {
    let mut vm = guest(None);
    vm.kind = VmKind::RealTime;
    vm.watchdog_ms = 10;
    vm.watchdog_ipa = 0x1_0902_0000;
    look("heartbeat", vm, |root| {
        let node = "heartbeat@109020000";
        let reg = [1, 0x0902_0000, 0, 0x1000_u32].map(u32::to_be_bytes);
        assert_eq!(bytes(root, node, "reg"), reg.as_flattened());
        assert_eq!(bytes(root, node, "timeout-ms"), 10_u32.to_be_bytes());
        assert_eq!(bytes(root, node, "compatible"), b"gearv,heartbeat\0");
        assert!(root.child("watchdog@109020000").is_none());
    });
}

/// A channel in the tree of each of its two VMs: who rings has the page, who is rung the interrupt,
/// and Linux's UIO device has the channel's name.
#[test]
fn a_channel_is_a_node_for_uio_in_both_vms() {
    let (rings, mut is_rung) = (guest(None), guest(None));
    is_rung.name = "other";
    is_rung.id = VmId::new(1).unwrap();
    let mut manifest = manifest(rings);
    manifest.vms.push(is_rung).unwrap();
    let channel = Channel {
        name: "frames",
        from: rings.name,
        to: is_rung.name,
        memory: None,
        min_interval_us: None,
        ipa: 0x1_0b00_0000,
        intid: 240,
        power_button: false,
    };
    manifest.channels.push(channel).unwrap();
    look_in("rings", &manifest, &rings, |root| {
        let node = "frames@10b000000";
        let page = [1, 0x0b00_0000, 0, 0x1000_u32].map(u32::to_be_bytes);
        assert_eq!(bytes(root, node, "reg"), page.as_flattened());
        assert_eq!(bytes(root, node, "reg-names"), b"doorbell\0");
        assert_eq!(bytes(root, node, "linux,uio-name"), b"frames\0");
        let compatible = b"gearv,channel\0generic-uio\0";
        assert_eq!(bytes(root, node, "compatible"), compatible);
        assert!(root.child(node).unwrap().property("interrupts").is_none());
    });
    look_in("is-rung", &manifest, &is_rung, |root| {
        assert_eq!(bytes(root, "frames", "linux,uio-name"), b"frames\0");
        // SPI 208, edge-triggered: INTID 240.
        let interrupt = [0, 208, 1_u32].map(u32::to_be_bytes);
        assert_eq!(
            bytes(root, "frames", "interrupts"),
            interrupt.as_flattened()
        );
        assert_eq!(
            bytes(root, "frames/ring", "interrupts"),
            interrupt.as_flattened()
        );
        assert!(root.child("frames").unwrap().property("reg").is_none());
    });
}

//! Tests of what a good manifest becomes; `rules/tests.rs` has the refusals.

use crate::testing::{Tree, cells, smallest, text};
use crate::{
    Balancer, Console, DevicePatterns, GicMode, Manifest, Payload, Privilege, Region, Restart,
    Scheduler, Service, VhostUser, VirtioDevice, VirtioKind, Vm, VmKind, read,
};

#[track_caller]
fn accepts(tree: &Tree, check: impl FnOnce(&Manifest<'_>)) {
    let blob = tree.flatten();
    let manifest = read(blob.as_slice(), &mut |error| panic!("{error}"));
    check(&manifest.expect("no error was reported"));
}

#[track_caller]
fn accepts_vm(tree: &Tree, check: impl FnOnce(&Vm<'_>)) {
    accepts(tree, |manifest| check(manifest.vms.get(0).unwrap()));
}

#[test]
fn gives_defaults() {
    accepts(&smallest(), |manifest| {
        assert_eq!((manifest.version, manifest.vms.len()), (1, 1));
        assert_eq!(manifest.gear2, crate::Gear2Config::DEFAULT);
    });
    accepts_vm(&smallest(), |vm| {
        assert_eq!((vm.name, vm.id.index(), vm.vcpu_count), ("linux", 0, 1));
        assert_eq!(
            (vm.kind, vm.restart, vm.gic),
            (VmKind::Guest, Restart::Never, GicMode::Emulated)
        );
        assert!(vm.autostart && !vm.may_power_off && vm.console.is_none() && vm.cpus.is_empty());
        assert_eq!((vm.memory.bytes, vm.memory.guest()), (256 << 20, None));
        let kernel = "artifact:debian-kernel";
        assert_eq!(
            vm.payload,
            Payload::Linux {
                kernel,
                initrd: None,
                cmdline: ""
            }
        );
    });
    accepts_vm(&smallest().node("/vms/linux/console"), |vm| {
        assert_eq!(vm.console, Some(Console::DEFAULT));
    });
}

/// The threads of an emulator wait for a busy host.
#[test]
fn an_emulator_gets_a_longer_watchdog() {
    accepts(&smallest(), |manifest| {
        let gear2 = &manifest.gear2;
        assert_eq!(
            (gear2.period_ms(false), gear2.period_ms(true)),
            (1000, 10_000)
        );
    });
    let tree = smallest().set("/gear2", "watchdog-ms", cells(&[300]));
    accepts(&tree, |manifest| {
        let gear2 = &manifest.gear2;
        assert_eq!((gear2.period_ms(false), gear2.period_ms(true)), (300, 300));
    });
}

#[test]
fn gear2_is_restarted_eight_times_a_minute() {
    accepts(&smallest(), |manifest| {
        let gear2 = &manifest.gear2;
        assert_eq!((gear2.restart_limit, gear2.restart_window_ms), (8, 60_000));
        assert_eq!((gear2.trace_bytes(), gear2.trace_from_boot), (0, false));
    });
}

#[test]
fn reads_gear2() {
    let tree = smallest()
        .set("/gear2", "image", text("my-gear2.bin"))
        .set("/gear2", "memory-mib", cells(&[8]))
        .set("/gear2", "cpus", cells(&[2, 0]))
        .set("/gear2", "scheduler", text("fair"))
        .set("/gear2", "slice-us", cells(&[100]))
        .set("/gear2", "balancer", text("load"))
        .set("/gear2", "privilege", text("el1"))
        .set("/gear2", "watchdog-ms", cells(&[0]))
        .set("/gear2", "boot-order-timeout-ms", cells(&[7000]))
        .set("/gear2", "restart-limit", cells(&[3]))
        .set("/gear2", "restart-window-ms", cells(&[5000]))
        .set("/gear2", "trace-kib", cells(&[100]))
        .set("/gear2", "trace-from-boot", std::vec![]);
    accepts(&tree, |manifest| {
        let gear2 = &manifest.gear2;
        assert_eq!((gear2.restart_limit, gear2.restart_window_ms), (3, 5000));
        assert_eq!(
            (gear2.trace_bytes(), gear2.trace_from_boot),
            (64 << 10, true)
        );
        assert_eq!((gear2.image, gear2.memory_bytes), ("my-gear2.bin", 8 << 20));
        assert_eq!(
            (gear2.policy.scheduler, gear2.policy.slice_us()),
            (Scheduler::Fair, 100)
        );
        assert_eq!(gear2.policy.balancer, Balancer::Load);
        assert_eq!(
            (gear2.privilege, gear2.watchdog_ms),
            (Privilege::El1, Some(0))
        );
        assert_eq!(gear2.boot_order_timeout_ms, 7000);
        assert_eq!(manifest.gear2_cpus(4).mask(), 0b101);
    });
}

#[test]
fn reads_a_vm() {
    let tree = smallest()
        .set("/vms/linux", "vcpus", cells(&[3]))
        .set("/vms/linux", "cpus", cells(&[1, 0]))
        .set("/vms/linux", "memory-address", cells(&[0x5000_0000]))
        .set("/vms/linux", "memory-ipa", cells(&[1, 0x4000_0000]))
        .set("/vms/linux", "initrd", text("initrd.gz"))
        .set("/vms/linux", "cmdline", text("console=ttyAMA0"))
        .set("/vms/linux", "may-power-off", std::vec![])
        .set("/vms/linux", "no-autostart", std::vec![])
        .set("/vms/linux", "restart", text("on-failure"))
        .set("/vms/linux/console", "address", cells(&[0x1000_0000]))
        .set("/vms/linux/console", "interrupt", cells(&[40]));
    accepts(&tree, |manifest| {
        let vm = manifest.vms.get(0).unwrap();
        assert!(vm.may_power_off && !vm.autostart && vm.restart == Restart::OnFailure);
        assert_eq!(
            vm.memory.physical(),
            Some(Region::new(0x5000_0000, 0x6000_0000))
        );
        assert_eq!(
            vm.memory.guest(),
            Some(Region::new(0x1_4000_0000, 0x1_5000_0000))
        );
        assert_eq!(
            vm.console,
            Some(Console {
                ipa: 0x1000_0000,
                intid: 40
            })
        );
        assert!(
            vm.payload
                .files()
                .eq(["artifact:debian-kernel", "initrd.gz"])
        );
        let cpus = [0, 1, 2].map(|vcpu| manifest.start_cpu(vm, vcpu, 4).unwrap().index());
        assert_eq!(cpus, [1, 0, 1]);
    });
}

#[test]
fn reads_a_flat_payload() {
    let tree = smallest()
        .unset("/vms/linux", "kernel")
        .set("/vms/linux", "image", text("artifact:guest:bench"))
        .set("/vms/linux", "load-offset", cells(&[0x8_0000]))
        .set("/vms/linux", "entry-offset", cells(&[64]))
        .set("/vms/linux", "cmdline", text("seed=1"));
    accepts_vm(&tree, |vm| {
        let image = "artifact:guest:bench";
        let flat = Payload::Flat {
            image,
            load_offset: 0x8_0000,
            entry_offset: 64,
            cmdline: "seed=1",
        };
        assert_eq!(vm.payload, flat);
        assert!(vm.payload.files().eq([image]));
    });
}

#[test]
fn reads_the_device_vm_and_whom_it_serves() {
    let tree = smallest()
        .set("/vms/linux/virtio/disk", "type", text("block"))
        .set("/vms/linux/virtio/disk", "backend", text("/dev/vda"))
        .set("/vms/linux/virtio/disk", "read-only", std::vec![])
        .set("/vms/linux/virtio/random", "type", text("rng"))
        .set("/vms/device", "kind", text("device"))
        .set(
            "/vms/device",
            "devices",
            b"/pl011@9000000\0/soc/x@*\0".to_vec(),
        )
        .set("/vms/device", "window-address", cells(&[0x1000_0000]))
        .set("/vms/device", "watchdog-ms", cells(&[60000]))
        .set("/vms/device", "restart-limit", cells(&[3]))
        .set("/vms/device", "restart-window-ms", cells(&[5000]))
        .set("/vms/device", "restart-backoff-ms", cells(&[50]))
        .set("/vms/device", "memory-mib", cells(&[2]))
        .set("/vms/device", "image", text("flat"));
    accepts(&tree, |manifest| {
        let device = manifest.device_vm().unwrap();
        assert_eq!((device.id.index(), device.window().start), (1, 0x1000_0000));
        assert_eq!(device.watchdog_ms, 60000);
        let limit = device.restart_limit;
        let limit = [limit.limit, limit.window_ms, limit.backoff_ms];
        assert_eq!(limit, [3, 5000, 50]);
        assert!(device.devices.iter().eq(["/pl011@9000000", "/soc/x@*"]));
        let linux = manifest.vms.get(0).unwrap();
        assert!(manifest.virtio_vms().eq([linux]));
        let random = VirtioDevice {
            vm: linux.id,
            index: 1,
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
        let disk = VirtioDevice {
            index: 0,
            name: "disk",
            kind: Some(VirtioKind::Block),
            backend: Some("/dev/vda"),
            read_only: true,
            ..random
        };
        assert!(manifest.virtio_of(linux.id).eq([(0, &disk), (1, &random)]));
        assert_eq!((random.offset(), random.intid()), (0x200, 49));
    });
}

#[test]
fn stars_stand_for_the_rest_of_a_name() {
    let cases = [
        ("/a@1", "/a@1", true),
        ("/a@1", "/a@10", false),
        ("/a@*", "/a@10", true),
        ("/a@*", "/a@10/b", false),
        ("/soc/*", "/soc/b", true),
        ("/soc/*", "/soc2/b", false),
    ];
    for (pattern, path, expected) in cases {
        assert_eq!(
            DevicePatterns::matches(pattern, path),
            expected,
            "{pattern} {path}"
        );
    }
}

#[test]
fn gives_gear2_what_real_time_vms_leave() {
    let tree = smallest()
        .set("/vms/rt", "kind", text("real-time"))
        .set("/vms/rt", "cpus", cells(&[1]))
        .set("/vms/rt", "gic", text("pass-through"))
        .set("/vms/rt", "memory-mib", cells(&[2]))
        .set("/vms/rt", "image", text("rt.bin"));
    accepts(&tree, |manifest| {
        assert_eq!(manifest.gear2_cpus(4).mask(), 0b1101);
        assert_eq!(manifest.real_time_cpus().mask(), 0b10);
        let linux = manifest.vms.get(0).unwrap();
        let cpus = [0, 1, 2, 3].map(|vcpu| manifest.start_cpu(linux, vcpu, 4).unwrap().index());
        assert_eq!(cpus, [0, 2, 3, 0]);
        assert_eq!(manifest.start_cpu(linux, 0, 0), None);
    });
}

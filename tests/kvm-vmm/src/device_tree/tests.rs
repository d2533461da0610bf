use gearv_manifest::blob::{Blob, Node};

use super::blob;
use crate::layout;
use crate::options::{Class, Gic, Options};

fn options(gic: Gic) -> Options {
    Options {
        kernel: "/k".into(),
        initrd: None,
        disk: None,
        net: None,
        cmdline: "console=ttyAMA0 quiet".to_owned(),
        memory_mib: 96,
        cpus: vec![0, 1, 2],
        gic,
        seed: [0xa5; 32],
        class: Class::Other(0),
        free_ms: None,
    }
}

fn cells(node: &Node<'_>, name: &str) -> Vec<u32> {
    node.property(name).unwrap().cells().unwrap().collect()
}

#[test]
fn the_kernel_is_told_what_was_asked_for() {
    let dtb = blob(&options(Gic::V3), Some(0x4400_0000..0x4500_0123));
    let root = Blob::new(&dtb).unwrap().root();
    let chosen = root.child("chosen").unwrap();
    let text = chosen.property("bootargs").unwrap().text();
    assert_eq!(text, Some("console=ttyAMA0 quiet"));
    assert_eq!(chosen.property("rng-seed").unwrap().value, [0xa5; 32]);
    assert_eq!(cells(&chosen, "linux,initrd-start"), [0, 0x4400_0000]);
    assert_eq!(cells(&chosen, "linux,initrd-end"), [0, 0x4500_0123]);
    let memory = root.child("memory@40000000").unwrap();
    assert_eq!(cells(&memory, "reg"), [0, 0x4000_0000, 0, 96 << 20]);
}

#[test]
fn disk_and_card_are_described_if_there_are_any() {
    let with_both = Options {
        disk: Some("/dev/vda".into()),
        net: Some("tap0".to_owned()),
        ..options(Gic::V3)
    };
    let (both, none) = (blob(&with_both, None), blob(&options(Gic::V3), None));
    for (at, intid) in [
        (layout::DISK, layout::DISK_INTID),
        (layout::CARD, layout::CARD_INTID),
    ] {
        let name = format!("virtio_mmio@{at:x}");
        let device = Blob::new(&both).unwrap().root().child(&name).unwrap();
        assert_eq!(cells(&device, "reg"), [0, at as u32, 0, 0x1000]);
        assert_eq!(cells(&device, "interrupts"), [0, intid - 32, 1]);
        assert!(device.property("dma-coherent").is_some());
        assert!(Blob::new(&none).unwrap().root().child(&name).is_none());
    }
}

#[test]
fn without_a_ram_disk_none_is_named() {
    let dtb = blob(&options(Gic::V3), None);
    let chosen = Blob::new(&dtb).unwrap().root().child("chosen").unwrap();
    assert!(chosen.property("linux,initrd-start").is_none());
}

#[test]
fn each_vcpu_has_a_node() {
    let dtb = blob(&options(Gic::V2), None);
    let cpus = Blob::new(&dtb).unwrap().root().child("cpus").unwrap();
    let ids: Vec<Vec<u32>> = cpus.children().map(|cpu| cells(&cpu, "reg")).collect();
    assert_eq!(ids, [[0], [1], [2]]);
}

#[test]
fn the_interrupt_controller_is_the_one_chosen() {
    for (gic, compatible, second) in [
        (
            Gic::V2,
            "arm,cortex-a15-gic",
            [layout::GICC as u32, 0, 0x2000],
        ),
        (
            Gic::V3,
            "arm,gic-v3",
            [layout::GICR as u32, 0, 3 * 0x2_0000],
        ),
    ] {
        let dtb = blob(&options(gic), None);
        let root = Blob::new(&dtb).unwrap().root();
        let node = root.child("interrupt-controller@8000000").unwrap();
        let text = node.property("compatible").unwrap().text();
        assert_eq!(text, Some(compatible));
        assert_eq!(cells(&node, "reg")[5..], second);
    }
}

//! Tests of the words of a command line.

use std::string::String;
use std::vec::Vec;

use crate::rules::tests::{DEVICE, VM, served, warnings};
use crate::testing::{Tree, cells, smallest, text};

/// Returns the warnings of this rule for a VM of 2 vCPUs and 256 MiB with a command line.
fn warned(cmdline: &str, change: impl Fn(Tree) -> Tree) -> Vec<String> {
    let tree = smallest()
        .set(VM, "vcpus", cells(&[2]))
        .set(VM, "memory-mib", cells(&[256]))
        .set(VM, "cmdline", text(cmdline));
    let all = warnings(&change(tree)).into_iter();
    all.filter(|one| one.starts_with("M-WRN-021")).collect()
}

#[test]
fn takes_what_linux_takes() {
    let lines = [
        "console=ttyAMA0,115200n8 root=/dev/vda rw rootflags=data=ordered,ro quiet",
        "console=tty0 console=ttyAMA0 maxcpus=2 isolcpus=nohz,domain,1 irqaffinity=0-1",
        "console=ttyAMA0\tquiet maxcpus=8 mem=1G INIT_VERSION=3",
        "mem=256M crashkernel=64M cma=16M@0-4G hugepages=64 acpi=off",
        "hugepagesz=64K hugepages=1024 init=/sbin/init root=/dev/vda ip=off earlycon",
        "root=UUID=1:2 cmdline_size=1",
        "dyndbg=\"file drivers/usb/* +p\" -- = maxcpus=1",
    ];
    for line in lines {
        assert_eq!(warned(line, |tree| tree), [""; 0], "{line}");
    }
}

#[test]
fn warns_of_each_word() {
    let cases = [
        ("console = ttyAMA0", "belongs to no option"),
        ("console =ttyAMA0", "belongs to no option"),
        ("\"console=ttyAMA0 quiet\"", "between two quotes"),
        ("root=\"/dev/vda rw", "the quote has no end"),
        ("console=ttyAMA0,quiet,panic=1", "blanks do"),
        (
            "console=ttyAMA0 gearv-ip=10.0.2.105/24",
            "begin with gearv.",
        ),
        ("console=ttyAMA0 maxcpus=1", "all vCPUs"),
        ("nr_cpus=1", "all vCPUs"),
        ("isolcpus=2,3", "from 0 on"),
        ("nohz_full=1-2", "from 0 on"),
        ("acpi=force", "no ACPI tables"),
        ("console= ttyAMA0", "nothing stands behind its ="),
        ("ROOT=/dev/vda", "in lower case"),
        ("console=ttyAMA0\nquiet", "a line break"),
        ("initrd=/boot/initrd.img", "only a boot loader"),
        ("console:ttyAMA0", "have an = between them"),
        ("bootargs=console=ttyAMA0", "without a name before them"),
        ("console=ttyAMA0 earlyprintk", "earlycon shows"),
        ("console=ttyAMA0 earlyprintk=pl011", "earlycon shows"),
        ("gearv.ip=10.0.2.105/24", "no network card"),
        ("mem=16M", "leaves memory of the VM unused"),
        ("crashkernel=512M", "as much memory"),
        ("cma=1G", "as much memory"),
        ("hugepages=128", "as much memory"),
        ("console=tty0", "is a screen"),
        ("console=ttyAMA0 console=tty", "is a screen"),
    ];
    for (line, why) in cases {
        let said = warned(line, |tree| tree);
        assert_eq!(said.len(), 1, "{line}: {said:?}");
        assert!(said[0].contains(why), "{line}: {said:?}");
    }
}

#[test]
fn a_card_is_set_up_where_there_is_one() {
    let net = "/vms/linux/virtio/net";
    for line in ["ip=dhcp", "gearv.ip=10.0.2.105/24"] {
        let without = served().set(VM, "cmdline", text(line));
        let of = |tree: &Tree| {
            let all = warnings(tree).into_iter();
            let said: Vec<String> = all.filter(|one| one.starts_with("M-WRN-021")).collect();
            said
        };
        assert!(of(&without)[0].contains("no network card"), "{line}");
        let with = without.set(net, "type", text("net"));
        assert_eq!(of(&with.set(net, "backend", text("tap0"))), [""; 0]);
        let owner = served().set(DEVICE, "cmdline", text(line));
        assert_eq!(of(&owner), [""; 0], "{line}");
    }
}

/// An initramfs has its own first program, unless the root file system is another.
#[test]
fn warns_of_options_that_the_initrd_makes_useless() {
    let with_initrd = |tree: Tree| tree.set(VM, "initrd", text("initrd"));
    assert_eq!(warned("init=/bin/sh", |tree| tree), [""; 0]);
    assert_eq!(warned("rdinit=/bin/sh", with_initrd), [""; 0]);
    assert_eq!(warned("init=/bin/sh root=/dev/vda", with_initrd), [""; 0]);
    let said = warned("init=/bin/sh", with_initrd);
    assert!(said[0].contains("what rdinit= names"), "{said:?}");
    assert_eq!(warned("noinitrd", |tree| tree), [""; 0]);
    assert!(warned("noinitrd", with_initrd)[0].contains("ignore the VM's initrd"));
}

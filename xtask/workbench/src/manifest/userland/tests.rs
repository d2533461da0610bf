//! Tests of the warnings on userlands.

use crate::manifest::{Aligned, compile_source};
use crate::tools::Tools;
use crate::workspace;

/// Returns the warnings on a device VM with the initial RAM disk `device`, and on guests with these
/// initial RAM disks (`""`: none), command lines and virtio devices.
fn warned(name: &str, device: &str, guests: &[(&str, &str, &str)]) -> Vec<String> {
    let folder = workspace::scratch(&format!("userland-{name}"));
    let kernel = "memory-mib = <256>; kernel = \"artifact:debian-kernel\";";
    let guests = guests.iter().enumerate();
    let guests = guests.map(|(number, (initrd, cmdline, virtio))| {
        let initrd = match *initrd {
            "" => String::new(),
            name => format!("initrd = \"artifact:{name}\";"),
        };
        format!(
            "g{number} {{ {kernel} {initrd} cmdline = \"{cmdline}\"; \
             virtio {{ {virtio} }}; }};"
        )
    });
    let source = format!(
        "/dts-v1/; / {{ compatible = \"gearv,manifest\"; version = <1>; vms {{ \
         device {{ kind = \"device\"; {kernel} initrd = \"artifact:{device}\"; }}; {} }}; }};",
        guests.collect::<String>()
    );
    let dts = folder.join("manifest.dts");
    std::fs::write(&dts, source).unwrap();
    let (_, blob) = compile_source(&dts, &Tools::prepare().unwrap(), &folder.join("out")).unwrap();
    let bytes = Aligned::new(&blob);
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |error| panic!("{error}"));
    let mut said = Vec::new();
    super::warn(&judged.manifest.unwrap(), &mut |error| {
        let text = error.to_string();
        said.push(text.splitn(4, ": ").take(3).collect::<Vec<_>>().join(" "));
    });
    std::fs::remove_dir_all(folder).unwrap();
    said
}

const DEVICE: &str = "device-initramfs";
const GUEST: &str = "guest-initramfs";
const DISK: &str = "disk { type = \"block\"; backend = \"/dev/vda\"; };";
const NET: &str = "disk { type = \"block\"; backend = \"/dev/vda\"; }; \
                   net { type = \"net\"; backend = \"tap0\"; };";
const SECOND: &str = "disk { type = \"block\"; backend = \"/dev/vdb\"; }; \
                      net { type = \"net\"; backend = \"tap1\"; };";

#[test]
fn an_initial_ram_disk_is_for_its_vm() {
    assert_eq!(warned("good", DEVICE, &[(GUEST, "", DISK)]), [""; 0]);
    assert_eq!(
        warned(
            "busybox",
            "busybox-initramfs",
            &[("busybox-initramfs", "", DISK)]
        ),
        ["M-WRN-020 /vms/device initrd"]
    );
    assert_eq!(warned("alone", "busybox-initramfs", &[]), [""; 0]);
    assert_eq!(
        warned("swapped", GUEST, &[(DEVICE, "", DISK)]),
        ["M-WRN-020 /vms/device initrd", "M-WRN-020 /vms/g0 initrd"]
    );
    let random = "random { type = \"rng\"; };";
    assert_eq!(
        warned("no-disk", DEVICE, &[(GUEST, "", random)]),
        ["M-WRN-020 /vms/g0 initrd"]
    );
}

#[test]
fn linux_has_a_root_file_system() {
    let guest = |initrd, cmdline| warned("root", DEVICE, &[(initrd, cmdline, DISK)]);
    // Debian's kernels need their modules, whatever `root=` names.
    for cmdline in ["quiet", "quiet root=/dev/vda"] {
        let said = guest("", cmdline);
        let start = "M-WRN-025 /vms/g0 Linux finds no root";
        assert!(said.len() == 1 && said[0].starts_with(start), "{said:?}");
    }
    assert_eq!(guest(GUEST, "quiet"), [""; 0]);
}

#[test]
fn guests_have_addresses_of_their_own() {
    let second = |name: &str, cmdline: &str| {
        warned(name, DEVICE, &[(GUEST, "", NET), (GUEST, cmdline, SECOND)])
    };
    assert_eq!(second("own", "gearv.ip=10.0.2.102/24"), [""; 0]);
    let same = ["M-WRN-015 /vms/g1 cmdline"];
    assert_eq!(second("default", "quiet"), same);
    assert_eq!(second("explicit", "gearv.ip=10.0.2.101/24"), same);
    assert_eq!(super::DEFAULT, format!("{}/24", crate::network::GUEST));
    let bad = [
        "10.0.2.101",
        "10.0.2.100/24",
        "10.0.2.105",
        "10.0.2.105/16",
        "192.168.1.5/24",
        "10.0.2.0/24",
        "/24",
    ];
    for address in bad {
        let cmdline = format!("gearv.ip={address}");
        let said = warned("bad", DEVICE, &[(GUEST, &cmdline, NET)]);
        assert_eq!(said, ["M-WRN-016 /vms/g0 cmdline"], "{address}");
    }
    // Without a network card there is no address.
    assert_eq!(
        warned("none", DEVICE, &[(GUEST, "gearv.ip=1", DISK)]),
        [""; 0]
    );
}

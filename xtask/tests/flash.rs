//! `flash` looks at what it would write, and at all that it is given, before it builds or writes
//! anything.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for one test, without anything in it.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gearv-flash-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs `flash`, which must refuse, and returns its message. Nothing may be built.
fn refused(board: &str, out: &Path, options: &[&Path]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let command = command.args(["flash", "--board", board, "--out"]).arg(out);
    let output = command.args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("built Gear1"), "{board}: {said}");
    assert_eq!(output.status.code(), Some(1), "{board}: {said}");
    said
}

/// Checks that `flash` refuses with these words, and leaves no card.
fn refuses(board: &str, out: &Path, options: &[&Path], words: &[&str]) {
    let said = refused(board, out, options);
    for words in words {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert!(!out.exists(), "{said}");
}

#[test]
fn out_is_no_device() {
    let folder = scratch("device");
    let out = folder.join("card");
    symlink("/dev/null", &out).unwrap();
    for board in ["qemu-virt", "rpi4", "zcu102"] {
        let said = refused(board, &out, &[]);
        assert!(said.contains("card is no f"), "{board}: {said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn firmware_and_places_are_looked_at_first() {
    let folder = scratch("firmware");
    let (out, empty) = (folder.join("card.img"), folder.join("empty"));
    fs::create_dir(&empty).unwrap();
    let firmware = Path::new("--firmware");
    let device = Path::new("--device");
    let null = Path::new("/dev/null");
    let missing = [
        "empty has no start4.elf and no fixup4.dat",
        "boot partition",
        "docs/boards/rpi4.md",
    ];
    refuses("rpi4", &out, &[firmware, &empty], &missing);
    let none = ["empty holds no file", "or leave the option out"];
    refuses("zcu102", &out, &[firmware, &empty], &none);
    let absent = folder.join("absent");
    refuses("rpi4", &out, &[firmware, &absent], &["absent is no folder"]);
    let inside = ["lies in the folder of --firmware", "name another place"];
    refuses("rpi4", &empty.join("card"), &[firmware, &empty], &inside);
    refuses(
        "rpi4",
        &absent.join("card"),
        &[],
        &["there is no folder", "absent: make it"],
    );
    let no_start =
        ["--device: the board does not start from a card without start4.elf and fixup4.dat"];
    refuses("rpi4", &out, &[device, null], &no_start);
    refuses(
        "qemu-virt",
        &out,
        &[device, null],
        &["--device: /dev/null is no disk"],
    );
    refuses(
        "qemu-virt",
        &out,
        &[device, &absent],
        &["--device: there is no", "absent"],
    );
    refuses(
        "zcu102",
        &out,
        &[device, null],
        &["--device: zcu102 boots from a folder"],
    );
    fs::remove_dir_all(folder).unwrap();
}

/// A manifest with one VM, with these properties.
fn manifest(folder: &Path, name: &str, properties: &str) -> PathBuf {
    let path = folder.join(name);
    let text = format!(
        "/dts-v1/;\n\n/ {{\n\tcompatible = \"gearv,manifest\";\n\tversion = <1>;\n\n\tvms {{\n\
         \t\tlinux {{\n{properties}\n\t\t}};\n\t}};\n}};\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn manifests_are_judged_for_the_board() {
    let folder = scratch("manifest");
    let out = folder.join("card.img");
    let option = Path::new("--manifest");
    // An x86 kernel: the boot sector's end and the header's magic.
    let mut kernel = vec![0; 4096];
    kernel[510..512].copy_from_slice(&[0x55, 0xaa]);
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    fs::write(folder.join("bzImage"), kernel).unwrap();
    let x86 = "\t\t\tmemory-mib = <64>;\n\t\t\tkernel = \"bzImage\";\n\t\t\tconsole { address = <0xfe201000>; };";
    let x86 = manifest(&folder, "x86.dts", x86);
    let words = [
        "x86.dts is refused: 1 error, for rpi4",
        "M-PAY-011",
        "x86",
        "nothing was written",
    ];
    refuses("rpi4", &out, &[option, &x86], &words);
    // The board has four CPUs.
    let board =
        "\t\t\tmemory-mib = <64>;\n\t\t\tcpus = <6>;\n\t\t\tkernel = \"artifact:debian-kernel\";";
    let board = manifest(&folder, "board.dts", board);
    let words = [
        "refused: 1 error, for rpi4",
        "M-CPU-003",
        "board.dts:10:",
        "nothing was written",
    ];
    refuses("rpi4", &out, &[option, &board], &words);
    // The manifest of the board's own has VMs of 528 MiB.
    let memory = [Path::new("--memory"), Path::new("512")];
    let words = ["for rpi4", "M-MEM-007", "nothing was written"];
    refuses("rpi4", &out, &memory, &words);
    let absent = folder.join("absent.dts");
    refuses(
        "rpi4",
        &out,
        &[option, &absent],
        &["there is no manifest", "absent.dts"],
    );
    fs::remove_dir_all(folder).unwrap();
}

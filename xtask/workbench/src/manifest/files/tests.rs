//! Tests of what is said of each kind of file, at each property.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::write::GzEncoder;

use crate::artifact::Artifact;
use crate::manifest::{self, Aligned, compile_source};
use crate::tools::Tools;
use crate::workspace;

/// Judges the files that the manifest `dts` names, which keeps the rules that need no file.
fn judge_source(dts: &Path, scratch: &Path) -> Vec<String> {
    let (dts, blob) = compile_source(dts, &Tools::prepare().unwrap(), scratch).unwrap();
    let bytes = Aligned::new(&blob);
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut |_| {});
    let mut said = Vec::new();
    super::judge(&judged.manifest.unwrap(), &dts, &mut |error| {
        said.push(error.to_string());
    });
    said
}

/// Judges a manifest whose VM has these properties, with these files beside it.
fn judge(name: &str, properties: &str, files: &[(&str, &[u8])]) -> Vec<String> {
    let folder = workspace::scratch(&format!("files-{name}"));
    for (file, bytes) in files {
        fs::write(folder.join(file), bytes).unwrap();
    }
    let memory = match properties.contains("memory-mib") {
        true => "",
        false => "memory-mib = <16>;",
    };
    let source = format!(
        "/dts-v1/; / {{ compatible = \"gearv,manifest\"; version = <1>; \
         vms {{ one {{ {memory} {properties} }}; }}; }};"
    );
    let dts = folder.join("manifest.dts");
    fs::write(&dts, source).unwrap();
    let mut said = judge_source(&dts, &folder.join("out"));
    for text in &mut said {
        *text = text.replace(&format!("{}/", folder.display()), "");
    }
    fs::remove_dir_all(folder).unwrap();
    said
}

/// Bytes with a mark at an offset.
fn marked(at: usize, mark: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xa5; 0x800];
    bytes[at..at + mark.len()].copy_from_slice(mark);
    bytes
}

/// An archive with a file of 16 bytes.
fn archive() -> Vec<u8> {
    let file = cpio::newc::Builder::new("init").mode(0o100_755);
    let mut file = file.write(Vec::new(), 16);
    file.write_all(&[7; 16]).unwrap();
    cpio::newc::trailer(file.finish().unwrap()).unwrap()
}

/// Packs bytes as gzip does.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// A kernel's `Image` whose header says where it begins and how large it is.
fn image(offset: u64, size: u64) -> Vec<u8> {
    let mut bytes = marked(56, b"ARM\x64");
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&size.to_le_bytes());
    // Flags: little-endian, pages of 4 KiB, anywhere in memory.
    bytes[24..32].copy_from_slice(&0xa_u64.to_le_bytes());
    bytes
}

/// A kernel that is an EFI program whose only section ends at `end` in the file.
fn efi_image(end: u32) -> Vec<u8> {
    let mut bytes = image(0, 1 << 20);
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0x3c, &0x40_u32.to_le_bytes());
    put(0x40, b"PE\0\0");
    put(0x40 + 6, &1_u16.to_le_bytes());
    put(0x40 + 20, &0xa0_u16.to_le_bytes());
    let section = 0x40 + 24 + 0xa0;
    put(section + 16, &(end - 0x400).to_le_bytes());
    put(section + 20, &0x400_u32.to_le_bytes());
    bytes
}

#[test]
fn a_kernel_is_whole_and_little_endian() {
    let kernel = "kernel = \"k\";";
    assert_eq!(judge("whole", kernel, &[("k", &efi_image(0x800))]), [""; 0]);
    let said = judge("cut", kernel, &[("k", &efi_image(0x801))]);
    assert!(
        said[0].starts_with(
            "M-PAY-011: /vms/one: kernel: this is no arm64 Linux Image (k: 2048 of a kernel's 2049 bytes)"
        ),
        "{said:?}"
    );
    let mut big = image(0, 1 << 20);
    big[24] |= 1;
    let said = judge("big-endian", kernel, &[("k", &big)]);
    assert!(
        said[0].contains("(k: a big-endian kernel; build it without"),
        "{said:?}"
    );
}

#[test]
fn files_of_another_use_are_named() {
    let cases: [(&[u8], &str); 12] = [
        (b"\xcf\xfa\xed\xfe", "a program for macOS"),
        (b"hsqs", "an image of the file system squashfs"),
        (b"<!DOCTYPE html>", "a page of a web site"),
        (b"!<arch>\ndebian-binary  ", "a package of Debian"),
        (b":020000040000FA\n", "Intel hex; objcopy -I ihex"),
        (b":1000000000000000\n", "Intel hex; objcopy -I ihex"),
        (b"S00600004844521B\n", "S-records; objcopy -I srec"),
        (b"UF2\n\x57\x51\x5d\x9e", "UF2; uf2conv.py"),
        (b"#!/bin/sh\n", "a script"),
        (b"!<arch>\n", "an archive of objects"),
        (b"MZ\x90\0", "a program for EFI or Windows"),
        (b"notes of a meeting\n", "a text"),
    ];
    for (bytes, what) in cases {
        let said = judge("foreign", "image = \"f\";", &[("f", bytes)]);
        let expected = format!("M-PAY-012: /vms/one: image: this is no flat binary (f: {what}");
        assert!(said[0].starts_with(&expected), "{said:?}");
    }
    let kernel = image(0, 1 << 20);
    let linux = "kernel = \"k\"; initrd = \"i\";";
    let tar = marked(257, b"ustar");
    let packed = gzip(&tar);
    let cut = archive();
    let cut = &cut[..cut.len() / 2];
    let cases: [(&[u8], &str); 7] = [
        (&tar, "a tar archive"),
        (&packed, "packed by gzip, and a tar archive"),
        (b"070707000000", "a cpio archive in an old format"),
        (cut, "a cpio archive that ends within a member, at byte "),
        (
            &cut[..40],
            "a cpio archive that ends within a member, at byte 40;",
        ),
        (b"PK\x03\x04", "a zip archive"),
        (b"QFI\xfb", "a disk in the format qcow2"),
    ];
    for (bytes, what) in cases {
        let said = judge("foreign-initrd", linux, &[("k", &kernel), ("i", bytes)]);
        let expected = format!("M-PAY-013: /vms/one: initrd: this is no initrd (i: {what}");
        assert!(said[0].starts_with(&expected), "{said:?}");
    }
}

#[test]
fn a_flat_binary_has_an_instruction_at_its_entry() {
    let nothing = [0_u8; 16];
    let erased = [0xff; 16];
    let mut code = nothing;
    code[8..12].copy_from_slice(&[0x1f, 0x20, 0x03, 0xd5]);
    let image = |properties: &str, bytes: &[u8]| {
        let properties = format!("image = \"f\"; {properties}");
        judge("entry-word", &properties, &[("f", bytes)])
    };
    for (properties, bytes, what) in [
        ("", &nothing, "0x0, are zeros"),
        ("", &erased, "0x0, are erased flash memory"),
        ("entry-offset = <12>;", &code, "0xc, are zeros"),
    ] {
        let said = image(properties, bytes);
        assert!(
            said[0].contains(&format!("(f: at its entry point, {what}")),
            "{said:?}"
        );
    }
    assert_eq!(image("entry-offset = <8>;", &code), [""; 0]);
}

#[test]
fn a_file_system_is_an_initrd_with_a_root_in_memory() {
    let good = image(0, 1 << 20);
    for disk in [marked(0x438, b"\x53\xef"), marked(0, b"hsqs")] {
        let files: [(&str, &[u8]); 2] = [("k", &good), ("i", &disk)];
        let linux = "kernel = \"k\"; initrd = \"i\"; cmdline = ";
        let said = judge("ram-root", &format!("{linux} \"root=/dev/ram0\";"), &files);
        assert_eq!(said, [""; 0]);
        let said = judge("other-root", &format!("{linux} \"root=/dev/vda\";"), &files);
        assert!(
            said.len() == 1 && said[0].starts_with("M-WRN-025"),
            "{said:?}"
        );
        assert!(
            said[0].contains("(i: an image of the file system"),
            "{said:?}"
        );
    }
}

#[test]
fn a_kernel_is_an_arm64_image() {
    let kernel = "kernel = \"k\";";
    assert_eq!(
        judge("image", kernel, &[("k", &image(0, 1 << 20))]),
        [""; 0]
    );
    let zboot = {
        let mut bytes = marked(4, b"zimg");
        bytes[8..16].copy_from_slice(&[0x10, 0, 0, 0, 0x20, 3, 0, 0]);
        bytes[24..29].copy_from_slice(b"gzip\0");
        bytes
    };
    let mut elf = marked(0, b"\x7fELF");
    elf[18..20].copy_from_slice(&[183, 0]);
    let cases: [(Vec<u8>, &str); 11] = [
        (
            marked(0, b"\x1f\x8b"),
            "packed by gzip; gunzip -c unpacks it",
        ),
        (marked(0, b"\xfd7zXZ\0"), "packed by xz; xz -dc unpacks it"),
        (
            zboot,
            "an EFI zboot image; tail -c +17 FILE | head -c 800 | gunzip -c unpacks it",
        ),
        (marked(0x202, b"HdrS"), "a Linux kernel for x86"),
        (
            marked(0x24, b"\x18\x28\x6f\x01"),
            "a Linux kernel for 32-bit Arm",
        ),
        (
            elf,
            "an ELF file; objcopy -O binary makes a flat binary of it",
        ),
        (marked(0, b"\x7fELF"), "an ELF file, and not for AArch64"),
        (marked(0, b"070701"), "a cpio archive"),
        (marked(0, b"\xd0\x0d\xfe\xed"), "a device tree or a FIT"),
        (b"see README\n".to_vec(), "a text"),
        (vec![0; 3], "of a kind that has no mark"),
    ];
    for (bytes, what) in cases {
        let said = judge("kernel", kernel, &[("k", &bytes)]);
        let [said] = said.as_slice() else {
            panic!("{what}: {said:?}")
        };
        let expected =
            format!("M-PAY-011: /vms/one: kernel: this is no arm64 Linux Image (k: {what});");
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn an_initrd_and_a_flat_binary_are_what_they_are_said_to_be() {
    let good = image(0, 1 << 20);
    let linux = "kernel = \"k\"; initrd = \"i\";";
    for bytes in [
        archive(),
        gzip(&archive()),
        marked(0, b"\x1f\x8b"),
        vec![0; 9],
    ] {
        assert_eq!(
            judge("initrd", linux, &[("k", &good), ("i", &bytes)]),
            [""; 0]
        );
    }
    let said = judge(
        "swapped",
        linux,
        &[("k", &marked(0, b"070701")), ("i", &good)],
    );
    assert!(
        said[0].contains("kernel: this is no arm64 Linux Image (k: a cpio archive)"),
        "{said:?}"
    );
    assert!(
        said[1].contains("initrd: this is no initrd (i: a Linux kernel)"),
        "{said:?}"
    );
    let flat = "image = \"f\";";
    assert_eq!(judge("flat", flat, &[("f", &[0x14, 0, 0, 0])]), [""; 0]);
    let said = judge("elf", flat, &[("f", &marked(0, b"\x7fELF"))]);
    assert!(said[0].starts_with("M-PAY-012: /vms/one: image: this is no flat binary (f: an ELF"));
}

#[test]
fn a_file_is_there_and_holds_something() {
    let missing = judge("missing", "kernel = \"absent\";", &[]);
    assert_eq!(
        missing,
        [
            "M-PAY-009: /vms/one: kernel: there is no such file (absent: looked for at absent); write a path \
          relative to the manifest's folder, or \"artifact:NAME\""
        ]
    );
    let empty = judge("empty", "image = \"f\";", &[("f", b"")]);
    assert!(
        empty[0]
            .starts_with("M-PAY-010: /vms/one: image: this is no file with contents (f: 0 bytes)")
    );
    let folder = judge("folder", "image = \"..\";", &[]);
    assert!(folder[0].contains("(..: a folder)"), "{folder:?}");
}

#[test]
fn an_artifact_has_a_name_that_is_known() {
    let known = "kernel = \"artifact:debian-kernel\"; memory-mib = <64>;";
    assert_eq!(judge("known", known, &[]), [""; 0]);
    let said = judge("unknown", "kernel = \"artifact:debian-kernl\";", &[]);
    assert!(said[0].starts_with("M-PAY-014: /vms/one: kernel: xtask makes no such file"));
    assert!(
        said[0].ends_with("did you mean artifact:debian-kernel?"),
        "{said:?}"
    );
    // Without a name there is none that is near, and without the prefix there is one.
    let said = judge("nameless", "image = \"artifact:guest:\";", &[]);
    assert!(
        said[0].ends_with("for the artifacts that there are"),
        "{said:?}"
    );
    for name in ["debian-kernel", "Artifact:debian-kernel"] {
        let said = judge("bare", &format!("kernel = \"{name}\";"), &[]);
        let near = "did you mean artifact:debian-kernel?";
        assert!(
            said[0].starts_with("M-PAY-009") && said[0].ends_with(near),
            "{said:?}"
        );
    }
    let home = judge("home", "kernel = \"~/Image\";", &[]);
    assert!(home[0].contains("no shell expands ~ and $"), "{home:?}");
    let guest = judge("guest", "image = \"artifact:guest:bensh\";", &[]);
    assert!(
        guest[0].ends_with("did you mean artifact:guest:bench?"),
        "{guest:?}"
    );
}

#[test]
fn a_payload_fits_into_the_memory() {
    let kernel = "kernel = \"k\"; initrd = \"i\";";
    let files = |size| [("k", image(0, size)), ("i", vec![0xa5; 0x2000])];
    let judge_size = |size| {
        let files = files(size);
        let files = files
            .each_ref()
            .map(|(name, bytes)| (*name, bytes.as_slice()));
        judge("size", kernel, &files)
    };
    assert_eq!(judge_size(15 << 20), [""; 0]);
    let said = judge_size((16 << 20) - 0x1000);
    assert!(
        said[0].contains(
            "initrd: the payload does not fit into the VM's memory (it needs 17 MiB of 16 MiB)"
        ),
        "{said:?}"
    );
    // The device tree lies behind the kernel.
    for size in [16 << 20, 20 << 20] {
        let said = judge_size(size);
        assert!(
            said[0].contains("kernel: the payload does not fit"),
            "{said:?}"
        );
    }
    let flat = judge(
        "offset",
        "image = \"f\"; load-offset = <0xfffffc>;",
        &[("f", &[0; 8])],
    );
    assert!(flat[0].contains("M-PAY-015: /vms/one: image"), "{flat:?}");
}

#[test]
fn an_entry_point_lies_in_the_image() {
    let at = |name: &str, entry: &str| {
        let properties = format!("image = \"f\"; entry-offset = <{entry}>;");
        judge(name, &properties, &[("f", &[0xd5; 8])])
    };
    assert_eq!(at("entry-last", "4"), [""; 0]);
    let said = at("entry-behind", "8");
    let start = "M-PAY-016: /vms/one: entry-offset: ";
    assert!(said.len() == 1 && said[0].starts_with(start), "{said:?}");
    assert!(said[0].contains("(0x8, and f has 0x8 bytes)"), "{said:?}");
}

/// The size of an image that xtask makes is known once it is made.
#[test]
fn an_entry_point_lies_in_an_image_that_is_made() {
    let folder = workspace::scratch("files-made");
    let made = folder.join("made.bin");
    fs::write(&made, [0xd5; 8]).unwrap();
    let at = |entry: &str| {
        let source = format!(
            "/dts-v1/; / {{ compatible = \"gearv,manifest\"; version = <1>; vms {{ one {{ \
             memory-mib = <2>; image = \"artifact:guest:bench\"; entry-offset = <{entry}>; }}; }}; }};"
        );
        let dts = folder.join("manifest.dts");
        fs::write(&dts, source).unwrap();
        let tools = Tools::prepare().unwrap();
        let manifest = manifest::compile(&dts, &tools, &folder.join("out")).unwrap();
        let resolve = |name: &str| {
            assert_eq!(name, "guest:bench");
            Ok(made.clone())
        };
        let refused = manifest.check_entries(&tools, &resolve);
        refused.map_or_else(|error| error.to_string(), |()| String::new())
    };
    assert_eq!(at("4"), "");
    let said = at("8");
    assert!(
        said.contains("M-PAY-016")
            && said.contains("(0x8, and artifact:guest:bench has 0x8 bytes)"),
        "{said}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_manual_has_all_artifacts() {
    let manual = fs::read_to_string(workspace::root().join("docs/manifest.md")).unwrap();
    let names = Artifact::names().into_iter();
    for name in names.filter(|name| !name.starts_with("guest:")) {
        assert!(manual.contains(&format!("`{name}`")), "{name}");
    }
}

/// The examples, and the manifests of tests, name files that are there, or that xtask makes.
#[test]
fn all_manifests_name_files_that_there_are() {
    let scratch = workspace::scratch("files-examples");
    for folder in ["manifests", "tests/manifests"] {
        let folder = workspace::root().join(folder);
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|suffix| suffix == "dts") {
                let said = judge_source(&path, &scratch);
                assert_eq!(said, [""; 0], "{}", path.display());
            }
        }
    }
    fs::remove_dir_all(scratch).unwrap();
}

#[test]
fn an_artifact_is_used_as_what_it_is() {
    let kernel = "artifact:debian-kernel";
    let initrd = "artifact:busybox-initramfs";
    let program = "artifact:guest:spin";
    let linux = |kernel: &str, initrd: &str| {
        format!("memory-mib = <64>; kernel = \"{kernel}\"; initrd = \"{initrd}\";")
    };
    let flat = |image: &str| format!("image = \"{image}\";");
    let cases = [
        (linux(kernel, initrd), None),
        (linux(initrd, initrd), Some("M-PAY-011")),
        (linux("artifact:failing-gear2", initrd), Some("M-PAY-011")),
        (linux(kernel, kernel), Some("M-PAY-013")),
        (linux(kernel, program), Some("M-PAY-013")),
        // A program that has a kernel's header may read anything as its initial RAM disk.
        (linux(program, program), None),
        (flat(program), None),
        (flat(kernel), Some("M-PAY-012")),
        (flat("artifact:failing-gear2"), Some("M-PAY-012")),
    ];
    for (properties, rule) in cases {
        let said = judge("used", &properties, &[]);
        let ids: Vec<&str> = said.iter().map(|one| &one[..9]).collect();
        assert_eq!(ids, Vec::from_iter(rule), "{properties}: {said:?}");
    }
}

/// The least size of Debian's kernels is known before one is downloaded.
#[test]
fn an_initrd_fits_beside_a_kernel_that_is_an_artifact() {
    let least = "memory-mib = <32>; kernel = \"artifact:debian-kernel\";";
    let said = judge("least", least, &[]);
    assert!(
        said.len() == 1 && said[0].starts_with("M-PAY-015"),
        "{said:?}"
    );
    let properties = "memory-mib = <34>; kernel = \"artifact:debian-kernel\"; initrd = \"i\";";
    let cpio = |mib: usize| [archive(), vec![0; mib << 20]].concat();
    assert_eq!(judge("fits", properties, &[("i", &cpio(1))]), [""; 0]);
    let said = judge("large", properties, &[("i", &cpio(2))]);
    let start = "M-PAY-015: /vms/one: initrd: the payload does not fit";
    assert!(said.len() == 1 && said[0].starts_with(start), "{said:?}");
}

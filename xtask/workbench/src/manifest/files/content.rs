//! Kinds of files, told by the first bytes.

use std::io::Read as _;

use flate2::read::GzDecoder;

/// Bytes of a packed file that tell what it is. The farthest mark of those that may be packed in
/// place of an archive is a tar archive's.
const UNPACKED_BYTES: u64 = 512;

/// The kind of a file. Told from each other because each has another repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// An arm64 Linux `Image` (Linux, Documentation/arch/arm64/booting.rst).
    Image,
    /// An EFI program that holds a compressed kernel (Linux, drivers/firmware/efi/libstub/zboot).
    Zboot,
    /// A file that a program has packed: its name, and what unpacks it.
    Packed(&'static str, &'static str),
    /// A program or an object with headers.
    Elf,
    /// A Linux kernel for x86 (Linux, Documentation/arch/x86/boot.rst).
    X86Kernel,
    /// A Linux kernel for 32-bit Arm.
    Arm32Kernel,
    /// A file with U-Boot's own header.
    UBootImage,
    /// A device tree blob, or a FIT, which is one.
    DeviceTree,
    /// A cpio archive, which an initramfs is.
    Cpio,
    /// An image of a file system: its name.
    FileSystem(&'static str),
    /// A file of another use: its name, and what to do with it where that helps.
    Foreign(&'static str),
    /// A flat binary in the digits of Intel or Motorola, or in blocks.
    Encoded(&'static str, &'static str),
    /// Characters that a person reads.
    Text,
    /// A file without a mark that is known here: a flat binary has none.
    Other,
}

/// Marks: the offset, the bytes there, and what has them. The first that a file has counts. An EFI
/// program begins with MZ too, so kernels come before it.
const MARKS: &[(usize, &[u8], Content)] = &[
    (56, b"ARM\x64", Content::Image),
    (
        56,
        b"RSC\x05",
        Content::Foreign("a Linux kernel for RISC-V"),
    ),
    (4, b"zimg", Content::Zboot),
    (0, b"\x1f\x8b", Content::Packed("gzip", "gunzip -c")),
    (0, b"\xfd7zXZ\0", Content::Packed("xz", "xz -dc")),
    (0, b"\x28\xb5\x2f\xfd", Content::Packed("zstd", "zstd -dc")),
    (0, b"\x02\x21\x4c\x18", Content::Packed("lz4", "lz4 -dc")),
    (0, b"\x04\x22\x4d\x18", Content::Packed("lz4", "lz4 -dc")),
    (0, b"BZh", Content::Packed("bzip2", "bunzip2 -c")),
    (0, b"\x7fELF", Content::Elf),
    (0x202, b"HdrS", Content::X86Kernel),
    (0x24, b"\x18\x28\x6f\x01", Content::Arm32Kernel),
    (0, b"\x27\x05\x19\x56", Content::UBootImage),
    (0, b"\xd0\x0d\xfe\xed", Content::DeviceTree),
    (0, b"070701", Content::Cpio),
    (0, b"070702", Content::Cpio),
    (0, b"070707", Content::Foreign(OLD_CPIO)),
    (0, b"\xc7\x71", Content::Foreign(OLD_CPIO)),
    (0, b"hsqs", Content::FileSystem("squashfs")),
    (
        0x438,
        b"\x53\xef",
        Content::FileSystem("ext2, ext3 or ext4"),
    ),
    (
        0,
        b"ANDROID!",
        Content::Foreign("an Android boot image; unpack_bootimg takes the kernel out of it"),
    ),
    (
        0,
        b"version https://git-lfs",
        Content::Foreign("a pointer of Git LFS; git lfs pull fetches the file"),
    ),
    (0, b"<!DOCTYPE", Content::Foreign(PAGE)),
    (0, b"<html", Content::Foreign(PAGE)),
    (
        0,
        b"\xcf\xfa\xed\xfe",
        Content::Foreign("a program for macOS"),
    ),
    (257, b"ustar", Content::Foreign("a tar archive")),
    (0, b"PK\x03\x04", Content::Foreign("a zip archive")),
    (
        0,
        b"QFI\xfb",
        Content::Foreign("a disk in the format qcow2"),
    ),
    (
        0,
        b"!<arch>\ndebian-binary",
        Content::Foreign("a package of Debian; dpkg-deb -x FILE FOLDER unpacks it"),
    ),
    (
        0,
        b"!<arch>\n",
        Content::Foreign("an archive of objects, which a linker reads"),
    ),
    (0, b"MZ", Content::Foreign("a program for EFI or Windows")),
    (0, b"#!", Content::Foreign("a script")),
    (
        0,
        b"UF2\n",
        Content::Encoded("UF2", "uf2conv.py FILE --output flat.bin"),
    ),
    (
        0,
        b"S0",
        Content::Encoded("S-records", "objcopy -I srec -O binary FILE flat.bin"),
    ),
    (
        0,
        b":02",
        Content::Encoded("Intel hex", "objcopy -I ihex -O binary FILE flat.bin"),
    ),
    (
        0,
        b":10",
        Content::Encoded("Intel hex", "objcopy -I ihex -O binary FILE flat.bin"),
    ),
];

/// The formats of cpio before SVR4's, which Linux does not unpack (Linux,
/// Documentation/driver-api/early-userspace/buffer-format.rst).
const OLD_CPIO: &str =
    "a cpio archive in an old format; cpio -o -H newc makes one that Linux reads";
/// A download whose address was wrong leaves such a page.
const PAGE: &str = "a page of a web site, which a server sends in place of a file that it lacks";

/// Number of `EM_AARCH64`, the machine in an ELF header. ELF for the Arm 64-bit Architecture
/// (AAELF64).
const ELF_AARCH64: u64 = 183;
/// Load offset of kernels before 3.17, whose `image_size` is 0. As booting.rst tells loaders to
/// assume.
const OLD_TEXT_OFFSET: u64 = 0x8_0000;

impl Content {
    /// Looks at the first bytes of a file. Text is judged by the first KiB: scripts and lists are
    /// text to their end.
    pub(super) fn of(head: &[u8]) -> Self {
        let has =
            |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
        let marked = MARKS.iter().find(|(at, mark, _)| has(*at, mark));
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        match marked {
            Some((_, _, content)) => *content,
            None if head.iter().all(is_text) => Self::Text,
            None => Self::Other,
        }
    }

    /// Tells whether Linux may take this as an initrd. A packed archive is one, and images of file
    /// systems have more marks than are known here. Linux unpacks what its configuration includes.
    pub(super) fn may_be_initrd(self) -> bool {
        matches!(
            self,
            Self::Cpio | Self::Packed(..) | Self::FileSystem(_) | Self::Other
        )
    }

    /// Tells whether a CPU may run this from a byte on. An `Image` begins with an instruction. No
    /// program has characters alone. Everything with a mark is another format.
    pub(super) fn may_be_flat(self) -> bool {
        matches!(self, Self::Image | Self::Other)
    }

    /// Says what the file with the first bytes `head` is, and what makes the right one of it. The
    /// command of the repair is part of the text where there is one.
    pub(super) fn text(self, head: &[u8]) -> String {
        match self {
            Self::Image => "a Linux kernel".into(),
            Self::Zboot => zboot(head),
            Self::Packed(by, unpack) => format!("packed by {by}; {unpack} unpacks it"),
            Self::Elf if number(head, 18, 2) == Some(ELF_AARCH64) => {
                "an ELF file; objcopy -O binary makes a flat binary of it".into()
            }
            Self::Elf => "an ELF file, and not for AArch64".into(),
            Self::X86Kernel => "a Linux kernel for x86".into(),
            Self::Arm32Kernel => "a Linux kernel for 32-bit Arm".into(),
            Self::UBootImage => "packed by mkimage; dumpimage -p 0 -o FILE unpacks it".into(),
            Self::DeviceTree => "a device tree or a FIT".into(),
            Self::Cpio => "a cpio archive".into(),
            Self::FileSystem(name) => format!("an image of the file system {name}"),
            Self::Foreign(what) => what.into(),
            Self::Encoded(format, decode) => {
                format!("{format}; {decode} makes a flat binary of it")
            }
            Self::Text => "a text".into(),
            Self::Other => "of a kind that has no mark".into(),
        }
    }
}

/// Says how the kernel is taken out of an EFI zboot image: the header has the offset, the size and
/// the name of the packer. Distributions that use it have no other file (Linux,
/// drivers/firmware/efi/libstub/Makefile.zboot).
fn zboot(head: &[u8]) -> String {
    let field = |at| number(head, at, 4);
    let unpack = match head.get(24..).unwrap_or_default() {
        packer if packer.starts_with(b"gzip") => "gunzip -c",
        packer if packer.starts_with(b"zstd") => "zstd -dc",
        packer if packer.starts_with(b"xz") => "xz -dc",
        packer if packer.starts_with(b"lz4") => "lz4 -dc",
        _ => "its packer",
    };
    match field(8).zip(field(12)) {
        Some((start, size)) => format!(
            "an EFI zboot image; tail -c +{} FILE | head -c {size} | {unpack} unpacks it",
            start + 1
        ),
        None => "a damaged EFI zboot image".into(),
    }
}

/// Returns where a kernel ends, in bytes from the start of the VM's memory, as its header says; its
/// bss is included. `file_bytes` is the size of its file. init places the initrd behind this.
pub(super) fn image_extent(head: &[u8], file_bytes: u64) -> Option<u64> {
    if Content::of(head) != Content::Image {
        return None;
    }
    let (offset, size) = match (number(head, 8, 8)?, number(head, 16, 8)?) {
        (_, 0) => (OLD_TEXT_OFFSET, file_bytes),
        (offset, size) => (offset, size.max(file_bytes)),
    };
    Some(offset.saturating_add(size))
}

/// Returns the first bytes of what gzip has packed.
pub(super) fn unpacked_head(head: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The head ends within the packed data, which is an error behind what was unpacked.
    let _ = GzDecoder::new(head)
        .take(UNPACKED_BYTES)
        .read_to_end(&mut bytes);
    bytes
}

/// Says why an initrd that gzip has packed is none: Linux unpacks it, and finds no archive.
pub(super) fn packed_fault(head: &[u8]) -> Option<String> {
    let inner = unpacked_head(head);
    let content = Content::of(&inner);
    let is_wrong = !inner.is_empty() && !content.may_be_initrd();
    is_wrong.then(|| format!("packed by gzip, and {}", content.text(&inner)))
}

/// Says why a CPU cannot run a flat binary from `entry` on: there is a word that is no instruction.
///
/// Source: Arm ARM DDI 0487, C4.1: words whose upper half is zero are UDF, and none has all bits
/// set. Flash memory that was never written reads as the one, and a file that was only made long
/// enough as the other.
pub(super) fn entry_fault(word: u32) -> Option<&'static str> {
    match word {
        u32::MAX => Some("erased flash memory, which is no instruction"),
        0 => Some("zeros, which are no instruction"),
        _ => None,
    }
}

/// Bit of a kernel's flags (offset 24 of its header): the kernel is big-endian. Gear1 starts vCPUs
/// with SCTLR_EL1.EE clear.
const BIG_ENDIAN: u64 = 1;

/// Says why a file with a kernel's header does not boot. `head` holds its first bytes. A download
/// that was cut off is the usual case.
pub(super) fn image_fault(head: &[u8], file_bytes: u64) -> Option<String> {
    if number(head, 24, 8)? & BIG_ENDIAN != 0 {
        return Some("a big-endian kernel; build it without CONFIG_CPU_BIG_ENDIAN".into());
    }
    let needed = sections_end(head)?;
    (file_bytes < needed).then(|| format!("{file_bytes} of a kernel's {needed} bytes"))
}

/// Returns where the last section of a kernel that is an EFI program too ends in its file. The
/// image's size in the kernel's own header counts the bss, which the file does not hold.
///
/// Source: Microsoft, "PE Format", COFF file header and section table. Every arm64 kernel with
/// CONFIG_EFI is such a program.
fn sections_end(head: &[u8]) -> Option<u64> {
    /// "PE\0\0" and the COFF file header.
    const HEADER_BYTES: usize = 24;
    /// A row of the section table.
    const SECTION_BYTES: usize = 40;
    let place = |at| usize::try_from(number(head, at, 4)?).ok();
    let header = place(0x3c).filter(|at| *at < head.len())?;
    if !head.get(header..)?.starts_with(b"PE\0\0") {
        return None;
    }
    let count = usize::try_from(number(head, header + 6, 2)?).ok()?;
    let optional = usize::try_from(number(head, header + 20, 2)?).ok()?;
    let first = header + HEADER_BYTES + optional;
    let ends = (0..count).map_while(|index| {
        let section = first + index * SECTION_BYTES;
        Some(number(head, section + 16, 4)? + number(head, section + 20, 4)?)
    });
    ends.max()
}

/// Reads a little-endian number of up to eight bytes. `None` where the file ends before.
fn number(head: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let field = head.get(at..at + bytes)?;
    let digits = field.iter().rev();
    Some(digits.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

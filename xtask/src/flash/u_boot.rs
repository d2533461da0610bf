//! U-Boot's ways to Gear1: a script that uses `booti`, and a FIT that `bootm` takes.
//!
//! Both load from where the script was found. U-Boot passes its device tree on, with the archive in
//! it.

use std::fs;
use std::path::Path;

use anyhow::Result;
use workbench::board::Name;
use workbench::manifest::compile_text;
use workbench::tools::Tools;
use workbench::workspace;

/// A legacy image (U-Boot's include/image.h): magic, Linux, Arm64, script, not compressed. `source`
/// takes a script in no other wrapping but a FIT.
const MAGIC: u32 = 0x2705_1956;
/// Codes of the four bytes at the end of the fixed header.
const KIND: [u8; 4] = [5, 22, 6, 0];
/// Name of a script, the offset of that in the header, and its size. `iminfo` shows it, and
/// [`is_ours`] knows our scripts by it.
const NAME: &[u8] = b"GearV";
/// From the start of the header.
const NAME_OFFSET: usize = 32;
/// Filled up with zeros.
const NAME_BYTES: usize = 32;
/// Fixed by the format.
const HEADER_BYTES: usize = 64;
/// Load addresses are round numbers that a person can type.
const MIB: u64 = 1 << 20;

/// Load addresses of a board's files. Far enough apart that no file reaches the next one's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// On 2 MiB (Linux, booting.rst): U-Boot would else move it.
    kernel: u64,
    /// On a page, which init wants of an initrd.
    archive: u64,
    /// Behind both, since `bootm` copies out of it.
    fit: u64,
    /// U-Boot's variable with the address of the board's device tree.
    tree: &'static str,
}

/// Returns where the files go on a board, if the archive has this size. `bank` begins the board's
/// memory. The kernel stands on 2 MiB, as arm64 wants, and the archive behind room for it.
pub(super) fn places(board: Name, archive_bytes: usize) -> Places {
    let (bank, tree) = match board {
        // QEMU leaves its tree at the start of memory, and U-Boot works on a copy of it.
        Name::QemuVirt | Name::Imx8mpEvk => (0x4000_0000, "fdtcontroladdr"),
        Name::RcarH3 => (0x4800_0000, "fdtcontroladdr"),
        Name::Zcu102 => (0, "fdtcontroladdr"),
        Name::Rpi4 => (0, "fdt_addr"),
    };
    let archive = bank + 128 * MIB;
    Places {
        kernel: bank + 2 * MIB,
        archive,
        fit: (archive + archive_bytes as u64).next_multiple_of(MIB),
        tree,
    }
}

/// Returns the commands that load the two files and start Gear1. `initrd_high` of all ones keeps
/// U-Boot from moving the archive, which is large.
pub(super) fn booti(places: &Places) -> String {
    let Places {
        kernel,
        archive,
        fit: _,
        tree,
    } = places;
    // The archive stays where it is loaded, on a page.
    format!(
        "echo GearV by booti\n\
         setenv initrd_high 0xffffffffffffffff\n\
         load ${{devtype}} ${{devnum}}:${{distro_bootpart}} {kernel:#x} gear1.img\n\
         load ${{devtype}} ${{devnum}}:${{distro_bootpart}} {archive:#x} archive.cpio\n\
         booti {kernel:#x} {archive:#x}:${{filesize}} ${{{tree}}}\n"
    )
}

/// Returns the commands that load the FIT and start Gear1; U-Boot moves the archive to a page.
/// U-Boot checks the hashes before it starts anything.
pub(super) fn bootm(places: &Places) -> String {
    let Places {
        kernel: _,
        archive: _,
        fit,
        tree,
    } = places;
    format!(
        "echo GearV by bootm\n\
         load ${{devtype}} ${{devnum}}:${{distro_bootpart}} {fit:#x} gearv.itb\n\
         bootm {fit:#x}#gearv {fit:#x}#gearv ${{{tree}}}\n"
    )
}

/// Makes a FIT of Gear1 and the archive, with their hashes, which U-Boot checks. dtc writes the
/// FIT, for a FIT is a device tree blob. The timestamp is 0, so that equal inputs give equal files.
pub(super) fn fit(gear1: &Path, archive: &Path, tools: &Tools) -> Result<Vec<u8>> {
    // The load address does not matter; U-Boot moves the kernel to a multiple of 2 MiB of its
    // choice.
    let kernel = "\t\t\ttype = \"kernel_noload\";\n\t\t\tload = <0>;\n\t\t\tentry = <0>;\n";
    let kernel = fit_image("gear1", gear1, kernel)?;
    let archive = fit_image("archive", archive, "\t\t\ttype = \"ramdisk\";\n")?;
    let source = format!(
        "/dts-v1/;\n/ {{\n\tdescription = \"GearV\";\n\ttimestamp = <0>;\n\t#address-cells = <1>;\n\timages {{\n{kernel}{archive}\t}};\n\
         \tconfigurations {{\n\t\tdefault = \"gearv\";\n\
         \t\tgearv {{ kernel = \"gear1\"; ramdisk = \"archive\"; }};\n\t}};\n}};\n"
    );
    let scratch = workspace::output_dir().join(format!("fit-{}.itb", std::process::id()));
    let fit = compile_text(&source, tools, &scratch)?;
    fs::remove_file(scratch.with_extension("dts"))?;
    Ok(fit)
}

/// Returns the node of an image with its bytes and their hash, and with the lines of `more`.
/// `/incbin/` takes the bytes as they are; a copy in the source would be text of twice the size.
fn fit_image(node: &str, file: &Path, more: &str) -> Result<String> {
    let hash = crc32(&fs::read(file)?);
    let file = fs::canonicalize(file)?;
    let file = file.display();
    Ok(format!(
        "\t\t{node} {{\n\t\t\tdata = /incbin/(\"{file}\");\n\t\t\tarch = \"arm64\";\n\t\t\tos = \"linux\";\n\
         \t\t\tcompression = \"none\";\n{more}\
         \t\t\thash-1 {{ algo = \"crc32\"; value = <{hash:#x}>; }};\n\t\t}};\n"
    ))
}

/// Wraps commands as U-Boot's `source` takes them. The list of sizes is the format's of a
/// multi-file image, of which a script is one.
pub(super) fn script(commands: &str) -> Vec<u8> {
    // A list of sizes that ends with 0, then the texts.
    let mut data = (commands.len() as u32).to_be_bytes().to_vec();
    data.extend(0_u32.to_be_bytes());
    data.extend(commands.bytes());
    // The header's CRC is that of the header with a CRC of 0.
    let mut script = header(crc32(&header(0, &data)), &data);
    debug_assert_eq!(script.len(), HEADER_BYTES);
    script.extend(&data);
    script
}

/// Tells whether a file is a script that was made here. A `boot.scr` of a distribution must not be
/// overwritten without a question.
pub(super) fn is_ours(script: &[u8]) -> bool {
    let name = NAME.len();
    script.get(..4) == Some(&MAGIC.to_be_bytes())
        && script.get(NAME_OFFSET..NAME_OFFSET + name) == Some(NAME)
        && script.get(NAME_OFFSET + name) == Some(&0)
}

/// Returns the header of a legacy image: magic, the header's CRC, time, size, load address, entry,
/// the data's CRC, kind, name. The CRC of the header is computed over itself with that field 0.
fn header(header_crc: u32, data: &[u8]) -> Vec<u8> {
    let fields = [MAGIC, header_crc, 0, data.len() as u32, 0, 0, crc32(data)];
    let mut header: Vec<u8> = fields
        .iter()
        .flat_map(|field| field.to_be_bytes())
        .collect();
    header.extend(KIND);
    let mut name = NAME.to_vec();
    name.resize(NAME_BYTES, 0);
    header.extend(name);
    header
}

/// Returns the CRC-32 of IEEE 802.3, bit by bit. The table is made at each call: a few images take
/// microseconds, and a dependency would take a row in docs/dependencies.md.
fn crc32(bytes: &[u8]) -> u32 {
    /// Reflected, as the CRC shifts to the right.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let table: [u32; 256] = std::array::from_fn(|index| {
        (0..8).fold(index as u32, |crc, _| {
            let mask = (crc & 1).wrapping_neg();
            crc >> 1 ^ POLYNOMIAL & mask
        })
    });
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        crc >> 8 ^ table[usize::from(crc as u8 ^ byte)]
    });
    !crc
}

#[cfg(test)]
mod tests {
    //! Tests of what U-Boot takes.

    use super::{HEADER_BYTES, NAME_OFFSET, crc32, is_ours, script};

    #[test]
    fn the_sum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_script_has_a_header_that_sums_up() {
        let mut script = script("echo hello\n");
        let field = |at: usize| u32::from_be_bytes(*script[at..].first_chunk().unwrap());
        let mut header = script[..HEADER_BYTES].to_vec();
        header[4..8].fill(0);
        assert_eq!(field(4), crc32(&header));
        assert_eq!(field(12) as usize, script.len() - HEADER_BYTES);
        assert_eq!(field(24), crc32(&script[HEADER_BYTES..]));
        assert!(script.ends_with(b"echo hello\n"));
        assert!(is_ours(&script));
        script[NAME_OFFSET + 5] = b'x';
        assert!(!is_ours(&script) && !is_ours(&script[..40]) && !is_ours(b"echo"));
    }
}

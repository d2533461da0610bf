//! A card's image: a partition table, one FAT32 file system, and a guest's disk behind it.

use std::io::{Cursor, Read as _, Write as _};

use anyhow::{Context, Result};
use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions};

/// A file of a card: its path there, with slashes, and its bytes.
pub type CardFile = (String, Vec<u8>);

/// Bytes of a sector.
pub(super) const SECTOR: usize = 512;
/// First sector of the partition: 1 MiB, the usual alignment.
const FIRST_SECTOR: usize = 2048;
/// Least size of the partition: a smaller one cannot be FAT32.
const LEAST_BYTES: usize = 64 << 20;
/// Space left free for files that a person adds.
const SPARE_BYTES: usize = 16 << 20;
const MIB: usize = 1 << 20;
/// Types of the partitions: FAT32 with LBA, and a file system of Linux.
const FAT32: u8 = 0x0c;
const LINUX: u8 = 0x83;
/// Fixed: a tool would take the time.
const VOLUME_ID: u32 = u32::from_be_bytes(*b"Gear");
/// Offset of the card's identifier in the first sector.
const ID: usize = 440;
/// Offset of the first partition's entry, and bytes of each.
const ENTRIES: usize = 446;
const ENTRY: usize = 16;
/// What stands for a place that cylinders cannot name.
const NO_CYLINDERS: [u8; 3] = [0xfe, 0xff, 0xff];
/// Eleven characters, filled with blanks (FAT specification, BS_VolLab).
const LABEL: [u8; 11] = *b"GEARV      ";

/// Returns the image of a card with these files, and with the bytes of a disk in the second
/// partition, if there are any.
pub(super) fn image(files: &[CardFile], disk: &[u8]) -> Result<Vec<u8>> {
    let content: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    // The table of clusters takes less than a hundredth.
    let size = (content + content / 64 + SPARE_BYTES)
        .max(LEAST_BYTES)
        .next_multiple_of(MIB);
    let volume = volume(files, size)?;
    let mut image = partition_table(size, disk.len())?;
    image.resize(FIRST_SECTOR * SECTOR, 0);
    image.extend(volume);
    image.extend(disk);
    image.resize(image.len().next_multiple_of(MIB), 0);
    Ok(image)
}

/// Returns the bytes of the second partition.
pub(super) fn second_partition(image: &[u8]) -> Option<&[u8]> {
    let entry = image.get(ENTRIES + ENTRY..)?.get(..ENTRY)?;
    let number = |at: usize| -> Option<usize> {
        let bytes = entry.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let (first, count) = (number(8)?, number(12)?);
    image.get(first * SECTOR..(first + count) * SECTOR)
}

/// Tells whether the first sector of a card is that of an image made here.
pub(super) fn is_ours(sector: &[u8]) -> bool {
    let (id, end) = (sector.get(ID..ID + 4), sector.get(SECTOR - 2..));
    id == Some(&VOLUME_ID.to_le_bytes()) && end == Some(&[0x55, 0xaa])
}

/// Makes the master boot record with a partition of `files` bytes, and one of `disk` bytes behind
/// it, if there are any. No code is in it, only the card's identifier and the entries.
fn partition_table(files: usize, disk: usize) -> Result<Vec<u8>> {
    let mut sector = vec![0; SECTOR];
    sector[ID..ID + 4].copy_from_slice(&VOLUME_ID.to_le_bytes());
    sector[ENTRIES..][..ENTRY].copy_from_slice(&entry(FAT32, FIRST_SECTOR, files)?);
    if disk != 0 {
        let first = FIRST_SECTOR + files / SECTOR;
        sector[ENTRIES + ENTRY..][..ENTRY].copy_from_slice(&entry(LINUX, first, disk)?);
    }
    sector[510..512].copy_from_slice(&[0x55, 0xaa]);
    Ok(sector)
}

/// Makes a partition's entry: not bootable by BIOS, no cylinders, type, first sector, sectors.
fn entry(kind: u8, first: usize, bytes: usize) -> Result<[u8; ENTRY]> {
    let too_large = "the card would have 2 TiB or more";
    let first = u32::try_from(first).context(too_large)?;
    let count = u32::try_from(bytes.div_ceil(SECTOR)).context(too_large)?;
    let mut entry = [0; ENTRY];
    entry[1..4].copy_from_slice(&NO_CYLINDERS);
    entry[4] = kind;
    entry[5..8].copy_from_slice(&NO_CYLINDERS);
    entry[8..12].copy_from_slice(&first.to_le_bytes());
    entry[12..].copy_from_slice(&count.to_le_bytes());
    Ok(entry)
}

/// Makes a FAT32 file system of this size with the files.
fn volume(files: &[CardFile], size: usize) -> Result<Vec<u8>> {
    let mut disk = Cursor::new(vec![0; size]);
    let options = FormatVolumeOptions::new()
        .fat_type(FatType::Fat32)
        .bytes_per_cluster(512)
        .volume_id(VOLUME_ID)
        .volume_label(LABEL);
    fatfs::format_volume(&mut disk, options)?;
    fill(&mut disk, files)?;
    Ok(disk.into_inner())
}

/// Writes the files, with their folders, to a file system. The end of the function unmounts the
/// file system, which writes what is left.
fn fill(disk: &mut Cursor<Vec<u8>>, files: &[CardFile]) -> Result<()> {
    let system = FileSystem::new(disk, FsOptions::new())?;
    let root = system.root_dir();
    for (name, bytes) in files {
        for (end, _) in name.match_indices('/') {
            root.create_dir(&name[..end])
                .with_context(|| format!("{name} cannot be on a card"))?;
        }
        let mut file = root
            .create_file(name)
            .with_context(|| format!("{name} cannot be on a card"))?;
        file.write_all(bytes)
            .with_context(|| format!("{name} does not fit on the card"))?;
    }
    Ok(())
}

/// Returns a file of an image, as a board's firmware would read it.
pub(super) fn read(image: &[u8], name: &str) -> Result<Vec<u8>> {
    let volume = image.get(FIRST_SECTOR * SECTOR..).context("no partition")?;
    let system = FileSystem::new(Cursor::new(volume.to_vec()), FsOptions::new())?;
    let mut bytes = Vec::new();
    system.root_dir().open_file(name)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

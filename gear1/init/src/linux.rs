//! The arm64 Linux `Image` (Linux, Documentation/arch/arm64/booting.rst) and where a payload goes.
//!
//! Invariant: what [`place`] returns lies inside the VM's memory and does not overlap.
//!
//! The order is kernel, initrd, device tree. The kernel's bss, which its header counts, has no
//! bytes in the file and is zeroed by the kernel, so whatever lies in it is lost.
//!
//! Requirements: G1-BOOT-004.

use alloc::vec::Vec;
use core::ops::Range;

use gearv_manifest::{Archive, Member, Payload, Vm};

use crate::refusal::{Refusal, refusal};

#[cfg(test)]
mod tests;

/// The header, which ends with this magic and a word that is reserved.
const HEADER_SIZE: usize = 64;
const MAGIC: &[u8] = b"ARM\x64";
/// Load offset of kernels before 3.17, whose `image_size` is 0: their bss is not known, and lies
/// behind the file.
const OLD_TEXT_OFFSET: u64 = 0x8_0000;
/// Space between the loaded files, and the alignment of the device tree and the initrd. A page of
/// 64 KiB holds no two of them, whatever page size the guest uses.
const GAP: u64 = 0x1_0000;

/// A file's place in a VM's memory, from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The file.
    pub file: Member<'a>,
    /// Offset of the kernel.
    pub offset: u64,
}

/// Offsets from the start of a VM's memory of all files that the VM starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Kernel and initrd, or the flat image.
    pub pieces: Vec<Piece<'a>>,
    /// The initrd; empty if there is none.
    pub initrd: Range<u64>,
    /// Offset of the device tree, if there is one.
    pub device_tree: Option<u64>,
    /// The first instruction.
    pub entry: u64,
}

/// Finds room for the VM's payload and for a device tree of `tree_size` bytes, if it has one. Only
/// offsets are computed: the files are copied once all VMs have a place.
pub fn place<'a>(
    vm: &Vm<'a>,
    archive: &Archive<'a>,
    tree_size: Option<u64>,
) -> Result<Placed<'a>, Refusal> {
    let space = Space::new(vm, archive, tree_size);
    match vm.payload {
        Payload::Linux {
            kernel,
            initrd,
            cmdline: _,
        } => space.place_linux(kernel, initrd),
        Payload::Flat {
            image,
            load_offset,
            entry_offset,
            cmdline: _,
        } => space.place_flat(image, load_offset, entry_offset),
    }
}

/// The memory of a VM before its payload has a place.
struct Space<'s, 'a> {
    vm: &'s Vm<'a>,
    archive: &'s Archive<'a>,
    /// Bytes up to the device tree.
    room: u64,
    device_tree: Option<u64>,
}

impl<'s, 'a> Space<'s, 'a> {
    /// Divides the memory: the device tree lies at the end, where no payload's bss reaches it. A
    /// tree that does not fit leaves no room at all, and any payload is refused then.
    fn new(vm: &'s Vm<'a>, archive: &'s Archive<'a>, tree_size: Option<u64>) -> Self {
        let size = vm.memory.bytes;
        let room = tree_size.map_or(Some(size), |tree| {
            Some(size.checked_sub(tree)? & !(GAP - 1))
        });
        Self {
            vm,
            archive,
            room: room.unwrap_or(0),
            device_tree: tree_size.and(room),
        }
    }
    /// Places a kernel at the offset that its header asks for, and the initrd behind it.
    fn place_linux(&self, kernel: &str, initrd: Option<&str>) -> Result<Placed<'a>, Refusal> {
        if self.device_tree.is_none() {
            let name = self.vm.name;
            return Err(refusal!(
                Archive,
                "dtb/{name}: missing in the boot archive: build the image again"
            ));
        }
        let file = find(self.archive, self.vm, "kernel", kernel)?;
        let (offset, end) = kernel_extent(&file, self.vm)?;
        check_room(self.vm, "kernel", end, self.room)?;
        let mut pieces = alloc::vec![Piece { file, offset }];
        let mut range = 0..0;
        if let Some(initrd) = initrd {
            let file = find(self.archive, self.vm, "initrd", initrd)?;
            let offset = end.next_multiple_of(GAP);
            range = offset..offset.saturating_add(length(&file));
            check_room(self.vm, "initrd", range.end, self.room)?;
            pieces.push(Piece { file, offset });
        }
        Ok(Placed {
            pieces,
            initrd: range,
            device_tree: self.device_tree,
            entry: offset,
        })
    }

    /// Places a flat image at the manifest's offset. Its bss is not known: the device tree alone
    /// lies behind it, as far away as memory goes.
    fn place_flat(&self, image: &str, offset: u64, entry: u64) -> Result<Placed<'a>, Refusal> {
        let file = find(self.archive, self.vm, "image", image)?;
        let end = offset.saturating_add(length(&file));
        check_room(self.vm, "image", end, self.room)?;
        Ok(Placed {
            pieces: alloc::vec![Piece { file, offset }],
            initrd: 0..0,
            device_tree: self.device_tree,
            entry: offset + entry,
        })
    }
}

/// Returns where the kernel begins and ends, its bss included. Header fields are little-endian: the
/// offset at 8, the size in memory at 16.
fn kernel_extent(file: &Member<'_>, vm: &Vm<'_>) -> Result<(u64, u64), Refusal> {
    let word = |at: usize| {
        let bytes = file.data.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    check_magic(file, vm)?;
    let (offset, size) = match (word(8), word(16)) {
        // Kernels before 3.17 leave the size 0, and the offset in the byte order of the kernel
        // (Linux, Documentation/arch/arm64/booting.rst).
        (Some(_), Some(0)) => (OLD_TEXT_OFFSET, length(file)),
        // planted: an initrd lies over the kernel's bss
        (Some(offset), Some(size)) => (offset, size.max(length(file))),
        _ => return Err(bad_kernel(file, vm, "is shorter than its header")),
    };
    let end = offset
        .checked_add(size)
        .ok_or_else(|| bad_kernel(file, vm, "has a damaged header"))?;
    Ok((offset, end))
}

/// Refuses a file without the magic of a header. The message names the usual mistake: a
/// distribution ships `Image.gz`, which a boot loader would unpack and init does not.
fn check_magic(file: &Member<'_>, vm: &Vm<'_>) -> Result<(), Refusal> {
    let tail = file.data.get(HEADER_SIZE - 8..);
    if tail.is_some_and(|tail| tail.starts_with(MAGIC)) {
        return Ok(());
    }
    let what = "is no arm64 Linux Image: unpack it if it is compressed";
    Err(bad_kernel(file, vm, what))
}

/// Makes the refusal of a file that a VM's `kernel` names.
fn bad_kernel(file: &Member<'_>, vm: &Vm<'_>, what: &str) -> Refusal {
    let (vm, file) = (vm.name, file.name);
    refusal!(Archive, "/vms/{vm}: kernel: \"{file}\" {what}")
}

/// Returns a file of the payload, which the manifest's property names.
fn find<'a>(
    archive: &Archive<'a>,
    vm: &Vm<'a>,
    property: &str,
    name: &str,
) -> Result<Member<'a>, Refusal> {
    archive.find(name).ok_or_else(|| {
        refusal!(
            Archive,
            "/vms/{}: {property}: no file \"{name}\" in the boot archive",
            vm.name
        )
    })
}

/// Refuses a payload that ends behind the room it has.
fn check_room(vm: &Vm<'_>, property: &str, end: u64, room: u64) -> Result<(), Refusal> {
    if end <= room {
        return Ok(());
    }
    let (name, need, has) = (vm.name, end.div_ceil(1 << 20), vm.memory.bytes >> 20);
    Err(refusal!(
        Manifest,
        "/vms/{name}: {property}: needs memory up to {need} MiB and a device tree behind it; memory-mib is {has}"
    ))
}

/// Returns a file's size in bytes.
fn length(file: &Member<'_>) -> u64 {
    file.data.len() as u64
}

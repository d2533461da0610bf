//! The two flat images that init loads: the Gear1 runtime and Gear2.
//!
//! A flat image is the segments of a linked program in their order, with a header of their bounds
//! in front. A loader needs no ELF reader, and the runtime can copy Gear2 again.
//!
//! Requirements: G1-BOOT-009.

use gear1_abi::image::{ImageError, ImageHeader};
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;

use crate::layout::FreeMemory;
use crate::refusal::{Refusal, refusal};

/// A flat image whose header has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Flat<'f> {
    /// Checked header.
    pub header: ImageHeader,
    /// Bytes of the file, header included: the link address counts from there.
    file: &'f [u8],
    /// Name for messages.
    name: &'f str,
}

impl<'f> Flat<'f> {
    /// Checks `file`, which must be linked at `base`; `name` is for messages.
    pub fn parse(file: &'f [u8], magic: u64, base: u64, name: &'f str) -> Result<Self, Refusal> {
        let header = ImageHeader::parse(file, magic).map_err(|error| refuse(name, error))?;
        if header.base != base {
            return Err(refuse(name, ImageError::Layout));
        }
        Ok(Self { header, file, name })
    }

    /// Returns the PA of the link address `address` in the image at `image`.
    #[must_use]
    pub fn place(&self, image: Pa, address: u64) -> Pa {
        Pa::new(image.get() + (address - self.header.base))
    }

    /// Takes pages for the image alone, which may hold anything.
    pub fn take(&self, free: &mut FreeMemory) -> Result<Pa, Refusal> {
        free.take(self.size(), PAGE_SIZE, self.name)
    }

    /// Returns the bytes that the image takes in memory, bss included, in whole pages.
    pub const fn size(&self) -> u64 {
        let header = &self.header;
        (header.bss_end - header.base).next_multiple_of(PAGE_SIZE)
    }

    /// Copies the image into pages of its own, its bss zero. The rest of the last page is zero,
    /// too, so that a mapping of whole pages shows nothing else. The text is in memory, and not
    /// only in caches: CPUs fetch its boot page with their MMU off, and fetch the rest past data
    /// caches if CTR_EL0.IDC is 0, which each CPU has for itself. What else they read with their
    /// MMU off, the arguments of secondary CPUs, `start_secondary` cleans.
    pub fn load<M: PhysicalMemory>(
        &self,
        free: &mut FreeMemory,
        memory: &mut M,
    ) -> Result<Pa, Refusal> {
        let (header, size) = (&self.header, self.size());
        let image = self.take(free)?;
        let in_file = (header.data_end - header.base) as usize;
        let in_file = self.file.get(..in_file).unwrap_or(self.file);
        let copied = in_file.len() as u64;
        memory.write(image, in_file);
        // planted: the runtime's code is in caches alone
        memory.clean(image, header.text_end - header.base);
        memory.zero(Pa::new(image.get() + copied), size - copied);
        Ok(image)
    }
}

/// Takes whole pages and fills them with zeroes, in memory and not only in caches: a reader may
/// have its MMU off.
pub fn zeroed<M: PhysicalMemory>(
    free: &mut FreeMemory,
    memory: &mut M,
    size: u64,
    what: &str,
) -> Result<Pa, Refusal> {
    let size = size.next_multiple_of(PAGE_SIZE);
    let start = free.take(size, PAGE_SIZE, what)?;
    memory.wipe(start, size);
    Ok(start)
}

/// Takes whole pages and fills them with zeroes, for readers whose accesses are cacheable.
pub fn zeroed_in_caches<M: PhysicalMemory>(
    free: &mut FreeMemory,
    memory: &mut M,
    size: u64,
    what: &str,
) -> Result<Pa, Refusal> {
    let size = size.next_multiple_of(PAGE_SIZE);
    let start = free.take(size, PAGE_SIZE, what)?;
    memory.zero(start, size);
    Ok(start)
}

/// Says that a table was needed and there was no memory.
pub(crate) fn no_tables() -> Refusal {
    refusal!(Machine, "no memory for translation tables")
}

/// Says what is wrong with an image, and what to do about it.
fn refuse(name: &str, error: ImageError) -> Refusal {
    match error {
        ImageError::Truncated => refusal!(Archive, "{name}: shorter than its header says"),
        ImageError::Magic => refusal!(Archive, "{name}: not the image that belongs there"),
        ImageError::AbiVersion(version) => {
            let (major, minor) = (version >> 16, version & 0xffff);
            let own = gear1_abi::ABI_VERSION >> 16;
            refusal!(
                Archive,
                "{name}: built for ABI {major}.{minor}, this Gear1 has ABI {own}: build all images from one source"
            )
        }
        ImageError::Layout => refusal!(Archive, "{name}: its segments are not where they belong"),
    }
}

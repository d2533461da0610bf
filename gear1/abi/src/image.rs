//! The header at the start of the two flat images that init loads.
//!
//! The Gear1 runtime and Gear2 are linked at fixed addresses and flattened to a
//! binary whose first bytes are this header. Segments follow one another on
//! page boundaries: text (header included), read-only data, data, bss; bss is
//! not in the file.
//!
//! Requirements: G1-BOOT-009.

/// `magic` of the Gear1 runtime.
pub const RUNTIME_MAGIC: u64 = u64::from_le_bytes(*b"GEAR1RT\0");
/// `magic` of Gear2.
pub const GEAR2_MAGIC: u64 = u64::from_le_bytes(*b"GEAR2\0\0\0");

/// Layout of a flat image. All addresses are link addresses (Gear1: EL2 VA,
/// Gear2: IPA) and multiples of 4 KiB, except `entry`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ImageHeader {
    /// [`RUNTIME_MAGIC`] or [`GEAR2_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`] the image was built with.
    pub abi_version: u32,
    /// Zero.
    pub reserved: u32,
    /// Address of this header.
    pub base: u64,
    /// Address of the first instruction.
    pub entry: u64,
    /// End of read-execute text, start of read-only data.
    pub text_end: u64,
    /// End of read-only data, start of data.
    pub rodata_end: u64,
    /// End of data, which is the end of the file, start of bss.
    pub data_end: u64,
    /// End of bss.
    pub bss_end: u64,
    /// Gear1: address of the page that secondary CPUs enter with the MMU off. Gear2: zero.
    pub boot_page: u64,
}

/// Size of [`ImageHeader`] in bytes.
pub const HEADER_SIZE: usize = core::mem::size_of::<ImageHeader>();
const _: () = assert!(HEADER_SIZE == 72);

/// Why a flat image is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The file is shorter than its header or its segments say.
    Truncated,
    /// The magic number is another one.
    Magic,
    /// The ABI's major version is the one given.
    AbiVersion(u32),
    /// Segments are out of order, unaligned, or `entry` is not in the text.
    Layout,
}

impl ImageHeader {
    /// Reads and checks the header of `file`, a flat image with `magic`. Magic and version come
    /// first: the other fields of another version may mean something else.
    pub fn parse(file: &[u8], magic: u64) -> Result<Self, ImageError> {
        if word(file, 0)? != magic {
            return Err(ImageError::Magic);
        }
        let abi_version = word(file, 1)? as u32;
        if !crate::abi_compatible(abi_version) {
            return Err(ImageError::AbiVersion(abi_version));
        }
        let header = Self::read(file)?;
        header.check_layout()?;
        if (file.len() as u64) < header.data_end - header.base {
            return Err(ImageError::Truncated);
        }
        Ok(header)
    }

    /// Reads all fields.
    fn read(file: &[u8]) -> Result<Self, ImageError> {
        Ok(Self {
            magic: word(file, 0)?,
            abi_version: word(file, 1)? as u32,
            reserved: 0,
            base: word(file, 2)?,
            entry: word(file, 3)?,
            text_end: word(file, 4)?,
            rodata_end: word(file, 5)?,
            data_end: word(file, 6)?,
            bss_end: word(file, 7)?,
            boot_page: word(file, 8)?,
        })
    }

    /// Checks that the segments follow one another on pages, so that each can be mapped with rights
    /// of its own, and that the image is entered in its text.
    fn check_layout(&self) -> Result<(), ImageError> {
        let order = [
            self.base,
            self.text_end,
            self.rodata_end,
            self.data_end,
            self.bss_end,
        ];
        let sorted = order.is_sorted() && order.iter().all(|a| a % 4096 == 0);
        match sorted && (self.base..self.text_end).contains(&self.entry) {
            true => Ok(()),
            false => Err(ImageError::Layout),
        }
    }
}

/// Returns a word of the header, by its index. Words are little-endian, as the images' code is.
fn word(file: &[u8], index: usize) -> Result<u64, ImageError> {
    let at = index * 8;
    let bytes = file.get(at..at + 8).ok_or(ImageError::Truncated)?;
    let mut array = [0; 8];
    array.copy_from_slice(bytes);
    Ok(u64::from_le_bytes(array))
}

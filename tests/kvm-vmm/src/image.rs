//! The header of an arm64 `Image` (Linux, `Documentation/arch/arm64/booting.rst`).

#[cfg(test)]
mod tests;

const MAGIC: (usize, &[u8; 4]) = (56, b"ARM\x64");
const HEADER_BYTES: usize = 64;
/// Alignment of RAM for the offset of an image, in bytes.
const ALIGNMENT: u64 = 2 << 20;

/// Facts about an image that a loader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Bytes from an address aligned to 2 MiB to where the image goes.
    pub text_offset: u64,
    /// Bytes from the image's start that must be its own, BSS included.
    pub size: u64,
}

impl Image {
    /// Reads the header of `bytes`.
    ///
    /// # Errors
    ///
    /// If they are not an arm64 image, or more than its header says.
    pub fn read(bytes: &[u8]) -> Result<Image, String> {
        let (at, magic) = MAGIC;
        if bytes.len() < HEADER_BYTES || &bytes[at..at + magic.len()] != magic {
            return Err("no arm64 Image: its magic number is missing".to_owned());
        }
        let word = |at: usize| {
            let word = bytes[at..at + 8].try_into();
            u64::from_le_bytes(word.unwrap_or_default())
        };
        let (text_offset, size) = (word(8), word(16));
        if text_offset >= ALIGNMENT {
            return Err(format!("its text offset {text_offset:#x} is 2 MiB or more"));
        }
        if size < bytes.len() as u64 {
            let length = bytes.len();
            return Err(format!("its header says {size} bytes, it has {length}"));
        }
        Ok(Image { text_offset, size })
    }
}

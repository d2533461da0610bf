use super::Image;

fn image(text_offset: u64, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    bytes[8..16].copy_from_slice(&text_offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&size.to_le_bytes());
    bytes[56..60].copy_from_slice(b"ARM\x64");
    bytes
}

#[test]
fn a_header_is_read() {
    let (text_offset, size) = (0x8_0000, 0x20_0000);
    assert_eq!(
        Image::read(&image(text_offset, size)),
        Ok(Image { text_offset, size })
    );
}

#[test]
fn what_is_no_image_is_refused() {
    let mut bytes = image(0, 128);
    bytes[56] = b'X';
    assert!(Image::read(&bytes).unwrap_err().contains("magic"));
    assert!(Image::read(&image(0, 128)[..63]).is_err());
    assert!(Image::read(&[]).is_err());
}

#[test]
fn a_header_that_does_not_fit_is_refused() {
    assert!(
        Image::read(&image(2 << 20, 128))
            .unwrap_err()
            .contains("offset")
    );
    assert!(
        Image::read(&image(0, 127))
            .unwrap_err()
            .contains("127 bytes")
    );
}

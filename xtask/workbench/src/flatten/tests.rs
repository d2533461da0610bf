use super::*;

/// A program header: virtual address, bytes in the file, bytes in memory.
type Segment<'a> = (u64, &'a [u8], u64);

/// Builds the smallest ELF that holds these segments.
fn elf(segments: &[Segment<'_>]) -> Vec<u8> {
    let headers_end = 64 + 56 * segments.len();
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2, 0, 183, 0, 1, 0, 0, 0]);
    file.extend(0u64.to_le_bytes());
    file.extend(64u64.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.extend([0, 0, 0, 0, 64, 0, 56, 0]);
    file.extend(u16::try_from(segments.len()).unwrap().to_le_bytes());
    file.extend([64, 0, 0, 0, 0, 0]);
    let mut offset = headers_end;
    for (address, data, memory) in segments {
        file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        for word in [
            offset as u64,
            *address,
            *address,
            data.len() as u64,
            *memory,
            1,
        ] {
            file.extend(word.to_le_bytes());
        }
        offset += data.len();
    }
    segments.iter().for_each(|(_, data, _)| file.extend(*data));
    file
}

#[test]
fn segments_lie_where_memory_has_them() {
    let flat = flat_bytes(&elf(&[
        (0x1008, b"data", 4),
        (0x1000, b"text", 4),
        (0x1010, b"", 64),
    ]));
    assert_eq!(flat.unwrap(), b"text\0\0\0\0data");
}

#[test]
fn tail_without_file_bytes_is_left_out() {
    assert_eq!(
        flat_bytes(&elf(&[(0x1000, b"text", 0x4000)])).unwrap(),
        b"text"
    );
}

#[test]
fn nonsense_is_refused() {
    assert!(flat_bytes(b"not an ELF").is_err());
    assert!(flat_bytes(&elf(&[(0x1000, b"", 64)])).is_err());
    assert!(flat_bytes(&elf(&[(0, b"a", 1), (1 << 40, b"b", 1)])).is_err());
}

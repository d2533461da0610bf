//! Tests of frames: what is written is read, and what is no frame is refused.

use super::*;
use crate::testing::Directory;

#[test]
fn a_frame_is_read_as_it_was_written() {
    let directory = Directory::new("frame");
    let path = path(directory.text(), 7);
    let mut frame = Frame::of(create(&path).unwrap()).unwrap();
    let off = Picture::read(Path::new(&path)).unwrap();
    assert!(off.colours.is_empty());
    frame.resize(3, 2).unwrap();
    assert!(frame.contains(1, 1, 2, 1));
    for (x, y, width, height) in [(2, 0, 2, 1), (0, 1, 1, 2), (u32::MAX, 0, 2, 1)] {
        assert!(!frame.contains(x, y, width, height));
    }
    frame.begin_change().unwrap();
    frame.write_row(1, 1, &[1, 2, 3, 0, 4, 5, 6, 0]).unwrap();
    frame.end_change().unwrap();
    let picture = Picture::read(Path::new(&path)).unwrap();
    assert_eq!((picture.width, picture.height), (3, 2));
    assert_eq!(picture.colours[..12], [0; 12]);
    assert_eq!(picture.colours[12..], [3, 2, 1, 6, 5, 4]);
}

/// A program that draws without end, or died while it drew, does not keep the reader.
#[test]
fn a_frame_that_changes_is_read_after_a_while() {
    let directory = Directory::new("frame");
    let path = path(directory.text(), 7);
    let mut frame = Frame::of(create(&path).unwrap()).unwrap();
    frame.resize(1, 1).unwrap();
    frame.begin_change().unwrap();
    let begin = Instant::now();
    assert_eq!(Picture::read(Path::new(&path)).unwrap().colours, [0; 3]);
    assert!(begin.elapsed() >= PATIENCE);
}

#[test]
fn a_frame_has_a_largest_size() {
    let directory = Directory::new("frame");
    let path = path(directory.text(), 7);
    let mut frame = Frame::of(create(&path).unwrap()).unwrap();
    for (width, height) in [(4096, 2161), (u32::MAX, u32::MAX)] {
        assert!(frame.resize(width, height).is_err());
    }
    frame.resize(u32::MAX, 0).unwrap();
    assert!(!frame.contains(0, 0, 1, 0));
    // The next writer's file is another one.
    let next = Frame::of(create(&path).unwrap()).unwrap();
    frame.resize(1, 1).unwrap();
    assert_eq!(Picture::read(Path::new(&path)).unwrap().width, 0);
    drop(next);
    fs::remove_file(&path).unwrap();
    fs::write(&path, [0; 8192]).unwrap();
    assert!(
        Picture::read(Path::new(&path))
            .unwrap_err()
            .contains("no frame")
    );
}

/// The process of a guest has the descriptor, and need not be honest.
#[test]
fn nobody_makes_the_file_longer() {
    let directory = Directory::new("frame");
    let path = path(directory.text(), 7);
    let file = create(&path).unwrap();
    let size = || file.metadata().unwrap().len();
    assert_eq!(size(), LONGEST);
    assert!(file.write_all_at(&[1; 2], LONGEST - 1).is_err());
    assert!(file.write_all_at(&[1], 1 << 40).is_err());
    assert!(file.set_len(LONGEST + 1).is_err());
    assert!(file.set_len(0).is_err());
    assert!(sys::allocate(&file, 0, LONGEST, 1).is_err());
    assert_eq!(size(), LONGEST);
    // The largest frame fits.
    let mut frame = Frame::of(file.try_clone().unwrap()).unwrap();
    frame.resize(4096, 2160).unwrap();
    frame.write_row(0, 2159, &[7; 4 * 4096]).unwrap();
    assert_eq!(Picture::read(Path::new(&path)).unwrap().height, 2160);
}

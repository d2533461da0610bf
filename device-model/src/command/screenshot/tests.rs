//! Tests of pictures: which screen, and a PNG that its own reader takes.

use std::fs::File;
use std::io::BufReader;

use super::*;
use crate::testing::Directory;

#[test]
fn a_vm_may_have_several_screens() {
    assert_eq!(choose("linux", &[4], None), Ok(4));
    assert_eq!(choose("linux", &[4, 5], Some(5)), Ok(5));
    for (channels, wanted, why) in [
        (&[][..], None, "has no screen"),
        (&[4, 5], None, "several screens"),
        (&[4], Some(5), "channel 5 of linux has no screen"),
    ] {
        let error = choose("linux", channels, wanted).unwrap_err().sentence;
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_picture_is_a_png() {
    let directory = Directory::new("png");
    let path = format!("{}/a.png", directory.text());
    let picture = Picture {
        width: 2,
        height: 1,
        colours: vec![1, 2, 3, 4, 5, 6],
    };
    write(&picture, &path).unwrap();
    let decoder = png::Decoder::new(BufReader::new(File::open(&path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut colours = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut colours).unwrap();
    assert_eq!((info.width, info.height, colours), (2, 1, picture.colours));
    let off = Picture {
        width: 0,
        height: 0,
        colours: Vec::new(),
    };
    assert!(write(&off, &path).unwrap_err().sentence.contains("is off"));
}

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::{Disk, command, option};

/// A client that has negotiated.
struct Client(UnixStream);

impl Client {
    /// Negotiates as QEMU does: an unknown option is refused without an end of the connection, and
    /// the reply to the known one has the size.
    fn connect(disk: &Disk, size: u64) -> Client {
        let mut stream = UnixStream::connect(&disk.socket).unwrap();
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..16], *b"NBDMAGICIHAVEOPT");
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        let mut client = Client(stream);
        // The first option is unknown (structured replies), the second one known.
        assert_eq!(client.ask(8), (option::UNSUPPORTED, vec![]));
        let (kind, export) = client.ask(option::GO);
        assert_eq!(
            (kind, &export[2..10]),
            (option::REPLY_INFO, &size.to_be_bytes()[..])
        );
        assert_eq!(client.reply(option::GO), (option::ACK, vec![]));
        client
    }

    /// Sends an option without data, and returns the kind of the reply and its data.
    fn ask(&mut self, option: u32) -> (u32, Vec<u8>) {
        self.0.write_all(b"IHAVEOPT").unwrap();
        self.0.write_all(&option.to_be_bytes()).unwrap();
        self.0.write_all(&0_u32.to_be_bytes()).unwrap();
        self.reply(option)
    }

    /// Reads a reply, which names the option that it answers: a server that mixes them up would
    /// have a client take one answer for another.
    fn reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        let mut head = [0; 20];
        self.0.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(word(8), option);
        let mut data = vec![0; word(16) as usize];
        self.0.read_exact(&mut data).unwrap();
        (word(12), data)
    }

    /// Returns the error and the data read.
    fn request(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> (u32, Vec<u8>) {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(7_u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes).unwrap();
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[8..], 7_u64.to_be_bytes());
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        let length = if kind == command::READ && error == 0 {
            length
        } else {
            0
        };
        let mut data = vec![0; length as usize];
        self.0.read_exact(&mut data).unwrap();
        (error, data)
    }
}

#[test]
fn what_is_flushed_is_in_the_image_and_the_rest_is_lost_with_power() {
    let name = format!("gearv-nbd-{}", std::process::id());
    let image = std::env::temp_dir().join(&name);
    let socket = image.with_extension("socket");
    let content: Vec<u8> = (0..10_000_u32).map(|at| at as u8).collect();
    fs::write(&image, &content).unwrap();
    let disk = Disk::serve(&image, &socket, 1).unwrap();
    let mut client = Client::connect(&disk, 10_000);
    assert_eq!(
        client.request(command::READ, 0, 5, 9_000, &[]),
        (0, content[5..9_005].to_vec())
    );
    // Over the border of two blocks, and the part of one at the end.
    assert_eq!(
        client
            .request(command::WRITE, 0, 4_000, 200, &[0xaa; 200])
            .0,
        0
    );
    assert_eq!(client.request(command::FLUSH, 0, 0, 0, &[]).0, 0);
    assert_eq!(
        client.request(command::WRITE, 1, 9_990, 10, &[0xbb; 10]).0,
        0
    );
    assert_eq!(client.request(command::WRITE_ZEROES, 0, 100, 50, &[]).0, 0);
    assert_eq!(
        client.request(command::READ, 0, 99, 3, &[]),
        (0, vec![99, 0, 0])
    );
    assert_eq!(
        client.request(command::READ, 0, 4_199, 2, &[]).1,
        [0xaa, content[4_200]]
    );
    // Beyond the end, and unknown.
    assert_eq!(
        client.request(command::READ, 0, 9_999, 2, &[]).0,
        super::EINVAL
    );
    assert_eq!(client.request(99, 0, 0, 0, &[]).0, super::EINVAL);
    let mut expected = content;
    expected[4_000..4_200].fill(0xaa);
    expected[9_990..].fill(0xbb);
    assert_eq!(fs::read(&image).unwrap(), expected);
    assert_eq!(disk.lose_power(), super::BLOCK);
    assert_eq!(
        client.request(command::READ, 0, 0, 10_000, &[]),
        (0, expected)
    );
    assert_eq!(disk.counts(), (0, 1));
    fs::remove_file(image).unwrap();
}

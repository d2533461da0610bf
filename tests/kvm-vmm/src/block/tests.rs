use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::MockSplitQueue;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::{Action, End, Request, config};

/// Places of a request's parts in the guest's memory, behind the mock's rings.
const HEADER: u64 = 0x8000;
const DATA: u64 = 0x9000;
const STATUS: u64 = 0xa000;
/// Flags of descriptors (virtio 1.2, 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;

type Part = (u64, u32, u16);

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).unwrap()
}

/// Reads a request of this type, for sector 3, from descriptors.
fn read(memory: &GuestMemoryMmap, kind: u32, parts: &[Part]) -> Result<Request, String> {
    let header = [u64::from(kind), 3];
    for (at, word) in header.into_iter().enumerate() {
        let at = GuestAddress(HEADER + 8 * at as u64);
        memory.write_obj(word.to_le(), at).unwrap();
    }
    let descriptor = |(index, &(address, length, flags)): (usize, &Part)| {
        let is_last = index + 1 == parts.len();
        let flags = if is_last { flags } else { flags | NEXT };
        Descriptor::new(address, length, flags, index as u16 + 1)
    };
    let descriptors = parts.iter().enumerate().map(descriptor);
    let descriptors: Vec<RawDescriptor> = descriptors.map(RawDescriptor::from).collect();
    let queue = MockSplitQueue::new(memory, 16);
    Request::read(queue.build_desc_chain(&descriptors).unwrap())
}

fn status(memory: &GuestMemoryMmap) -> u8 {
    memory.read_obj(GuestAddress(STATUS)).unwrap()
}

#[test]
fn a_read_names_its_place_and_its_buffers() {
    let memory = memory();
    let parts = [
        (HEADER, 16, 0),
        (DATA, 512, WRITE),
        (DATA + 512, 1024, WRITE),
        (STATUS, 1, WRITE),
    ];
    let request = read(&memory, 0, &parts).unwrap();
    assert_eq!(request.action, Action::Read(3 * 512));
    let buffers = [(DATA, 512), (DATA + 512, 1024)];
    let buffers = buffers.map(|(address, length)| (GuestAddress(address), length));
    assert_eq!(request.buffers, buffers);
    assert_eq!(request.length(), 1536);
    memory.write_obj(0xff_u8, GuestAddress(STATUS)).unwrap();
    assert_eq!(request.finish(&memory, End::Done), Ok(1537));
    assert_eq!(status(&memory), 0);
}

#[test]
fn what_did_not_succeed_writes_its_status_alone() {
    let memory = memory();
    let parts = [(HEADER, 16, 0), (DATA, 512, WRITE), (STATUS, 1, WRITE)];
    let request = read(&memory, 0, &parts).unwrap();
    for (end, code) in [(End::Failed, 1), (End::Unsupported, 2)] {
        assert_eq!(request.finish(&memory, end), Ok(1));
        assert_eq!(status(&memory), code);
    }
}

#[test]
fn a_write_returns_its_status_alone() {
    let memory = memory();
    let parts = [(HEADER, 16, 0), (DATA, 512, 0), (STATUS, 1, WRITE)];
    let request = read(&memory, 1, &parts).unwrap();
    assert_eq!(request.action, Action::Write(3 * 512));
    assert_eq!(request.finish(&memory, End::Done), Ok(1));
}

#[test]
fn other_types_have_no_place() {
    let memory = memory();
    let parts = [(HEADER, 16, 0), (STATUS, 1, WRITE)];
    let action = |kind| read(&memory, kind, &parts).unwrap().action;
    assert_eq!(action(4), Action::Flush);
    assert_eq!(action(8), Action::Unknown);
}

#[test]
fn wrong_requests_are_refused() {
    let memory = memory();
    let (header, status) = ((HEADER, 16, 0), (STATUS, 1, WRITE));
    let refused: [(u32, &[Part], &str); 6] = [
        (0, &[header], "less than two"),
        (0, &[(HEADER, 8, 0), status], "no header"),
        (0, &[(HEADER, 16, WRITE), status], "no header"),
        (0, &[header, (STATUS, 1, 0)], "no status"),
        (0, &[header, (DATA, 512, 0), status], "other direction"),
        (1, &[header, (DATA, 512, WRITE), status], "other direction"),
    ];
    for (kind, parts, why) in refused {
        let error = read(&memory, kind, parts).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn addresses_beyond_the_memory_are_errors() {
    let memory = memory();
    let beyond = 0x1_0000;
    let error = read(&memory, 4, &[(beyond, 16, 0), (STATUS, 1, WRITE)]);
    assert!(error.unwrap_err().contains("header"));
    let request = read(&memory, 4, &[(HEADER, 16, 0), (beyond, 1, WRITE)]);
    let error = request.unwrap().finish(&memory, End::Done);
    assert!(error.unwrap_err().contains("status"));
}

#[test]
fn the_configuration_has_sectors_segments_and_blocks() {
    let config = config(1 << 20);
    assert_eq!(config[..8], 2048_u64.to_le_bytes());
    assert_eq!(config[12..16], 126_u32.to_le_bytes());
    assert_eq!(config[20..24], 512_u32.to_le_bytes());
}

//! Tests of the filters: what a thread needs is allowed, what it does not is refused.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};

use seccompiler::SeccompAction;

use super::{Role, program};
use crate::testing::Directory;

/// Runs in a thread whose calls that the filter does not know fail.
fn inside<T: Send>(role: Role, body: impl FnOnce() -> T + Send) -> T {
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    let filter = program(role, refuse).unwrap();
    let body = || {
        seccompiler::apply_filter(&filter).unwrap();
        body()
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

#[test]
fn no_role_opens_files_or_sends_signals_elsewhere() {
    for role in [Role::Hub, Role::Device, Role::Sockets] {
        let refused = inside(role, || {
            let open = File::open("/etc/passwd").map(drop);
            let socket = UnixStream::pair().map(drop);
            let child = std::process::Command::new("/bin/true").spawn().map(drop);
            [open, socket, child].map(|result| result.unwrap_err().kind())
        });
        assert_eq!(refused, [ErrorKind::PermissionDenied; 3], "{role:?}");
    }
}

#[test]
fn a_device_reads_writes_and_allocates() {
    let directory = Directory::new("sandbox");
    let path = directory.file("disk", &[1; 4096]);
    let file = File::options().read(true).write(true).open(path).unwrap();
    inside(Role::Device, || {
        file.write_all_at(&[2; 16], 100).unwrap();
        file.sync_data().unwrap();
        crate::sys::allocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, 8192).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(crate::sys::random(&mut bytes), 16);
        assert_eq!(vec![7_u8; 1 << 22].len(), 1 << 22);
        std::thread::yield_now();
        std::thread::sleep(std::time::Duration::from_millis(1));
    });
}

#[test]
fn a_device_moves_several_pieces_at_once() {
    let Ok(mut overlap) = crate::overlap::Overlap::new() else {
        return;
    };
    let directory = Directory::new("sandbox");
    let file = File::open(directory.file("disk", &[1; 4096])).unwrap();
    let moved = inside(Role::Device, || {
        let transfer = || crate::overlap::Transfer {
            file: &file,
            direction: crate::sys::Direction::Read,
            vectors: &[],
            offset: 0,
        };
        overlap.run(&[transfer(), transfer()]).unwrap()
    });
    assert_eq!(moved, [0, 0]);
}

#[test]
fn sockets_are_accepted_and_used() {
    let directory = Directory::new("sandbox");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"a").unwrap();
    inside(Role::Sockets, || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
    });
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"a");
}

//! Tests of devices whose function is another program: beside Debian's qemu-storage-daemon
//! ([`daemon`]) and virtiofsd ([`filesystem`]), which are parts of the suite, and beside a back end
//! that breaks the rules ([`faults`]).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::EventFd;

use super::session::Bounds;
use super::{BOUNDS, VIRTIO_ID_BLOCK, VhostUser};
use crate::board::{DeviceKind, DeviceNode};
use crate::hub;
use crate::testing::{self, Guest};
use crate::worker::Arrival;

mod absence;
mod daemon;
mod debian;
mod fake;
mod faults;
mod filesystem;
mod graphics;
mod program;
mod screen;

/// Longest time in which the slowest machine gets on.
const LONG: Duration = Duration::from_secs(60);
const BLOCK_CONFIG: usize = 60;

fn node(socket: &str) -> DeviceNode {
    DeviceNode {
        channel: 2,
        kind: DeviceKind::VhostUser(VIRTIO_ID_BLOCK),
        backend: socket.into(),
        queues: 1,
        config_size: BLOCK_CONFIG,
        ..testing::node()
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn bounds(patience: Duration) -> Bounds {
    Bounds { patience, ..BOUNDS }
}

/// Returns bounds beside a hostile guest: the backend keeps requests that it cannot parse for ever,
/// and each reset waits for them, which would take 5 s a time.
fn impatient() -> Bounds {
    Bounds {
        patience: LONG,
        finish: Duration::from_millis(100),
        ..BOUNDS
    }
}

/// Opens backends as a thread of GDM's does, one after the other, until the socket's folder is
/// gone.
fn arrivals(node: DeviceNode, bounds: Bounds) -> Arrival {
    let (sender, arrival) = mpsc::channel();
    std::thread::spawn(move || {
        let kick = EventFd::new(0).unwrap();
        let folder = Path::new(&node.backend).parent().unwrap().to_owned();
        let run_directory = folder.to_str().unwrap().to_owned();
        while folder.exists() {
            let Ok(backend) = VhostUser::open_within(&node, &run_directory, bounds) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            if !hub::deliver(Box::new(backend), &sender, &kick) {
                return;
            }
        }
    });
    arrival
}

/// Lets the device work until something holds.
fn until(guest: &mut Guest, what: &str, holds: impl Fn(&Guest) -> bool) {
    let begin = Instant::now();
    while !holds(guest) {
        assert!(begin.elapsed() < LONG, "{what} does not come");
        guest.turn();
        std::thread::sleep(Duration::from_micros(200));
    }
}

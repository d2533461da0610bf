//! Debian's programs that serve devices: found by the variables that the suite sets, started on a
//! directory of a test's, and ended with the test.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::super::session::Bounds;
use super::{LONG, arrivals, bounds};
use crate::backend::Absent;
use crate::board::DeviceNode;
use crate::testing::{Directory, Guest};
use crate::transport::register;

/// Returns the path that a variable of the suite names.
pub(super) fn path(variable: &str) -> PathBuf {
    env::var_os(variable).expect(variable).into()
}

/// Returns the command of a program, which may be of a newer Debian than this machine: its
/// libraries come with it.
pub(super) fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    if let Some(libraries) = env::var_os("GEARV_LIBRARIES") {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

/// A program that serves a device.
pub(super) struct Daemon {
    pub(super) child: Child,
    /// Socket, disk and shared folder, which outlive the process.
    pub(super) directory: Directory,
    run: fn(&Directory) -> Child,
}

impl Daemon {
    /// Starts the program by `run`.
    pub(super) fn start(directory: Directory, run: fn(&Directory) -> Child) -> Self {
        let child = run(&directory);
        Self {
            child,
            directory,
            run,
        }
    }

    /// Kills the program, as `kill -9` does.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts another one in the same directory. The program must have ended.
    pub(super) fn restart(&mut self) {
        self.child = (self.run)(&self.directory);
    }

    /// Starts the program whenever it has ended; returns how often that was.
    pub(super) fn keep_alive(&mut self, is_over: &AtomicBool) -> u32 {
        let mut ends = 0;
        while !is_over.load(Ordering::Relaxed) {
            if self.child.try_wait().unwrap().is_some() {
                self.restart();
                ends += 1;
            }
            thread::sleep(Duration::from_millis(1));
        }
        ends
    }

    /// Returns the path of the socket.
    pub(super) fn socket(&self) -> String {
        format!("{}/socket", self.directory.text())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a guest whose GDM has found a device of this type behind the node's socket.
pub(super) fn guest_of(node: DeviceNode, device_id: u32) -> Guest {
    guest_within(node, device_id, bounds(LONG))
}

/// Returns a guest as [`guest_of`] does, whose GDM waits no longer than this for the program.
pub(super) fn guest_within(node: DeviceNode, device_id: u32, bounds: Bounds) -> Guest {
    let mut guest = Guest::new(Box::new(Absent));
    guest.kill_gdm();
    guest.start_gdm_of(arrivals(node, bounds));
    assert_eq!(guest.read(register::DEVICE_ID), device_id);
    guest
}

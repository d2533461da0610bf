//! Opening of backends, by a thread for each device: a thread that serves a guest may open nothing.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use vmm_sys_util::eventfd::EventFd;

use super::{LATE_STEP, Options, PATIENCE, STEP, enter, spawn};
use crate::backend::vhost_user::program::Program;
use crate::backend::{self, Backend};
use crate::board::DeviceNode;
use crate::sandbox::Role;
use crate::worker::{Arrival, Wiring};

/// Starts to open the backend, which wakes the device's thread when it is there, and the next one
/// when that is lost. The opening thread is separate: a thread that serves a guest may open
/// nothing.
pub(super) fn begin_to_open(
    options: &Options,
    node: &DeviceNode,
    wiring: &Wiring,
) -> Result<Arrival, String> {
    let kick = wiring.kick.try_clone().map_err(|error| error.to_string())?;
    let (sender, arrival) = mpsc::channel();
    let (name, run_directory) = (wiring.name.clone(), options.run_directory.clone());
    let wanted = node.clone();
    let confine: fn() = match options.sandbox {
        true => || enter(true, Role::Sockets),
        false => || enter(false, Role::Sockets),
    };
    spawn(&format!("open {name}"), move || {
        let mut program = Program::of(&wanted, &name, &run_directory, confine);
        let open = || backend::open(&wanted, &run_directory, confine);
        while deliver(open_beside(&name, &mut program, open), &sender, &kick) {
            // Nothing of the program is in progress when the next one begins.
            program.as_mut().map(Program::end);
        }
    })?;
    Ok(arrival)
}

/// Opens the backend beside its program, which is started if GDM is to do that.
fn open_beside(
    name: &str,
    program: &mut Option<Program>,
    open: impl Fn() -> Result<Box<dyn Backend>, String>,
) -> Box<dyn Backend> {
    open_patiently(name, || {
        program.as_mut().map_or(Ok(()), Program::run)?;
        open()
    })
}

/// Gives a backend to the device's thread; returns when another one is needed, with false if none
/// ever will be.
pub(crate) fn deliver(
    mut backend: Box<dyn Backend>,
    sender: &mpsc::Sender<Box<dyn Backend>>,
    kick: &EventFd,
) -> bool {
    let (lease, end) = mpsc::channel();
    let can_be_followed = backend.hold(lease);
    // The channel first: the thread that is woken takes the backend out of it.
    if sender.send(backend).is_err() {
        return false;
    }
    let _ = kick.write(1);
    if !can_be_followed {
        return false;
    }
    // The lease is never sent anything: this returns when the backend is dropped.
    let _ = end.recv();
    thread::sleep(STEP);
    true
}

/// Opens the backend, as often as it takes. Complaints come ever more seldom.
pub(super) fn open_patiently(
    name: &str,
    mut open: impl FnMut() -> Result<Box<dyn Backend>, String>,
) -> Box<dyn Backend> {
    let start = Instant::now();
    let mut complaint = PATIENCE;
    loop {
        let error = match open() {
            Ok(backend) => return backend,
            Err(error) => error,
        };
        if start.elapsed() >= complaint {
            eprintln!("gdm: {name}: {error}; tried again");
            complaint = complaint.saturating_mul(2);
        }
        // At boot a backend appears within seconds; later only a person's repair helps.
        let is_early = start.elapsed() < PATIENCE;
        thread::sleep(if is_early { STEP } else { LATE_STEP });
    }
}

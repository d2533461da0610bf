//! The process of a guest: the threads of the guest's devices, and nothing else.
//!
//! GDM starts the process as root from its own program. The process maps its guest's RAM and the
//! guest's own pages of what is shared with Gear2 and Gear1, takes its devices' lines, and then
//! gives up all rights before it reads anything of the guest ([`sandbox::confine`]). Backends are
//! opened by GDM, and come as descriptors by the link.
//!
//! Invariant: whatever the guest makes of this process, the process reaches this guest's memory,
//! devices and pages alone.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::EventFd;

use crate::backend::block::Medium;
use crate::backend::{self, Awaited, Backend, Parts};
use crate::board::{Board, DeviceKind, DeviceNode};
use crate::hardware::Machine;
use crate::hub::{BEAT, PATIENCE, STEP, deliver, filter, open_patiently, spawn};
use crate::link::{Link, Message};
use crate::mapping::counter;
use crate::options::Options;
use crate::order::{Answer, Order};
use crate::orders::Desk;
use crate::progress::{self, Health, Progress, Watch};
use crate::sandbox::{self, Role};
use crate::state::{DeviceState, Word};
use crate::sys::{self, Wait};
use crate::transport::Transport;
use crate::worker::{Arrival, Wiring, Worker};

#[cfg(test)]
mod tests;

/// Longest time for which a guest's start waits for a program that runs and does not serve yet.
const LONGEST_START: Duration = Duration::from_secs(60);
/// Between two looks for the answer of a device that was given an order.
const ANSWER_STEP: Duration = Duration::from_millis(20);

/// A device, as the process's own thread sees it.
struct Device {
    /// The device's page: the next process learns from it for how long none lived.
    state: DeviceState,
    /// Descriptors of the backend that is on its way.
    parts: Parts,
    /// Takes the backend to the thread that makes it.
    backends: Sender<Parts>,
    /// Whether the program runs that GDM starts for the device.
    runs: Arc<AtomicBool>,
    /// Takes orders to the device's thread.
    desk: Desk,
    /// Gives the answer to the order that the thread has.
    answer: Option<Receiver<Answer>>,
}

impl Device {
    /// Has the device's thread do an order. A medium is made here, as that thread may make nothing.
    fn order(&mut self, order: Order) {
        self.answer = Some(match order {
            Order::Attach(_) => match Medium::of(&mut std::mem::take(&mut self.parts)) {
                Ok(medium) => self.desk.insert(medium),
                Err(error) => {
                    let (answer, answered) = mpsc::channel();
                    let _ = answer.send(Err(error));
                    answered
                }
            },
            order => self.desk.ask(order),
        });
    }
}

/// The process's own thread, which takes messages of GDM and judges the other threads.
struct Guest {
    /// Way to GDM, whose end is the end of this process as well.
    link: Arc<Link>,
    /// By channel.
    devices: BTreeMap<usize, Device>,
    /// Judges the threads of the devices.
    watch: Watch,
}

/// Serves the devices of the VM with this number, as the process that GDM has started for that.
///
/// The order matters. Mappings and lines need root, so they come first. Rights go before system
/// calls, since giving up rights takes calls that the filter refuses. No thread of a device starts
/// before both are gone.
pub(crate) fn run(options: &Options, vm: usize) -> Result<Infallible, String> {
    let link = take_link();
    let board = Board::read(&options.tree)?;
    let devices = board.devices.iter().filter(|device| device.vm_id == vm);
    let devices: Vec<DeviceNode> = devices.cloned().collect();
    let machine = Machine::of_guest(options.hardware, &board, &devices)?;
    let mut wirings = Vec::new();
    for device in &devices {
        let kick = take_kick(&link, device.channel)?;
        wirings.push(machine.wiring(device, kick, options.spin)?);
    }
    give_up_rights(options, vm)?;
    let mut guest = Guest {
        link: Arc::new(link),
        devices: BTreeMap::new(),
        watch: Watch::default(),
    };
    for (node, wiring) in devices.into_iter().zip(wirings) {
        guest.start_device(options, node, wiring)?;
    }
    guest.run()
}

/// Takes the one descriptor that GDM has given to the process ([`sys::inherit_none`]): the link.
fn take_link() -> Link {
    // SAFETY: GDM has put an end of the link there, for nothing else; a process comes here once.
    Link::of(unsafe { sys::own_input() })
}

/// Confines the process to what serving the guest takes. The limit of descriptors is raised while
/// root may, since descriptors are the guest's own: one for each of its connections.
fn give_up_rights(options: &Options, vm: usize) -> Result<(), String> {
    sys::raise_descriptor_limit().map_err(|error| error.to_string())?;
    // All threads of the process inherit this. A kernel that refuses has interrupts that wait do so
    // for 50 us more, and every guest is served.
    let _ = sys::end_sleeps_in_time();
    let account = sandbox::account_of_guest(vm);
    sandbox::confine(account, &options.run_directory).map_err(|error| error.to_string())?;
    filter(options.sandbox, Role::Guest);
    Ok(())
}

/// Takes the descriptor by which GDM wakes the thread of a device.
fn take_kick(link: &Link, channel: usize) -> Result<EventFd, String> {
    let message = link.receive().map_err(|error| error.to_string())?;
    match message {
        Some((Message::Kick(of), Some(kick))) if of == channel => Ok(sys::event_of(kick)),
        _ => Err("gdm did not say how it wakes a device".into()),
    }
}

impl Guest {
    /// Starts the threads of a device: one serves it, the other makes its backends.
    fn start_device(
        &mut self,
        options: &Options,
        node: DeviceNode,
        mut wiring: Wiring,
    ) -> Result<(), String> {
        let desk = wiring.desk().map_err(|error| error.to_string())?;
        let state = wiring.region.devices.get(wiring.channel);
        let state = DeviceState::new(state.ok_or("no such channel")?);
        let (backends, parts) = mpsc::channel();
        let arrival = begin_to_make(options, &node, &wiring, &self.link, parts)?;
        let progress = self.watch.add(&wiring.name);
        let runs = Arc::new(AtomicBool::new(!node.command.is_empty()));
        self.devices.insert(
            node.channel,
            Device {
                state,
                parts: Parts::default(),
                backends,
                runs: Arc::clone(&runs),
                desk,
                answer: None,
            },
        );
        let (options, name) = (options.clone(), wiring.name.clone());
        spawn(&name, move || {
            let coming = Coming { arrival, runs };
            serve_device(&options, &node, wiring, coming, &progress);
        })
    }

    /// Takes messages for ever, and tells GDM at each beat that all threads make progress.
    fn run(mut self) -> ! {
        let mut beat = Instant::now();
        self.live();
        loop {
            if beat.elapsed() >= BEAT {
                beat = Instant::now();
                self.live();
            }
            let wait = Wait {
                fd: self.link.as_raw_fd(),
                read: true,
                write: false,
            };
            let left = match self.pass_answers() {
                true => ANSWER_STEP,
                false => BEAT.saturating_sub(beat.elapsed()),
            };
            if sys::wait(&[wait], left.as_millis() as i32 + 1) == [true] && !self.take_message() {
                // GDM has ended, or says what this process does not know.
                sys::exit_at_once(1);
            }
        }
    }

    /// Says that the process lives, if all of it does.
    fn live(&mut self) {
        match self.watch.look() {
            Health::Well => {}
            Health::Late => return,
            Health::Stuck(name) => progress::give_up(&name),
        }
        for device in self.devices.values() {
            // planted: the heartbeat does not say when gdm lived
            device.state.set(Word::LastSeen, counter());
        }
        // GDM's end is seen where messages are taken.
        let _ = self.link.send(Message::Beat, None);
    }

    /// Takes a message; false if no other can be taken.
    fn take_message(&mut self) -> bool {
        let Ok(Some((message, part))) = self.link.receive() else {
            return false;
        };
        let (Message::Part(channel)
        | Message::Backend(channel)
        | Message::Runs(channel, _)
        | Message::Order(channel, _)) = message
        else {
            return false;
        };
        let Some(device) = self.devices.get_mut(&channel) else {
            return false;
        };
        match (message, part) {
            (Message::Part(_), Some(part)) => device.parts.push(OwnedFd::from(part)),
            (Message::Backend(_), None) => {
                // The thread that makes backends ends when none can follow.
                let _ = device.backends.send(std::mem::take(&mut device.parts));
            }
            (Message::Runs(_, runs), None) => device.runs.store(runs, Ordering::Relaxed),
            (Message::Order(_, order), None) => device.order(order),
            _ => return false,
        }
        true
    }

    /// Passes on the answers of devices that have obeyed; true if others are awaited.
    fn pass_answers(&mut self) -> bool {
        let mut is_awaiting = false;
        for (channel, device) in &mut self.devices {
            let Some(answered) = &device.answer else {
                continue;
            };
            let answer = match answered.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) => {
                    is_awaiting = true;
                    continue;
                }
                Err(TryRecvError::Disconnected) => Err("the device's thread has ended".into()),
            };
            device.answer = None;
            let _ = self.link.send(Message::Answer(*channel, answer), None);
        }
        is_awaiting
    }
}

/// Starts to make backends of the descriptors that arrive. The thread is separate, as a backend may
/// take its time: its program has to answer.
fn begin_to_make(
    options: &Options,
    node: &DeviceNode,
    wiring: &Wiring,
    link: &Arc<Link>,
    parts: Receiver<Parts>,
) -> Result<Arrival, String> {
    let kick = wiring.kick.try_clone().map_err(|error| error.to_string())?;
    let (sender, arrival) = mpsc::channel();
    let (name, node, link) = (wiring.name.clone(), node.clone(), Arc::clone(link));
    let confine: fn(Role) = match options.sandbox {
        true => |role| filter(true, role),
        false => |_| {},
    };
    spawn(&format!("make {name}"), move || {
        let make = || make_next(&node, &parts, &link, confine);
        while deliver(open_patiently(&name, make), &sender, &kick) {
            // GDM's end is seen by the process's own thread.
            let _ = link.send(Message::Next(node.channel), None);
        }
    })?;
    Ok(arrival)
}

/// Makes a backend of the descriptors that come next, and asks for others if that fails.
fn make_next(
    node: &DeviceNode,
    parts: &Receiver<Parts>,
    link: &Link,
    confine: fn(Role),
) -> Result<Box<dyn Backend>, String> {
    let Ok(parts) = parts.recv() else {
        // The process ends.
        thread::park();
        return Err("no backend will come".into());
    };
    backend::make(node, parts, confine).inspect_err(|_| {
        let _ = link.send(Message::Again(node.channel), None);
    })
}

/// Serves a device for ever. A fault of ours in it breaks this device only.
///
/// A set-up that fails, or panics, ends the process at its next look. The set-up needs descriptors,
/// a thread and memory, and nothing of the guest or the backend, so that its failure is one of the
/// process as a whole. The next process tries again, and the guest's requests wait meanwhile.
/// DEVICE_NEEDS_RESET would lose these requests, and Linux does not handle it.
fn serve_device(
    options: &Options,
    node: &DeviceNode,
    wiring: Wiring,
    coming: Coming,
    progress: &Arc<Progress>,
) {
    // planted: a device whose set-up fails is dead
    progress::prepare(progress);
    let (name, region) = (wiring.name.clone(), wiring.region);
    let [_, thread] = sys::own_ids();
    if let Some(page) = region.devices.get(wiring.channel) {
        DeviceState::new(page).set(Word::Thread, thread.into());
    }
    let mut worker = match take_up(node, wiring, coming) {
        Ok(worker) => worker,
        Err(error) => {
            eprintln!("gdm: {name}: set-up: {error}");
            return;
        }
    };
    let role = match node.kind {
        DeviceKind::VhostUser(_) => Role::FrontEnd,
        DeviceKind::Input => Role::Input,
        DeviceKind::Vsock => Role::Vsock,
        _ => Role::Device,
    };
    filter(options.sandbox, role);
    if let Some(inside) = options.inside {
        inside(node, region);
    }
    loop {
        match catch_unwind(AssertUnwindSafe(|| worker.run())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => worker.break_down(&error.to_string()),
            Err(_) => worker.break_down("this is a bug in gdm; the device needs a reset"),
        }
        thread::sleep(STEP);
    }
}

/// A backend that is on its way.
struct Coming {
    arrival: Arrival,
    /// Whether the program runs that GDM starts for the device.
    runs: Arc<AtomicBool>,
}

impl Coming {
    /// Waits for the backend, for the first time or, for a program that runs, for the longer one: a
    /// guest that finds no device at its start has none until its next one.
    fn wait(&self, name: &str, [usual, longest]: [Duration; 2]) -> Option<Box<dyn Backend>> {
        let begin = Instant::now();
        let mut is_long = false;
        loop {
            match self.arrival.recv_timeout(STEP) {
                Ok(backend) => return Some(backend),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let waited = begin.elapsed();
            if waited < usual {
                continue;
            }
            // planted: a program that starts slowly costs its guest the device
            if waited >= longest || !self.runs.load(Ordering::Relaxed) {
                return None;
            }
            if !is_long {
                eprintln!("gdm: {name}: its program starts slowly, and the guest waits");
                is_long = true;
            }
        }
    }
}

/// Waits for the backend for a while, then continues without it.
fn take_up(node: &DeviceNode, wiring: Wiring, coming: Coming) -> Result<Worker, String> {
    let state = wiring.region.devices.get(wiring.channel);
    let state = DeviceState::new(state.ok_or("no such channel")?);
    let device_id = Awaited::new(node.kind, 0, Vec::new()).identity().device_id;
    // Of a device that a driver uses, requests alone wait for the backend.
    let is_resumed = state.resumable(device_id);
    if !is_resumed {
        Transport::announce(&wiring.page, state, device_id);
    }
    let longest = match is_resumed && state.get(Word::Status) != 0 {
        true => PATIENCE,
        false => LONGEST_START,
    };
    let backend = coming.wait(&wiring.name, [PATIENCE, longest]);
    let worker = match backend {
        Some(backend) => Worker::new(wiring, backend).map(|mut worker| {
            worker.follow(coming.arrival);
            worker
        }),
        None => Worker::awaiting(wiring, node.kind, coming.arrival),
    };
    worker.map_err(|error| error.to_string())
}

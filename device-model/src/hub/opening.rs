//! Opening of backends, by a thread of GDM's for each device, and the way of their descriptors to
//! the process of the guest: that process may open nothing. The thread also opens the medium that a
//! person puts into a disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use vmm_sys_util::eventfd::EventFd;

use super::{LATE_STEP, PATIENCE, STEP, enter, spawn};
use crate::backend::block::Block;
use crate::backend::vhost_user::program::Program;
use crate::backend::{self, Backend, Claim, Opened};
use crate::board::{DeviceKind, DeviceNode};
use crate::choices::Choices;
use crate::link::{Link, Message};
use crate::options::Options;
use crate::order::{Answer, Order};
use crate::orders;
use crate::sandbox::Role;
use crate::state::{DeviceState, Word};

/// A wish of a process of a guest's: a backend for one of its devices.
struct Wish {
    /// Way to the process.
    link: Arc<Link>,
    /// No other connection to the backend is in use, so that its program may begin anew.
    is_anew: bool,
}

/// A change of a disk's medium that a person orders.
pub(super) struct Change {
    pub(super) order: Order,
    pub(super) answer: Sender<Answer>,
    /// Way of the order to the process, once the medium is open.
    pub(super) orders: orders::Desk,
    /// Way of the medium's descriptors.
    pub(super) link: Arc<Link>,
}

/// Something for an opener to do.
enum Job {
    Wish(Wish),
    Change(Change),
}

/// The wish that an opener has to fulfil. A process may wish without end, and may end while it is
/// waited for: the newest wish alone is kept.
#[derive(Default)]
struct Wished {
    wish: Option<Wish>,
    change: Option<Change>,
    /// The last wish was fulfilled.
    is_fulfilled: bool,
}

/// Where wishes for a device's backend are put and taken.
#[derive(Default)]
struct Desk {
    wished: Mutex<Wished>,
    is_there: Condvar,
}

impl Desk {
    /// Puts a wish there. `is_first` is the one that a new process has; others are heard once the
    /// wish before is fulfilled.
    fn put(&self, wish: Wish, is_first: bool) {
        let mut wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        // planted: a process has its backends opened without end
        if is_first || wished.is_fulfilled {
            wished.is_fulfilled = false;
            wished.wish = Some(wish);
            self.is_there.notify_one();
        }
    }

    /// Puts a change there, unless there is one.
    fn put_change(&self, change: Change) {
        let mut wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        if wished.change.is_some() {
            let refused = "another change of its medium is under way".into();
            let _ = change.answer.send(Err(refused));
            return;
        }
        wished.change = Some(change);
        self.is_there.notify_one();
    }

    /// Takes a change, if there is one.
    fn take_change(&self) -> Option<Change> {
        let mut wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        wished.change.take()
    }

    /// Waits for something to do. A process that waits for its backend comes first.
    fn take(&self) -> Job {
        let mut wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(wish) = wished.wish.take() {
                return Job::Wish(wish);
            }
            if let Some(change) = wished.change.take() {
                return Job::Change(change);
            }
            let waited = self.is_there.wait(wished);
            wished = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the wish that was taken last, unless a newer one takes its place.
    fn fulfil(&self, wish: Wish) -> Wish {
        let mut wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        wished.is_fulfilled = true;
        wished.wish.take().unwrap_or(wish)
    }
}

/// The threads that open a guest's backends, by channel.
pub(super) struct Openers(BTreeMap<usize, (DeviceKind, Arc<Desk>)>);

impl Openers {
    /// Starts the threads, which wait for wishes.
    pub(super) fn start(
        options: &Options,
        choices: &Arc<Choices>,
        devices: impl Iterator<Item = (DeviceNode, Device)>,
    ) -> Result<Self, String> {
        let mut desks = BTreeMap::new();
        for (node, device) in devices {
            let desk = Arc::new(Desk::default());
            desks.insert(node.channel, (node.kind, Arc::clone(&desk)));
            let (options, choices) = (options.clone(), Arc::clone(choices));
            spawn(&format!("open {}", node.name()), move || {
                let slot = Slot {
                    node,
                    choices,
                    claim: None,
                };
                open_for(slot, &options, &device, &desk);
            })?;
        }
        Ok(Self(desks))
    }

    /// Has all backends opened for a new process.
    pub(super) fn want_all(&self, link: &Arc<Link>) {
        for (_, desk) in self.0.values() {
            let link = Arc::clone(link);
            let is_anew = true;
            desk.put(Wish { link, is_anew }, true);
        }
    }

    /// Has the next backend opened, as the process of the guest wishes.
    pub(super) fn want(&self, channel: usize, link: &Arc<Link>, is_anew: bool) {
        if let Some((_, desk)) = self.0.get(&channel) {
            let link = Arc::clone(link);
            desk.put(Wish { link, is_anew }, false);
        }
    }

    /// Has the medium of a disk changed.
    pub(super) fn change(&self, channel: usize, change: Change) {
        match self.0.get(&channel) {
            Some((DeviceKind::Block, desk)) => desk.put_change(change),
            _ => {
                let _ = change.answer.send(Err(backend::NO_MEDIUM.into()));
            }
        }
    }
}

/// A device, and what was opened for it.
struct Slot {
    node: DeviceNode,
    choices: Arc<Choices>,
    /// The claim on what the process has, until the process no longer has it.
    claim: Option<Box<dyn Claim>>,
}

impl Slot {
    /// Returns the device with the medium that an order is about.
    fn with_medium(&self, order: &Order) -> DeviceNode {
        let mut node = self.node.clone();
        match order {
            Order::Detach => node.backend.clear(),
            Order::Attach(path) if !path.is_empty() => node.backend.clone_from(path),
            _ => {}
        }
        node
    }

    /// Opens the medium of an order. The old one stays where it is until the process has the new
    /// one; a medium that cannot be opened changes nothing.
    fn open(&self, order: &Order) -> Result<(DeviceNode, Opened), String> {
        let wanted = self.with_medium(order);
        if self.choices.apply(&self.node).backend == wanted.backend {
            return Err(match wanted.backend.as_str() {
                "" => "the disk has no medium".into(),
                path => format!("{path} is its medium already"),
            });
        }
        // The same rules as at the start: a file or a block device, claimed for this guest.
        let opened = Block::claim(&wanted.backend, wanted.read_only)?;
        Ok((wanted, opened))
    }

    /// Notes the medium that the disk has now.
    fn note(&self, wanted: &DeviceNode) -> Result<(), String> {
        let noted = self.choices.choose(&self.node, &wanted.backend);
        noted.map_err(|error| format!("done, but the next gdm will not know it: {error}"))
    }

    /// Changes the medium of a process that serves the disk.
    fn change(&mut self, change: &Change) -> Answer {
        let (wanted, opened) = self.open(&change.order)?;
        let gone = || "the process of its guest has ended; try again".to_owned();
        send_parts(&change.link, self.node.channel, &opened).map_err(|_| gone())?;
        // The path stays here.
        let order = match change.order {
            Order::Detach => Order::Detach,
            _ => Order::Attach(String::new()),
        };
        let answered = change.orders.pass(order, &change.link).recv();
        let bytes = answered.map_err(|_| gone())??;
        // The process no longer has the old one.
        self.claim = opened.claim;
        self.note(&wanted)?;
        Ok(bytes)
    }

    /// Chooses another medium than the one that cannot be opened. The process waits for it.
    fn choose(&self, order: &Order) -> Answer {
        let (wanted, opened) = self.open(order)?;
        self.note(&wanted)?;
        // Opened again at once, for the process.
        drop(opened);
        Ok(0)
    }
}

/// Opens the backends of a device for ever.
fn open_for(mut slot: Slot, options: &Options, device: &Device, desk: &Desk) {
    let (node, choices) = (slot.node.clone(), Arc::clone(&slot.choices));
    let name = node.name();
    let run_directory = &options.run_directory;
    let confine: fn(Role) = match options.sandbox {
        true => |role| enter(true, role),
        false => |role| enter(false, role),
    };
    let mut program = Program::of(&node, &name, run_directory, confine);
    loop {
        let wish = match desk.take() {
            Job::Wish(wish) => wish,
            Job::Change(change) => {
                let answer = slot.change(&change);
                // Who gave the order may have ceased to wait.
                let _ = change.answer.send(answer);
                continue;
            }
        };
        if wish.is_anew {
            end_program(&mut program, device);
        }
        slot.claim = None;
        let mut runs = true;
        let mut tell = |now| {
            // A process that waits for a program waits as long as the program runs.
            if std::mem::replace(&mut runs, now) != now {
                let _ = wish.link.send(Message::Runs(node.channel, now), None);
            }
        };
        let opened = open_beside(&name, &mut program, &mut tell, || {
            if let Some(change) = desk.take_change() {
                let _ = change.answer.send(slot.choose(&change.order));
            }
            backend::open(&choices.apply(&node), run_directory, confine)
        });
        let wish = desk.fulfil(wish);
        // A process that has ended takes nothing, and the next one has its own wish.
        let _ = hand_over(&wish.link, node.channel, &opened);
        slot.claim = opened.claim;
    }
}

/// A device as GDM sees it: its page, and what wakes its thread.
pub(super) struct Device {
    pub(super) state: DeviceState,
    pub(super) kick: EventFd,
}

/// Ends the program: nothing of it is in progress when the next one begins. Whoever waits for the
/// guest's memory need not wait for the next one.
fn end_program(program: &mut Option<Program>, device: &Device) {
    if program.as_mut().is_some_and(Program::end_all) {
        device.state.set(Word::InKernel, 0);
        let _ = device.kick.write(1);
    }
}

/// Opens the backend beside its program, which is started if GDM is to do that. `tell` is told
/// whether it runs.
fn open_beside(
    name: &str,
    program: &mut Option<Program>,
    tell: &mut dyn FnMut(bool),
    open: impl Fn() -> Result<Opened, String>,
) -> Opened {
    open_patiently(name, || {
        let runs = program.as_mut().map_or(Ok(()), Program::run);
        tell(runs.is_ok());
        runs?;
        open()
    })
}

/// Gives descriptors to the process of the guest.
fn hand_over(link: &Link, channel: usize, opened: &Opened) -> io::Result<()> {
    send_parts(link, channel, opened)?;
    link.send(Message::Backend(channel), None)
}

/// Sends descriptors to the process of the guest, which learns from the next message what for.
fn send_parts(link: &Link, channel: usize, opened: &Opened) -> io::Result<()> {
    for part in &opened.parts {
        link.send(Message::Part(channel), Some(part))?;
    }
    Ok(())
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

/// Opens or makes a backend, as often as it takes. Complaints come ever more seldom.
pub(crate) fn open_patiently<T>(name: &str, mut open: impl FnMut() -> Result<T, String>) -> T {
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

#[cfg(test)]
mod tests;

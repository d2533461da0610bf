//! The processes of the guests, as GDM sees them: one a guest, started, watched, and started again.
//!
//! A thread of GDM's for each guest does that alone. The end of a process costs its guest a pause,
//! and no other guest anything: requests wait, and the next process goes on where the last one
//! ended. A process without a sign of life for [`PATIENCE_LOOKS`] is ended.
//!
//! A guest may have subverted its process. GDM therefore reads short messages from it, bounds what
//! each makes GDM do, and shows a bounded part of what it prints.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use gear2_protocol::Region;
use vmm_sys_util::eventfd::EventFd;

use super::opening::{Change, Device, Openers};
use super::placement::Placement;
use super::{BEAT, enter, eventfd, spawn};
use crate::allowance::Allowance;
use crate::board::DeviceNode;
use crate::choices::Choices;
use crate::hardware::named;
use crate::link::{Link, Message};
use crate::options::Options;
use crate::order::{Answer, Order};
use crate::orders::{Asked, Desk, Inbox, way};
use crate::progress::{self, Progress};
use crate::sandbox::Role;
use crate::state::DeviceState;
use crate::sys::{self, Wait};

/// Beats without one of a process's that make the process late: GDM's own wait for it.
const LATE_LOOKS: u32 = progress::LATE_LOOKS;
/// Beats without one of a process's after which the process is ended. The process ends itself after
/// fewer if one of its threads hangs, and says which.
const PATIENCE_LOOKS: u32 = progress::STUCK_LOOKS + 2;
/// Longest time until a process that starts shows its first sign of life: it maps memory, and waits
/// for nobody.
const START: Duration = Duration::from_secs(60);
/// First pause before a process is started again, and the longest. The pause doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A process that ran for so long is started again after the first pause.
const LONG_RUN: Duration = Duration::from_secs(10);
/// Bytes of a line in the log; what is longer is broken.
const LONGEST_LINE: usize = 1024;

/// A guest whose devices a process serves.
pub(super) struct Ward {
    /// Name of the VM.
    name: String,
    /// Number of the VM, by which the process finds its devices in the tree.
    vm: usize,
    /// By device, what wakes its thread. The descriptors outlive the process.
    kicks: Vec<(usize, EventFd)>,
    /// Opens backends, for which the process has no rights.
    openers: Openers,
    /// Places the threads of the guest's disks; `None`: they look all the time.
    placement: Option<Placement>,
    /// By device, orders of a person.
    orders: BTreeMap<usize, Inbox>,
    /// By device, where orders for which all was opened are put.
    opened: BTreeMap<usize, Desk>,
    /// Says that there is an order.
    ordered: EventFd,
    /// By device, where the answer of its oldest order goes.
    answers: BTreeMap<usize, Sender<Answer>>,
    /// Judged by the hub: the thread of this ward, and late while the process is.
    progress: Arc<Progress>,
    /// Pause before the next start.
    pause: Duration,
    /// Whether threads of GDM's are filtered.
    is_filtered: bool,
}

impl Ward {
    /// Makes the ward of a guest's devices, which has no process yet.
    pub(super) fn new(
        options: &Options,
        devices: &[DeviceNode],
        choices: &Arc<Choices>,
        region: &'static Region,
        kicks: Vec<(usize, EventFd)>,
        progress: Arc<Progress>,
    ) -> Result<Self, String> {
        let first = devices.first().ok_or("a guest without a device")?;
        let (mut opened, mut placed) = (Vec::new(), Vec::new());
        for (node, (_, kick)) in devices.iter().zip(&kicks) {
            let page = region.devices.get(node.channel).ok_or("no such channel")?;
            let (state, kick) = (DeviceState::new(page), same_kick(kick)?);
            placed.push((node.clone(), state));
            opened.push((node.clone(), Device { state, kick }));
        }
        Ok(Self {
            name: first.vm.clone(),
            vm: first.vm_id,
            kicks,
            openers: Openers::start(options, choices, opened.into_iter())?,
            placement: (!options.spin).then(|| Placement::new(choices, &placed)),
            orders: BTreeMap::new(),
            opened: BTreeMap::new(),
            ordered: eventfd()?,
            answers: BTreeMap::new(),
            progress,
            pause: FIRST_PAUSE,
            is_filtered: options.sandbox,
        })
    }

    /// Makes the ways by which the guest's devices get orders.
    pub(super) fn desks(&mut self) -> Result<BTreeMap<usize, Desk>, String> {
        let mut desks = BTreeMap::new();
        for (channel, _) in &self.kicks {
            let eventfd = |error| named("eventfd", &error);
            let (desk, inbox) = way(&self.ordered).map_err(eventfd)?;
            let opened = desk.another().map_err(eventfd)?;
            self.opened.insert(*channel, opened);
            desks.insert(*channel, desk);
            self.orders.insert(*channel, inbox);
        }
        Ok(desks)
    }

    /// Keeps a process for ever, in a thread of its own. `begun` is told of the first one.
    pub(super) fn keep(mut self, begun: Sender<()>) -> Result<(), String> {
        spawn(&format!("guest {}", self.name.clone()), move || {
            progress::begin(&self.progress);
            let mut begun = Some(begun);
            loop {
                let start = Instant::now();
                let end = self.serve(begun.take());
                eprintln!("gdm: {}: its process {end}", self.name);
                self.wait(start.elapsed());
            }
        })
    }

    /// Starts a process and serves it until its end; returns how that came about.
    fn serve(&mut self, begun: Option<Sender<()>>) -> String {
        let started = self.start();
        drop(begun);
        let (mut child, link) = match started {
            Ok(started) => started,
            Err(error) => return format!("cannot be started: {error}"),
        };
        self.openers.want_all(&link);
        // Orders may be there that the last process was not given.
        let _ = self.ordered.write(1);
        let why = self.attend(&link, child.id());
        // It may have ended. A process that is killed ends when the kernel has done its transfers.
        let _ = child.kill();
        let ended = progress::in_kernel(|| child.wait());
        self.progress.set_late(false);
        // Nobody answers the orders that the process had.
        self.answers.clear();
        match (ended, why) {
            (Ok(status), None) => format!("ended with {status}"),
            (Ok(_), Some(why)) => format!("was ended: {why}"),
            (Err(error), _) => format!("is lost: {error}"),
        }
    }

    /// Starts the process, which knows its devices by the device tree.
    /// The program is the one that GDM itself runs, even where another was installed meanwhile:
    /// both ends of the link are of one version.
    fn start(&self) -> io::Result<(Child, Arc<Link>)> {
        let (link, theirs) = Link::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("gdm").args(env::args_os().skip(1));
        command.args(["--guest", &self.vm.to_string()]);
        // Nothing that this process was started with is for the guest's.
        command.env_clear().stdin(Stdio::from(theirs));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        // By the kernel, before the program's first instruction: descriptors of GDM's are those of
        // other guests, too.
        sys::inherit_none(&mut command);
        let mut child = command.spawn()?;
        let started = self.instruct(&mut child, &link);
        match started {
            Ok(()) => Ok((child, Arc::new(link))),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Gives the process what it cannot have by itself, and reads what it says.
    fn instruct(&self, child: &mut Child, link: &Link) -> io::Result<()> {
        if let Some(messages) = child.stderr.take() {
            let builder = thread::Builder::new().name(format!("says {}", self.name));
            let is_filtered = self.is_filtered;
            builder.spawn(move || {
                enter(is_filtered, Role::Sockets);
                log(messages);
            })?;
        }
        for (channel, kick) in &self.kicks {
            link.send(Message::Kick(*channel), Some(kick))?;
        }
        Ok(())
    }

    /// Takes messages of the process for as long as it lives. Returns why it has to be ended, if it
    /// does not end by itself.
    fn attend(&mut self, link: &Arc<Link>, process: u32) -> Option<String> {
        let mut heard = Instant::now();
        let mut has_begun = false;
        loop {
            progress::step();
            let waits = [link.as_raw_fd(), self.ordered.as_raw_fd()].map(|fd| Wait {
                fd,
                read: true,
                write: false,
            });
            let ready = sys::wait(&waits, BEAT.as_millis() as i32);
            if ready.last() == Some(&true) {
                let _ = self.ordered.read();
                self.pass_orders(link);
            }
            if ready.first() == Some(&true) {
                match link.receive() {
                    Ok(Some((Message::Beat, _))) => {
                        (heard, has_begun) = (Instant::now(), true);
                        if let Some(placement) = &mut self.placement {
                            placement.look(process);
                        }
                    }
                    Ok(Some((message, _))) if self.take(&message, link) => {}
                    Ok(Some(_)) => return Some("it sends what is gdm's to send".into()),
                    Ok(None) => return None,
                    Err(error) => return Some(error.to_string()),
                }
            }
            let silent = heard.elapsed();
            // planted: the heart beats beside a process that is stuck
            self.progress
                .set_late(has_begun && silent >= BEAT * LATE_LOOKS);
            if silent
                >= if has_begun {
                    BEAT * PATIENCE_LOOKS
                } else {
                    START
                }
            {
                return Some("it shows no sign of life".into());
            }
        }
    }

    /// Does what a message of the process asks for; false if it is none of a process's.
    fn take(&mut self, message: &Message, link: &Arc<Link>) -> bool {
        match message {
            Message::Next(channel) => self.openers.want(*channel, link, true),
            Message::Again(channel) => self.openers.want(*channel, link, false),
            Message::Answer(channel, answer) => {
                if let Some(asked) = self.answers.remove(channel) {
                    // Who gave the order may have ceased to wait.
                    let _ = asked.send(answer.clone());
                }
                self.pass_orders(link);
            }
            _ => return false,
        }
        true
    }

    /// Passes orders to the process, one a device at a time.
    fn pass_orders(&mut self, link: &Arc<Link>) {
        for (channel, inbox) in &self.orders {
            while !self.answers.contains_key(channel)
                && let Some(asked) = inbox.take()
            {
                match (&asked.order, &asked.process) {
                    (Order::Attach(_) | Order::Detach, None) => self.open(*channel, asked, link),
                    // Its descriptors went to a process that has ended.
                    (_, Some(process)) if !Arc::ptr_eq(process, link) => {}
                    _ => {
                        let Asked { order, answer, .. } = asked;
                        // A process that has ended drops the order, and its answer's sender goes
                        // with it.
                        let _ = link.send(Message::Order(*channel, order), None);
                        self.answers.insert(*channel, answer);
                    }
                }
            }
        }
    }

    /// Has the medium opened that an order is about; the order comes back then.
    fn open(&self, channel: usize, asked: Asked, link: &Arc<Link>) {
        let orders = self.opened.get(&channel).map(Desk::another);
        let Some(Ok(orders)) = orders else {
            let _ = asked.answer.send(Err("gdm has no descriptor left".into()));
            return;
        };
        let change = Change {
            order: asked.order,
            answer: asked.answer,
            orders,
            link: Arc::clone(link),
        };
        self.openers.change(channel, change);
    }

    /// Waits before the process is started again: one that ends at once takes neither the CPU nor
    /// the log from the rest.
    fn wait(&mut self, ran: Duration) {
        if ran >= LONG_RUN {
            self.pause = FIRST_PAUSE;
        }
        progress::step();
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Shows what a process prints, in bounds, and reads the rest: a process that says much neither
/// fills the log nor waits. The process has no way to the log itself.
fn log(mut messages: ChildStderr) {
    let mut allowance = Allowance::new(Instant::now());
    let mut line = Vec::new();
    let mut bytes = [0; 1024];
    while let Ok(count @ 1..) = messages.read(&mut bytes) {
        let shown = allowance.take(count as u64, Instant::now());
        for byte in bytes.iter().take(shown as usize) {
            if *byte != b'\n' {
                line.push(*byte);
            }
            if *byte == b'\n' || line.len() >= LONGEST_LINE {
                show(&mut line);
            }
        }
    }
    show(&mut line);
}

/// Shows a line, and begins another one. A terminal that shows the log obeys no process.
fn show(line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line);
    let text: String = text.chars().filter(|each| !each.is_control()).collect();
    if !text.is_empty() {
        eprintln!("{text}");
    }
    line.clear();
}

/// Returns the devices of each guest, in the order of their channels.
pub(super) fn by_guest(devices: &[DeviceNode]) -> Vec<Vec<DeviceNode>> {
    let mut guests: Vec<Vec<DeviceNode>> = Vec::new();
    for device in devices {
        let of_same = guests.iter_mut().find(|guest| {
            let first = guest.first();
            first.is_some_and(|first| first.vm_id == device.vm_id)
        });
        match of_same {
            Some(guest) => guest.push(device.clone()),
            None => guests.push(vec![device.clone()]),
        }
    }
    guests
}

/// Returns a descriptor that wakes the same thread.
pub(super) fn same_kick(kick: &EventFd) -> Result<EventFd, String> {
    kick.try_clone().map_err(|error| named("eventfd", &error))
}

#[cfg(test)]
mod tests;

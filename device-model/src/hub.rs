//! Start of GDM, and the thread that wakes the devices' threads.
//!
//! GDM holds what needs rights: the region shared with Gear2, the sockets, the opening of backends.
//! Each guest has a process of its own (`guest.rs`), which a thread of GDM's keeps (`ward.rs`).
//!
//! Owns: what `/gearv` of the device tree names, the version handshake, the threads, and the
//! heartbeat, which stops when a thread or a process that serves guests makes no progress.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gear2_protocol::{LINE_REQUEST, MAGIC, MmioSlot, PROTOCOL_VERSION, Region, slot};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::board::{Board, DeviceNode};
use crate::choices::Choices;
use crate::control::{Mailbox, Server};
use crate::gpio::Line;
use crate::hardware::{Machine, named};
use crate::mapping::Doorbell;
use crate::options::Options;
use crate::orders::Desk;
use crate::progress::{self, Health, Progress, Watch};
use crate::rtc;
use crate::sandbox::{self, Role};
use crate::serial::Serials;
use crate::state::DeviceState;
use crate::sys::{self, Wait};
use crate::worker::MESSAGES;

pub(crate) use opening::{deliver, open_patiently};

mod opening;
mod placement;
#[cfg(test)]
mod tests;
mod ward;

/// Longest time in which Gear2 sets up the region, or a backend appears.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at something that is waited for.
pub(crate) const STEP: Duration = Duration::from_millis(100);
/// Between two tries to open a backend that is late.
const LATE_STEP: Duration = Duration::from_secs(1);
/// Between two heartbeats, by which Gear2's watchdog judges the device VM, and GDM a process.
pub(crate) const BEAT: Duration = Duration::from_millis(500);

/// Serves all devices; returns only when that cannot be begun.
pub(crate) fn run(options: &Options) -> Result<std::convert::Infallible, String> {
    let board = Board::read(&options.tree)?;
    if !board.has_identity {
        eprintln!(
            "gdm: nothing tells this board from others: its guests' MAC addresses are those of \
             every such board, unless the manifest gives others (mac)"
        );
    }
    fs::create_dir_all(&options.run_directory)
        .map_err(|error| format!("{}: {error}", options.run_directory))?;
    let lock = lock(&options.run_directory)?;
    try_restrictions(options.sandbox)?;
    let machine = Machine::of_gdm(options.hardware, &board)?;
    handshake(machine.region)?;
    let hub = Hub::start(options, board, &machine)?;
    // Held until GDM ends.
    std::mem::forget(lock);
    enter(options.sandbox, Role::Hub);
    hub.run()
}

/// Two device models would serve the same queues.
/// The kernel drops the lock when GDM ends, however that comes about, so that no stale file keeps
/// the next GDM from its start.
fn lock(run_directory: &str) -> Result<File, String> {
    let path = format!("{run_directory}/gdm.lock");
    let file = File::create(&path).map_err(|error| format!("{path}: {error}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(format!("{path} is locked: another gdm runs")),
    }
}

/// Waits for Gear2's header and compares versions.
///
/// A minor version adds words that the other side may ignore. A major one changes what words mean:
/// GDM then ends before it has written to the region.
fn handshake(region: &Region) -> Result<(), String> {
    wait_for_header(region)?;
    let version = region.header.version.load(Ordering::Relaxed);
    if version >> 16 != PROTOCOL_VERSION >> 16 {
        return Err(format!(
            "Gear2 speaks protocol version {}.{}, this gdm {}.{}: take both from the same GearV",
            version >> 16,
            version & 0xffff,
            PROTOCOL_VERSION >> 16,
            PROTOCOL_VERSION & 0xffff
        ));
    }
    Ok(())
}

/// Waits until Gear2 has written the header. Acquire: the rest of the header is read after its magic
/// number.
fn wait_for_header(region: &Region) -> Result<(), String> {
    let start = Instant::now();
    while region.header.magic.load(Ordering::Acquire) != MAGIC {
        if start.elapsed() > PATIENCE {
            return Err("Gear2 has not set up the shared region".into());
        }
        thread::sleep(STEP);
    }
    Ok(())
}

/// Restricts the calling thread for its role; GDM ends rather than to serve guests with rights that
/// it does not need.
pub(crate) fn enter(filtered: bool, role: Role) {
    if let Err(error) = restrict(filtered, role) {
        eprintln!("gdm: {error}");
        // planted: a thread without a filter serves guests
        std::process::exit(1);
    }
}

/// Restricts the system calls of a thread that has no rights: one of a guest's process. The process
/// ends rather than to serve its guest without the filter.
pub(crate) fn filter(filtered: bool, role: Role) {
    if let Err(error) = apply(filtered, role) {
        eprintln!("gdm: {error}");
        std::process::exit(1);
    }
}

/// Takes the calling thread's rights, then its system calls: the first needs calls that the second
/// takes away.
fn restrict(filtered: bool, role: Role) -> Result<(), String> {
    sandbox::give_up_rights(role).map_err(|error| error.to_string())?;
    apply(filtered, role)
}

/// Takes the system calls that a role does not need, unless the user has asked for no filter.
fn apply(filtered: bool, role: Role) -> Result<(), String> {
    if !filtered {
        return Ok(());
    }
    let entered = sandbox::enter(role);
    entered.map_err(|error| format!("{error}; --no-seccomp serves guests without"))
}

/// Finds out whether threads can be restricted, before any serves a guest.
pub(crate) fn try_restrictions(filtered: bool) -> Result<(), String> {
    let thread = thread::spawn(move || restrict(filtered, Role::Hub));
    let done = thread.join();
    done.map_err(|_| "a thread panicked as it was restricted".to_owned())?
}

/// A guest that makes a device's thread panic again and again must not fill the log.
pub(crate) fn limit_panic_messages() {
    thread_local! {
        static PANICS: Cell<u64> = const { Cell::new(0) };
    }
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let panics = PANICS.get().saturating_add(1);
        PANICS.set(panics);
        if panics <= MESSAGES {
            print(info);
        }
    }));
}

/// Makes a descriptor by which one thread wakes another; a write never blocks.
pub(crate) fn eventfd() -> Result<EventFd, String> {
    EventFd::new(EFD_NONBLOCK).map_err(|error| named("eventfd", &error))
}

/// The thread that Gear2's line wakes.
struct Hub {
    /// Slots of accesses, and the pages of all devices.
    region: &'static Region,
    /// Rises when Gear2 wants something.
    line: Line,
    /// Tells Gear2 to look at the region.
    answer: Doorbell,
    /// By channel, what wakes the device's thread, and the VM that has the device.
    devices: BTreeMap<usize, (usize, EventFd)>,
    /// Wakes the thread of the serial consoles.
    serials: EventFd,
    /// Judges the threads, and by them the processes; without their progress no heartbeat is sent.
    watch: Watch,
}

impl Hub {
    /// Starts all threads and processes. The start is counted, and Gear2 told of it, once the
    /// processes are there to be woken.
    fn start(options: &Options, board: Board, machine: &Machine) -> Result<Self, String> {
        let serials = eventfd()?;
        let mut hub = Self {
            region: machine.region,
            line: machine.line(0, LINE_REQUEST)?,
            answer: machine.own_doorbell()?,
            devices: BTreeMap::new(),
            serials: serials.try_clone().map_err(|error| error.to_string())?,
            watch: Watch::default(),
        };
        let choices = Choices::read(&options.run_directory, &board.devices);
        let choices = Arc::new(choices);
        let desks = hub.start_guests(options, &board.devices, &choices)?;
        let header = &machine.region.header;
        header.gdm_starts.fetch_add(1, Ordering::AcqRel);
        hub.answer.ring();
        start_sockets(
            options,
            (board.devices, desks, choices),
            machine,
            serials,
            &mut hub.watch,
        )?;
        eprintln!(
            "gdm: serves {} devices{}",
            hub.devices.len(),
            if options.spin { ", polling" } else { "" }
        );
        Ok(hub)
    }

    /// Starts a process for each guest; returns when all were started for the first time, with the
    /// ways by which devices get orders.
    fn start_guests(
        &mut self,
        options: &Options,
        devices: &[DeviceNode],
        choices: &Arc<Choices>,
    ) -> Result<BTreeMap<usize, Desk>, String> {
        let (begun, begins) = mpsc::channel();
        let mut desks = BTreeMap::new();
        for devices in ward::by_guest(devices) {
            let mut kicks = Vec::new();
            for device in &devices {
                let kick = eventfd()?;
                kicks.push((device.channel, ward::same_kick(&kick)?));
                self.devices.insert(device.channel, (device.vm_id, kick));
            }
            let name = devices.first().map_or("", |device| device.vm.as_str());
            let progress = self.watch.add(&format!("guest {name}"));
            let region = self.region;
            let mut ward = ward::Ward::new(options, &devices, choices, region, kicks, progress)?;
            desks.append(&mut ward.desks()?);
            ward.keep(begun.clone())?;
        }
        drop(begun);
        // Nothing is ever sent: each ward drops its end when it has started a process.
        let _ = begins.recv();
        Ok(desks)
    }

    /// Wakes threads for ever, and says at each beat that GDM lives, as long as all threads do.
    fn run(mut self) -> ! {
        let mut beat = Instant::now();
        self.beat();
        loop {
            self.turn();
            if beat.elapsed() >= BEAT {
                beat = Instant::now();
                if let Health::Stuck(name) = self.live() {
                    progress::give_up(&name);
                }
            }
            let wait = Wait {
                fd: self.line.file().as_raw_fd(),
                read: true,
                write: false,
            };
            if sys::wait(&[wait], BEAT.as_millis() as i32).contains(&true) {
                self.line.drain();
                // More output, or the answer to a request: the sockets' threads look.
                let _ = self.serials.write(1);
            }
        }
    }

    /// Says that GDM lives, if all of it does.
    fn live(&mut self) -> Health {
        let health = self.watch.look();
        // planted: the heart beats beside a thread that is stuck
        if health == Health::Well {
            self.beat();
        }
        health
    }

    /// Says that GDM lives.
    fn beat(&self) {
        self.region.header.gdm_beats.fetch_add(1, Ordering::AcqRel);
    }

    /// Wakes the threads of the devices that Gear2 wants something of.
    fn turn(&self) {
        self.wake_for_accesses();
        self.wake_for_resets();
    }

    /// Wakes the threads of the devices that a vCPU waits for, and answers accesses to real-time
    /// clocks. An access to a device that nobody serves is refused here: its vCPU would wait for
    /// ever. A slot is in a page that the process of its VM can write, so that a slot that names
    /// another VM's device is refused as well.
    fn wake_for_accesses(&self) {
        let mut answered = false;
        for (vm, page) in self.region.slots.iter().enumerate() {
            let posted = page.iter().filter(|slot| slot.state() == slot::POSTED);
            for slot in posted {
                answered |= self.is_answered(vm, slot);
            }
        }
        if answered {
            self.answer.ring();
        }
    }

    /// Wakes the thread of the device that an access of a VM's goes to, if there is one. Tells
    /// whether the access is answered here instead.
    fn is_answered(&self, vm: usize, slot: &MmioSlot) -> bool {
        let device = slot.device.load(Ordering::Relaxed) as usize;
        // planted: a process of a guest wakes another's devices
        let own = self.devices.get(&device).filter(|(of, _)| *of == vm);
        if let Some((_, kick)) = own {
            let _ = kick.write(1);
            return false;
        }
        if !rtc::answer(slot) {
            slot.set_state(slot::ABORT);
        }
        true
    }

    /// Wakes the threads of the devices whose guest was stopped: Gear2 waits for its memory.
    fn wake_for_resets(&self) {
        for (channel, (_, kick)) in &self.devices {
            let page = self.region.devices.get(*channel).map(DeviceState::new);
            if page.is_some_and(|state| state.reset_asked().is_some()) {
                let _ = kick.write(1);
            }
        }
    }
}

/// Starts the threads of the control socket and of the serial consoles, watched like devices.
fn start_sockets(
    options: &Options,
    (devices, desks, choices): (Vec<DeviceNode>, BTreeMap<usize, Desk>, Arc<Choices>),
    machine: &Machine,
    kick: EventFd,
    watch: &mut Watch,
) -> Result<(), String> {
    let doorbell = machine.own_doorbell()?;
    // The mailbox lives as long as GDM.
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new(machine.region, doorbell)));
    let path = format!("{}/control", options.run_directory);
    let mut server = Server::bind(&path, machine.region, mailbox, devices)
        .map_err(|error| named(&path, &error))?;
    server.order_by(desks, choices);
    let sandbox = options.sandbox;
    let [control, serial] = ["control", "serial"].map(|name| watch.add(name));
    spawn("control", move || {
        enter(sandbox, Role::Sockets);
        progress::begin(&control);
        server.run();
    })?;
    start_serials(options, machine, mailbox, kick, serial)
}

/// Starts the thread of the serial consoles. The thread asks Gear2 for the VMs' names by itself, so
/// that a Gear2 that is slow to answer delays no other thread.
fn start_serials(
    options: &Options,
    machine: &Machine,
    mailbox: &'static Mailbox,
    kick: EventFd,
    progress: Arc<Progress>,
) -> Result<(), String> {
    let region = machine.region;
    let doorbell = machine.own_doorbell()?;
    let run_directory = options.run_directory.clone();
    let sandbox = options.sandbox;
    spawn("serial", move || {
        let count = region.header.vm_count.load(Ordering::Relaxed) as usize;
        let vms = 0..count.min(region.consoles.len());
        let names: Vec<String> = vms.map(|vm| mailbox.vm_name(vm)).collect();
        let open = || Serials::open(region, &names, &run_directory, kick, doorbell);
        serve_serials(open, sandbox, &progress);
    })
}

/// Serves the serial consoles for ever. A set-up that fails ends GDM: the next one tries again.
fn serve_serials(
    open: impl FnOnce() -> io::Result<Serials>,
    sandbox: bool,
    progress: &Arc<Progress>,
) {
    // planted: consoles whose set-up fails are dead
    progress::prepare(progress);
    match open() {
        Ok(mut serials) => {
            enter(sandbox, Role::Sockets);
            progress::step();
            serials.run();
        }
        Err(error) => eprintln!("gdm: serial consoles: set-up: {error}"),
    }
}

/// Starts a thread with a name, by which `top -H` shows it.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let builder = thread::Builder::new().name(name.into());
    builder
        .spawn(body)
        .map(drop)
        .map_err(|error| format!("thread {name}: {error}"))
}

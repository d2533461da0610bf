//! Start of GDM, and the thread that wakes the others.
//!
//! Owns: the memory and devices that `/gearv` of the device tree names, the version handshake, the
//! threads, and the heartbeat, which stops when a thread that serves guests makes no progress.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use gear2_protocol::{
    ARMING_VERSION, DOORBELL_GEAR2, LINE_REQUEST, MAGIC, PROTOCOL_VERSION, REGION_SIZE, Region,
    VIRTIO_STRIDE, doorbell_arm, doorbell_device, line_of_channel, slot,
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::backend::{Awaited, Backend};
use crate::board::{Board, DOORBELLS, DeviceKind, DeviceNode, PAGE, REGISTER_PAGES};
use crate::control::{Mailbox, Server};
use crate::gpio::Line;
use crate::mapping::{self, Doorbell, Memory, Registers, counter};
use crate::progress::{self, Health, Progress, Watch};
use crate::rtc;
use crate::sandbox::{self, Role};
use crate::serial::Serials;
use crate::state::{DeviceState, Word};
use crate::sys::{self, Wait};
use crate::transport::Transport;
use crate::worker::{Away, LINGER_US, MESSAGES, Wiring, Worker};

use opening::begin_to_open;
#[cfg(test)]
pub(crate) use opening::deliver;
#[cfg(test)]
use opening::open_patiently;

mod opening;
#[cfg(test)]
mod tests;

/// Directory in which GDM and gearctl meet.
pub const RUN_DIRECTORY: &str = "/run/gearv";

/// Options of GDM.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device tree.
    pub tree: PathBuf,
    /// Directory of the sockets.
    pub run_directory: String,
    /// Look all the time instead of waiting for interrupts.
    pub spin: bool,
    /// Restrict the threads' system calls.
    pub sandbox: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tree: "/proc/device-tree".into(),
            run_directory: RUN_DIRECTORY.into(),
            spin: false,
            sandbox: true,
        }
    }
}

/// Longest time in which Gear2 sets up the region, or a backend appears.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at something that is waited for.
const STEP: Duration = Duration::from_millis(100);
/// Between two tries to open a backend that is late.
const LATE_STEP: Duration = Duration::from_secs(1);
/// Between two heartbeats, by which Gear2's watchdog judges the device VM.
const BEAT: Duration = Duration::from_millis(500);

/// Everything mapped.
struct Machine {
    region: &'static Region,
    /// A page of the window: a store to a word there makes Gear1 interrupt somebody.
    doorbells: Registers,
    /// Start of the window in the device VM's physical addresses.
    window: u64,
    /// Guests' RAM by address in this VM: the devices of one VM share a mapping.
    memories: BTreeMap<u64, Memory>,
    /// Register pages by their number in the window; a VM has one for all of its devices.
    pages: BTreeMap<u32, mapping::Mapping>,
}

/// Serves all devices; returns only when that cannot be begun.
pub fn run(options: &Options) -> Result<std::convert::Infallible, String> {
    limit_panic_messages();
    let board = Board::read(&options.tree)?;
    fs::create_dir_all(&options.run_directory)
        .map_err(|error| format!("{}: {error}", options.run_directory))?;
    let lock = lock(&options.run_directory)?;
    try_restrictions(options.sandbox)?;
    let machine = Machine::map(&board)?;
    handshake(machine.region)?;
    let hub = Hub::start(options, board, &machine)?;
    // Held until GDM ends.
    std::mem::forget(lock);
    enter(options.sandbox, Role::Hub);
    hub.run()
}

/// Two device models would serve the same queues.
fn lock(run_directory: &str) -> Result<File, String> {
    let path = format!("{run_directory}/gdm.lock");
    let file = File::create(&path).map_err(|error| format!("{path}: {error}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(format!("{path} is locked: another gdm runs")),
    }
}

/// Waits for Gear2's header and compares versions.
fn handshake(region: &Region) -> Result<(), String> {
    let header = &region.header;
    let start = Instant::now();
    while header.magic.load(Ordering::Acquire) != MAGIC {
        if start.elapsed() > PATIENCE {
            return Err("Gear2 has not set up the shared region".into());
        }
        thread::sleep(STEP);
    }
    let version = header.version.load(Ordering::Relaxed);
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

/// Has a device's line, which is number `number` where `doorbell` arms it, rise once for each
/// arming.
fn pace(line: Line, region: &Region, doorbell: Doorbell, number: u32) -> Line {
    // An older Gear1 knows no such store, which would therefore abort and end GDM.
    // planted: a line is armed where nobody knows of it
    if region.header.version.load(Ordering::Relaxed) < ARMING_VERSION {
        return line;
    }
    line.paced(doorbell, number)
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

/// Takes the calling thread's rights, then its system calls: the first needs calls that the second
/// takes away.
fn restrict(filtered: bool, role: Role) -> Result<(), String> {
    sandbox::give_up_rights().map_err(|error| error.to_string())?;
    if filtered {
        sandbox::enter(role)
            .map_err(|error| format!("{error}; --no-seccomp serves guests without"))?;
    }
    Ok(())
}

/// Finds out whether threads can be restricted, before any serves a guest.
pub(crate) fn try_restrictions(filtered: bool) -> Result<(), String> {
    let thread = thread::spawn(move || restrict(filtered, Role::Hub));
    let done = thread.join();
    done.map_err(|_| "a thread panicked as it was restricted".to_owned())?
}

/// A guest that makes a device's thread panic again and again must not fill the log.
fn limit_panic_messages() {
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
fn eventfd() -> Result<EventFd, String> {
    EventFd::new(EFD_NONBLOCK).map_err(|error| named("eventfd", &error))
}

/// Says of an error what it is about.
fn named(what: &str, error: &io::Error) -> String {
    format!("{what}: {error}")
}

impl Machine {
    /// Maps the shared region, the doorbells, and of each device the VM's RAM and register page.
    fn map(board: &Board) -> Result<Self, String> {
        let region = mapping::map_dax(board.control, REGION_SIZE)
            .map_err(|error| named("shared region", &error))?
            .0
            .region()
            .ok_or("shared region: not aligned")?;
        let doorbells = mapping::map_physical(board.window + DOORBELLS, PAGE as usize)
            .map_err(|error| named("doorbell page", &error))?
            .registers(0, PAGE as usize)
            .ok_or("doorbell page: not aligned")?;
        let mut machine = Self {
            region,
            doorbells,
            window: board.window,
            memories: BTreeMap::new(),
            pages: BTreeMap::new(),
        };
        for device in &board.devices {
            machine.map_device(device)?;
        }
        Ok(machine)
    }

    /// Maps what a device needs, unless another device of the VM has mapped it.
    fn map_device(&mut self, device: &DeviceNode) -> Result<(), String> {
        let [ipa, pa, size] = device.memory;
        if let Entry::Vacant(place) = self.memories.entry(pa) {
            let what = format!("RAM of VM {}", device.vm);
            let (mapping, file) =
                mapping::map_dax(pa, size as usize).map_err(|error| named(&what, &error))?;
            let memory = mapping.memory_of_file(ipa, file);
            place.insert(memory.ok_or(format!("{what}: out of range"))?);
        }
        let [page, _] = device.registers;
        if let Entry::Vacant(place) = self.pages.entry(page) {
            let address = self.window + REGISTER_PAGES + u64::from(page) * PAGE;
            let mapping = mapping::map_physical(address, PAGE as usize)
                .map_err(|error| named("register page", &error))?;
            place.insert(mapping);
        }
        Ok(())
    }

    /// Opens a line of a PL061, which Gear1 emulates in the window.
    fn line(&self, pl061: usize, line: u32) -> Result<Line, String> {
        let address = self.window + pl061 as u64 * PAGE;
        Line::open(address, line)
            .map_err(|error| format!("line {line} of the PL061 at {address:#x}: {error}"))
    }

    fn doorbell(&self, offset: usize) -> Doorbell {
        let page = self.doorbells;
        Doorbell { page, offset }
    }

    /// Returns what the thread of a device gets besides its backend. All is opened here: the thread
    /// may open nothing once it serves.
    fn wiring(&self, device: &DeviceNode, spin: bool) -> Result<Wiring, String> {
        let name = format!("{}/{}{}", device.vm, device.kind.name(), device.channel);
        let [page, offset] = device.registers;
        let [_, pa, _] = device.memory;
        let state = self.region.devices.get(device.channel);
        let state = DeviceState::new(state.ok_or(format!("{name}: no such channel"))?);
        let page = self.pages.get(&page);
        let registers =
            page.and_then(|page| page.registers(offset as usize, VIRTIO_STRIDE as usize));
        let (pl061, line) = line_of_channel(device.channel);
        Ok(Wiring {
            channel: device.channel,
            region: self.region,
            page: registers.ok_or(format!("{name}: no such register page"))?,
            memory: self.memories.get(&pa).cloned().ok_or("no such RAM")?,
            interrupt: self.doorbell(doorbell_device(device.channel)),
            answer: self.doorbell(DOORBELL_GEAR2),
            line: pace(
                self.line(pl061, line)?,
                self.region,
                self.doorbell(doorbell_arm(pl061)),
                line,
            ),
            kick: eventfd()?,
            spin,
            linger_us: LINGER_US,
            away: Away::now(self.region, state),
            name,
        })
    }
}

/// The thread that Gear2's line wakes.
struct Hub {
    region: &'static Region,
    /// Rises when Gear2 wants something.
    line: Line,
    /// Tells Gear2 to look at the region.
    answer: Doorbell,
    /// By channel, what wakes the device's thread.
    devices: BTreeMap<usize, EventFd>,
    /// Wakes the thread of the serial consoles.
    serials: EventFd,
    /// Judges the threads; without their progress no heartbeat is sent.
    watch: Watch,
}

impl Hub {
    /// Starts all threads. The start is counted, and Gear2 told of it, once the devices' threads
    /// are there to be woken.
    fn start(options: &Options, board: Board, machine: &Machine) -> Result<Self, String> {
        let serials = eventfd()?;
        let mut hub = Self {
            region: machine.region,
            line: machine.line(0, LINE_REQUEST)?,
            answer: machine.doorbell(DOORBELL_GEAR2),
            devices: BTreeMap::new(),
            serials: serials.try_clone().map_err(|error| error.to_string())?,
            watch: Watch::default(),
        };
        for device in &board.devices {
            let wiring = machine.wiring(device, options.spin)?;
            let kick = wiring.kick.try_clone().map_err(|error| error.to_string())?;
            hub.devices.insert(device.channel, kick);
            let progress = hub.watch.add(&wiring.name);
            start_device(options, device.clone(), wiring, progress)?;
        }
        let header = &machine.region.header;
        header.gdm_starts.fetch_add(1, Ordering::AcqRel);
        hub.answer.ring();
        start_sockets(options, board.devices, machine, serials, &mut hub.watch)?;
        eprintln!(
            "gdm: serves {} devices{}",
            hub.devices.len(),
            if options.spin { ", polling" } else { "" }
        );
        Ok(hub)
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

    /// Says that GDM lives: to Gear2, and to the next GDM, which must know for how long none did.
    fn beat(&self) {
        self.region.header.gdm_beats.fetch_add(1, Ordering::AcqRel);
        for channel in self.devices.keys() {
            if let Some(page) = self.region.devices.get(*channel) {
                // planted: the heartbeat does not say when gdm lived
                DeviceState::new(page).set(Word::LastSeen, counter());
            }
        }
    }

    /// Wakes the threads of the devices that Gear2 wants something of.
    fn turn(&self) {
        self.wake_for_accesses();
        self.wake_for_resets();
    }

    /// Wakes the threads of the devices that a vCPU waits for, and answers accesses to real-time
    /// clocks. An access to a device that nobody serves is refused here: its vCPU would wait for
    /// ever.
    fn wake_for_accesses(&self) {
        let count = self.region.header.vcpu_count.load(Ordering::Relaxed) as usize;
        let mut answered = false;
        for slot in self.region.slots.iter().take(count) {
            if slot.state() != slot::POSTED {
                continue;
            }
            let device = slot.device.load(Ordering::Relaxed) as usize;
            if let Some(kick) = self.devices.get(&device) {
                let _ = kick.write(1);
                continue;
            }
            if !rtc::answer(slot) {
                slot.set_state(slot::ABORT);
            }
            answered = true;
        }
        if answered {
            self.answer.ring();
        }
    }

    /// Wakes the threads of the devices whose guest was stopped: Gear2 waits for its memory.
    fn wake_for_resets(&self) {
        for (channel, kick) in &self.devices {
            let page = self.region.devices.get(*channel).map(DeviceState::new);
            if page.is_some_and(|state| state.reset_asked().is_some()) {
                let _ = kick.write(1);
            }
        }
    }
}

/// Starts the thread of a device: a disk that takes long holds up no other device.
fn start_device(
    options: &Options,
    node: DeviceNode,
    wiring: Wiring,
    progress: Arc<Progress>,
) -> Result<(), String> {
    let options = options.clone();
    let name = wiring.name.clone();
    let body = move || serve_device(&options, &node, wiring, &progress);
    let builder = thread::Builder::new().name(name.clone());
    builder
        .spawn(body)
        .map(drop)
        .map_err(|error| format!("{name}: {error}"))
}

/// Serves a device for ever. A fault of ours in it breaks this device only.
///
/// A set-up that fails, or panics, ends GDM at the hub's next look. The set-up needs descriptors, a
/// thread and memory, and nothing of the guest or the backend, so that its failure is one of GDM as
/// a whole. The next GDM tries again, and the guest's requests wait meanwhile. DEVICE_NEEDS_RESET
/// would lose these requests, and Linux does not handle it.
fn serve_device(options: &Options, node: &DeviceNode, wiring: Wiring, progress: &Arc<Progress>) {
    // planted: a device whose set-up fails is dead
    progress::prepare(progress);
    let name = wiring.name.clone();
    let mut worker = match take_up(options, node, wiring) {
        Ok(worker) => worker,
        Err(error) => {
            eprintln!("gdm: {name}: set-up: {error}");
            return;
        }
    };
    let role = match node.kind {
        DeviceKind::VhostUser(_) => Role::FrontEnd,
        _ => Role::Device,
    };
    enter(options.sandbox, role);
    loop {
        match catch_unwind(AssertUnwindSafe(|| worker.run())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => worker.break_down(&error.to_string()),
            Err(_) => worker.break_down("this is a bug in gdm; the device needs a reset"),
        }
        thread::sleep(STEP);
    }
}

/// Waits for the backend for a while, then continues without it.
fn take_up(options: &Options, node: &DeviceNode, wiring: Wiring) -> Result<Worker, String> {
    let arrival = begin_to_open(options, node, &wiring)?;
    let state = wiring.region.devices.get(wiring.channel);
    let state = DeviceState::new(state.ok_or("no such channel")?);
    let device_id = Awaited::new(node.kind, 0, Vec::new()).identity().device_id;
    if !state.resumable(device_id) {
        Transport::announce(&wiring.page, device_id);
    }
    let worker = match arrival.recv_timeout(PATIENCE) {
        Ok(backend) => Worker::new(wiring, backend).map(|mut worker| {
            worker.follow(arrival);
            worker
        }),
        Err(_) => Worker::awaiting(wiring, node.kind, arrival),
    };
    worker.map_err(|error| error.to_string())
}

/// Starts the threads of the control socket and of the serial consoles, watched like devices.
fn start_sockets(
    options: &Options,
    devices: Vec<DeviceNode>,
    machine: &Machine,
    kick: EventFd,
    watch: &mut Watch,
) -> Result<(), String> {
    let doorbell = machine.doorbell(DOORBELL_GEAR2);
    // The mailbox lives as long as GDM.
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new(machine.region, doorbell)));
    let path = format!("{}/control", options.run_directory);
    let mut server = Server::bind(&path, machine.region, mailbox, devices)
        .map_err(|error| named(&path, &error))?;
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
    let doorbell = machine.doorbell(DOORBELL_GEAR2);
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

/// Serves the serial consoles for ever. A set-up that fails ends GDM, as that of a device does
/// (see [`serve_device`]).
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
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let builder = thread::Builder::new().name(name.into());
    builder
        .spawn(body)
        .map(drop)
        .map_err(|error| format!("thread {name}: {error}"))
}

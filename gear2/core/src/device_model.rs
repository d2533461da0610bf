//! Gear2's side of the region that it shares with the device model (GDM) in the device VM.
//!
//! Owns the region's header, the slots of forwarded accesses, the console rings, the answered count
//! of the control mailbox, and the line that signals GDM.
//!
//! An attacker in the device VM can write anything into the region at any time. So Gear2 keeps its
//! own indices and states and only ever publishes them, and reads each word once. The worst that
//! GDM can do is to answer its guests wrongly, late or never.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use gear1_abi::event::Mmio;
use gear1_abi::id::{CpuIndex, MAX_VCPUS, MAX_VMS, VcpuId};
use gear2_protocol::device_word::{HOLD_ASKED, HOLD_SEEN, LOOKING, RESET_ASKED, RESET_SEEN};
use gear2_protocol::offset::DEVICE_SIZE;
use gear2_protocol::virtio::SetUp;
use gear2_protocol::{
    Control, DeviceRegisters, LINE_REQUEST, MAGIC, MAX_CONSOLES, MAX_DEVICES, PROTOCOL_VERSION,
    RTC_DEVICE, Region, RegisterPage, VIRTIO_STRIDE, line_of_channel,
};
use spin::mutex::TicketMutex;

use crate::config::Config;
use crate::gear1::Gear1;
use crate::kept::Kept;
use crate::platform::{Answer, Guard, Lock, Platform};

mod heartbeat;
mod ring;
mod slots;
#[cfg(test)]
mod tests;

pub(crate) use heartbeat::{Heartbeat, Pulse};
pub(crate) use ring::{InputRing, OutputRing};
pub(crate) use slots::{Places, Request, Slots};

/// The emulated PL061 whose line is Gear2's.
const PL061: usize = 0;

const _: () = assert!(MAX_CONSOLES == MAX_VMS, "each VM has a console");
/// At most this often is GDM told to look at the consoles.
/// A byte a signal would make a busy console cost GDM a wake-up each.
const BELL_PAUSE_US: u64 = 1000;

/// Memory that GDM maps as well.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The region that Gear2 set up.
    pub region: &'static Region,
    /// Register pages of the VMs that are served, in the order of the manifest.
    pub pages: &'static [RegisterPage],
}

/// State that all loops share with GDM.
pub(crate) struct DeviceModel<P: Platform> {
    /// Memory that GDM maps as well.
    region: &'static Region,
    /// Devices, by their channels.
    devices: [Option<Device>; MAX_DEVICES],
    /// Where each vCPU finds the devices of its VM.
    views: [View; MAX_VCPUS],
    /// Accesses that GDM has: one slot for each vCPU.
    pub(crate) slots: Lock<Slots, P>,
    /// Count of the last operation in the mailbox that was answered.
    pub(crate) answered: Lock<u32, P>,
    /// Rings of each VM, in the order of the manifest.
    consoles: Vec<Rings<P>>,
    /// Signals of console output, which come in a limited rate.
    bell: Bell,
    /// Starts of GDM that Gear2 has heard of.
    gdm_starts: AtomicU32,
    /// Heartbeat of GDM, and the loop that checks it.
    heartbeat: Lock<(Heartbeat, CpuIndex), P>,
}

/// A device whose set-up Gear2 does.
#[derive(Clone, Copy)]
struct Device {
    /// Registers that its guest reads.
    registers: &'static DeviceRegisters,
    /// Words that Gear2 and GDM share about it.
    words: &'static [AtomicU64; DEVICE_SIZE / 8],
}

/// Devices of a VM as one of its vCPUs finds them; all zero: none.
#[derive(Clone, Copy, Default)]
struct View {
    /// Guest address (IPA) of the first device's registers.
    ipa: u64,
    /// Channel of the first device.
    first_channel: u32,
    /// Number of devices.
    count: u32,
}

/// The rings of a VM's console.
struct Rings<P: Platform> {
    /// Output of the VM, for GDM.
    output: Lock<OutputRing, P>,
    /// Bytes that GDM has for the VM.
    input: Lock<InputRing, P>,
}

impl<P: Platform> DeviceModel<P> {
    /// Clears the region and writes its header: GDM may look from now on. With `resumes` the
    /// region is taken over from an earlier Gear2 as it is, if it is one.
    pub(crate) fn new(
        config: &Config,
        Shared { region, pages }: Shared,
        kept: &'static Kept,
        resumes: bool,
    ) -> Self {
        let found = [
            region.header.magic.load(Relaxed),
            region.header.version.load(Relaxed).into(),
        ];
        if !resumes || found != [MAGIC, PROTOCOL_VERSION.into()] {
            region.clear();
        }
        let header = &region.header;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        header.version.store(PROTOCOL_VERSION, Relaxed);
        header.vcpu_count.store(count(config.vcpu_count()), Relaxed);
        header.vm_count.store(count(config.vms.len()), Relaxed);
        let hz = u32::try_from(config.counter_hz).unwrap_or(u32::MAX);
        header.counter_hz.store(hz, Relaxed);
        // Last: whoever sees the magic sees the words above.
        header.magic.store(MAGIC, Release);
        let blocks = region.consoles.iter().take(config.vms.len());
        let consoles = blocks.map(|block| Rings {
            output: TicketMutex::new(OutputRing::new(block)),
            input: TicketMutex::new(InputRing::new(block)),
        });
        Self {
            region,
            devices: devices(config, region, pages),
            views: views(config),
            slots: TicketMutex::new(Slots::new(places(config, region), kept)),
            // An operation that an earlier Gear2 answered is not done again.
            answered: TicketMutex::new(region.control.answered.load(Relaxed)),
            consoles: consoles.collect(),
            bell: Bell::new(config.ticks(BELL_PAUSE_US)),
            // A GDM that runs already has started at least once: the first look has it look as
            // well.
            gdm_starts: AtomicU32::new(0),
            heartbeat: TicketMutex::default(),
        }
    }

    /// Tells whether GDM has ever shown a sign of life.
    pub(crate) fn has_shown_life(&self) -> bool {
        self.region.header.gdm_beats.load(Relaxed) != 0
    }

    /// Returns the control mailbox.
    pub(crate) fn control(&self) -> &'static Control {
        &self.region.control
    }

    /// Returns the words for answers that are longer than the mailbox.
    pub(crate) fn trace_words(&self) -> &'static [AtomicU64] {
        &self.region.trace
    }

    /// Performs an access of a vCPU, or has GDM do so and returns `None`: the vCPU waits for GDM's
    /// answer.
    #[inline]
    pub(crate) fn forward(
        &self,
        gear1: &mut impl Gear1,
        vcpu: VcpuId,
        request: Request,
    ) -> Option<Answer> {
        let slots = self.slots.lock();
        // What GDM is at comes first: GDM alone may write the device's page meanwhile.
        // planted: a write overtakes one that GDM has
        if slots.is_idle(request.device) && self.set_up(request) {
            return Some(Answer::Value(0));
        }
        self.post(gear1, slots, vcpu, request);
        None
    }

    /// Does a store that is a write of a driver's set-up and nothing else. False: it is another
    /// access, or GDM has to do it, and nothing has been done.
    #[inline(always)]
    pub(crate) fn set_up_at_once(&self, vcpu: VcpuId, access: Mmio) -> bool {
        let view = vcpu.select(&self.views);
        let offset = access.ipa.wrapping_sub(view.ipa);
        let number = offset / VIRTIO_STRIDE;
        let (Some(value), true) = (access.store, number < u64::from(view.count)) else {
            return false;
        };
        let request = Request {
            device: view.first_channel + number as u32,
            register: (offset % VIRTIO_STRIDE) as u32,
            access: access.access_word() as u32,
            value,
        };
        let slots = self.slots.lock();
        slots.is_idle(request.device) && self.set_up(request)
    }

    /// Has GDM perform an access.
    #[inline(never)]
    fn post(
        &self,
        gear1: &mut impl Gear1,
        mut slots: Guard<'_, Slots, P>,
        vcpu: VcpuId,
        request: Request,
    ) {
        let is_posted = slots.post(vcpu, request);
        drop(slots);
        if is_posted && !self.is_looking(request.device) {
            let (pl061, line) = match request.device {
                RTC_DEVICE => (PL061, LINE_REQUEST),
                channel => line_of_channel(channel as usize),
            };
            // A refusal means that the device VM does not run: GDM looks at all slots when it
            // starts.
            let _ = gear1.pl061_raise(pl061, line);
        }
    }

    /// Does a register write that changes nothing but what a driver sets up. The slots are locked,
    /// so that two vCPUs' writes come one after the other. False: GDM has to do it.
    #[inline]
    fn set_up(&self, request: Request) -> bool {
        /// An access word: a store of four bytes.
        const STORE: u32 = 0b110;
        let device = self.devices.get(request.device as usize);
        let (STORE, Some(Some(device))) = (request.access, device) else {
            return false;
        };
        let show = |register: usize, value| {
            if let Some(word) = device.registers.get(register / 4) {
                word.store(value, Relaxed);
            }
        };
        let (register, value) = (request.register as usize, request.value as u32);
        SetUp::new(device.words).write_by_gear2(register, value, &show)
    }

    /// Returns whether a device's thread polls its slots, so that no signal is needed.
    fn is_looking(&self, device: u32) -> bool {
        // The device model stores 0 and then looks at the slots; here it is the other way round, so
        // that one of the two sees the other's store.
        fence(SeqCst);
        let words = self.region.devices.get(device as usize);
        words.is_some_and(|words| words[LOOKING].load(Relaxed) != 0)
    }

    /// Passes on what GDM has answered, and names the vCPUs that are ready now. The slots stay
    /// locked meanwhile, so that nobody else takes such a vCPU for one that nobody answers.
    pub(crate) fn collect(&self, gear1: &mut impl Gear1, mut ready: impl FnMut(VcpuId)) {
        let posted_again = self.slots.lock().collect(|vcpu, answer: Answer| {
            let (reply, value) = answer.words();
            // A refusal means that the vCPU's VM was stopped.
            if gear1.vcpu_reply(vcpu, reply, value).is_ok() {
                ready(vcpu);
            }
        });
        if posted_again {
            self.raise(gear1);
        }
    }

    /// Has GDM reset the devices of a VM that has stopped. A GDM that is away does so when it comes
    /// back, before it does anything else.
    pub(crate) fn ask_reset(&self, gear1: &mut impl Gear1, channels: Range<u32>) {
        for words in self.device_words(channels) {
            words[RESET_ASKED].fetch_add(1, AcqRel);
        }
        self.raise(gear1);
    }

    /// Returns whether GDM no longer uses the memory behind these devices.
    pub(crate) fn has_reset(&self, channels: Range<u32>) -> bool {
        self.device_words(channels)
            .all(|words| words[RESET_SEEN].load(Acquire) == words[RESET_ASKED].load(Relaxed))
    }

    /// Has GDM leave the queues of these devices alone, or serve them again. A GDM that is away
    /// finds what it has to do when it comes back.
    pub(crate) fn hold(&self, gear1: &mut impl Gear1, channels: Range<u32>, held: bool) {
        for words in self.device_words(channels) {
            let asked = words[HOLD_ASKED].load(Relaxed);
            // planted: a device that is held is asked once more
            if is_odd(asked) != held {
                words[HOLD_ASKED].store(asked.wrapping_add(1), Release);
            }
        }
        self.raise(gear1);
    }

    /// Returns whether GDM leaves the queues of these devices alone, and has completed what it had
    /// taken from them.
    pub(crate) fn is_held(&self, channels: Range<u32>) -> bool {
        self.device_words(channels).all(|words| {
            let asked = words[HOLD_ASKED].load(Relaxed);
            is_odd(asked) && words[HOLD_SEEN].load(Acquire) == asked
        })
    }

    fn device_words(&self, channels: Range<u32>) -> impl Iterator<Item = &'static [AtomicU64]> {
        let devices = self.region.devices.iter();
        let devices = devices.skip(channels.start as usize).take(channels.len());
        devices.map(|words| words.as_slice())
    }

    /// Begins to look for GDM's signs of life, as the device VM starts; `cpu`'s loop does.
    pub(crate) fn watch_begins(&self, cpu: CpuIndex, now: u64) {
        let beats = self.region.header.gdm_beats.load(Relaxed);
        *self.heartbeat.lock() = (Heartbeat::begin(beats, now), cpu);
    }

    /// Looks for one; `None` if another loop does.
    pub(crate) fn watch(&self, cpu: CpuIndex, now: u64, patience: u64) -> Option<Pulse> {
        let beats = self.region.header.gdm_beats.load(Relaxed);
        let mut heartbeat = self.heartbeat.lock();
        let (heartbeat, watcher) = &mut *heartbeat;
        (*watcher == cpu).then(|| heartbeat.look(beats, now, patience))
    }

    /// Tells GDM to look again if it was started since the last time.
    pub(crate) fn greet(&self, gear1: &mut impl Gear1) {
        let starts = self.region.header.gdm_starts.load(Relaxed);
        if self.gdm_starts.swap(starts, Relaxed) != starts {
            self.raise(gear1);
        }
    }

    /// Appends to a VM's console output; [`Self::notify_output`] notifies GDM.
    pub(crate) fn write(&self, vm: usize, bytes: &[u8]) {
        if let Some(rings) = self.consoles.get(vm) {
            rings.output.lock().push(bytes);
            self.bell.owe();
        }
    }

    /// Appends the last bytes of a VM's console output, `count` at most.
    pub(crate) fn tail(&self, vm: usize, count: u32, to: &mut Vec<u8>) {
        if let Some(rings) = self.consoles.get(vm) {
            to.extend(rings.output.lock().tail(count));
        }
    }

    /// Takes the next byte typed at a VM's console.
    pub(crate) fn take_input(&self, gear1: &mut impl Gear1, vm: usize) -> Option<u8> {
        let mut input = self.consoles.get(vm)?.input.lock();
        let byte = input.take();
        if input.take_has_room() {
            self.raise(gear1);
        }
        byte
    }

    /// Notifies GDM of console output unless it was notified just now; returns when to call again
    /// then.
    pub(crate) fn notify_output(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        match self.bell.due(now) {
            Ring::Nothing => None,
            Ring::Later(due) => Some(due),
            Ring::Now => {
                self.raise(gear1);
                None
            }
        }
    }

    /// Tells GDM to look.
    pub(crate) fn raise(&self, gear1: &mut impl Gear1) {
        // A refusal means that the device VM does not run: it is told when it starts.
        let _ = gear1.pl061_raise(PL061, LINE_REQUEST);
    }
}

/// Tells whether a number of `HOLD_ASKED` holds the device.
const fn is_odd(number: u64) -> bool {
    number & 1 != 0
}

/// Returns the devices that have a register page and words.
fn devices(
    config: &Config,
    region: &'static Region,
    pages: &'static [RegisterPage],
) -> [Option<Device>; MAX_DEVICES] {
    let mut all = [None; MAX_DEVICES];
    for page in config.vms.iter().filter_map(|vm| vm.virtio) {
        let shown = pages.get(page.number);
        let shown = shown.map_or(&[][..], |page| page.devices.as_slice());
        for (channel, registers) in page.channels().zip(shown) {
            let channel = channel as usize;
            if let (Some(place), Some(words)) = (all.get_mut(channel), region.devices.get(channel))
            {
                *place = Some(Device { registers, words });
            }
        }
    }
    all
}

/// Returns where each vCPU finds the devices of its VM.
fn views(config: &Config) -> [View; MAX_VCPUS] {
    let mut views = [View::default(); MAX_VCPUS];
    for vm in &config.vms {
        let Some(page) = vm.virtio else { continue };
        for vcpu in vm.vcpus.clone() {
            if let Some(view) = views.get_mut(vcpu) {
                *view = View {
                    ipa: page.ipa,
                    first_channel: page.first_channel,
                    count: page.count,
                };
            }
        }
    }
    views
}

/// Returns where each vCPU's slot is: in the page of its VM.
fn places(config: &Config, region: &'static Region) -> Places {
    let mut places: Places = [None; MAX_VCPUS];
    for vm in &config.vms {
        for vcpu in vm.vcpus.clone() {
            if let Some(place) = places.get_mut(vcpu) {
                // planted: a vCPU's slot is in another VM's page
                *place = region.slot(vm.id.index(), vcpu);
            }
        }
    }
    places
}

/// Bell that tells GDM of console output soon, but not for each byte.
#[derive(Debug)]
struct Bell {
    /// Whether there is output that GDM was not told of.
    owed: AtomicBool,
    /// Counter value of the last signal.
    last: AtomicU64,
    /// Ticks between two signals, at least.
    pause: u64,
}

enum Ring {
    Nothing,
    Later(u64),
    Now,
}

impl Bell {
    const fn new(pause: u64) -> Self {
        Self {
            owed: AtomicBool::new(false),
            last: AtomicU64::new(0),
            pause,
        }
    }

    /// Notes that there is something to tell. Comes after the writing of it.
    fn owe(&self) {
        self.owed.store(true, SeqCst);
    }

    /// Tells whether to signal now. A loop that signals takes the debt of all: GDM looks at every
    /// console.
    fn due(&self, now: u64) -> Ring {
        if !self.owed.load(SeqCst) {
            return Ring::Nothing;
        }
        let due = self.last.load(Relaxed).saturating_add(self.pause);
        if now < due {
            return Ring::Later(due);
        }
        // Two loops that are here at once both signal: one signal too many has GDM look for
        // nothing.
        self.last.store(now, Relaxed);
        // Output written after this point is owed anew.
        self.owed.store(false, SeqCst);
        Ring::Now
    }
}

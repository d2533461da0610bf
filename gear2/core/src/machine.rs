//! State that all loops share: the configuration, the console, each VM's devices and lifecycle.
//!
//! Owns every lock of Gear2. The order is: the control mailbox, a VM's lifecycle, a VM's UART, the
//! console, then the slots of forwarded accesses and the console rings. A loop holds each lock for
//! the work on one event at most, which bounds the wait of the others.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use gear1_abi::ABI_VERSION;
use gear1_abi::call::{Failure, Reply, VcpuState, VmState};
use gear1_abi::event::{Ended, Mmio};
use gear1_abi::exit::ExitReason;
use gear1_abi::guest::NOT_SUPPORTED;
use gear1_abi::id::{CpuIndex, MAX_VCPUS, VcpuId, VmId};
use gear2_protocol::Region;
use spin::mutex::TicketMutex;

use crate::config::{Config, VmConfig, version};
use crate::console::{Command, Console, Flow, Input};
use crate::device_model::{DeviceModel, Request};
use crate::gear1::{Gear1, LastRestart};
use crate::kept::{self, Kept};
use crate::lifecycle::{Goal, Lifecycle, goal_after};
use crate::lives::{News, Reported};
use crate::pl011::{PAGE_BYTES, Pl011};
pub use crate::platform::Platform;
pub(crate) use crate::platform::{Answer, Lock};

/// Longest time for which an unfinished line on the console is not interrupted.
const LINE_PATIENCE_US: u64 = 100_000;

/// The pause between two portions of input, of a FIFO each: 16 bytes a millisecond at most.
const INPUT_PAUSE_US: u64 = 1_000;

/// State that all loops share.
pub struct Machine<P: Platform> {
    pub(crate) config: Config,
    /// The consoles of all VMs on one UART, if Gear2 owns one.
    console: Option<Lock<Console<P::Uart>, P>>,
    pub(crate) device_model: Option<DeviceModel<P>>,
    vms: Vec<SharedVm<P>>,
    /// Ticks that each vCPU ran. Only its own loop writes them.
    ran: [AtomicU64; MAX_VCPUS],
    kept: &'static Kept,
    /// Number of restarts of Gear2.
    pub(crate) restarts: u64,
    /// vCPUs whose accesses are not made again, a bit each: Gear2 may have failed at them twice.
    blamed: AtomicU32,
    /// VMs, a bit each, whose input waits for the end of a pause.
    paced: AtomicU32,
}

/// State of a VM that all loops share.
pub(crate) struct SharedVm<P: Platform> {
    uart: Lock<Pl011, P>,
    pub(crate) lifecycle: Lock<Lifecycle, P>,
    /// Ticks that loading the VM took.
    loading: AtomicU64,
}

/// Condition that a VM waits for at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing<'m> {
    /// The start of this VM.
    Vm(&'m str),
    /// A sign of life of the device model in this VM.
    DeviceModel(&'m str),
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vm(name) => write!(f, "{name}, which starts before it"),
            Self::DeviceModel(name) => write!(f, "the device model in {name}"),
        }
    }
}

impl<P: Platform> Machine<P> {
    /// Makes the state that the loops share, and announces Gear2 on the console. `uart` is the boot
    /// UART, if Gear2 owns it, and `region` the region shared with the device model, if there is a
    /// device VM. After a restart the state continues from the words of `kept`.
    // A frame of its own: the caller has room for one machine, not for two.
    #[inline(never)]
    pub fn new(
        mut config: Config,
        uart: Option<P::Uart>,
        region: Option<&'static Region>,
        kept: &'static Kept,
        gear1: &mut impl Gear1,
    ) -> Self {
        let last = gear1.last_restart();
        if let Some(vm) = config.device_vm.filter(|_| uart.is_none()) {
            // planted: the only way to Gear2 may be stopped
            config.vms[vm.index()].must_run = true;
        }
        let names = config.vms.iter().map(|vm| vm.name.as_str());
        let patience = config.ticks(LINE_PATIENCE_US);
        let console = uart.map(|uart| TicketMutex::new(Console::new(uart, names, patience)));
        let vms = config.vms.iter().map(|_| SharedVm {
            uart: TicketMutex::new(Pl011::new()),
            lifecycle: TicketMutex::new(Lifecycle::default()),
            loading: AtomicU64::new(0),
        });
        let machine = Self {
            vms: vms.collect(),
            console,
            device_model: region
                .map(|region| DeviceModel::new(&config, region, kept, last.is_some())),
            ran: [const { AtomicU64::new(0) }; MAX_VCPUS],
            kept,
            restarts: last.map_or(0, |last| last.count),
            blamed: AtomicU32::new(0),
            paced: AtomicU32::new(0),
            config,
        };
        match last {
            None => machine.say_hello(),
            Some(last) => machine.take_over(gear1, last),
        }
        machine
    }

    /// Goes on where the Gear2 that failed was. No loop runs yet.
    fn take_over(&self, gear1: &mut impl Gear1, last: LastRestart) {
        for (config, shared) in self.config.vms.iter().zip(&self.vms) {
            let (mut uart, mut lifecycle) = (shared.uart.lock(), shared.lifecycle.lock());
            *uart = Pl011::with(self.kept.uart(config.id));
            if let Some(console) = config.console {
                // A refusal means that the VM does not run.
                let _ = gear1.irq_set(config.id, console.intid, uart.level());
            }
            let Ok(history) = gear1.vm_history(config.id) else {
                continue;
            };
            let reported = Reported::from_words(self.kept.reported(config.id), &history);
            let given_up = self.kept.is_given_up(config.id);
            *lifecycle = Lifecycle::resumed(self.kept.goal(config.id), reported, given_up);
            let restarts = self.kept.restarts(config.id);
            // planted: a Gear2 that is restarted forgets the restarts of VMs
            lifecycle.resume_restarts(restarts, gear1.now(), &config.restarts);
            // An end that was reported was seen to, or is kept as wanted and owed.
            self.report_news(gear1, config, &mut lifecycle, None);
        }
        self.take_over_accesses(gear1, last);
        let why = match last.failure {
            Some(Failure::Hang) => "did not come back",
            Some(Failure::Fault) => "made a fault",
            Some(Failure::Fatal) => "gave up",
            None => "failed",
        };
        let LastRestart { count, pc, cpu, .. } = last;
        let text = format_args!("restarted, {count} in all: CPU {cpu} {why} at {pc:#x}");
        self.say(None, text);
    }

    /// Takes over the slots of accesses that the device model has, and finds out which vCPU's
    /// access Gear2 may have failed at twice: it is one of the CPU that failed, and waits for Gear2
    /// itself.
    fn take_over_accesses(&self, gear1: &mut impl Gear1, last: LastRestart) {
        for (vcpu, config) in self.config.vcpus() {
            let vm = self.config.vm(config.vm);
            let place = gear1.vcpu_awaits(vcpu).and_then(|(ipa, access)| {
                let mmio = Mmio::from_words(ipa, access, 0);
                let (device, register) = vm?.virtio?.locate(mmio)?;
                Some([device, register, mmio.access_word() as u32])
            });
            let slots = self.device_model.as_ref().map(|model| model.slots.lock());
            let forwarded = slots.is_some_and(|mut slots| {
                slots.take_over(vcpu, place);
                slots.awaits(vcpu)
            });
            let waits = matches!(
                gear1.vcpu_state(vcpu),
                Ok(VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall)
            );
            let is_suspect = waits && !forwarded && config.cpu.reg() == last.cpu;
            if is_suspect && self.kept.repeat(vcpu, asked(gear1, vcpu)) {
                self.blamed.fetch_or(kept::bit(vcpu), Relaxed);
            }
        }
        if let Some(model) = &self.device_model {
            model.raise(gear1);
        }
    }

    /// Keeps the goal and the reported news of a VM for the next Gear2. The lifecycle is locked.
    ///
    /// An end that is reported is never judged again, so its restart is stored first: a Gear2 that
    /// ends between two of the stores leaves an end that is judged twice, and none that is not
    /// counted.
    pub(crate) fn keep(&self, vm: VmId, lifecycle: &Lifecycle) {
        let (times, owed) = lifecycle.restarts();
        self.kept.set_restarts(vm, times, owed);
        self.kept.set_given_up(vm, lifecycle.is_given_up());
        self.kept.set_goal(vm, lifecycle.goal());
        // The fence keeps the compiler from an exchange; one CPU sees its own stores in order.
        fence(Release);
        self.kept.set_reported(vm, lifecycle.reported().words());
    }

    /// Returns what follows when a VM has ended by itself. Its lifecycle may be locked.
    pub(crate) fn goal_after(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        end: Ended,
    ) -> Option<Goal> {
        match goal_after(vm, end) {
            Some(Goal::Stop) => Some(self.goal_for_stop(gear1, vm)),
            goal => goal,
        }
    }

    /// Returns the goal that replaces a stop of the VM. Without a console of Gear2's own, nobody
    /// could start the device VM again: the machine is powered off if only guests of the device VM
    /// are left, else the device VM is restarted at once.
    pub(crate) fn goal_for_stop(&self, gear1: &mut impl Gear1, vm: &VmConfig) -> Goal {
        if !vm.must_run {
            return Goal::Stop;
        }
        let others = self.config.vms.iter().zip(&self.vms);
        let mut unserved = others.filter(|(other, _)| other.id != vm.id && other.virtio.is_none());
        let lives = unserved.any(|(other, shared)| {
            // A lifecycle that is locked is being changed by another loop: count the VM as alive.
            let lifecycle = shared.lifecycle.try_lock();
            gear1.vm_state(other.id) == Ok(VmState::Running)
                || lifecycle.is_none_or(|lifecycle| lifecycle.is_to_run())
        });
        if lives { Goal::Restart } else { Goal::PowerOff }
    }

    /// Says what has become of a VM since the last time. Its lifecycle is locked, so that several
    /// loops say it in order. `fault` describes how it ended, if it did so by a fault just now.
    /// From here on the restart, or whatever else follows from an end, is the VM's goal.
    pub(crate) fn report_news(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        lifecycle: &mut Lifecycle,
        fault: Option<&str>,
    ) {
        let Ok(history) = gear1.vm_history(vm.id) else {
            return;
        };
        let name = &vm.name;
        // Bounded by the lives that Gear1 keeps.
        while let Some(news) = lifecycle.news(&history) {
            let is_last = lifecycle.starts() == history.starts;
            if let News::Ended(how) = news
                && is_last
                && let Some(goal) = self.goal_after(gear1, vm, how)
            {
                lifecycle.ended(goal);
            }
            // The news counts as reported before it is shown, because a Gear2 that fails while
            // showing it would repeat it without end.
            self.keep(vm.id, lifecycle);
            let say =
                |what: fmt::Arguments<'_>| self.say(Some(vm.id), format_args!("{name} {what}"));
            match news {
                News::Started if lifecycle.starts() == 1 => {}
                News::Started if vm.scheduled => say(format_args!("restarted")),
                News::Started => say(format_args!("restarted by Gear1")),
                News::Ended(Ended::Off) => say(format_args!("turned itself off")),
                News::Ended(Ended::Reset) => say(format_args!("resets itself")),
                News::Ended(Ended::Fault) => match fault.filter(|_| is_last) {
                    Some(text) => say(format_args!("{text}")),
                    None => say(format_args!(
                        "cannot go on: its registers are in Gear1's log"
                    )),
                },
                News::Ended(Ended::No) => {}
                News::Forgotten(count) => say(format_args!(
                    "restarted by Gear1 {count} times; how it ended before is not known any more"
                )),
            }
        }
    }

    /// Says that a VM's vCPUs are not to run, whatever they wait for, or are. Its lifecycle is
    /// locked.
    pub(crate) fn set_paused(&self, vm: VmId, paused: bool) {
        self.kept.set_paused(vm, paused);
    }

    /// Returns which of the VMs that start before this one is not up: each was started, and the
    /// device VM's device model has shown a sign of life. What is locked elsewhere just now is not
    /// up.
    pub(crate) fn missing_before(&self, vm: &VmConfig) -> Option<Missing<'_>> {
        let earlier = |(other, _): &(&VmConfig, &SharedVm<P>)| {
            other.autostart && other.boot_order < vm.boot_order
        };
        let mut all = self.config.vms.iter().zip(&self.vms).filter(earlier);
        all.find_map(|(other, shared)| {
            let lifecycle = shared.lifecycle.try_lock();
            if lifecycle.is_none_or(|lifecycle| lifecycle.starts() == 0) {
                return Some(Missing::Vm(&other.name));
            }
            let model = self.device_model.as_ref();
            let model = model.filter(|_| self.config.device_vm == Some(other.id))?;
            (!model.has_shown_life()).then_some(Missing::DeviceModel(&other.name))
        })
    }

    fn say_hello(&self) {
        let [major, minor] = version(ABI_VERSION);
        self.say(
            None,
            format_args!(
                "{}, ABI {major}.{minor}, {} CPUs, scheduler {}",
                env!("CARGO_PKG_VERSION"),
                self.config.cpus.len(),
                self.config.policy.name,
            ),
        );
    }

    /// Shows a line on the terminal, and in the console ring of the VM that it is about: without
    /// one, in the device VM's. [`Self::service_console`] tells GDM of it.
    pub(crate) fn say(&self, vm: Option<VmId>, text: fmt::Arguments<'_>) {
        if let Some(console) = &self.console {
            console.lock().say(text);
        }
        if let (Some(model), Some(vm)) = (&self.device_model, vm.or(self.config.device_vm)) {
            model.write(vm.index(), format!("gear2: {text}\r\n").as_bytes());
        }
    }

    /// Sends all console output that waits.
    pub(crate) fn drain_console(&self) {
        if let Some(console) = &self.console {
            console.lock().drain();
        }
    }

    /// Adds to the time that a vCPU ran.
    #[inline]
    pub(crate) fn account(&self, vcpu: VcpuId, ticks: u64) {
        let ran = &self.ran[vcpu.index()];
        ran.store(ran.load(Relaxed).wrapping_add(ticks), Relaxed);
    }

    /// Adds to the time that a VM's loading took, which is its first vCPU's.
    pub(crate) fn account_loading(&self, vm: VmId, ticks: u64) {
        if let Some((_, shared)) = self.vm(vm) {
            // planted: loading is nobody's time
            shared.loading.fetch_add(ticks, Relaxed);
        }
    }

    /// Returns the ticks that a vCPU ran, and its VM's loading if it is the first one.
    pub(crate) fn ran(&self, vcpu: VcpuId) -> u64 {
        let all = self.config.vms.iter().zip(&self.vms);
        let mut loading = all.filter(|(vm, _)| vm.vcpus.start == vcpu.index());
        let loading = loading
            .next()
            .map_or(0, |(_, shared)| shared.loading.load(Relaxed));
        self.ran[vcpu.index()].load(Relaxed).wrapping_add(loading)
    }

    /// Tells whether a VM's vCPUs are not to run.
    pub(crate) fn is_paused(&self, vm: VmId) -> bool {
        self.kept.is_paused(vm)
    }

    pub(crate) fn vm(&self, vm: VmId) -> Option<(&VmConfig, &SharedVm<P>)> {
        Some((self.config.vm(vm)?, self.vms.get(vm.index())?))
    }

    /// Emulates a guest's access to a device. Returns the answer, or `None` if the device model
    /// gives it later, and the time for the next [`Self::service_console`], if one is needed.
    pub(crate) fn access(
        &self,
        gear1: &mut impl Gear1,
        vcpu: VcpuId,
        access: Mmio,
        now: u64,
    ) -> (Option<Answer>, Option<u64>) {
        let vm = self.config.vcpu(vcpu).map(|vcpu| vcpu.vm);
        let Some((config, shared)) = vm.and_then(|vm| self.vm(vm)) else {
            return (Some(Answer::Abort), None);
        };
        let offset = config
            .console
            .and_then(|console| access.ipa.checked_sub(console.ipa));
        let offset = match offset {
            Some(offset) if offset < PAGE_BYTES && access.size_log2 <= 2 => offset,
            Some(_) | None => return (self.forward(gear1, config, vcpu, access), None),
        };
        let mut uart = shared.uart.lock();
        let mut value = 0;
        let mut console_due = None;
        match access.store {
            None => {
                value = uart.read(offset, access.size_log2);
                console_due = self.fill(gear1, config, &mut uart, now);
            }
            Some(stored) => {
                if let Some(byte) = uart.write(offset, stored) {
                    let (flow, due) = self.send(gear1, config, byte, now);
                    uart.set_transmit_full(flow == Flow::Full);
                    console_due = due;
                } else {
                    self.kept.set_uart(config.id, uart.settings());
                }
            }
        }
        update_line(gear1, config, &mut uart);
        (Some(Answer::Value(value)), console_due)
    }

    /// Has the device model perform an access, if it is to one of the VM's virtio devices.
    fn forward(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        vcpu: VcpuId,
        access: Mmio,
    ) -> Option<Answer> {
        let place = vm.virtio.and_then(|page| page.locate(access));
        let (Some(model), Some((device, register))) = (&self.device_model, place) else {
            return Some(Answer::Abort);
        };
        let request = Request {
            device,
            register,
            access: access.access_word() as u32,
            value: access.store.unwrap_or(0),
        };
        model.forward(gear1, vcpu, request);
        None
    }

    /// Sends a byte of a VM to whatever shows its console.
    fn send(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        byte: u8,
        now: u64,
    ) -> (Flow, Option<u64>) {
        let mut outcome = (Flow::Open, None);
        if let Some(console) = &self.console {
            let mut console = console.lock();
            outcome = (console.send(vm.id.index(), byte, now), console.held_until());
        }
        if let Some(model) = &self.device_model {
            model.write(vm.id.index(), &[byte]);
            outcome.1 = earlier(outcome.1, model.notify_output(gear1, now));
        }
        outcome
    }

    /// Gives a UART typed input, as far as its pace allows. Returns the time for the next
    /// [`Self::take_paced_input`].
    fn fill(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        uart: &mut Pl011,
        now: u64,
    ) -> Option<u64> {
        let pause = self.config.ticks(INPUT_PAUSE_US);
        let due = uart.fill_fifo(now, pause, || {
            let model = self.device_model.as_ref()?;
            model.take_input(gear1, vm.id.index())
        });
        let bit = 1 << vm.id.index();
        if due.is_some() {
            self.paced.fetch_or(bit, Relaxed);
        } else {
            self.paced.fetch_and(!bit, Relaxed);
        }
        due
    }

    /// Moves typed input from the rings to all UARTs. Returns the time for the next
    /// [`Self::take_paced_input`].
    pub(crate) fn take_ring_input(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        self.take_input_of(gear1, u32::MAX, now)
    }

    /// Gives more typed input to the UARTs whose pause is over. Returns the time for the next call.
    pub(crate) fn take_paced_input(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        self.take_input_of(gear1, self.paced.load(Relaxed), now)
    }

    fn take_input_of(&self, gear1: &mut impl Gear1, vms: u32, now: u64) -> Option<u64> {
        let mut due = None;
        for (config, shared) in self.config.vms.iter().zip(&self.vms) {
            if config.console.is_some() && vms >> config.id.index() & 1 != 0 {
                let mut uart = shared.uart.lock();
                due = earlier(due, self.fill(gear1, config, &mut uart, now));
                update_line(gear1, config, &mut uart);
            }
        }
        due
    }

    /// Tells whether a vCPU that waits for an answer can go on: if nobody is going to give one,
    /// since an earlier Gear2 took the question with it, it asks again. If that is what Gear2
    /// failed at, and not for the first time, it is refused instead.
    pub(crate) fn can_go_on(&self, gear1: &mut impl Gear1, vcpu: VcpuId) -> bool {
        let slots = self.device_model.as_ref().map(|model| model.slots.lock());
        if slots.as_ref().is_some_and(|slots| slots.awaits(vcpu)) {
            return false;
        }
        match gear1.vcpu_state(vcpu) {
            Ok(VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall) => {
                let bit = kept::bit(vcpu);
                let (reply, value) = if self.blamed.fetch_and(!bit, Relaxed) & bit != 0 {
                    (Reply::Abort, NOT_SUPPORTED)
                } else {
                    (Reply::None, 0)
                };
                gear1.vcpu_reply(vcpu, reply, value).is_ok()
            }
            Ok(VcpuState::Ready | VcpuState::Running) => true,
            Ok(VcpuState::Off | VcpuState::Wfi) | Err(_) => false,
        }
    }

    /// Resets the devices of a loaded VM, and drops the accesses and pauses of its former life.
    pub(crate) fn reset(&self, gear1: &mut impl Gear1, vm: VmId) {
        let Some((config, shared)) = self.vm(vm) else {
            return;
        };
        let mut uart = shared.uart.lock();
        uart.reset();
        self.kept.set_uart(vm, uart.settings());
        update_line(gear1, config, &mut uart);
        drop(uart);
        self.set_paused(vm, false);
        if let Some(model) = &self.device_model {
            let mut slots = model.slots.lock();
            let vcpus = config.vcpus.clone().filter_map(VcpuId::new);
            vcpus.for_each(|vcpu| slots.abandon(vcpu));
        }
    }

    /// Makes the device model reset the devices of a stopped VM, so that none of them writes to its
    /// memory any longer. The caller repeats the call until the result is true, however long that
    /// takes. `asked` is the number of starts of the device VM when the device model was asked.
    pub(crate) fn quiesce(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        asked: &mut Option<u32>,
    ) -> bool {
        let (Some(page), Some(model), Some(device_vm)) =
            (vm.virtio, &self.device_model, self.config.device_vm)
        else {
            return true;
        };
        if asked.is_none() {
            model.ask_reset(gear1, page.channels());
        }
        // After the question: a device model that began to work before it may not know of it.
        let Ok(history) = gear1.vm_history(device_vm) else {
            return false;
        };
        // planted: the device model is not believed to have ended with its VM
        if *asked.get_or_insert(history.starts) != history.starts {
            // The stop of the device VM ended all transfers of its devices; the next device model
            // resets the devices before anything else.
            return true;
        }
        match gear1.vm_state(device_vm) {
            Ok(VmState::Running) => {
                let slots = model.slots.lock();
                let mut vcpus = vm.vcpus.clone().filter_map(VcpuId::new);
                // planted: a guest is loaded while the device model uses its memory
                vcpus.all(|vcpu| slots.is_free(vcpu)) && model.has_reset(page.channels())
            }
            // Transfers of the devices may still arrive.
            Ok(VmState::Stopping) | Err(_) => false,
            Ok(VmState::Stopped | VmState::Loading | VmState::Loaded) => true,
        }
    }

    /// Tells a started device model the events that it missed. Returns whether `cpu`'s loop has to
    /// watch its heartbeat.
    pub(crate) fn on_start(&self, gear1: &mut impl Gear1, vm: &VmConfig, cpu: CpuIndex) -> bool {
        let Some(model) = &self.device_model else {
            return false;
        };
        if self.config.device_vm != Some(vm.id) {
            return false;
        }
        model.raise(gear1);
        model.watch_begins(cpu, gear1.now());
        vm.watchdog != 0
    }

    /// Sends console output that waits and takes input that does, and returns when to call again if
    /// some still waits.
    pub(crate) fn service_console(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        let model = self.device_model.as_ref();
        let notified = model.and_then(|model| model.notify_output(gear1, now));
        let due = earlier(notified, self.service_terminal(gear1, now));
        earlier(due, self.take_paced_input(gear1, now))
    }

    fn service_terminal(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        let (room, due) = {
            let mut console = self.console.as_ref()?.lock();
            (console.service(now), console.held_until())
        };
        for (config, shared) in self.config.vms.iter().zip(&self.vms) {
            if room >> config.id.index() & 1 != 0 {
                let mut uart = shared.uart.lock();
                uart.set_transmit_full(false);
                update_line(gear1, config, &mut uart);
            }
        }
        due
    }

    /// Passes on typed input up to the first command, if there is one. The caller executes the
    /// command and calls again, and [`Self::service_console`] after the last one.
    pub(crate) fn take_input(
        &self,
        gear1: &mut impl Gear1,
        now: u64,
    ) -> Option<(Command, Option<VmId>)> {
        loop {
            // The guard ends with the statement: the UART's lock comes before the console's.
            let input = self.console.as_ref()?.lock().input();
            match input? {
                Input::Done => {}
                Input::Byte(vm, byte) => self.type_to(gear1, vm, byte, now),
                Input::Command(command, vm) => return Some((command, VmId::new(vm))),
            }
        }
    }

    fn type_to(&self, gear1: &mut impl Gear1, vm: usize, byte: u8, now: u64) {
        let Some((config, shared)) = VmId::new(vm).and_then(|vm| self.vm(vm)) else {
            return;
        };
        if config.console.is_some() {
            let mut uart = shared.uart.lock();
            uart.type_in(byte);
            // The result may be dropped: waiting input is marked, and the caller asks when it is
            // due.
            let _ = self.fill(gear1, config, &mut uart, now);
            update_line(gear1, config, &mut uart);
        }
    }
}

/// Returns how often a vCPU has asked Gear2 for something.
fn asked(gear1: &mut impl Gear1, vcpu: VcpuId) -> u64 {
    let reasons = [ExitReason::MmioGear2, ExitReason::HypercallGear2];
    let counts = reasons.map(|reason| gear1.exit_stats(vcpu, reason).map_or(0, |(count, _)| count));
    counts.iter().sum()
}

fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Tells Gear1 the level of a UART's interrupt line, if it changed. The UART stays locked
/// meanwhile, so that levels arrive in order.
fn update_line(gear1: &mut impl Gear1, config: &VmConfig, uart: &mut Pl011) {
    if let (Some(level), Some(console)) = (uart.level_change(), config.console) {
        // A refusal means that the VM is being stopped, which resets the line too.
        let _ = gear1.irq_set(config.id, console.intid, level);
    }
}

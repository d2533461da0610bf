//! State that all loops share: the configuration, the console, each VM's devices and lifecycle.
//!
//! Owns every lock of Gear2. The order is: the control mailbox, a VM's lifecycle, a VM's UART or
//! watchdog or last words, the console, then the slots of forwarded accesses, the console rings and
//! the scheduling parameters.
//! A loop holds each lock for the work on one event at most, which bounds the wait of the others.

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use gear1_abi::ABI_VERSION;
use gear1_abi::call::VmState;
use gear1_abi::event::{Ended, Mmio};
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VMS, VcpuId, VmId};
use spin::mutex::TicketMutex;

use crate::config::{Config, VmConfig, version};
use crate::console::Console;
pub use crate::device_model::Shared;
use crate::device_model::{DeviceModel, Request};
use crate::gear1::Gear1;
use crate::kept::Kept;
use crate::last_words::{Cause, LastWords};
use crate::lifecycle::{Goal, Lifecycle, goal_after};
use crate::lives::News;
use crate::load::Load;
use crate::pl011::Pl011;
pub use crate::platform::Platform;
pub(crate) use crate::platform::{Answer, Lock};
use crate::trace::Trace;

mod accounts;
mod consoles;
mod last_words;
mod placement;
mod pool_change;
mod pools;
mod shares;
mod take_over;
mod watchdogs;

use accounts::Accounts;
use consoles::update_line;
use placement::Placement;
pub(crate) use placement::{LOOK, LOOK_AT_WAITS, MOVE, Place, SHARE, Stage, Stays, TRACE, WORDS};
use pools::Pools;
pub(crate) use pools::Step;
pub(crate) use shares::Parameter;
use shares::Shares;
use watchdogs::Watched;
pub(crate) use watchdogs::{Look, Sign, Slow, Usage};

/// Longest time for which an unfinished line on the console is not interrupted.
const LINE_PATIENCE_US: u64 = 100_000;

/// State that all loops share.
pub struct Machine<P: Platform> {
    /// Configuration, which no loop changes.
    pub(crate) config: Config,
    /// The consoles of all VMs on one UART, if Gear2 owns one.
    console: Option<Lock<Console<P::Uart>, P>>,
    /// Gear2's side of the region shared with GDM, if there is a device VM.
    pub(crate) device_model: Option<DeviceModel<P>>,
    /// State of each VM, in the order of the manifest.
    vms: Vec<SharedVm<P>>,
    /// Accounts of the vCPUs.
    accounts: Accounts,
    /// CPUs of vCPUs, and their moves.
    pub(crate) placement: Placement,
    /// Pools of the VMs.
    pub(crate) pools: Pools,
    /// Scheduling parameters of the VMs.
    pub(crate) shares: Lock<Shares, P>,
    /// Loads of the CPUs, if there is a balancer.
    pub(crate) loads: [Load; MAX_CPUS],
    /// Words that a restart of Gear2 leaves as they are.
    kept: &'static Kept,
    /// Number of restarts of Gear2.
    pub(crate) restarts: u64,
    /// vCPUs whose accesses are not made again, a bit each: Gear2 may have failed at them twice.
    blamed: AtomicU32,
    /// VMs, a bit each, whose input waits for the end of a pause.
    paced: AtomicU32,
    /// Rings of trace records, and what the loops do about them.
    pub(crate) trace: Trace<P>,
    /// Aborted accesses of each VM's devices, and last of all of devices that nobody owns.
    dma: [AtomicU64; MAX_VMS + 1],
}

/// State of a VM that all loops share.
pub(crate) struct SharedVm<P: Platform> {
    /// Emulated UART. The lock is held until Gear1 knows the level of the interrupt line.
    uart: Lock<Pl011, P>,
    /// Emulated watchdog, which is without effect if the VM has none.
    pub(crate) watchdog: Lock<Watched, P>,
    /// Last words of the life that ended last.
    pub(crate) last_words: Lock<LastWords, P>,
    /// Goal, and progress towards it. The lock is held for a step: two loops with a job for the VM
    /// take turns.
    pub(crate) lifecycle: Lock<Lifecycle, P>,
}

/// Work that is due at a time, after an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// [`Machine::service_console`].
    Console(u64),
    /// A look at the watchdog of the VM.
    Watchdog(u64),
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
    /// UART, if Gear2 owns it, and `shared` what is shared with the device model, if there is a
    /// device VM. After a restart the state continues from the words of `kept`.
    // A frame of its own: the caller has room for one machine, not for two.
    #[inline(never)]
    pub fn new(
        mut config: Config,
        uart: Option<P::Uart>,
        shared: Option<Shared>,
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
        let vms = config.vms.iter().map(|vm| SharedVm {
            uart: TicketMutex::new(Pl011::new()),
            watchdog: TicketMutex::new(Watched::new(vm)),
            last_words: TicketMutex::new(LastWords::new(vm.vcpus.len())),
            lifecycle: TicketMutex::new(Lifecycle::default()),
        });
        let machine = Self {
            vms: vms.collect(),
            console,
            device_model: shared
                .map(|shared| DeviceModel::new(&config, shared, kept, last.is_some())),
            accounts: Accounts::new(),
            placement: Placement::new(&config),
            pools: Pools::new(&config),
            shares: TicketMutex::new(Shares::new(&config)),
            loads: core::array::from_fn(|_| Load::default()),
            kept,
            restarts: last.map_or(0, |last| last.count),
            blamed: AtomicU32::new(0),
            paced: AtomicU32::new(0),
            trace: Trace::new(core::mem::take(&mut config.rings)),
            dma: [const { AtomicU64::new(0) }; MAX_VMS + 1],
            config,
        };
        match last {
            None => machine.say_hello(),
            Some(last) => machine.take_over(gear1, last),
        }
        machine
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
        self.kept.set_fail_over(vm, lifecycle.fail_over_word());
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
        // Bounded by the lives that Gear1 keeps.
        while let Some(news) = lifecycle.news(&history) {
            let is_last = lifecycle.starts() == history.starts;
            let was_silent = u64::from(lifecycle.starts()) == history.silent;
            if let News::Ended(how) = news {
                lifecycle.set_cause(match how {
                    Ended::Fault if was_silent => Cause::Hang,
                    how => Cause::of(how),
                });
                if is_last && let Some(goal) = self.goal_after(gear1, vm, how) {
                    lifecycle.ended(goal);
                }
            }
            // An end that is not reported yet is told again by the next Gear2: a ring is lost never,
            // and may come twice.
            if matches!(news, News::Ended(_) | News::Forgotten(_)) {
                // planted: nobody is told of an end
                self.tell(gear1, vm);
            }
            // The news counts as reported before it is shown, because a Gear2 that fails while
            // showing it would repeat it without end.
            self.keep(vm.id, lifecycle);
            self.say_news(vm, lifecycle, news, fault.filter(|_| is_last));
            if was_silent && matches!(news, News::Ended(Ended::Fault)) {
                self.count_hang(vm);
            }
        }
    }

    /// Rings the doorbell that tells another VM of this one's end.
    pub(crate) fn tell(&self, gear1: &mut impl Gear1, vm: &VmConfig) {
        if let Some(doorbell) = vm.tells {
            // Gear1 has the same manifest; a receiver that does not run hears nothing.
            let _ = gear1.channel_ring(doorbell);
        }
    }

    /// Shows what has become of a VM; `fault` describes the end, if it was a fault just now. The
    /// first start is no news, as the loop that starts the VM says so itself.
    fn say_news(&self, vm: &VmConfig, lifecycle: &Lifecycle, news: News, fault: Option<&str>) {
        let name = &vm.name;
        let say = |what: fmt::Arguments<'_>| self.say(Some(vm.id), format_args!("{name} {what}"));
        let fault = fault.unwrap_or(match lifecycle.cause() {
            Cause::Hang => "hangs: its heartbeat has stopped",
            _ => "cannot go on: its registers are in Gear1's log",
        });
        match news {
            News::Started if lifecycle.starts() == 1 => {}
            News::Started if vm.scheduled => say(format_args!("restarted")),
            News::Started => say(format_args!("restarted by Gear1")),
            News::Ended(Ended::Off) => say(format_args!("turned itself off")),
            News::Ended(Ended::Reset) => say(format_args!("resets itself")),
            News::Ended(Ended::Fault) => say(format_args!("{fault}")),
            News::Ended(Ended::No) => {}
            News::Forgotten(count) => say(format_args!(
                "restarted by Gear1 {count} times; how it ended before is not known any more"
            )),
        }
    }

    /// Says that a VM's vCPUs are not to run, whatever they wait for, or are, and that its devices
    /// are to rest. Its lifecycle is locked.
    pub(crate) fn set_paused(&self, gear1: &mut impl Gear1, vm: &VmConfig, paused: bool) {
        let was_paused = self.is_paused(vm.id);
        self.kept.set_paused(vm.id, paused);
        if let (Some(page), Some(model)) = (vm.virtio, &self.device_model)
            && was_paused != paused
        {
            // planted: devices of a paused VM go on
            model.hold(gear1, page.channels(), paused);
        }
    }

    /// Tells whether a VM is paused, and nothing of its devices is under way.
    pub(crate) fn is_quiet(&self, vm: &VmConfig) -> bool {
        let devices = vm.virtio.zip(self.device_model.as_ref());
        let is_held = devices.is_none_or(|(page, model)| model.is_held(page.channels()));
        self.is_paused(vm.id) && is_held
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

    /// Shows the first line of Gear2's: its build and its schedulers.
    fn say_hello(&self) {
        let [major, minor] = version(ABI_VERSION);
        self.say(
            None,
            format_args!(
                "{}, ABI {major}.{minor}, {} CPUs, {}",
                env!("CARGO_PKG_VERSION"),
                self.config.cpus.len(),
                self.config.schedulers(),
            ),
        );
    }

    /// Counts an aborted access of a VM's device, or of one that nobody owns. Returns how many there
    /// were since Gear2's start, this one included.
    pub(crate) fn count_dma(&self, vm: Option<VmId>) -> u64 {
        let index = vm.map_or(MAX_VMS, VmId::index);
        let count = self.dma.get(index);
        count.map_or(1, |count| count.fetch_add(1, Relaxed) + 1)
    }

    /// Returns how many accesses of a VM's devices were aborted.
    pub(crate) fn dma_count(&self, vm: VmId) -> u64 {
        self.dma
            .get(vm.index())
            .map_or(0, |count| count.load(Relaxed))
    }

    /// Tells whether a VM's vCPUs are not to run.
    pub(crate) fn is_paused(&self, vm: VmId) -> bool {
        self.kept.is_paused(vm)
    }

    pub(crate) fn vm(&self, vm: VmId) -> Option<(&VmConfig, &SharedVm<P>)> {
        Some((self.config.vm(vm)?, self.vms.get(vm.index())?))
    }

    /// Performs an access to another device than the UART. The device model's come first: a guest
    /// uses them most.
    fn access_other(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        vcpu: VcpuId,
        access: Mmio,
        now: u64,
    ) -> (Option<Answer>, Option<Later>) {
        let answer = self.forward(gear1, vm, vcpu, access);
        if answer != Some(Answer::Abort) || vm.watchdog_device.is_none() {
            return (answer, None);
        }
        let (answer, due) = self.access_watchdog(gear1, vm, access, now);
        (Some(answer), due.map(Later::Watchdog))
    }

    /// Performs an access, or has the device model do so, if it is to a device of the VM's that the
    /// device model serves.
    fn forward(
        &self,
        gear1: &mut impl Gear1,
        vm: &VmConfig,
        vcpu: VcpuId,
        access: Mmio,
    ) -> Option<Answer> {
        let (Some(model), Some((device, register))) = (&self.device_model, vm.locate(access))
        else {
            return Some(Answer::Abort);
        };
        let request = Request {
            device,
            register,
            access: access.access_word() as u32,
            value: access.store.unwrap_or(0),
        };
        model.forward(gear1, vcpu, request)
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
        self.reset_watchdog(gear1, config, shared);
        // Whoever paused the VM paused the life that has ended.
        self.set_paused(gear1, config, false);
        if let Some(model) = &self.device_model {
            let mut slots = model.slots.lock();
            let vcpus = config.vcpus.clone().filter_map(VcpuId::new);
            // An answer to the former life would complete an access that nobody made.
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
}

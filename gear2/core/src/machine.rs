//! What all loops share: the configuration, the console, each VM's devices and life.
//!
//! Owns every lock of Gear2. They are taken in this order: a VM's lifecycle, a
//! VM's UART, the console. Each is held for the work on one event at most, so
//! that another loop waits no longer than that.

use alloc::vec::Vec;
use core::fmt;

use gear1_abi::ABI_VERSION;
use gear1_abi::call::Reply;
use gear1_abi::event::Mmio;
use gear1_abi::id::VmId;
use spin::RelaxStrategy;
use spin::mutex::TicketMutex;

use crate::config::{Config, VmConfig, version};
use crate::console::{Command, Console, Flow, Input, Uart};
use crate::gear1::Gear1;
use crate::lifecycle::Lifecycle;
use crate::pl011::{PAGE_BYTES, Pl011};

/// What the machine layer supplies.
pub trait Platform {
    /// The boot UART.
    type Uart: Uart;
    /// What a loop does while it waits for a lock: on the target it must yield.
    type Relax: RelaxStrategy;
}

/// How long a line on the console is not interrupted.
const LINE_PATIENCE_US: u64 = 100_000;

type Lock<T, P> = TicketMutex<T, <P as Platform>::Relax>;

/// How a vCPU's access or call is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With a value.
    Value(u64),
    /// With an external abort.
    Abort,
}

impl Answer {
    pub(crate) const fn words(self) -> (Reply, u64) {
        match self {
            Self::Value(value) => (Reply::Value, value),
            Self::Abort => (Reply::Abort, 0),
        }
    }
}

/// What all loops share.
pub struct Machine<P: Platform> {
    pub(crate) config: Config,
    console: Lock<Console<P::Uart>, P>,
    vms: Vec<SharedVm<P>>,
}

/// What all loops share of a VM.
pub(crate) struct SharedVm<P: Platform> {
    uart: Lock<Pl011, P>,
    pub(crate) lifecycle: Lock<Lifecycle, P>,
}

impl<P: Platform> Machine<P> {
    /// Makes what the loops share, and announces Gear2 on the console.
    #[must_use]
    pub fn new(config: Config, uart: P::Uart) -> Self {
        let names = config.vms.iter().map(|vm| vm.name.as_str());
        let console = Console::new(uart, names, config.ticks(LINE_PATIENCE_US));
        let vms = config.vms.iter().map(|_| SharedVm {
            uart: TicketMutex::new(Pl011::new()),
            lifecycle: TicketMutex::new(Lifecycle::default()),
        });
        let machine = Self {
            vms: vms.collect(),
            console: TicketMutex::new(console),
            config,
        };
        machine.say_hello();
        machine
    }

    fn say_hello(&self) {
        let [major, minor] = version(ABI_VERSION);
        self.say(format_args!(
            "{}, ABI {major}.{minor}, {} CPUs, scheduler {}",
            env!("CARGO_PKG_VERSION"),
            self.config.cpus.len(),
            self.config.policy.name,
        ));
    }

    /// Shows a line on the console.
    pub(crate) fn say(&self, text: fmt::Arguments<'_>) {
        self.console.lock().say(text);
    }

    /// Sends all console output that waits.
    pub(crate) fn drain_console(&self) {
        self.console.lock().drain();
    }

    pub(crate) fn vm(&self, vm: VmId) -> Option<(&VmConfig, &SharedVm<P>)> {
        Some((self.config.vm(vm)?, self.vms.get(vm.index())?))
    }

    /// Carries out a guest's access to an emulated device. Returns the answer and, if the console
    /// holds something back, when [`Self::settle_console`] is to be called.
    pub(crate) fn access(
        &self,
        gear1: &mut impl Gear1,
        vm: VmId,
        access: Mmio,
        now: u64,
    ) -> (Answer, Option<u64>) {
        let Some((config, shared)) = self.vm(vm) else {
            return (Answer::Abort, None);
        };
        let offset = config
            .console
            .and_then(|console| access.ipa.checked_sub(console.ipa));
        let offset = match offset {
            Some(offset) if offset < PAGE_BYTES && access.size_log2 <= 2 => offset,
            Some(_) | None => return (Answer::Abort, None),
        };
        let mut uart = shared.uart.lock();
        let mut value = 0;
        let mut console_due = None;
        match access.store {
            None => value = uart.read(offset, access.size_log2),
            Some(stored) => {
                if let Some(byte) = uart.write(offset, stored) {
                    let mut console = self.console.lock();
                    let flow = console.send(config.id.index(), byte, now);
                    uart.set_transmit_full(flow == Flow::Full);
                    console_due = console.held_until();
                }
            }
        }
        update_line(gear1, config, &mut uart);
        (Answer::Value(value), console_due)
    }

    /// Brings the devices of a VM to their reset state.
    pub(crate) fn reset_devices(&self, gear1: &mut impl Gear1, vm: VmId) {
        let Some((config, shared)) = self.vm(vm) else {
            return;
        };
        let mut uart = shared.uart.lock();
        uart.reset();
        update_line(gear1, config, &mut uart);
    }

    /// Sends console output that waits, and returns when to call again if some still does.
    pub(crate) fn settle_console(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        let (room, due) = {
            let mut console = self.console.lock();
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

    /// Passes on what was typed up to the first command, if there is one; the caller carries it
    /// out and calls again.
    pub(crate) fn take_input(&self, gear1: &mut impl Gear1) -> Option<(Command, Option<VmId>)> {
        loop {
            // The guard ends with the statement: the UART's lock comes before the console's.
            let input = self.console.lock().input();
            match input? {
                Input::Done => {}
                Input::Byte(vm, byte) => self.type_to(gear1, vm, byte),
                Input::Command(command, vm) => return Some((command, VmId::new(vm))),
            }
        }
    }

    fn type_to(&self, gear1: &mut impl Gear1, vm: usize, byte: u8) {
        let Some((config, shared)) = VmId::new(vm).and_then(|vm| self.vm(vm)) else {
            return;
        };
        if config.console.is_some() {
            let mut uart = shared.uart.lock();
            uart.receive(byte);
            update_line(gear1, config, &mut uart);
        }
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

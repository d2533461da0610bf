//! The consoles: each VM's UART, the terminal that all of them share, and the rings of the device
//! model.
//!
//! Any loop may come here: an access is handled by the loop of the vCPU, typed input by the loop
//! that has the terminal's interrupt or the doorbell. Lock order: a VM's UART, then the terminal,
//! then a ring. Output that nobody takes is held back or dropped, and no guest waits for a terminal
//! that is not there.

use alloc::format;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::event::Mmio;
use gear1_abi::id::{VcpuId, VmId};

use super::{Later, Machine, Platform};
use crate::config::VmConfig;
use crate::console::{Command, Flow, Input};
use crate::gear1::Gear1;
use crate::pl011::{PAGE_BYTES, Pl011};
use crate::platform::Answer;

/// The pause between two portions of input, of a FIFO each: 16 bytes a millisecond at most.
const INPUT_PAUSE_US: u64 = 1_000;

impl<P: Platform> Machine<P> {
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

    /// Sends all console output that waits, and waits for it: the machine is about to go off.
    pub(crate) fn drain_console(&self) {
        if let Some(console) = &self.console {
            console.lock().drain();
        }
    }

    /// Emulates a guest's access to a device. Returns the answer, or `None` if the device model
    /// gives it later, and what is due later.
    pub(crate) fn access(
        &self,
        gear1: &mut impl Gear1,
        vcpu: VcpuId,
        access: Mmio,
        now: u64,
    ) -> (Option<Answer>, Option<Later>) {
        let vm = self.config.vcpu(vcpu).map(|vcpu| vcpu.vm);
        let Some((config, shared)) = vm.and_then(|vm| self.vm(vm)) else {
            return (Some(Answer::Abort), None);
        };
        let offset = config
            .console
            .and_then(|console| access.ipa.checked_sub(console.ipa));
        let offset = match offset {
            // A PL011 has no register of 64 bits: such an access ends like one to nothing.
            Some(offset) if offset < PAGE_BYTES && access.size_log2 <= 2 => offset,
            Some(_) | None => return self.access_other(gear1, config, vcpu, access, now),
        };
        let mut uart = shared.uart.lock();
        let mut value = 0;
        let mut console_due = None;
        match access.store {
            None => {
                value = uart.read(offset, access.size_log2);
                // The read may have made room for input, or shown the guest an empty FIFO.
                console_due = self.fill(gear1, config, &mut uart, now);
            }
            Some(stored) => {
                if let Some(byte) = uart.write(offset, stored) {
                    let (flow, due) = self.send(gear1, config, byte, now);
                    // The guest sees the full FIFO with its next look, and no exit waits for the
                    // terminal.
                    uart.set_transmit_full(flow == Flow::Full);
                    console_due = due;
                } else {
                    // A byte that is sent changes no setting, and most stores send one.
                    self.kept.set_uart(config.id, uart.settings());
                }
            }
        }
        update_line(gear1, config, &mut uart);
        (Some(Answer::Value(value)), console_due.map(Later::Console))
    }

    /// Sends a byte of a VM to whatever shows its console: terminal and ring both, as the device
    /// model keeps a VM's history while nobody looks.
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

    /// Gives more typed input to the UARTs whose pause is over, which `paced` marks. Returns the
    /// time for the next call.
    pub(crate) fn take_paced_input(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        self.take_input_of(gear1, self.paced.load(Relaxed), now)
    }

    /// Gives typed input to the UARTs of these VMs, a bit each.
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

    /// Sends console output that waits and takes input that does, and returns when to call again if
    /// some still waits.
    pub(crate) fn service_console(&self, gear1: &mut impl Gear1, now: u64) -> Option<u64> {
        let model = self.device_model.as_ref();
        let notified = model.and_then(|model| model.notify_output(gear1, now));
        let due = earlier(notified, self.service_terminal(gear1, now));
        earlier(due, self.take_paced_input(gear1, now))
    }

    /// Sends output that the terminal has held back, and tells the UARTs of the VMs that have room
    /// again. The terminal's lock is dropped before a UART's is taken, which comes first in the
    /// order.
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

    /// Keeps a byte that was typed for a VM, and gives the VM's UART as much as its pace allows.
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

/// Returns the earlier of two times, of which each may be none.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Tells Gear1 the level of a UART's interrupt line, if it changed. The UART stays locked
/// meanwhile, so that levels arrive in order.
pub(super) fn update_line(gear1: &mut impl Gear1, config: &VmConfig, uart: &mut Pl011) {
    if let (Some(level), Some(console)) = (uart.level_change(), config.console) {
        // A refusal means that the VM is being stopped, which resets the line too.
        let _ = gear1.irq_set(config.id, console.intid, level);
    }
}

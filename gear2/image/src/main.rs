//! Gear2's image: what of Gear2 touches the machine.
//!
//! Gear1 enters it once per CPU, at EL0 (with the feature `el1` at EL1) with stage 1 off and a
//! stack, and it runs that CPU's loop of `gear2-core` for good. There are no interrupts, no
//! exception vectors and no floating point.
//!
//! Owns the `SVC` instruction, the boot UART's registers and the heap. No policy: that is
//! `gear2-core`.
#![no_std]
#![no_main]

extern crate alloc;

mod entry;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod heap;
mod inputs;
mod svc;
mod uart;
#[cfg(feature = "el1")]
mod vectors;

use core::fmt::Write as _;
use core::panic::PanicInfo;

use gear1_abi::id::CpuIndex;
use gear2_core::{Config, CpuLoop, Gear1 as _, Machine, Platform, StartError};
use spin::once::Once;

use crate::svc::{Supervisor, Yield};
use crate::uart::BootUart;

/// The target.
struct Target;

impl Platform for Target {
    type Uart = BootUart;
    type Relax = Yield;

    #[cfg(feature = "fault-injection")]
    fn call(call: [u64; 5]) -> Option<u64> {
        fault_injection::call(call)
    }
}

/// Machine that all loops share. The first CPU makes it, the others wait.
static MACHINE: Once<Machine<Target>, Yield> = Once::new();

/// Runs the loop of a CPU; [`entry`] comes here.
extern "C" fn main(cpu: u64) -> ! {
    match (MACHINE.try_call_once(machine), CpuIndex::from_reg(cpu)) {
        (Ok(machine), Some(cpu)) => CpuLoop::new(machine, cpu).run(&mut Supervisor),
        (Ok(_), None) => panic!("CPU {cpu} is beyond what the ABI allows"),
        (Err(error), _) => {
            say(format_args!("cannot start: {error}"));
            give_up(0);
        }
    }
}

fn machine() -> Result<Machine<Target>, StartError> {
    let info = inputs::info();
    gear2_core::config::check_abi(info)?;
    heap::give(info.heap_size);
    let mut config = Config::new(info, inputs::manifest(info))?;
    config.rings = inputs::rings(info);
    let uart = BootUart::take(info.uart_kind);
    let (shared, kept) = (inputs::shared(info), inputs::kept());
    Ok(Machine::new(config, uart, shared, kept, &mut Supervisor))
}

/// Prints a line directly on the UART, when there is no console or it cannot be trusted any longer.
fn say(text: core::fmt::Arguments<'_>) {
    // Printing to the UART cannot fail.
    let _ = write!(BootUart::borrow(), "\r\ngear2: {text}\r\n");
}

/// Tells Gear1 that Gear2 cannot go on, with a detail for its dump.
fn give_up(detail: u64) -> ! {
    Supervisor.fatal(main as *const () as u64, detail);
    loop {
        svc::pause();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say(format_args!("{info}"));
    give_up(info.location().map_or(0, |location| location.line().into()))
}

//! The other side of the `ffa` guest: retrieves the page that it is commanded through, and then
//! makes calls and accesses as it is told, and says what came of them.
#![no_std]
#![no_main]

use core::arch::asm;

use test_guests::exception::catch;
use test_guests::ffa::{self, Descriptor, function, regs};
use test_guests::mmio::{read64, write64};
use test_guests::{Machine, cpu, guest, psci, say};

guest!(main);

/// Offset of the buffers in the VM's memory, which the commander knows. `tests/guests/src/bin/ffa/`
/// never touches them: a commander that wrote to TX itself would need the agent's memory.
const TX: u64 = 8 << 20;
/// The page behind TX: FF-A's buffers are pages of their own, and must not be the same one.
const RX: u64 = TX + 4096;
/// Number of handles among which the agent looks for the commander's page. The serial grows with
/// each transaction of the machine, also with those of a former life of the commander.
const SERIALS: u64 = 400;

/// Words of the control page: number of the command, number of the last one that was done, command,
/// and from byte 64 on eight registers. The barrier keeps the registers from being read before the
/// number that announces them; the one behind the command makes the results visible before the
/// answer's number.
fn main(machine: &Machine) {
    let (tx, rx) = (machine.ram.start + TX, machine.ram.start + RX);
    ffa::hvc(regs([function::RXTX_MAP, tx, rx, 1]));
    let control = find_control(tx, rx);
    say!("commanded at {control:#x}");
    let agent = Agent { control, tx, rx };
    let mut done = read64(control + 8);
    loop {
        cpu::wait_until(|| read64(control) != done);
        cpu::dsb();
        let command = read64(control);
        if read64(control + 16) == 0 {
            break;
        }
        agent.carry_out(read64(control + 16));
        cpu::dsb();
        done = command;
        write64(control + 8, done);
    }
    write64(control + 8, read64(control));
}

/// Retrieves what the first peer shares with the tag of the commander's page. Which handle it has
/// depends on what came before. Slot 0, serial in bits 8 and up, and bit 63 for a handle that the
/// hypervisor allocated: nobody tells the agent a handle. The tag is `control` in ASCII;
/// FFA_MEM_RETRIEVE_REQ with another tag is INVALID, so no other transaction is taken for the page.
fn find_control(tx: u64, rx: u64) -> u64 {
    loop {
        for serial in 1..SERIALS {
            Descriptor {
                tag: 0x0063_6f6e_7472_6f6c,
                ..Descriptor::of_retrieval(1 << 63 | serial << 8, 1, 2)
            }
            .write(tx);
            let x = ffa::hvc(regs([function::RETRIEVE_REQ, 64, 64]));
            if x[0] == function::RETRIEVE_RESP {
                let (control, _) = ffa::read_range(rx + ffa::HEADER);
                ffa::hvc(regs([function::RX_RELEASE]));
                return control;
            }
        }
    }
}

/// The page that commands come through, and the buffers. The agent decides nothing: the checks are
/// in the commander, which sees both sides of each exchange.
struct Agent {
    control: u64,
    tx: u64,
    rx: u64,
}

impl Agent {
    /// Command 6 serves direct messages until one says to stop, and an unknown one resets the VM
    /// while it holds what it has retrieved.
    fn carry_out(&self, what: u64) {
        let mut x = [0; 8];
        for (index, value) in (0..).zip(&mut x) {
            *value = read64(self.control + 64 + 8 * index);
        }
        match what {
            1 => self.call(x),
            2 => self.answer(|| read64(x[0])),
            3 => self.answer(|| {
                write64(x[0], x[1]);
                0
            }),
            4 => self.answer(|| {
                fetch(x[0]);
                0
            }),
            6 => ffa::serve(2, self.tx),
            _ => psci::system_reset(),
        }
    }

    /// Calls with what the second page holds as descriptor; the third gets what the call left in
    /// RX. Gear1 reads descriptors in the TX page of the caller, and nobody else can write there.
    fn call(&self, x: ffa::Regs) {
        copy(self.control + 4096, self.tx);
        let x = ffa::hvc(x);
        copy(self.rx, self.control + 8192);
        for (index, value) in (0..).zip(x) {
            write64(self.control + 64 + 8 * index, value);
        }
    }

    /// Answers whether an access aborts, and the value that it read. A syndrome of 0 cannot be an
    /// abort's, whose class is not 0.
    fn answer(&self, access: impl FnOnce() -> u64) {
        let mut value = 0;
        let caught = catch(|| value = access());
        write64(self.control + 64, caught.map_or(0, |caught| caught.esr));
        write64(self.control + 72, value);
    }
}

/// A descriptor, or a part of one, and an answer in RX fill a page at most: FF-A's buffers have
/// that size here.
fn copy(from: u64, to: u64) {
    for offset in (0..4096).step_by(8) {
        write64(to + offset, read64(from + offset));
    }
}

/// The commander wrote RET there: IC IVAU takes an older line out of this CPU's instruction cache,
/// DSB waits for that, and ISB discards what was fetched ahead. X30 has the return address of BLR.
fn fetch(address: u64) {
    // SAFETY: what is there is RET, or nothing that can be executed.
    unsafe {
        asm!("dsb sy", "ic ivau, x9", "dsb sy", "isb", "blr x9", in("x9") address, out("x30") _);
    }
}

//! Devices that the VMM emulates itself: the PL011, one register, the disk and the network card's
//! registers.

use std::io::{self, Write as _};
use std::sync::Mutex;

use kvm_bindings::{KVM_ARM_IRQ_TYPE_SHIFT, KVM_ARM_IRQ_TYPE_SPI};
use kvm_ioctls::VmFd;
use kvm_vmm::layout;
use kvm_vmm::pl011::Pl011;

use crate::card::Card;
use crate::disk::Disk;
use crate::failure::Failure;

/// A console line is written whole, or when it has become this long. A prompt has no end of line,
/// and must appear all the same.
const LONGEST_LINE: usize = 256;

/// The devices of a VM; its vCPUs' threads share them. One lock for those that guests access
/// rarely; disk and card have their own.
pub(crate) struct Devices {
    /// Text before each line of the console.
    prefix: &'static str,
    state: Mutex<State>,
    disk: Option<Disk>,
    card: Option<Card>,
}

/// State that two vCPUs could change at a time.
#[derive(Default)]
struct State {
    uart: Pl011,
    /// Level of the UART's interrupt, as KVM knows it.
    line: bool,
    /// Bytes since the last end of line.
    printed: Vec<u8>,
    /// The benchmark's device: one word that keeps what is written.
    register: u32,
}

impl Devices {
    /// All devices are idle.
    pub(crate) fn new(prefix: &'static str, disk: Option<Disk>, card: Option<Card>) -> Devices {
        let state = Mutex::new(State::default());
        Devices {
            prefix,
            state,
            disk,
            card,
        }
    }

    /// Answers a load of `data.len()` bytes; where nothing is, zeroes are read. Devices are told
    /// apart by page, since the device tree gives each device one.
    pub(crate) fn read(&self, address: u64, data: &mut [u8]) {
        if let Some((disk, offset)) = at(&self.disk, layout::DISK, address) {
            return disk.read(offset, data);
        }
        if let Some((card, offset)) = at(&self.card, layout::CARD, address) {
            return card.read(offset, data);
        }
        let state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let value = match address & !(layout::PAGE - 1) {
            layout::UART => state.uart.read(address - layout::UART),
            layout::DEVICE => state.register,
            _ => 0,
        };
        let bytes = value.to_le_bytes();
        data.fill(0);
        let length = data.len().min(bytes.len());
        data[..length].copy_from_slice(&bytes[..length]);
    }

    /// Takes a store; where nothing is, it is ignored. A store of 8 bytes has no register here, and
    /// its lower half counts. The level of the interrupt is passed on under the lock: KVM gets the
    /// levels in the order in which the registers had them.
    pub(crate) fn write(&self, vm: &VmFd, address: u64, data: &[u8]) -> Result<(), Failure> {
        let mut bytes = [0; 4];
        let length = data.len().min(bytes.len());
        bytes[..length].copy_from_slice(&data[..length]);
        let value = u32::from_le_bytes(bytes);
        if let Some((disk, offset)) = at(&self.disk, layout::DISK, address) {
            return disk.write(offset, value);
        }
        if let Some((card, offset)) = at(&self.card, layout::CARD, address) {
            return card.write(offset, value);
        }
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        match address & !(layout::PAGE - 1) {
            layout::UART => {
                let sent = state.uart.write(address - layout::UART, value);
                if let Some(byte) = sent {
                    state.print(self.prefix, byte)?;
                }
                state.update_line(vm)?;
            }
            layout::DEVICE => state.register = value,
            _ => {}
        }
        Ok(())
    }

    /// Writes what stands on an unfinished line. Called before the process ends, since the last
    /// line of a guest may have no end.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        state.flush(self.prefix)
    }
}

/// Returns a device whose registers begin at `start`, and the place among them, if there is one and
/// the address is its.
fn at<T>(device: &Option<T>, start: u64, address: u64) -> Option<(&T, u64)> {
    let offset = address.checked_sub(start)?;
    let device = device.as_ref().filter(|_| offset < layout::PAGE)?;
    Some((device, offset))
}

impl State {
    /// Lines of two VMs must not mix within a line.
    fn print(&mut self, prefix: &str, byte: u8) -> Result<(), Failure> {
        self.printed.push(byte);
        if byte == b'\n' || self.printed.len() >= LONGEST_LINE {
            self.flush(prefix)?;
        }
        Ok(())
    }

    /// Writes the prefix and the line at once, as two VMs share the output.
    fn flush(&mut self, prefix: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out
            .write_all(prefix.as_bytes())
            .and_then(|()| out.write_all(&self.printed))
            .and_then(|()| out.flush());
        // Also behind an error: an output that is gone would else have the line grow for ever.
        self.printed.clear();
        written.map_err(|error| Failure::new("standard output", error))
    }

    /// KVM is called for changes alone: a call costs more than the access.
    fn update_line(&mut self, vm: &VmFd) -> Result<(), Failure> {
        let line = self.uart.line();
        if line == self.line {
            return Ok(());
        }
        // Noted first: whoever comes next compares with what KVM was told, or the call has failed
        // and ends the program.
        self.line = line;
        let irq = KVM_ARM_IRQ_TYPE_SPI << KVM_ARM_IRQ_TYPE_SHIFT | layout::UART_INTID;
        vm.set_irq_line(irq, line)
            .map_err(|error| Failure::new("the PL011's interrupt", error))
    }
}

//! Nodes of what the gears and the device model emulate for a VM that owns devices of the board.
//!
//! The bindings are Linux's (pl061.yaml, pl011.yaml, arm,pl031.yaml, arm,sbsa-gwdt.yaml and
//! virtio/mmio.yaml), and the nodes say what xtask's template says to a guest without devices.
//!
//! Requirements: G1-BOOT-006.

use gear1_abi::boot::BootPl061;
use gear1_abi::layout::PAGE_SIZE;
use gearv_manifest::{Console, Rtc, VirtioDevice, WatchdogDevice};

use super::{EDGE_RISING, LEVEL_HIGH, Maker};
use crate::refusal::Refusal;
use crate::region::Region;

/// Frequency of the clock that emulated devices name. No driver's timing depends on it: a PL011
/// driver computes a divisor, which the emulation ignores.
const CLOCK_HZ: u32 = 24_000_000;
/// PrimeCell identification of a PL061, of a PL011 and of a PL031.
const PL061_ID: u32 = 0x0004_1061;
const PL011_ID: u32 = 0x0024_1011;
const PL031_ID: u32 = 0x0004_1031;

impl Maker<'_, '_> {
    /// Writes all emulated devices of the VM.
    pub(super) fn emulated(&mut self) -> Result<(), Refusal> {
        let facts = self.facts;
        let clock = self.clock();
        for pl061 in facts.pl061 {
            self.pl061(pl061, clock)?;
        }
        if let Some(console) = facts.vm.console {
            self.console(console, clock)?;
        }
        if let Some(rtc) = facts.vm.rtc {
            self.rtc(rtc, clock)?;
        }
        self.time_limit()?;
        for device in facts.virtio {
            self.virtio(device)?;
        }
        Ok(())
    }

    /// Writes that by which a VM keeps its time limit: a guest's watchdog, or the page of a
    /// real-time VM.
    fn time_limit(&mut self) -> Result<(), Refusal> {
        let vm = self.facts.vm;
        if let Some(watchdog) = vm.watchdog() {
            self.watchdog(watchdog)?;
        }
        if let Some(page) = vm.heartbeat() {
            self.heartbeat(page)?;
        }
        Ok(())
    }

    /// Writes the clock of the emulated devices, and returns its phandle. Linux' drivers of a
    /// PrimeCell do not start without one.
    fn clock(&mut self) -> u32 {
        let clock = self.next_phandle;
        self.out.begin("gearv-clock");
        self.out.text("compatible", "fixed-clock");
        self.out.cells("#clock-cells", &[0]);
        self.out.cells("clock-frequency", &[CLOCK_HZ]);
        self.out.cells("phandle", &[clock]);
        self.out.end();
        clock
    }

    /// Writes an emulated PL061. Linux finds a PrimeCell's driver by its identification registers,
    /// which the emulation leaves out, or by `arm,primecell-periphid`.
    fn pl061(&mut self, pl061: &BootPl061, clock: u32) -> Result<(), Refusal> {
        self.out.begin(&alloc::format!("pl061@{:x}", pl061.ipa));
        self.out.text("compatible", "arm,pl061\0arm,primecell");
        self.out.cells("arm,primecell-periphid", &[PL061_ID]);
        self.registers(pl061.ipa, pl061.intid)?;
        self.out.property("gpio-controller", &[]);
        self.out.cells("#gpio-cells", &[2]);
        self.out.cells("clocks", &[clock]);
        self.out.text("clock-names", "apb_pclk");
        self.out.end();
        Ok(())
    }

    /// Writes the emulated PL011, which Gear2 answers.
    fn console(&mut self, console: Console, clock: u32) -> Result<(), Refusal> {
        self.out.begin(&uart_name(console));
        self.out.text("compatible", "arm,pl011\0arm,primecell");
        self.out.cells("arm,primecell-periphid", &[PL011_ID]);
        self.registers(console.ipa, console.intid)?;
        self.out.cells("clocks", &[clock, clock]);
        self.out.text("clock-names", "uartclk\0apb_pclk");
        self.out.end();
        Ok(())
    }

    /// Writes the emulated PL031, which has no alarm and no interrupt.
    fn rtc(&mut self, rtc: Rtc, clock: u32) -> Result<(), Refusal> {
        self.out.begin(&alloc::format!("rtc@{:x}", rtc.ipa));
        self.out.text("compatible", "arm,pl031\0arm,primecell");
        self.out.cells("arm,primecell-periphid", &[PL031_ID]);
        self.reg(Region::new(rtc.ipa, rtc.ipa + PAGE_SIZE))?;
        self.out.cells("clocks", &[clock]);
        self.out.text("clock-names", "apb_pclk");
        self.out.end();
        Ok(())
    }

    /// Writes the emulated watchdog: the control frame, then the refresh frame. Without
    /// `timeout-sec`, Linux's driver would begin with ten seconds, which may be more than the
    /// manifest allows.
    fn watchdog(&mut self, watchdog: WatchdogDevice) -> Result<(), Refusal> {
        let Region { start, end } = watchdog.region();
        let refresh = start + WatchdogDevice::SIZE / 2;
        self.out.begin(&alloc::format!("watchdog@{start:x}"));
        self.out.text("compatible", "arm,sbsa-gwdt");
        self.regs(&[Region::new(start, refresh), Region::new(refresh, end)])?;
        self.interrupt(watchdog.intid, LEVEL_HIGH);
        let seconds = (self.facts.vm.watchdog_ms / 1000).max(1);
        self.out.cells("timeout-sec", &[seconds]);
        self.out.end();
        Ok(())
    }

    /// Writes a virtio device that the device VM serves. The name differs from that of QEMU's
    /// transports, which the board's tree may have at the same addresses: two nodes of one name
    /// would hide one.
    fn virtio(&mut self, device: &VirtioDevice<'_>) -> Result<(), Refusal> {
        let start = self.facts.vm.virtio_ipa + device.offset();
        self.out.begin(&alloc::format!("virtio@{start:x}"));
        self.out.text("compatible", "virtio,mmio");
        self.reg(Region::new(start, start + VirtioDevice::STRIDE))?;
        self.interrupt(device.intid(), EDGE_RISING);
        self.out.property("dma-coherent", &[]);
        self.out.end();
        Ok(())
    }

    /// Writes the page in which a real-time VM shows that it lives.
    fn heartbeat(&mut self, page: Region) -> Result<(), Refusal> {
        self.out
            .begin(&alloc::format!("heartbeat@{:x}", page.start));
        self.out.text("compatible", "gearv,heartbeat");
        self.reg(page)?;
        self.out.cells("timeout-ms", &[self.facts.vm.watchdog_ms]);
        self.out.end();
        Ok(())
    }
}

/// Returns the name of the emulated console's node.
pub(super) fn uart_name(console: Console) -> alloc::string::String {
    alloc::format!("uart@{:x}", console.ipa)
}

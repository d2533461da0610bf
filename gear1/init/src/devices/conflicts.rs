//! Conflicts of a VM's devices with what has another owner: Gear1, memory, Gear2's boot UART.
//!
//! Requirements: G1-BOOT-005.

use alloc::vec::Vec;

use gearv_manifest::{Rule, VmKind};

use super::{Function, Interrupt, Walk};
use crate::fdt::{Board, Smmu, Uart};
use crate::refusal::{Fault, Refusal, refusal};
use crate::region::{Region, pages};

/// Bytes of a UART's registers that are used: all of a SCIF's, which has the fewest.
const UART_SIZE: u64 = 0x28;

impl Walk<'_, '_, '_> {
    /// Refuses a window that is no hole of the board's addresses.
    pub(super) fn check_hole(&mut self, path: &str, regions: &[Region]) {
        let window = self.vm.window();
        // There is one device VM, and one reported device is enough.
        let is_known = |fault: &Fault| fault.rule == Rule::WindowOverMemory;
        let judged = self.vm.kind != VmKind::Device || self.faults.iter().any(is_known);
        if !judged && regions.iter().any(|region| region.overlaps(&window)) {
            let (rule, name) = (Rule::WindowOverMemory, self.vm.name);
            let fault = Fault::new(rule, name, "window-address", path);
            self.faults.push(fault);
        }
    }

    /// Tells whether the VM has a window or interrupts of what Gear1 emulates, which no device of
    /// the board may have.
    pub(super) fn has_emulated(&self) -> bool {
        self.vm.kind == VmKind::Device || !self.virtual_intids.is_empty()
    }

    /// Refuses a device that has an interrupt of what Gear1 emulates.
    pub(super) fn check_virtual(
        &self,
        path: &str,
        interrupts: &[Interrupt],
    ) -> Result<(), Refusal> {
        let taken = |interrupt: &&Interrupt| self.virtual_intids.contains(&interrupt.intid);
        match interrupts.iter().find(taken) {
            Some(Interrupt { intid, is_edge: _ }) => Err(refusal!(
                Board,
                "{path}: interrupts: {intid} is needed for the device VM's emulated PL061"
            )),
            None => Ok(()),
        }
    }

    /// Refuses devices that have another owner: Gear1, which has the interrupt controller, memory,
    /// or Gear2, which has the boot UART. Other VMs' devices are compared once all owners are
    /// known.
    pub(super) fn check(&mut self, board: &Board) {
        // Gear2 keeps the boot UART unless the VM owns all of it: a node that covers half of the
        // registers would leave both of them a UART that neither can drive alone.
        let gives = |region: &Region| self.given.iter().any(|(_, given)| given.contains(region));
        let uart = board.uart.filter(|uart| {
            let start = uart_page(uart.base).start;
            !gives(&Region::new(start, start + UART_SIZE))
        });
        // Of a bridge that VMs share, all that functions may be placed in.
        let bridge = self.bridge.iter();
        let bridge = bridge.flat_map(|bridge| bridge.regions().map(|one| (&bridge.path, one)));
        let given = self.given.iter().map(|(path, region)| (path, *region));
        let conflicts = given.chain(bridge).filter_map(|(path, region)| {
            Some((path.clone(), self.conflict(board, uart.as_ref(), &region)?))
        });
        for (path, what) in conflicts.collect::<Vec<_>>() {
            self.refuse(&path, what);
        }
        if let Some(uart) = uart {
            self.check_interrupt(uart.intid, "the boot UART's");
        }
        let smmu = board.smmu.as_ref().and_then(|smmu| smmu.interrupt);
        if let Some((intid, _)) = smmu {
            self.check_interrupt(intid, "the SMMU's");
        }
    }

    /// Refuses a device whose interrupt is one of Gear2's too, and a PCI function with a line to
    /// one: one owner alone can end it.
    fn check_interrupt(&mut self, intid: u32, whose: &str) {
        let lines = self.functions.iter().flat_map(Function::interrupts);
        let mut interrupts = self.interrupts.iter().copied().chain(lines);
        if interrupts.any(|interrupt| interrupt.intid == intid) {
            let why = alloc::format!("interrupt {intid} is also {whose}, which is Gear2's");
            let fault = Fault::new(Rule::DeviceTaken, self.vm.name, "devices", why);
            self.faults.push(fault);
        }
    }

    /// Says whose page a region lies in that the VM must not have. Stage 2 gives whole pages, so a
    /// neighbour in the page is given too. `uart` is the boot UART if Gear2 keeps it.
    fn conflict(
        &self,
        board: &Board,
        uart: Option<&Uart>,
        region: &Region,
    ) -> Option<&'static str> {
        let page = pages(region);
        let is_over = |taken: &[Region]| taken.iter().any(|taken| taken.overlaps(&page));
        let gic = [
            Region::new(board.gic.gicd, board.gic.gicd + 0x1_0000),
            Region::new(board.gic.gicr, board.gic.gicr + board.gicr_size),
        ];
        let smmu: Vec<Region> = board.smmu.iter().flat_map(Smmu::regions).collect();
        let uart = uart.map(|uart| uart_page(uart.base));
        let console = self.vm.console.map(|console| uart_page(console.ipa));
        // planted: a VM gets pages of the interrupt controller
        if is_over(&gic) {
            Some("it lies in a page of the interrupt controller")
        } else if is_over(&smmu) {
            Some("it lies in the registers of the SMMU")
        } else if is_over(&board.memory) {
            Some("it lies in memory")
        } else if is_over(uart.as_slice()) {
            Some("it shares a page with the boot UART, which is Gear2's")
        } else if is_over(console.as_slice()) {
            Some("it shares a page with this VM's emulated console")
        } else {
            None
        }
    }
}

/// Returns the page of a UART's registers.
fn uart_page(start: u64) -> Region {
    Region::new(start, start + gear1_abi::layout::PAGE_SIZE)
}

//! An emulated PL061 GPIO block (Arm DDI 0190), reduced to what a stock Linux
//! driver needs to hand its lines' rising edges to userspace: inputs whose
//! "edges" are channels that fired.
//!
//! It is in Gear1 because a channel must reach the device VM without Gear2.
//!
//! A guest could raise its line as fast as the device VM's kernel clears it, and so keep that
//! kernel in its interrupt handler. A line that was armed is therefore *paced* until its interrupt
//! is disabled: one edge is shown, and an edge that follows is held back until whoever serves the
//! guest arms the line again.
//!
//! No wake-up is lost, whatever the order of edges and armings. `spent` and `held` change together,
//! under the block's lock: an edge either finds its line armed and is shown, or finds it spent and
//! is held, and the arming that ends `spent` shows a held edge. Whoever serves the guest therefore
//! need not look at the guest's queue between its arming and its sleep.
//!
//! Requirements: G1-CHN-002 (a line raised while its interrupt is enabled is
//! visible in MIS until cleared; none is lost while it is masked), G1-CHN-003.

/// Lines of one block.
pub const LINES: u32 = 8;

const DATA_END: u64 = 0x3fc;
const DIR: u64 = 0x400;
const IS: u64 = 0x404;
const IBE: u64 = 0x408;
const IEV: u64 = 0x40c;
const IE: u64 = 0x410;
const RIS: u64 = 0x414;
const MIS: u64 = 0x418;
const IC: u64 = 0x41c;
const AFSEL: u64 = 0x420;
/// GPIOPeriphID0 to 3 and GPIOPCellID0 to 3.
const IDENTIFICATION: [u8; 8] = [0x61, 0x10, 0x04, 0x00, 0x0d, 0xf0, 0x05, 0xb1];
const FIRST_ID: u64 = 0xfe0;

/// The state of one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pl061 {
    direction: u8,
    sense: u8,
    both_edges: u8,
    event: u8,
    enabled: u8,
    raised: u8,
    alternate: u8,
    /// Lines of `enabled` that are shown once for each arming.
    paced: u8,
    /// Lines of `paced` that were shown since they were armed.
    spent: u8,
    /// Lines of `spent` with an edge since.
    held: u8,
}

impl Pl061 {
    /// The state after reset.
    pub const fn new() -> Self {
        Self {
            direction: 0,
            sense: 0,
            both_edges: 0,
            event: 0,
            enabled: 0,
            raised: 0,
            alternate: 0,
            paced: 0,
            spent: 0,
            held: 0,
        }
    }

    /// Latches an edge on a line. Tells whether the interrupt may have changed.
    pub fn raise(&mut self, line: u32) -> bool {
        if line >= LINES {
            return false;
        }
        let bit = 1_u8.wrapping_shl(line);
        if self.spent & bit != 0 {
            // planted: an edge before the line is armed again is lost
            self.held |= bit;
            return false;
        }
        self.show(bit);
        true
    }

    /// Arms those lines, a bit each, whose interrupts are enabled: an edge that was held back is
    /// shown now, and the first one from here on at once. Tells whether the interrupt may have
    /// changed.
    pub fn arm(&mut self, lines: u8) -> bool {
        let lines = lines & self.enabled;
        let due = self.held & lines;
        self.paced |= lines;
        self.spent &= !lines;
        self.held &= !lines;
        self.show(due);
        due != 0
    }

    fn show(&mut self, lines: u8) {
        // planted: a PL061 loses a line when another is raised
        self.raised |= lines;
        // planted: a line is shown before it is armed again
        self.spent |= lines & self.paced;
    }

    /// Enables the interrupts of lines, a bit each, and disables the others'. Whoever armed a line
    /// whose interrupt is disabled has given the line back: the next user need not know of arming.
    fn enable(&mut self, lines: u8) {
        self.enabled = lines;
        // planted: a line stays paced for a user that does not arm it
        self.paced &= lines;
        self.spent &= lines;
        self.raised |= self.held & !lines;
        self.held &= lines;
    }

    /// Returns the level of the block's interrupt.
    pub const fn interrupt(&self) -> bool {
        self.raised & self.enabled != 0
    }

    /// Reads the register at `offset`; reserved ones read as zero.
    pub fn read(&self, offset: u64) -> u32 {
        let value = match offset {
            // The address bits 9:2 mask the lines. Every line is low between its pulses.
            0..=DATA_END => 0,
            DIR => self.direction,
            IS => self.sense,
            IBE => self.both_edges,
            IEV => self.event,
            IE => self.enabled,
            RIS => self.raised,
            MIS => self.raised & self.enabled,
            AFSEL => self.alternate,
            FIRST_ID.. => {
                let index = offset.wrapping_sub(FIRST_ID) / 4;
                IDENTIFICATION.get(index as usize).copied().unwrap_or(0)
            }
            _ => 0,
        };
        u32::from(value)
    }

    /// Writes the register at `offset`; others ignore it.
    pub fn write(&mut self, offset: u64, value: u32) {
        let value = value as u8;
        match offset {
            DIR => self.direction = value,
            IS => self.sense = value,
            IBE => self.both_edges = value,
            IEV => self.event = value,
            IE => self.enable(value),
            IC => self.raised &= !value,
            AFSEL => self.alternate = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;

//! Cache maintenance by set/way in guests (Arm ARM D7.5.9.6), and its emulation.
//!
//! A guest that turns its caches on or off walks over all sets and ways of all levels, as U-Boot
//! does. Such a walk reaches neither other CPUs' caches nor a system cache. Gear1 implements the
//! intention instead: a walk cleans and invalidates all memory of the VM by address, to the point
//! of coherency, once, in one piece for each trap. The instruction repeats until the last piece is
//! done, so that interrupts and deadlines are served in between.
//!
//! The first instruction of a walk does the work, and the others do nothing: data that the guest
//! changes during a walk may belong to lines that the walk has passed already. An instruction
//! belongs to the walk of the previous one unless a long pause lies between them, or the
//! instruction is the one that began its level in this walk: then a second walk has begun. A pause
//! that comes from preemption costs one more walk.
//!
//! Requirements: G1-CPU-005.

/// Cache levels that are told apart; higher ones count as the last.
const LEVELS: usize = 4;

/// Progress of a vCPU's walk over a cache by set/way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetWay {
    /// First operand at each level in this walk.
    first: [Option<u64>; LEVELS],
    /// Bytes of the VM's memory that are cleaned already, while an instruction is under way.
    progress: Option<u64>,
    /// Time of the last finished instruction.
    last: u64,
}

/// Time of a trapped instruction, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Physical count.
    pub now: u64,
    /// Longest pause between two instructions of one walk.
    pub pause: u64,
}

/// Work of one trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Clean the piece at this offset in the VM's memory; the instruction runs again.
    Piece(u64),
    /// The instruction is done.
    Done,
}

impl SetWay {
    /// Nothing yet.
    pub const NONE: Self = Self {
        first: [None; LEVELS],
        progress: None,
        last: 0,
    };

    /// Says what an instruction with this operand does, in a VM with `total` bytes of memory that
    /// are cleaned in pieces of `piece` bytes.
    pub fn step(&mut self, operand: u64, time: Time, total: u64, piece: u64) -> Step {
        let goes_on = self.progress.is_none() && self.goes_on(operand, time);
        let done = self.progress.unwrap_or(0);
        if goes_on || done >= total {
            self.progress = None;
            self.last = time.now;
            return Step::Done;
        }
        self.progress = Some(done.saturating_add(piece));
        Step::Piece(done)
    }

    /// Tells whether the instruction belongs to a walk for which everything was cleaned. If not, a
    /// walk begins with it.
    fn goes_on(&mut self, operand: u64, time: Time) -> bool {
        let level = ((operand >> 1) & 7).min(3) as usize;
        let is_soon = time.now.wrapping_sub(self.last) <= time.pause;
        // Bound: 4 levels.
        let has_walk = self.first.iter().any(Option::is_some);
        let again = self.first.get(level) == Some(&Some(operand));
        // planted: a walk by set/way cleans only once
        let goes_on = has_walk && is_soon && !again;
        if !goes_on {
            // Bound: 4 levels.
            self.first = [None; LEVELS];
        }
        if let Some(first) = self.first.get_mut(level) {
            first.get_or_insert(operand);
        }
        goes_on
    }
}

#[cfg(test)]
mod tests;

//! Set/way cache maintenance of guests (Arm ARM D7.5.9.6): what it stands for.
//!
//! A guest that turns its caches on or off walks over all sets and ways of all levels (U-Boot
//! does). By itself that says nothing about other CPUs' caches nor about a system cache. So Gear1
//! does what is meant: it cleans and invalidates all memory of the VM by address, once for each
//! walk, one piece for each time that the instruction traps; until the last piece is done the
//! instruction runs again, so that interrupts and deadlines come in between.
//!
//! A walk is known by the operand with which its level began the first time: every later walk over
//! all of that level comes to it again.
//!
//! Requirements: G1-CPU-005.

/// Levels that are told apart; higher ones count as the last.
const LEVELS: usize = 4;

/// What a vCPU has done by set/way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetWay {
    /// The first operand at each level.
    first: [Option<u64>; LEVELS],
    /// Bytes of the VM's memory that are done, in the middle of it.
    progress: Option<u64>,
}

/// What one trap does.
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
    };

    /// Says what an instruction with this operand does, in a VM with `total` bytes of memory that
    /// are cleaned in pieces of `piece` bytes.
    pub fn step(&mut self, operand: u64, total: u64, piece: u64) -> Step {
        let progress = self.progress;
        if progress.is_none() && !self.begins(operand) {
            return Step::Done;
        }
        let done = progress.unwrap_or(0);
        if done >= total {
            self.progress = None;
            return Step::Done;
        }
        self.progress = Some(done.saturating_add(piece));
        Step::Piece(done)
    }

    /// Tells whether a walk begins with this operand, as far as can be known.
    fn begins(&mut self, operand: u64) -> bool {
        let level = ((operand >> 1) & 7).min(3) as usize;
        let Some(first) = self.first.get_mut(level) else {
            return false;
        };
        *first.get_or_insert(operand) == operand
    }
}

#[cfg(test)]
mod tests;

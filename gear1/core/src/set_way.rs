//! Set/way cache maintenance of guests (Arm ARM D7.5.9.6): what it stands for.
//!
//! A guest that turns its caches on or off walks over all sets and ways of all levels (U-Boot
//! does). By itself that says nothing about other CPUs' caches nor about a system cache. So Gear1
//! does what is meant: it cleans and invalidates all memory of the VM by address, to the point of
//! coherency, which is beyond all levels; once for each walk, one piece for each time that the
//! instruction traps. Until the last piece is done the instruction runs again, so that interrupts
//! and deadlines come in between.
//!
//! The first instruction of a walk does that, and the rest of it nothing: what the guest changes
//! after a walk has begun may be behind the walk's place already. An instruction belongs to the
//! walk of the last one unless a pause lies between them, or it is the one with which its level
//! began in this walk: a second walk over the level has begun. A pause too long, since the vCPU was
//! preempted, makes a walk more.
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
        let goes_on = match self.progress {
            Some(_) => false,
            None => self.goes_on(operand, time),
        };
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
        let has_walk = self.first.iter().any(Option::is_some);
        let again = self.first.get(level) == Some(&Some(operand));
        let goes_on = has_walk && is_soon && !again;
        if !goes_on {
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

//! Facts about an A64 instruction that the audit needs: control flow, and the effect on SP.
//!
//! Encodings: Arm ARM (DDI 0487) C4.1. A branch through a register that is not BR, BLR or RET in
//! its plain form counts as an indirect jump.

/// Successors of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next instruction.
    Next,
    /// To an address.
    Jump(u64),
    /// To an address or to the next instruction.
    Branch(u64),
    /// To a function, and back to the next instruction.
    Call(u64),
    /// To a function that never comes back.
    LastCall(u64),
    /// To a function that a register names.
    IndirectCall,
    /// To an address in a register.
    IndirectJump,
    /// Back to the caller.
    Return,
    /// To the interrupted context, or nowhere.
    End,
}

/// Effect of an instruction on SP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    /// Nothing.
    Keeps,
    /// Adds a number of bytes.
    Moves(i64),
    /// Sets SP to another value.
    Replaces,
}

/// Use of the exclusive monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusive {
    /// LDXR, LDAXR.
    Load,
    /// STXR, STLXR.
    Store {
        /// The register that is 0 if the word was stored.
        status: u32,
    },
}

/// A comparison with 0 that decides on a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) register: u32,
    /// Whether the branch is taken if the register is not 0.
    pub(super) unless_zero: bool,
}

/// Number of SP where an instruction means SP and not XZR.
const SP: u32 = 31;

/// Returns where the instruction `word` at `address` goes.
pub(super) fn flow(address: u64, word: u32) -> Flow {
    let to = |low, bits| address.wrapping_add_signed(signed(word, low, bits) * 4);
    if word & 0xfc00_0000 == 0x1400_0000 {
        Flow::Jump(to(0, 26))
    } else if word & 0xfc00_0000 == 0x9400_0000 {
        Flow::Call(to(0, 26))
    } else if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        Flow::Branch(to(5, 19))
    } else if word & 0x7e00_0000 == 0x3600_0000 {
        Flow::Branch(to(5, 14))
    } else if word & 0xffff_fc1f == 0xd65f_0000 {
        Flow::Return
    } else if word == 0xd69f_03e0 {
        Flow::End
    } else if word & 0xffff_fc1f == 0xd63f_0000 {
        Flow::IndirectCall
    } else if word & 0xfe00_0000 == 0xd600_0000 {
        Flow::IndirectJump
    } else if word & 0xffe0_001f == 0xd420_0000 || word >> 16 == 0 {
        Flow::End
    } else {
        Flow::Next
    }
}

/// Returns what the instruction does to SP.
pub(super) fn stack(word: u32) -> Stack {
    arithmetic_on_sp(word)
        .or_else(|| write_back_to_sp(word))
        .unwrap_or(Stack::Keeps)
}

/// Returns the effect of an ADD, a SUB or an AND whose result is SP.
fn arithmetic_on_sp(word: u32) -> Option<Stack> {
    let (to, from) = (word & 31, (word >> 5) & 31);
    let immediate = word & 0x7f80_0000 == 0x1100_0000 || word & 0x7f80_0000 == 0x5100_0000;
    let extended = word & 0x7fe0_0000 == 0x0b20_0000 || word & 0x7fe0_0000 == 0x4b20_0000;
    let mask = word & 0x7f80_0000 == 0x1200_0000;
    if to != SP || !(immediate || extended || mask) {
        return None;
    }
    if !immediate || from != SP {
        return Some(Stack::Replaces);
    }
    let bytes = i64::from((word >> 10) & 0xfff) << (12 * ((word >> 22) & 1));
    let is_subtraction = word & 1 << 30 != 0;
    Some(Stack::Moves(if is_subtraction { -bytes } else { bytes }))
}

/// Returns the effect of a load or a store that writes the address back to SP.
fn write_back_to_sp(word: u32) -> Option<Stack> {
    if (word >> 5) & 31 != SP {
        return None;
    }
    // A pair, before (11) or after (01) the access; the offset counts registers.
    if word & 0x3a80_0000 == 0x2880_0000 {
        let size_log2 = match (word >> 26 & 1, word >> 30) {
            (1, size) => 2 + size,
            (_, 2) => 3,
            _ => 2,
        };
        return Some(Stack::Moves(signed(word, 15, 7) << size_log2));
    }
    // A register, before or after the access; the offset counts bytes.
    (word & 0x3b20_0400 == 0x3800_0400).then(|| Stack::Moves(signed(word, 12, 9)))
}

/// Returns what the instruction does with the exclusive monitor, by one register.
pub(super) fn exclusive(word: u32) -> Option<Exclusive> {
    match word & 0x3fe0_0000 {
        0x0840_0000 => Some(Exclusive::Load),
        0x0800_0000 => Some(Exclusive::Store {
            status: (word >> 16) & 31,
        }),
        _ => None,
    }
}

/// Returns what CBZ and CBNZ compare.
pub(super) fn compared(word: u32) -> Option<Compared> {
    (word & 0x7e00_0000 == 0x3400_0000).then_some(Compared {
        register: word & 31,
        unless_zero: word & 1 << 24 != 0,
    })
}

/// Returns the signed field of `bits` bits that begins at bit `low`.
fn signed(word: u32, low: u32, bits: u32) -> i64 {
    let field = (word >> low) & ((1 << bits) - 1);
    (i64::from(field) << (64 - bits)) >> (64 - bits)
}

#[cfg(test)]
mod tests;

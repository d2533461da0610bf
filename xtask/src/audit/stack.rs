//! Depth of the stack of each entry, and absence of recursion.
//!
//! The analysis follows the depth before each instruction through a function's code. It refuses a
//! function whose depth differs between two ways to an instruction, and one that sets SP to
//! something unknown.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};

use super::code::{Function, Functions};
use super::decode::Stack;

/// The worst case of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Worst {
    /// Bytes.
    pub(super) bytes: i64,
    /// The functions of the deepest chain of calls, the entry first.
    pub(super) chain: Vec<String>,
}

/// Stack use of all functions that are reached from some entry.
pub(super) struct Stacks<'a> {
    /// The graph of calls.
    functions: &'a Functions,
    // By address of the function: each is followed once, whoever calls it.
    known: BTreeMap<u64, Worst>,
    // The chain that is being followed. A function that is met there again is recursive.
    open: Vec<u64>,
}

impl<'a> Stacks<'a> {
    /// Nothing is followed before an entry is asked for.
    pub(super) fn new(functions: &'a Functions) -> Stacks<'a> {
        Stacks {
            functions,
            known: BTreeMap::new(),
            open: Vec::new(),
        }
    }

    /// Returns the worst case of the function at an address, and fails if it may call itself.
    pub(super) fn worst(&mut self, start: u64) -> Result<Worst> {
        if let Some(worst) = self.known.get(&start) {
            return Ok(worst.clone());
        }
        let function = self.functions.0.get(&start);
        let function = function.with_context(|| format!("no function at {start:#x}"))?;
        if self.open.contains(&start) {
            bail!("recursion: {} calls itself", function.name);
        }
        self.open.push(start);
        let mut deepest = self.deepest(start, function)?;
        deepest.chain.insert(0, function.name.clone());
        self.open.pop();
        self.known.insert(start, deepest.clone());
        Ok(deepest)
    }

    /// Returns the worst case of a function and of all that the function enters, without the
    /// function's name in the chain.
    fn deepest(&mut self, start: u64, function: &Function) -> Result<Worst> {
        let depths = depths(start, function)?;
        let mut deepest = Worst {
            bytes: depths.values().copied().max().unwrap_or(0),
            chain: Vec::new(),
        };
        for (address, depth) in depths {
            let Some(callee) = function.enters(address) else {
                continue;
            };
            let callee = self.entered(callee)?;
            let worst = self.worst(callee);
            let worst = worst.with_context(|| format!("called by {}", function.name))?;
            // The callee of a jump out takes this function's place.
            if depth + worst.bytes > deepest.bytes {
                deepest.bytes = depth + worst.bytes;
                deepest.chain = worst.chain;
            }
        }
        Ok(deepest)
    }

    /// Returns the function that is entered at an address, which must be its first instruction
    /// unless it is assembly.
    fn entered(&self, address: u64) -> Result<u64> {
        let start = self.functions.holder(address);
        let start = start.with_context(|| format!("a call to {address:#x}, where no code is"))?;
        let is_inside = self.functions.0[&start].is_compiled && start != address;
        ensure!(
            !is_inside,
            "a call into the middle of a function: {address:#x}"
        );
        Ok(start)
    }
}

/// Returns how many bytes of stack a function has taken before each instruction that it reaches.
/// Each instruction is visited once, so loops end the walk.
fn depths(start: u64, function: &Function) -> Result<BTreeMap<u64, i64>> {
    let mut depths = BTreeMap::from([(start, 0)]);
    let mut open = vec![start];
    while let Some(address) = open.pop() {
        let depth = depth_behind(function, address, depths[&address])?;
        for next in function.successors(address) {
            match depths.insert(next, depth) {
                None => open.push(next),
                Some(other) => ensure!(
                    other == depth || !function.is_compiled,
                    "two depths, {other} and {depth}: {} at {address:#x}",
                    function.name
                ),
            }
        }
    }
    Ok(depths)
}

/// Returns the depth behind an instruction, from that before the instruction.
fn depth_behind(function: &Function, address: u64, before: i64) -> Result<i64> {
    let place = || format!("{} at {address:#x}", function.name);
    let depth = match function.instructions[&address].stack {
        Stack::Keeps => before,
        Stack::Moves(bytes) => before - bytes,
        // Assembly enters Rust on a stack of which nothing is in use.
        Stack::Replaces if !function.is_compiled => 0,
        Stack::Replaces => bail!("SP is set to something unknown by {}", place()),
    };
    ensure!(depth >= 0, "more is popped than was pushed by {}", place());
    Ok(depth)
}

#[cfg(test)]
mod tests;

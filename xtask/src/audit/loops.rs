//! The loops of an image, and where in the source each stands.
//!
//! A loop is an instruction that control comes back to. The loop's owner is the innermost of our
//! own functions that all of the loop's branches belong to; what the compiler generated or took
//! from `core` alone belongs to the function that it is part of.
//!
//! A loop of the source may be several in an image, or none where the compiler unrolled it. Each
//! that is there needs a bound; a bound needs a loop in one of the images.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::code::{Function, Program};
use super::decode::{Exclusive, Flow};
use super::places::{Frame, Owner, Place, frames};

/// The function of the crate spin that waits for a ticket lock. Its bound is the time for which
/// other CPUs hold the lock; `audit.toml` lists it once for all who wait.
const LOCK: &str = "lock";

/// A loop of an image. The source's place is what a bound is written beside; an address would
/// differ with each build.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    /// The function in the source that the loop is part of. Inlining puts a loop into many
    /// functions of an image, and the bound is written where the loop is.
    pub(super) owner: Owner,
    pub(super) stands: Stands,
    /// Line and column of the owner where the loop closes: loops of one image which close at one
    /// place are copies of one loop.
    pub(super) closes: (u32, u32),
}

/// Where a loop stands in its owner. Optimization moves instructions, so that a loop's lines are a
/// range and not a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// The first and the last line that the loop's branches come from.
    On(u32, u32),
    /// No line is known, as of an array that is filled: the line of the instruction before.
    Behind(u32),
}

/// Returns the loops of an image. Loops of the compiler's making count as well: an array that is
/// filled and a copy of a structure take time like any other.
pub(super) fn find(program: &Program) -> Result<Vec<Loop>> {
    let mut found = Vec::new();
    for (start, function) in &program.functions.0 {
        for (head, tails) in returns(*start, function) {
            let body = body(function, head, &tails);
            found.push(if is_retry(function, head, &tails, &body) {
                Loop::elsewhere(Owner::of("core", "exclusive"))
            } else if is_lock(program, function, &body)? {
                Loop::elsewhere(Owner::of("spin", "lock"))
            } else {
                Loop::new(program, function, head, &tails, &body)?
            });
        }
    }
    Ok(found)
}

/// Tells whether a loop is an atomic change of one word: from a load-exclusive to the
/// store-exclusive behind it, and back only if the store failed. A loop with an atomic change among
/// other things is none, nor is one that tries again because the word has another value. Such a
/// loop ends by the architecture's guarantee of progress for exclusives (Arm ARM, "Synchronization
/// and semaphores"), which no comment in the source could state for each atomic operation.
fn is_retry(function: &Function, head: u64, tails: &[u64], body: &BTreeSet<u64>) -> bool {
    let exclusive = |address: u64| function.instructions.get(&address)?.exclusive;
    let [tail] = *tails else {
        return false;
    };
    let Some((branch, status)) = decision(function, tail) else {
        return false;
    };
    let uses = body.iter().filter(|address| exclusive(**address).is_some());
    let store = branch.checked_sub(4).and_then(exclusive);
    uses.count() == 2
        && exclusive(head) == Some(Exclusive::Load)
        && store == Some(Exclusive::Store { status })
        && !calls(function, body)
}

/// Returns the branch that goes back to a loop's head unless a register is 0, and the register: the
/// tail itself, CBNZ, or the CBZ before a tail that always jumps. Compilers write either form, and
/// the sense of the comparison differs between them.
fn decision(function: &Function, tail: u64) -> Option<(u64, u32)> {
    let is_jump = matches!(function.instructions.get(&tail)?.flow, Flow::Jump(_));
    let branch = if is_jump { tail.checked_sub(4)? } else { tail };
    let compared = function.instructions.get(&branch)?.compared?;
    // CBNZ is taken to go on, and CBZ to leave.
    let goes_on = compared.unless_zero != is_jump;
    goes_on.then_some((branch, compared.register))
}

/// Tells whether a loop does nothing but wait for a ticket lock. All of its instructions have to
/// come from the lock: a loop that also does something else needs its own bound.
fn is_lock(program: &Program, function: &Function, body: &BTreeSet<u64>) -> Result<bool> {
    for &address in body {
        let frames = frames(program, address)?;
        let is_lock = |frame: &Frame| frame.name.contains("spin::") && frame.owner.function == LOCK;
        if !frames.iter().any(is_lock) {
            return Ok(false);
        }
    }
    Ok(!calls(function, body))
}

/// Tells whether a loop calls anything. A call makes the loop as long as the callee.
fn calls(function: &Function, body: &BTreeSet<u64>) -> bool {
    let mut flows = body.iter().map(|a| function.instructions[a].flow);
    flows.any(|flow| matches!(flow, Flow::Call(_) | Flow::LastCall(_) | Flow::IndirectCall))
}

impl Loop {
    /// Makes a loop of a library, whose places do not matter. Nobody writes a comment into a
    /// library, so `audit.toml` has these bounds.
    fn elsewhere(owner: Owner) -> Loop {
        Loop {
            owner,
            stands: Stands::Behind(0),
            closes: (0, 0),
        }
    }

    /// Without a place in the owner, the nearest place before decides: the compiler gives loops
    /// that it makes itself no line.
    fn new(
        program: &Program,
        function: &Function,
        head: u64,
        tails: &[u64],
        body: &BTreeSet<u64>,
    ) -> Result<Loop> {
        let branches = || body.iter().filter(|address| is_branch(function, **address));
        let Some((name, mut owner)) = owner(program, branches())? else {
            return Ok(Loop::elsewhere(Owner::of("assembly", &function.name)));
        };
        let own = Places::of(program, branches(), &name)?;
        let before = match own.0.is_empty() {
            true => Places::before(program, function, head, &name)?,
            false => None,
        };
        let is_behind = before.is_some();
        let places = before.unwrap_or(own);
        if let Some(place) = places.0.first() {
            owner.file.clone_from(&place.file);
        }
        let closes = Places::of(program, tails, &name)?;
        let closes = closes.0.first();
        Ok(Loop {
            owner,
            stands: places.stands(is_behind),
            closes: closes.map_or((0, 0), |place| (place.line, place.column)),
        })
    }
}

/// Places in one function. Sorted, so that first and last line are its ends.
#[derive(Default)]
struct Places(BTreeSet<Place>);

impl Places {
    /// Returns the known places of some instructions in a function. Of several frames that inlining
    /// left at one instruction, the one of this function counts.
    fn of<'a>(
        program: &Program,
        instructions: impl IntoIterator<Item = &'a u64>,
        name: &str,
    ) -> Result<Places> {
        let mut places = Places::default();
        for address in instructions {
            let frames = frames(program, *address)?;
            let own = frames.into_iter().rfind(|frame| frame.name == name);
            places.0.extend(own.and_then(|frame| frame.place));
        }
        Ok(places)
    }

    /// Returns the place of the last instruction before an address whose place is known. `None`:
    /// the function begins at the address. Instructions stand in the order of the text often enough
    /// for that.
    fn before(
        program: &Program,
        function: &Function,
        address: u64,
        name: &str,
    ) -> Result<Option<Places>> {
        let mut last = None;
        for (address, _) in function.instructions.range(..address).rev() {
            let places = Places::of(program, [address], name)?;
            let is_known = !places.0.is_empty();
            last = Some(places);
            if is_known {
                break;
            }
        }
        Ok(last)
    }

    /// Returns where a loop with these places stands, on line 0 if there is no place. Line 0 never
    /// matches a bound, so that an unknown place is reported.
    fn stands(&self, is_behind: bool) -> Stands {
        let line = |place: Option<&Place>| place.map_or(0, |place| place.line);
        let (first, last) = (line(self.0.first()), line(self.0.last()));
        match is_behind {
            true => Stands::Behind(first),
            false => Stands::On(first, last),
        }
    }
}

/// Tells whether an instruction decides how a loop goes on. Others may have been moved into the
/// loop from elsewhere. An instruction that was moved into the loop has the line that it came from,
/// which may be anywhere in the function.
fn is_branch(function: &Function, address: u64) -> bool {
    let instruction = function.instructions.get(&address);
    instruction.is_some_and(|instruction| instruction.flow != Flow::Next)
}

/// Returns the instructions that control comes back to, each with those that it comes from. A
/// depth-first search with the path at hand: an edge to an instruction on the path closes a loop.
/// Irreducible graphs, which compilers hardly make, would show as several loops.
fn returns(start: u64, function: &Function) -> BTreeMap<u64, Vec<u64>> {
    let mut returns: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut on_path = BTreeSet::from([start]);
    let mut seen = on_path.clone();
    let mut path = vec![(start, function.successors(start))];
    while let Some((address, left)) = path.last_mut() {
        let Some(next) = left.pop() else {
            on_path.remove(address);
            path.pop();
            continue;
        };
        if on_path.contains(&next) {
            returns.entry(next).or_default().push(*address);
        } else if seen.insert(next) {
            on_path.insert(next);
            path.push((next, function.successors(next)));
        }
    }
    returns
}

/// Returns a loop's instructions: those from which its tails are reached without its head. The
/// natural loop of its back edges (Aho et al., "Compilers"): searched backwards from the tails,
/// with the head as a wall.
fn body(function: &Function, head: u64, tails: &[u64]) -> BTreeSet<u64> {
    let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for &address in function.instructions.keys() {
        for next in function.successors(address) {
            before.entry(next).or_default().push(address);
        }
    }
    let mut body = BTreeSet::from([head]);
    let mut open = tails.to_vec();
    while let Some(address) = open.pop() {
        if body.insert(address) {
            open.extend(before.get(&address).into_iter().flatten());
        }
    }
    body
}

/// Returns the innermost of our functions that all these instructions belong to, or else the
/// outermost function: the name with the path, and the function. `None`: nothing is known. `next`
/// of our iterators is passed over: the `for` that uses one has the bound.
fn owner<'a>(
    program: &Program,
    instructions: impl Iterator<Item = &'a u64>,
) -> Result<Option<(String, Owner)>> {
    let mut common: Option<Vec<Frame>> = None;
    for &address in instructions {
        let frames = frames(program, address)?;
        common = match common {
            _ if frames.is_empty() => common,
            Some(common) => Some(shared(common, frames)),
            None => Some(frames),
        };
    }
    let mut common = common.unwrap_or_default();
    // What an iterator of ours does is part of who iterates.
    let is_whole = |frame: &Frame| is_ours(&frame.owner) && frame.owner.function != "next";
    let ours = common.iter().rposition(is_whole);
    let found = (!common.is_empty()).then(|| common.swap_remove(ours.unwrap_or(0)));
    Ok(found.map(|frame| (frame.name, frame.owner)))
}

/// Returns the outermost functions that two instructions share. Places are kept where either has
/// one.
fn shared(one: Vec<Frame>, other: Vec<Frame>) -> Vec<Frame> {
    let pairs = one.into_iter().zip(other);
    let same = pairs.take_while(|(a, b)| a.name == b.name);
    let kept = same.map(|(a, b)| if a.place.is_none() { b } else { a });
    kept.collect()
}

/// Tells whether a function is Gear1's: paths of `core` and of crates lie elsewhere.
fn is_ours(owner: &Owner) -> bool {
    owner.file.starts_with("gear1/")
}

#[cfg(test)]
mod tests;

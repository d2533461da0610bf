//! The loops of an image, and where in the source each stands.
//!
//! A loop is an instruction that control comes back to. Its owner is the innermost of our own
//! functions that all of the loop's instructions belong to; what the compiler generated or took
//! from `core` alone belongs to the function that it is part of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, anyhow};
use workbench::workspace;

use super::code::{Function, Program};
use super::decode::Flow;

/// The instructions of a wait for a lock: load, compare, branch, and what to do meanwhile.
const WAIT: usize = 8;

/// A function in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    /// The source file, relative to the workspace, or the name of the library.
    pub(super) file: String,
    /// The function's name without its path.
    pub(super) function: String,
}

impl Owner {
    pub(super) fn of(file: &str, function: &str) -> Owner {
        Owner {
            file: file.to_owned(),
            function: function.to_owned(),
        }
    }
}

/// Tells whether a loop does nothing but an atomic change of one word.
fn is_retry(function: &Function, body: &BTreeSet<u64>) -> bool {
    let instructions = || body.iter().map(|address| &function.instructions[address]);
    !calls(function, body) && instructions().any(|i| i.is_exclusive_store)
}

/// Tells whether a loop does nothing but wait for a ticket lock.
fn is_lock(program: &Program, function: &Function, body: &BTreeSet<u64>) -> Result<bool> {
    let mut is_lock = false;
    for &address in body {
        let places = places(program, address)?;
        is_lock |= places.iter().any(|(owner, _)| owner.function == "lock");
    }
    Ok(is_lock && body.len() <= WAIT && !calls(function, body))
}

fn calls(function: &Function, body: &BTreeSet<u64>) -> bool {
    let mut flows = body.iter().map(|a| function.instructions[a].flow);
    flows.any(|flow| matches!(flow, Flow::Call(_) | Flow::IndirectCall))
}

/// Returns the loops of an image: by owner, the source line on which each closes, or 0 if the line
/// is unknown.
pub(super) fn find(program: &Program) -> Result<BTreeMap<Owner, BTreeSet<u32>>> {
    let mut found: BTreeMap<Owner, BTreeSet<u32>> = BTreeMap::new();
    for (start, function) in &program.functions.0 {
        for (head, tails) in returns(*start, function) {
            let body = body(function, head, &tails);
            let owner = if is_retry(function, &body) {
                Owner::of("core", "exclusive")
            } else if is_lock(program, function, &body)? {
                Owner::of("spin", "lock")
            } else {
                owner(program, function, &body)?
            };
            let lines = tails.iter().map(|tail| line(program, *tail, &owner));
            let lines: Vec<u32> = lines.collect::<Result<_>>()?;
            let line = lines.iter().copied().filter(|line| *line != 0).min();
            found.entry(owner).or_default().insert(line.unwrap_or(0));
        }
    }
    for lines in found.values_mut().filter(|lines| lines.len() > 1) {
        lines.remove(&0);
    }
    Ok(found)
}

/// Returns the instructions that control comes back to, each with those that it comes from.
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

/// Returns a loop's instructions: those from which its tails are reached without its head.
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

fn owner(program: &Program, function: &Function, body: &BTreeSet<u64>) -> Result<Owner> {
    let mut common: Option<Vec<Owner>> = None;
    for &address in body {
        let frames = frames(program, address)?;
        if frames.is_empty() {
            continue;
        }
        common = Some(match common {
            None => frames,
            Some(common) => shared(common, frames),
        });
    }
    let common = common.unwrap_or_default();
    let ours = common.iter().rev().find(|owner| is_ours(owner));
    Ok(ours.or(common.first()).cloned().unwrap_or_else(|| Owner {
        file: "assembly".to_owned(),
        function: function.name.clone(),
    }))
}

/// Returns the outermost functions that two instructions share. Now and then the file of one is
/// that of something inlined that is not told otherwise, so names count, and a file of ours is
/// kept.
fn shared(one: Vec<Owner>, other: Vec<Owner>) -> Vec<Owner> {
    let pairs = one.into_iter().zip(other);
    let same = pairs.take_while(|(a, b)| a.function == b.function);
    let kept = same.map(|(a, b)| if is_ours(&a) { a } else { b });
    kept.collect()
}

fn is_ours(owner: &Owner) -> bool {
    owner.file.starts_with("gear1/")
}

/// Returns the functions that an instruction belongs to, the outermost first.
fn frames(program: &Program, address: u64) -> Result<Vec<Owner>> {
    let mut frames = places(program, address)?;
    frames.reverse();
    Ok(frames.into_iter().map(|(owner, _)| owner).collect())
}

/// Returns the line of an instruction in its loop's owner, or 0.
fn line(program: &Program, address: u64, owner: &Owner) -> Result<u32> {
    let places = places(program, address)?;
    let own = places
        .iter()
        .find(|(place, _)| place.function == owner.function);
    Ok(own.map_or(0, |(_, line)| *line))
}

/// Returns where in the source an instruction comes from, the innermost function first.
fn places(program: &Program, address: u64) -> Result<Vec<(Owner, u32)>> {
    let mut places = Vec::new();
    let fail = |error| anyhow!("{address:#x}: {error}");
    let mut frames = program.lines.find_frames(address).map_err(fail)?;
    while let Some(frame) = frames.next().map_err(|error| anyhow!("{error}"))? {
        let name = frame.function;
        let name = name.and_then(|f| Some(f.demangle().ok()?.into_owned()));
        let location = frame.location;
        let owner = Owner {
            file: relative(location.as_ref().and_then(|l| l.file).unwrap_or("")),
            function: short(&name.unwrap_or_default()),
        };
        places.push((owner, location.and_then(|l| l.line).unwrap_or(0)));
    }
    Ok(places)
}

/// Returns a source path of ours relative to the workspace; of others, the library's name.
fn relative(file: &str) -> String {
    let ours = Path::new(file).strip_prefix(workspace::root()).ok();
    if let Some(ours) = ours.and_then(Path::to_str) {
        return ours.to_owned();
    }
    let library = ["compiler-builtins", "core", "spin", "tock-registers"];
    let known = library.iter().find(|name| file.contains(*name));
    known.map_or_else(|| file.to_owned(), |name| (*name).to_owned())
}

/// Returns the last part of a path, without generic arguments, hash and closures.
fn short(name: &str) -> String {
    let mut flat = String::new();
    let mut depth = 0;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => flat.push(c),
            _ => {}
        }
    }
    let parts = flat.split("::").filter(|part| !part.is_empty());
    let is_hash = |part: &&str| part.len() == 17 && part.starts_with('h');
    let parts = parts.filter(|part| !is_hash(part) && !part.starts_with("{{closure"));
    parts.last().unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests;

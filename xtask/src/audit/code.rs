//! The functions of a linked image, and how control goes within and between them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use addr2line::{Loader, demangle, gimli};
use anyhow::{Context as _, Result, anyhow, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind, SymbolKind};

use super::decode::{Compared, Exclusive, Flow, Stack, compared, exclusive, flow, stack};

/// The code of an image. All analyses read this one form, so that none of them decodes an
/// instruction by itself.
pub(super) struct Program {
    /// Of the section `.text` alone: constants are data.
    pub(super) functions: Functions,
    /// Symbols that are values. The linker script exports sizes of stacks this way.
    pub(super) absolute: BTreeMap<String, u64>,
    /// Bytes of memory: code, constants, variables, as linked.
    pub(super) memory_bytes: u64,
    /// DWARF's line table: an instruction's place in the source, inlined frames included.
    pub(super) lines: Loader,
}

/// Functions, by the address of their first instruction. Keyed by address, since branches name
/// addresses and names are not unique: each generic function has one for each type.
#[derive(Default)]
pub(super) struct Functions(pub(super) BTreeMap<u64, Function>);

/// Code between a symbol and the end of the function that begins there.
pub(super) struct Function {
    /// Demangled; assembly has its label.
    pub(super) name: String,
    /// Whether a compiler made the function. Assembly has no size in its symbol and no frame that
    /// the stack analysis could read; the vectors and the world switch are of this kind.
    pub(super) is_compiled: bool,
    /// By address; one whose word is missing is not there.
    pub(super) instructions: BTreeMap<u64, Instruction>,
}

/// A decoded instruction. Only what the analyses ask for; any word that is not known runs on to the
/// next.
#[derive(Clone, Copy)]
pub(super) struct Instruction {
    /// Where control goes from here.
    pub(super) flow: Flow,
    /// Change of SP, by which frames are measured.
    pub(super) stack: Stack,
    /// Load- or store-exclusive, for loops that only retry.
    pub(super) exclusive: Option<Exclusive>,
    /// CBZ or CBNZ, which decides such loops.
    pub(super) compared: Option<Compared>,
}

impl Program {
    /// Reads an ELF file with symbols. A stripped file is refused: without symbols there would be
    /// nothing to find, and an audit that finds nothing would pass.
    pub(super) fn read(elf: &Path) -> Result<Program> {
        let bytes = std::fs::read(elf).with_context(|| elf.display().to_string())?;
        let file = object::File::parse(&*bytes)?;
        let absolute = file
            .symbols()
            .filter(|s| s.section() == object::SymbolSection::Absolute)
            .filter_map(|s| Some((s.name().ok()?.to_owned(), s.address())));
        let lines = Loader::new(elf).map_err(|error| anyhow!("{}: {error}", elf.display()))?;
        let memory_bytes = file.segments().map(|s| object::ObjectSegment::size(&s));
        Ok(Program {
            functions: Functions::read(&file)?,
            absolute: absolute.collect(),
            memory_bytes: memory_bytes.sum(),
            lines,
        })
    }
}

impl Functions {
    /// Decodes the functions of a file's code.
    fn read(file: &object::File<'_>) -> Result<Functions> {
        let text = file
            .sections()
            .find(|section| section.kind() == SectionKind::Text)
            .context("no code")?;
        let data = text.data()?;
        let code = text.address()..text.address() + data.len() as u64;
        let word = |address: u64| {
            let at = usize::try_from(address - code.start).ok()?;
            Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
        };
        let mut functions = Functions::default();
        for extent in extents(file, &code)? {
            let start = extent.addresses.start;
            let addresses = extent.addresses.step_by(4);
            let words = addresses.filter_map(|address| Some((address, word(address)?)));
            let function = Function::new(extent.name, extent.is_compiled, words);
            functions.0.insert(start, function);
        }
        functions.find_last_calls();
        Ok(functions)
    }

    /// Returns the address of the function with this name. Names are demangled and without their
    /// hash, as `audit.toml` writes them.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        let found = self.0.iter().find(|(_, f)| f.name == name);
        found.map(|(address, _)| *address)
    }

    /// Returns the names of all functions.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|function| &*function.name)
    }

    /// Returns where compiled code branches to what a register says. The stack and recursion
    /// analyses follow branches by their target, so compiled code may have none that they cannot
    /// read. Assembly has one, the exception return's way back.
    pub(super) fn indirect_branches(&self) -> Vec<String> {
        let compiled = self.0.values().filter(|f| f.is_compiled);
        let branches = compiled.flat_map(|f| f.instructions.iter().map(move |i| (f, i)));
        let is_indirect = |flow| matches!(flow, Flow::IndirectCall | Flow::IndirectJump);
        let branches = branches.filter(|(_, (_, i))| is_indirect(i.flow));
        branches
            .map(|(f, (at, _))| format!("{} at {at:#x}", f.name))
            .collect()
    }

    /// Tells calls of functions that never come back from others: what stands behind such a call is
    /// not reached from there. A fixed point is needed, because a function may end by a call of
    /// another whose own end is not known yet. Without it, what stands behind a call of `halt`
    /// would count as reached, and with it loops and frames that no execution has.
    pub(super) fn find_last_calls(&mut self) {
        let mut return_to: BTreeSet<u64> = BTreeSet::new();
        loop {
            self.mark_last_calls(&return_to);
            let known = return_to.len();
            for (start, function) in &self.0 {
                let comes_back = |address: &u64| self.comes_back(function, *address, &return_to);
                if !function.is_compiled || function.reached(*start).iter().any(comes_back) {
                    return_to.insert(*start);
                }
            }
            if return_to.len() == known {
                break;
            }
        }
    }

    /// Tells whether an instruction leads back to its function's caller, directly or by the end of
    /// another function. A branch out of the function is its tail call: it returns if its target
    /// does.
    fn comes_back(&self, function: &Function, address: u64, return_to: &BTreeSet<u64>) -> bool {
        match function.instructions.get(&address).map(|i| i.flow) {
            Some(Flow::Return | Flow::IndirectJump) => true,
            Some(Flow::Call(_) | Flow::LastCall(_)) | None => false,
            Some(_) => {
                let next = function.enters(address);
                next.is_some_and(|to| self.holder(to).is_none_or(|to| return_to.contains(&to)))
            }
        }
    }

    /// Makes the calls of all functions but these the last, and the others ordinary. Both
    /// directions are written, because an earlier round may have taken a function for one that
    /// never returns.
    fn mark_last_calls(&mut self, return_to: &BTreeSet<u64>) {
        let starts: BTreeSet<u64> = self.0.keys().copied().collect();
        for function in self.0.values_mut() {
            for instruction in function.instructions.values_mut() {
                if let Flow::Call(to) | Flow::LastCall(to) = instruction.flow {
                    let is_last = starts.contains(&to) && !return_to.contains(&to);
                    instruction.flow = if is_last {
                        Flow::LastCall(to)
                    } else {
                        Flow::Call(to)
                    };
                }
            }
        }
    }

    /// Returns the function that holds an address. `None` for an address in a gap: literals and
    /// padding belong to no function.
    pub(super) fn holder(&self, address: u64) -> Option<u64> {
        let (start, function) = self.0.range(..=address).next_back()?;
        function
            .instructions
            .contains_key(&address)
            .then_some(*start)
    }
}

impl Function {
    /// Makes a function of words as they stand in memory.
    pub(super) fn new(
        name: String,
        is_compiled: bool,
        words: impl Iterator<Item = (u64, u32)>,
    ) -> Function {
        let instructions = words.map(|(address, word)| {
            let instruction = Instruction {
                flow: flow(address, word),
                stack: stack(word),
                exclusive: exclusive(word),
                compared: compared(word),
            };
            (address, instruction)
        });
        Function {
            name,
            is_compiled,
            instructions: instructions.collect(),
        }
    }

    /// Returns the instructions that control gets to from one of them. Depth first with an explicit
    /// stack: a compiled function has thousands of instructions.
    fn reached(&self, start: u64) -> BTreeSet<u64> {
        let mut reached = BTreeSet::from([start]);
        let mut open = vec![start];
        while let Some(address) = open.pop() {
            let next = self.successors(address).into_iter();
            open.extend(next.filter(|to| reached.insert(*to)));
        }
        reached
    }

    /// Returns where control goes from an instruction without leaving the function. Targets outside
    /// are the callers' business and are left out; see [`Function::enters`].
    pub(super) fn successors(&self, address: u64) -> Vec<u64> {
        let Some(instruction) = self.instructions.get(&address) else {
            return Vec::new();
        };
        let next = address + 4;
        let all = match instruction.flow {
            Flow::Next | Flow::Call(_) | Flow::IndirectCall => vec![next],
            Flow::Branch(to) => vec![next, to],
            Flow::Jump(to) => vec![to],
            Flow::LastCall(_) | Flow::IndirectJump | Flow::Return | Flow::End => vec![],
        };
        let inside = |to: &u64| self.instructions.contains_key(to);
        all.into_iter().filter(inside).collect()
    }

    /// Returns the functions that an instruction enters: by a call, by a jump behind the last one,
    /// or by running on into the next. Compilers share code between functions by a jump or by
    /// falling through, and both use the callee's frame.
    pub(super) fn enters(&self, address: u64) -> Option<u64> {
        let to = match self.instructions.get(&address)?.flow {
            Flow::Call(to) | Flow::LastCall(to) => return Some(to),
            Flow::Jump(to) | Flow::Branch(to) => to,
            Flow::Next => address + 4,
            Flow::IndirectCall | Flow::IndirectJump | Flow::Return | Flow::End => return None,
        };
        (!self.instructions.contains_key(&to)).then_some(to)
    }
}

/// Where a function is in memory. The symbol table gives starts; ends come from sizes or from
/// neighbours.
struct Extent {
    name: String,
    addresses: Range<u64>,
    is_compiled: bool,
}

/// Returns the extents of all functions. ELF gives compiled functions a size; what assembly defines
/// has none.
fn extents(file: &object::File<'_>, code: &Range<u64>) -> Result<Vec<Extent>> {
    let starts = starts(file, code)?;
    ensure!(!starts.is_empty(), "there are no symbols to look at");
    let literals = literals(file, code)?;
    let addresses: Vec<u64> = starts.keys().copied().chain([code.end]).collect();
    let nexts = addresses.into_iter().skip(1);
    let extents = starts.into_iter().zip(nexts);
    let extents = extents.map(|((start, (name, size)), next)| Extent {
        name,
        addresses: start..match size {
            0 => end_of_assembly(start, next, &literals),
            size => start + size,
        },
        is_compiled: size > 0,
    });
    Ok(extents.collect())
}

/// Returns the end of what assembly defines, which has no size in its symbol: the next symbol, or
/// the first literals behind the code. Literal pools behind the code would decode as branches to
/// anywhere.
fn end_of_assembly(start: u64, next: u64, literals: &[u64]) -> u64 {
    let literal = literals.iter().find(|at| (start..next).contains(at));
    literal.copied().filter(|at| *at > start).unwrap_or(next)
}

/// Returns name and size of what begins at each address of the code. Of several names, a function's
/// wins; mapping symbols (`$x`) and the linker's own are no names. `__` begins the names of the
/// link script, which may lie at a function's address.
fn starts(file: &object::File<'_>, code: &Range<u64>) -> Result<BTreeMap<u64, (String, u64)>> {
    let mut starts: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    for symbol in file.symbols().filter(|s| code.contains(&s.address())) {
        let name = symbol.name()?;
        if name.is_empty() || name.starts_with('$') || name.starts_with("__") {
            continue;
        }
        let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
        let entry = starts.entry(symbol.address()).or_default();
        if is_function || entry.0.is_empty() {
            let name = demangle(name, gimli::DW_LANG_Rust).map_or_else(|| name.to_owned(), plain);
            *entry = (name, symbol.size());
        }
    }
    Ok(starts)
}

/// Returns where data begins in the code, in the symbols' order: the mapping symbols `$d` of the
/// ELF for the Arm 64-bit Architecture (AAELF64).
fn literals(file: &object::File<'_>, code: &Range<u64>) -> Result<Vec<u64>> {
    let mut literals = Vec::new();
    for symbol in file.symbols().filter(|s| code.contains(&s.address())) {
        if symbol.name()?.starts_with("$d") {
            literals.push(symbol.address());
        }
    }
    Ok(literals)
}

/// Returns a demangled name without the hash at its end. The hash differs with each compiler, and
/// rules name functions for years.
fn plain(name: String) -> String {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 => path.to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests;

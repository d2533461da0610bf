//! Translation tables with the 4 KiB granule (Arm ARM D8): the walk and the change that EL2's
//! stage 1 and every stage 2 share.
//!
//! Owns the structure: levels, table descriptors, concatenated roots. What the attribute bits of a
//! leaf mean is [`crate::stage1`]'s and [`crate::stage2`]'s business. Invariants: a change is
//! checked as a whole before its first write, so a refused one leaves the tables as they were; an
//! invalid descriptor that is not zero belongs to somebody and is never overwritten by a mapping;
//! no walk takes more than four steps. Must not: touch hardware, or issue the barriers and TLB
//! maintenance that follow a change.
//!
//! Requirements: G1-MEM-014, G1-MEM-018.

use core::ops::Range;

use crate::addr::Pa;

/// Descriptors of a table.
pub const ENTRIES: usize = 512;
const ENTRY_MASK: u64 = 511;
const DESCRIPTOR_SIZE: u64 = 8;
/// Bytes of a table.
pub const TABLE_SIZE: u64 = 4096;

const VALID: u64 = 1;
/// Bits 1:0 of a table descriptor, and of a page at level 3.
const TABLE_OR_PAGE: u64 = 0b11;
const BLOCK: u64 = 0b01;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// Output addresses have at most 48 bits: LPA2 is out of scope.
const OUTPUT_LIMIT: u64 = 1 << 48;

/// Descriptors of tables that exist.
pub trait Descriptors {
    /// Reads the descriptor at `index`, below [`ENTRIES`], of the table at `table`.
    fn read(&self, table: Pa, index: usize) -> u64;
    /// Writes that descriptor.
    fn write(&mut self, table: Pa, index: usize, descriptor: u64);
    /// Returns how many of the descriptors at `indexes` are zero, up to the first that is not.
    fn count_empty(&self, table: Pa, mut indexes: Range<usize>) -> usize {
        let all = indexes.len();
        let used = indexes.position(|index| self.read(table, index) != 0);
        used.unwrap_or(all)
    }
    /// Writes descriptors at `indexes`: `first`, and each next one `step` above the one before.
    fn write_run(&mut self, table: Pa, indexes: Range<usize>, first: u64, step: u64) {
        let mut descriptor = first;
        // Bounded by the table's size.
        for index in indexes {
            self.write(table, index, descriptor);
            descriptor = descriptor.wrapping_add(step);
        }
    }
}

/// Memory for tables. A caller that maps needs it; a caller that unmaps must do without.
pub trait TableMemory: Descriptors {
    /// Returns a table whose descriptors are all zero, and are seen as zero by any walk.
    fn alloc(&mut self) -> Option<Pa>;
    /// Returns how often [`alloc`](Self::alloc) would still succeed.
    fn available(&self) -> usize;
}

/// Tables that some CPU may be walking, or hold cached translations of. No table can be made
/// through this trait, so a function that needs no more cannot fail for want of one.
pub trait LiveTables: Descriptors {
    /// Takes back a table that no descriptor points to and no CPU has cached.
    fn free(&mut self, table: Pa);
    /// Makes the writes so far visible to every walk, and invalidates the older translations of
    /// this tree on every CPU.
    fn invalidate(&mut self);
    /// Tells whether devices walk this tree too. Its own memory is then mapped by pages from the
    /// beginning and stays so: a device's access fails where a CPU's is tried again.
    fn keeps_pages(&self) -> bool;
}

/// A level of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Level 0: 512 GiB an entry, tables only.
    L0,
    /// Level 1: 1 GiB an entry.
    L1,
    /// Level 2: 2 MiB an entry.
    L2,
    /// Level 3: 4 KiB an entry.
    L3,
}

impl Level {
    /// Returns the bytes that one entry of this level maps.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::L0 => 1 << 39,
            Self::L1 => 1 << 30,
            Self::L2 => 1 << 21,
            Self::L3 => 1 << 12,
        }
    }

    /// Returns the number of the entry of this level that maps `input`, not cut to one table.
    const fn entry(self, input: u64) -> u64 {
        match self {
            Self::L0 => input >> 39,
            Self::L1 => input >> 30,
            Self::L2 => input >> 21,
            Self::L3 => input >> 12,
        }
    }

    const fn next(self) -> Option<Self> {
        match self {
            Self::L0 => Some(Self::L1),
            Self::L1 => Some(Self::L2),
            Self::L2 => Some(Self::L3),
            Self::L3 => None,
        }
    }

    /// Returns the level of the largest leaf that may begin at these addresses.
    fn of_largest_leaf(input: u64, output: u64, size: u64) -> Self {
        let fits = |level: Self| {
            (input | output) & level.size().wrapping_sub(1) == 0 && size >= level.size()
        };
        if fits(Self::L1) {
            Self::L1
        } else if fits(Self::L2) {
            Self::L2
        } else {
            Self::L3
        }
    }
}

/// A range to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Lowest input address.
    pub input: u64,
    /// Lowest output address.
    pub output: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Why nothing was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// An address or the size is no multiple of 4 KiB, or the size is zero.
    Unaligned,
    /// The range ends behind the last input or output address.
    OutOfRange,
    /// Something is mapped at this input address, or it belongs to somebody.
    Occupied(u64),
    /// Not enough memory for tables.
    NoTables,
}

/// Leaf that maps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawLeaf {
    /// The block or page descriptor.
    pub descriptor: u64,
    /// Level of the descriptor.
    pub level: Level,
    /// Output address of the address that was looked up.
    pub output: Pa,
}

/// A tree of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    root: Pa,
    start: Level,
    input_limit: u64,
}

/// Place of a descriptor, and its value.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Table that holds the descriptor.
    pub table: Pa,
    /// Index in the table.
    pub index: usize,
    /// Level of the table.
    pub level: Level,
    /// Value of the descriptor.
    pub descriptor: u64,
}

impl Tables {
    /// Returns the tree whose walk starts at `level` in the table, or the concatenated tables, at
    /// `root`, for input addresses below `input_limit`.
    #[must_use]
    pub const fn new(root: Pa, start: Level, input_limit: u64) -> Self {
        Self {
            root,
            start,
            input_limit,
        }
    }

    /// Returns the address of the root table.
    #[must_use]
    pub const fn root(&self) -> Pa {
        self.root
    }

    /// Maps `span` with the largest leaves that its alignment allows, or changes nothing.
    /// `attributes` are the bits of a leaf descriptor beside its type and address.
    pub fn map<T: TableMemory>(
        &self,
        memory: &mut T,
        span: Span,
        attributes: u64,
    ) -> Result<(), MapError> {
        let (tables, mut run) = self.check(memory, span)?;
        if tables > memory.available() {
            return Err(MapError::NoTables);
        }
        let mut left = span;
        // Bounded: each round maps at least one page of the span.
        loop {
            write_leaves(memory, &run, left, attributes)?;
            let Some(rest) = after(left, run.bytes) else {
                return Ok(());
            };
            left = rest;
            run = self.first_run(memory, left);
        }
    }

    /// Returns the level 3 table for `input`, which is made if there is none, for callers that
    /// change single pages.
    pub fn page_table<T: TableMemory>(&self, memory: &mut T, input: u64) -> Result<Pa, MapError> {
        if input >= self.input_limit {
            return Err(MapError::OutOfRange);
        }
        let slot = self.slot(memory, input);
        if slot.level != Level::L3 && slot.descriptor != 0 {
            return Err(MapError::Occupied(input));
        }
        // At most three tables can be missing.
        if slot.level != Level::L3 && memory.available() < 3 {
            return Err(MapError::NoTables);
        }
        descend(memory, slot, input, Level::L3).map(|slot| slot.table)
    }

    /// Returns the level 3 descriptor of `input`. `None`: one table was made on the way there, a
    /// block split or what was empty given a table, and the caller asks again. To make a table is
    /// the longest thing that is done at a time.
    pub fn page<T: TableMemory + LiveTables>(
        &self,
        memory: &mut T,
        input: u64,
    ) -> Result<Option<Slot>, MapError> {
        if input >= self.input_limit {
            return Err(MapError::OutOfRange);
        }
        let slot = self.slot(memory, input);
        let Some(level) = slot.level.next() else {
            return Ok(Some(slot));
        };
        match slot.descriptor {
            0 => {
                descend(memory, slot, input, level)?;
            }
            block if block & VALID != 0 => split(memory, slot, level)?,
            _ => return Err(MapError::Occupied(input)),
        }
        Ok(None)
    }

    /// Frees the last table on the way to `input` if one descriptor can replace it: if it is empty,
    /// or maps the same as a block. The latter only if `merges` holds for all leaves, because a
    /// change of one page of a block needs a table again, and not where pages are kept. Returns
    /// whether it did; the table above may be the next.
    pub fn tidy<T: LiveTables>(&self, memory: &mut T, input: u64, merges: fn(u64) -> bool) -> bool {
        let Some(parent) = self.last_table(memory, input) else {
            return false;
        };
        let table = Pa::new(parent.descriptor & ADDRESS);
        let Some(descriptor) = merged(memory, table, parent.level, merges) else {
            return false;
        };
        // planted: what devices use becomes a block
        if descriptor != 0 && memory.keeps_pages() {
            return false;
        }
        // Break before make (Arm ARM D8): a CPU that walks meanwhile faults, and tries again.
        memory.write(parent.table, parent.index, 0);
        memory.invalidate();
        memory.write(parent.table, parent.index, descriptor);
        memory.free(table);
        true
    }

    /// Returns the descriptor of the last table on the way to `input`.
    fn last_table<T: Descriptors>(&self, memory: &T, input: u64) -> Option<Slot> {
        let leaf = self.slot(memory, input);
        let mut last = None;
        let mut slot = self.root_slot(memory, input);
        // At most three rounds.
        // Bound: 3 levels.
        while slot.level < leaf.level {
            let table = Pa::new(slot.descriptor & ADDRESS);
            let level = slot.level.next()?;
            last = Some(slot);
            slot = Slot::read(memory, table, level, input);
        }
        last
    }

    /// Returns what maps `input`.
    #[must_use]
    pub fn walk<T: Descriptors>(&self, memory: &T, input: u64) -> Option<RawLeaf> {
        if input >= self.input_limit {
            return None;
        }
        let slot = self.slot(memory, input);
        if slot.descriptor & VALID == 0 {
            return None;
        }
        let in_leaf = slot.level.size().wrapping_sub(1);
        let output = slot.descriptor & ADDRESS & !in_leaf | input & in_leaf;
        Some(RawLeaf {
            descriptor: slot.descriptor,
            level: slot.level,
            output: Pa::new(output),
        })
    }

    /// Checks that `span` can be mapped, and returns how many tables that takes, and its first
    /// leaves.
    fn check<T: Descriptors>(&self, memory: &T, span: Span) -> Result<(usize, Run), MapError> {
        let page = Level::L3.size().wrapping_sub(1);
        if (span.input | span.output | span.size) & page != 0 || span.size == 0 {
            return Err(MapError::Unaligned);
        }
        let ends_by =
            |start: u64, limit: u64| start.checked_add(span.size).is_some_and(|end| end <= limit);
        if !ends_by(span.input, self.input_limit) || !ends_by(span.output, OUTPUT_LIMIT) {
            return Err(MapError::OutOfRange);
        }
        let first = self.first_run(memory, span);
        let mut tables: usize = 0;
        let (mut left, mut run) = (span, first);
        // Bounded: each round checks at least one page of the span.
        loop {
            if run.slot.descriptor != 0 {
                return Err(MapError::Occupied(left.input));
            }
            let first_in = |parent: Level| {
                left.input == span.input || left.input & parent.size().wrapping_sub(1) == 0
            };
            let mut parent = run.slot.level;
            // A missing table is counted where the span first needs it. At most three rounds.
            while let Some(level) = parent.next().filter(|level| *level <= run.level) {
                tables = tables.saturating_add(usize::from(first_in(parent)));
                parent = level;
            }
            let Some(rest) = after(left, run.bytes) else {
                return Ok((tables, first));
            };
            left = rest;
            run = self.first_run(memory, left);
        }
    }

    /// Returns the leaves that `span` begins with: those of one level that go into one table, up to
    /// the first descriptor that is not empty.
    fn first_run<T: Descriptors>(&self, memory: &T, span: Span) -> Run {
        let slot = self.slot(memory, span.input);
        let level = Level::of_largest_leaf(span.input, span.output, span.size).max(slot.level);
        let first = index(level.entry(span.input));
        let in_span = usize::try_from(level.entry(span.size)).unwrap_or(ENTRIES);
        let end = first.saturating_add(in_span).min(ENTRIES);
        let count = if slot.level == level {
            memory.count_empty(slot.table, first..end)
        } else {
            // A table that is missing is all empty.
            end.saturating_sub(first)
        };
        Run {
            slot,
            level,
            count,
            bytes: level.size().wrapping_mul(count as u64),
        }
    }

    /// Walks towards `input` until a descriptor is no table.
    pub(crate) fn slot<T: Descriptors>(&self, memory: &T, input: u64) -> Slot {
        let mut slot = self.root_slot(memory, input);
        // At most three rounds: each goes one level down.
        // Bound: 3 levels.
        while let Some(next) = slot.level.next() {
            if slot.descriptor & TABLE_OR_PAGE != TABLE_OR_PAGE {
                break;
            }
            slot = Slot::read(memory, Pa::new(slot.descriptor & ADDRESS), next, input);
        }
        slot
    }

    fn root_slot<T: Descriptors>(&self, memory: &T, input: u64) -> Slot {
        let entry = self.start.entry(input);
        // Concatenated tables follow one another.
        let offset = (entry & !ENTRY_MASK).wrapping_mul(DESCRIPTOR_SIZE);
        let table = Pa::new(self.root.get().wrapping_add(offset));
        Slot::read(memory, table, self.start, input)
    }
}

impl Slot {
    fn read<T: Descriptors>(memory: &T, table: Pa, level: Level, input: u64) -> Self {
        let index = index(level.entry(input));
        Self {
            table,
            index,
            level,
            descriptor: memory.read(table, index),
        }
    }
}

/// Replaces the block at `slot` by a table of `level` that maps the same.
fn split<T: TableMemory + LiveTables>(
    memory: &mut T,
    slot: Slot,
    level: Level,
) -> Result<(), MapError> {
    let table = memory.alloc().ok_or(MapError::NoTables)?;
    let kind = if level == Level::L3 {
        TABLE_OR_PAGE
    } else {
        BLOCK
    };
    let mut leaf = slot.descriptor & !TABLE_OR_PAGE | kind;
    // Bound: 512 entries of a table.
    for index in 0..ENTRIES {
        memory.write(table, index, leaf);
        leaf = leaf.wrapping_add(level.size());
    }
    // Break before make (Arm ARM D8): a CPU that walks meanwhile faults, and tries again. A device
    // would not, so what devices use has no blocks (`LiveTables::keeps_pages`).
    // planted: a block is made a table without break before make
    memory.write(slot.table, slot.index, 0);
    memory.invalidate();
    memory.write(slot.table, slot.index, table.get() | TABLE_OR_PAGE);
    Ok(())
}

/// Returns the descriptor for a table's place, of level `parent`, that says the same as the table,
/// whose leaves all `merges`.
fn merged<T: Descriptors>(
    memory: &T,
    table: Pa,
    parent: Level,
    merges: fn(u64) -> bool,
) -> Option<u64> {
    let level = parent.next()?;
    let first = memory.read(table, 0);
    let kind = first & TABLE_OR_PAGE;
    let is_leaf = kind & VALID != 0 && (level == Level::L3) == (kind == TABLE_OR_PAGE);
    // A block of the parent's size: level 0 has none.
    let fits = parent != Level::L0 && first & ADDRESS & parent.size().wrapping_sub(1) == 0;
    let step = match first {
        // planted: tables that are empty stay
        0 => 0,
        _ if is_leaf && fits && merges(first) => level.size(),
        _ => return None,
    };
    let mut expected = first;
    // Bound: 512 entries of a table.
    for index in 0..ENTRIES {
        if memory.read(table, index) != expected {
            return None;
        }
        expected = expected.wrapping_add(step);
    }
    Some(match first {
        0 => 0,
        first => first & !TABLE_OR_PAGE | BLOCK,
    })
}

/// Makes the tables from `slot`, which is empty, down to the slot of `level` for `input`.
fn descend<T: TableMemory>(
    memory: &mut T,
    mut slot: Slot,
    input: u64,
    level: Level,
) -> Result<Slot, MapError> {
    // At most three rounds.
    while let Some(next) = slot.level.next().filter(|next| *next <= level) {
        let table = memory.alloc().ok_or(MapError::NoTables)?;
        memory.write(slot.table, slot.index, table.get() | TABLE_OR_PAGE);
        let index = index(next.entry(input));
        slot = Slot {
            table,
            index,
            level: next,
            descriptor: 0,
        };
    }
    Ok(slot)
}

/// Leaves of one level that follow one another in one table.
#[derive(Clone, Copy)]
struct Run {
    /// Where the walk to the first leaf ends. What lies between its level and the leaves' is
    /// missing.
    slot: Slot,
    /// Level of the leaves.
    level: Level,
    count: usize,
    bytes: u64,
}

/// Writes the leaves that `span` begins with, in the table that they belong to, which is made if
/// there is none.
fn write_leaves<T: TableMemory>(
    memory: &mut T,
    run: &Run,
    span: Span,
    attributes: u64,
) -> Result<(), MapError> {
    let slot = descend(memory, run.slot, span.input, run.level)?;
    let kind = if run.level == Level::L3 {
        TABLE_OR_PAGE
    } else {
        BLOCK
    };
    let indexes = slot.index..slot.index.saturating_add(run.count);
    let first = span.output | attributes | kind;
    memory.write_run(slot.table, indexes, first, run.level.size());
    Ok(())
}

/// Returns the rest of `span` after its first `bytes`.
fn after(span: Span, bytes: u64) -> Option<Span> {
    let size = span.size.checked_sub(bytes).filter(|size| *size != 0)?;
    Some(Span {
        input: span.input.checked_add(bytes)?,
        output: span.output.checked_add(bytes)?,
        size,
    })
}

const fn index(entry: u64) -> usize {
    (entry & ENTRY_MASK) as usize
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

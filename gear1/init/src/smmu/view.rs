//! The stage 2 that a VM's devices walk where the VM has a CPU interface of a GICv2 in its own.
//!
//! A GICv2's CPU interface takes an access of a device for one of a CPU (Arm IHI 0048, 4.1.4): a
//! device could acknowledge and end interrupts of whichever VM that CPU runs. So devices have a root
//! of their own, and of the tables below it those that lead to the interface. All other tables are
//! the CPUs'.
//!
//! Invariant: nobody changes a table that was copied here. A VM with such devices shares no memory
//! at run time, and its stage 2 stays as init made it ([`check`](super::check)), but for the freeze
//! of a VM with pass-through, which takes the CPUs' memory away and gives it back.
//!
//! Requirements: G1-DMA-006.

use alloc::vec::Vec;

use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::Geometry;
use gear1_core::table::{ENTRIES, TABLE_SIZE, TableMemory};

use crate::flat;
use crate::refusal::Refusal;
use crate::region::Region;
use crate::table_memory::BootTables;

/// Bits 1:0 of a descriptor that leads to a table, above level 3 (Arm ARM D8.3.1).
const TABLE: u64 = 0b11;
/// Address of the table.
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// Tables below the root on the way to a page.
const LEVELS: u64 = 3;

/// What of the machine decides how devices' tables look.
#[derive(Clone, Debug)]
pub struct Machine<'g> {
    /// Shape of every stage 2.
    pub geometry: &'g Geometry,
    /// Memory for all stage-2 tables.
    pub pool: Region,
    /// Of each VM what its CPUs reach and its devices do not (IPA).
    pub hidden: Vec<Option<Region>>,
}

/// Returns the most bytes of tables that a VM's devices have for themselves, with pages of `hidden`.
#[must_use]
pub fn size(geometry: &Geometry, hidden: &Region) -> u64 {
    // A root at a multiple of its size.
    2 * geometry.root_size() + hidden.bytes() / PAGE_SIZE * LEVELS * TABLE_SIZE
}

/// Makes the devices' tables of a VM, whose CPUs' root is `root`, and returns their root.
pub(super) fn of<M: PhysicalMemory>(
    machine: &Machine<'_>,
    vm: usize,
    root: Pa,
    tables: &mut BootTables<'_, M>,
) -> Result<Pa, Refusal> {
    let Some(hidden) = machine.hidden.get(vm).copied().flatten() else {
        return Ok(root);
    };
    let size = machine.geometry.root_size();
    let own = tables
        .free
        .take(size, size, "the root of devices' stage 2")?;
    copy(tables, root, own, size);
    for page in (hidden.start..hidden.end).step_by(PAGE_SIZE as usize) {
        hide(machine.geometry, own, page, tables)?;
    }
    Ok(own)
}

/// Takes a page out of the tree at `root`, on the way to which no table is the CPUs' afterwards.
fn hide<M: PhysicalMemory>(
    geometry: &Geometry,
    root: Pa,
    page: u64,
    tables: &mut BootTables<'_, M>,
) -> Result<(), Refusal> {
    let mut size = geometry.start().size();
    // The entries of concatenated roots count on.
    let mut at = entry(root, page / size);
    while size > PAGE_SIZE {
        let descriptor = tables.memory.read_word(at);
        if descriptor & TABLE != TABLE {
            break;
        }
        let own = tables.alloc().ok_or_else(flat::no_tables)?;
        copy(tables, Pa::new(descriptor & ADDRESS), own, TABLE_SIZE);
        tables.memory.write_word(at, own.get() | TABLE);
        size /= ENTRIES as u64;
        at = entry(own, page / size % ENTRIES as u64);
    }
    // planted: a device reaches the CPU interface of a GICv2
    tables.memory.write_word(at, 0);
    Ok(())
}

/// Returns the address of a descriptor.
fn entry(table: Pa, index: u64) -> Pa {
    Pa::new(table.get() + index * 8)
}

/// Copies descriptors.
fn copy<M: PhysicalMemory>(tables: &mut BootTables<'_, M>, from: Pa, to: Pa, size: u64) {
    for offset in (0..size).step_by(8) {
        let word = tables.memory.read_word(Pa::new(from.get() + offset));
        tables.memory.write_word(Pa::new(to.get() + offset), word);
    }
}

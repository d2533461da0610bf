//! The whole of init but the machine: from the board's device tree and the archive to a runtime
//! that can be entered.
//!
//! Invariant: whatever is wrong is found before the first guest could run; there is no way from a
//! [`Refusal`] on to a hand-over.
//!
//! One code judges a manifest here and on the developer's machine (`cargo xtask check`), where
//! memory and the images are missing: `judge` stops short of them. Both see every rule in the
//! same order, so a manifest that the check takes is taken at boot as well, unless a PCI function
//! that it names is not there: what is on a bus, the bus alone tells.
//!
//! Requirements: G1-BOOT-002, G1-BOOT-008, G1-BOOT-012.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::{Pa, Va};
use gear1_core::physical::PhysicalMemory;
use gear1_core::sve::Lengths;
use gearv_manifest::blob::{Blob, BlobError};
use gearv_manifest::{Archive, MANIFEST_MEMBER, Manifest, ManifestError, Privilege, VmKind};

#[cfg(feature = "host")]
pub use self::judge::judge;
use self::placed::Placed;
use self::system::{Owners, System, member};
use crate::board_watchdog::LastReset;
use crate::doorbells;
use crate::fdt::{self, Board};
use crate::layout::FreeMemory;
use crate::partition::Partition;
use crate::refusal::{Refusal, none_of, refusal};
use crate::region::Region;
use crate::smmu;
use crate::sve;
use crate::vm;

mod boot_info;
mod judge;
mod placed;
mod system;
#[cfg(test)]
pub(crate) mod tests;

/// GIC versions that this build supports. Kinds and privileges below are those of the manifest that
/// this build knows: a manifest of a later version is refused by name.
const GIC_VERSIONS: &[u32] = &[2, 3];
const KINDS: &[VmKind] = &[VmKind::Guest, VmKind::Device, VmKind::RealTime];
const PRIVILEGES: &[Privilege] = &[Privilege::El0, Privilege::El1];

/// Inputs of init.
#[derive(Debug)]
pub struct Given<'a> {
    /// The machine.
    pub board: &'a Board,
    /// The bytes of the boot archive.
    pub archive: &'a [u8],
    /// The runtime's flat image.
    pub runtime: &'a [u8],
    /// Memory of init itself.
    pub init: Region,
    /// Memory of the board's device tree.
    pub device_tree: Region,
    /// The board's device tree.
    pub tree: Blob<'a>,
    /// Affinity of this CPU.
    pub boot_cpu: u64,
    /// ID_AA64MMFR0_EL1.PARange.
    pub pa_range: u64,
    /// Frequency of the counter.
    pub counter_hz: u32,
    /// Returns the lengths of vectors that this CPU has. Called if a VM has SVE: with CPTR_EL3.EZ = 0
    /// the look itself is firmware's to answer.
    pub vector_lengths: fn() -> Lengths,
}

/// Entry of the runtime, and the free memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// Entry point of the runtime.
    pub entry: Va,
    /// Root of the runtime's tables, for TTBR0_EL2.
    pub root: Pa,
    /// Memory that is left free.
    pub left: Vec<Region>,
    /// List of all mappings of VMs.
    pub partition: Partition,
    /// Answer of the board's watchdog about the last reset, if one is fed.
    pub last_reset: Option<LastReset>,
}

/// Prepares everything, in memory that nobody else has.
///
/// The order matters: digests are checked before a file is used, and files only after the manifest
/// that names them is judged. Device owners come before memory, because the pool's size depends on
/// what they map.
pub fn prepare<M: PhysicalMemory>(given: &Given<'_>, memory: &mut M) -> Result<HandOver, Refusal> {
    check_board(given)?;
    // First of all: what firmware left a device to do would go on in memory that is given out.
    let mut taken = taken(given);
    let empty_table = smmu::seize(given.board, &taken, memory)?;
    // planted: the IPMMU's empty table is memory of a VM
    taken.extend(empty_table);
    let archive = Archive::new(given.archive).map_err(|error| refusal!(Archive, "{error}"))?;
    let blob = member(&archive, MANIFEST_MEMBER)?.data;
    let (mut manifest, mut index) = (Manifest::EMPTY, Vec::new());
    let tree = fdt::indexed(blob, &mut index, fdt::MANIFEST_NODES);
    read_manifest(&mut manifest, tree, given, &taken)?;
    let mut faults = Vec::new();
    let mut owners = Owners::find(&manifest, &given.tree, given.board, &mut faults)?;
    // planted: a manifest that breaks a rule is taken
    none_of(&faults)?;
    let vector_lengths = sve::check(&manifest, given.vector_lengths, &mut faults);
    owners.place_functions(memory, &mut faults)?;
    none_of(&faults)?;
    // planted: a file with another digest is taken
    check_digests(&manifest, &archive)?;
    doorbells::check_distributor(&manifest, given.board, memory)?;
    let system = System::new(given, &archive, blob, &manifest, &owners, vector_lengths)?;
    hand_over(&system, (&taken, empty_table), memory)
}

/// Gives out the memory that is not `taken`, and builds all that the runtime finds there. The whole
/// partition is checked before the first stage 2 exists. `empty_table`: what an IPMMU walks for
/// devices without an owner.
fn hand_over<M: PhysicalMemory>(
    system: &System<'_, '_>,
    (taken, empty_table): (&[Region], Option<Region>),
    memory: &mut M,
) -> Result<HandOver, Refusal> {
    let mut free = FreeMemory::new(&system.given.board.memory, taken);
    let placed = Placed::place(system, &mut free, memory)?;
    let partition = placed.partition(system);
    partition.check(&placed.ground(system, empty_table), system.manifest)?;
    let info = placed.build(system, &partition, memory)?;
    memory.write_boot_info(placed.runtime.boot_info, &info);
    Ok(HandOver {
        entry: placed.runtime.entry,
        root: placed.runtime.root,
        left: free.regions().to_vec(),
        partition,
        last_reset: LastReset::ask(&system.owners.fed, memory),
    })
}

/// Refuses a board that the runtime cannot run on. The boot CPU has to be the first: its number is
/// 0 in the runtime, which tells it from all others.
fn check_board(given: &Given<'_>) -> Result<(), Refusal> {
    let board = given.board;
    let affinity = given.boot_cpu;
    // planted: the boot goes on on a CPU that is not the first
    if board.cpus.first().map(|cpu| cpu.mpidr) != Some(affinity) {
        return Err(refusal!(
            Board,
            "/cpus: reg: the first CPU is not the one that boots, whose affinity is {affinity:#x}"
        ));
    }
    if !GIC_VERSIONS.contains(&board.gic.version) {
        let version = board.gic.version;
        return Err(refusal!(
            Board,
            "this build does not drive the interrupt controller: it is a GICv{version}"
        ));
    }
    Ok(())
}

/// Returns the memory that is not free. Page 0 is left out because a null pointer of a guest's or
/// of firmware's leads there.
fn taken(given: &Given<'_>) -> Vec<Region> {
    let board = given.board;
    let own = [
        Region::new(0, PAGE_SIZE),
        given.init,
        given.device_tree,
        board.archive,
    ];
    board.reserved.iter().copied().chain(own).collect()
}

/// Reads the manifest by all rules, with the board's facts, into `manifest`, which is empty. One
/// message is printed before the machine stops: the first error, and how many there are.
fn read_manifest<'a>(
    manifest: &mut Manifest<'a>,
    blob: Result<Blob<'a>, BlobError>,
    given: &Given<'_>,
    taken: &[Region],
) -> Result<(), Refusal> {
    let mut first: Option<String> = None;
    let mut sink = |error: ManifestError<'_>| {
        first.get_or_insert_with(|| error.to_string());
    };
    let read = with_facts(given.board, taken, |facts| {
        gearv_manifest::validate_into(manifest, blob, facts, &mut sink)
    });
    read.map_err(|refused| {
        let first = first.unwrap_or_default();
        match refused.error_count {
            0 | 1 => refusal!(Manifest, "{first}"),
            count => refusal!(Manifest, "{first} (the first of {count} errors)"),
        }
    })
}

/// Refuses files that are not those which the manifest was written for.
fn check_digests(manifest: &Manifest<'_>, archive: &Archive<'_>) -> Result<(), Refusal> {
    let mut first = Ok(());
    let find = |name: &str| Some(archive.find(name)?.data);
    gearv_manifest::check_digests(manifest, find, &mut |error| {
        if first.is_ok() {
            first = Err(refusal!(Manifest, "{error}"));
        }
    });
    first
}

/// Gives `judge` the board's facts; `taken` is memory that no VM can have.
fn with_facts<T>(
    board: &Board,
    taken: &[Region],
    judge: impl FnOnce(&gearv_manifest::Board<'_>) -> T,
) -> T {
    judge(&gearv_manifest::Board {
        cpu_count: board.cpus.len(),
        memory: &board.memory,
        reserved: taken,
        devices: &vm::gic_regions(board, gear1_abi::id::MAX_VCPUS_PER_VM),
        pmu: board.has_pmu,
        lacks_sve: !board.is_virtual && board.cpus.iter().all(|cpu| cpu.lacks_sve),
        kinds: KINDS,
        privileges: PRIVILEGES,
    })
}

//! A VM in memory: its place, its loaded files, and the facts by which the runtime can load it
//! again.
//!
//! Invariant: a loaded VM's memory holds the loaded files and zeroes. The contents are in memory,
//! not only in caches: the VM starts with its caches off.
//!
//! Init loads the VMs that start by themselves; beside a real-time VM it loads real-time VMs alone,
//! which wait for no other, and Gear2 has the runtime load the rest. The runtime loads every VM again for each later
//! start, from the list of copies that [`Prepared::load`] leaves: files come from the archive, the
//! device tree from a page that init keeps, and everything between them is wiped.
//!
//! Requirements: G1-RUN-009, G1-MEM-004.

use alloc::vec::Vec;

use gear1_abi::boot::{BootLoad, BootRegion, BootVm};
use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::seed::{SEED_SIZE, Start, key};
use gear1_core::stage2::Attributes;
use gearv_manifest::{Archive, GicMode, Payload, Vm};

use crate::fdt::{Board, GICC_SIZE};
use crate::guest_dt::{self, GuestFacts, RNG_SEED_SIZE};
use crate::layout::FreeMemory;
use crate::linux::{self, Placed};
use crate::partition::{Emulated, Mapping, Purpose, Space};
use crate::refusal::Refusal;
use crate::region::Region;

#[cfg(test)]
mod tests;

/// VMID of the first VM; the next VMs have the next ones. 0 is nobody's, and 1 is Gear2's.
pub const FIRST_VMID: u16 = 2;
/// Bytes of the guest's view of a distributor (GICv2, GICv3), and of a redistributor.
const GICD_SIZE: [u64; 2] = [0x1000, 0x1_0000];
const GICR_SIZE: u64 = 0x2_0000;
/// Bytes of GICV that a guest finds where GICC is: all but the page of GICC_DIR, which Gear1
/// emulates, since nothing else tells of the end of an interrupt that is in no list register.
const GICV_SIZE: u64 = 0x1000;

/// Makes the device tree of a VM whose memory and initial RAM disk lie there. A VM that owns
/// devices brings its own way, by the board's tree.
pub type MakeTree<'t> = dyn Fn(Region, Region) -> Result<Vec<u8>, Refusal> + 't;

/// A VM's payload with its place found and its device tree finished. Nothing is written into the
/// VM's memory yet.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// Where the payload lies in the VM's memory.
    placed: Placed<'a>,
    /// The finished device tree and where the runtime finds it.
    tree: Option<(Vec<u8>, Pa)>,
    /// Where the tree has the seeds.
    seeds: Option<Seeds>,
    /// The VM's memory: one region, in the VM and in the machine.
    memory: BootRegion,
}

/// Returns the guest addresses of the interrupt controller's two regions: those of the board's, so
/// that a device tree made from the board's needs no change there.
#[must_use]
pub fn gic_regions(board: &Board, vcpu_count: usize) -> [Region; 2] {
    let gic = &board.gic;
    let [gicd, gicr] = match gic.version {
        2 => [GICD_SIZE[0], GICC_SIZE],
        _ => [GICD_SIZE[1], GICR_SIZE * vcpu_count as u64],
    };
    [
        Region::new(gic.gicd, gic.gicd + gicd),
        Region::new(gic.gicr, gic.gicr + gicr),
    ]
}

/// Returns the mapping of a GICv2's CPU interface, where the VM finds GICC: the virtual one as the
/// VM's GICC (Arm IHI 0048, 5.5), or the physical one. A GICv3's has no registers in memory.
#[must_use]
pub fn cpu_interface(vm: &Vm<'_>, board: &Board) -> Option<Mapping> {
    let (pa, size) = match vm.gic {
        GicMode::PassThrough => (board.gicc(), GICC_SIZE),
        GicMode::Emulated => (board.gic.gicv, GICV_SIZE),
    };
    (board.gic.version == 2).then_some(Mapping {
        space: Space::Vm(vm.id),
        ipa: board.gic.gicr,
        pa,
        size,
        attributes: Attributes::DEVICE,
        why: Purpose::CpuInterface,
    })
}

/// Returns the second region of the interrupt controller as far as Gear1 emulates it, with its
/// name: a GICv3's redistributors, or of a GICv2's CPU interface what is not mapped.
fn second_emulated(vm: &Vm<'_>, board: &Board) -> (Region, &'static str) {
    let [_, mut second] = gic_regions(board, vm.vcpu_count);
    if board.gic.version != 2 {
        return (second, "GIC redistributors");
    }
    second.start += cpu_interface(vm, board).map_or(0, |mapped| mapped.size);
    (second, "GICC_DIR")
}

/// Iterates over what the gears and GDM emulate for the VM at addresses of the manifest.
fn emulated_devices(vm: &Vm<'_>) -> impl Iterator<Item = (Region, &'static str)> {
    let page = |ipa| Region::new(ipa, ipa + PAGE_SIZE);
    let console = vm.console.map(|console| (page(console.ipa), "console"));
    let rtc = vm.rtc.map(|rtc| (page(rtc.ipa), "real-time clock"));
    let watchdog = vm.watchdog();
    let watchdog = watchdog.map(|watchdog| (watchdog.region(), "watchdog"));
    console.into_iter().chain(rtc).chain(watchdog)
}

/// Returns what Gear1 and Gear2 emulate for every VM.
pub fn emulated(vm: &Vm<'_>, board: &Board) -> Vec<Emulated> {
    let [gicd, _] = gic_regions(board, vm.vcpu_count);
    [(gicd, "GIC distributor"), second_emulated(vm, board)]
        .into_iter()
        .chain(emulated_devices(vm))
        .filter(|(region, _)| region.bytes() != 0)
        .map(|(region, what)| Emulated {
            vm: vm.id,
            region,
            what,
        })
        .collect()
}

/// Finds a place for the VM's payload and finishes its device tree: the archive's, unless `make`
/// makes it. `start` is where its memory lies.
///
/// The tree of a VM with an initial RAM disk is made twice. The first says how long it is, and so
/// where the disk may lie; the second names that place.
pub fn prepare<'a>(
    vm: &Vm<'a>,
    start: Pa,
    make: Option<&MakeTree<'_>>,
    archive: &Archive<'a>,
    board: &Board,
    free: &mut FreeMemory,
) -> Result<Prepared<'a>, Refusal> {
    let memory = BootRegion {
        ipa: vm.memory.ipa.unwrap_or(start.get()),
        pa: start.get(),
        size: vm.memory.bytes,
    };
    let all = Region::new(memory.ipa, memory.ipa + memory.size);
    let patch = |memory, initrd| patched_template(vm, archive, board, memory, initrd);
    let make = make.unwrap_or(&patch);
    // The tree's size does not depend on the address of the initial RAM disk, if there is one.
    // planted: the place of a device tree is too small
    let expected = Region::new(0, u64::from(has_initrd(vm)));
    let draft = make(all, expected)?;
    let size = draft.len() as u64;
    let placed = linux::place(vm, archive, (size != 0).then_some(size))?;
    let initrd = &placed.initrd;
    let start = if initrd.is_empty() { 0 } else { memory.ipa };
    let initrd = Region::new(start + initrd.start, start + initrd.end);
    let mut seeds = None;
    let finish = |_| {
        let tree = if initrd == expected {
            draft
        } else {
            // Two trees at a time would take twice the heap.
            drop(draft);
            make(all, initrd)?
        };
        seeds = Seeds::find(&tree, &first_seed(board, vm));
        let kept = free.take(size, PAGE_SIZE, "device trees")?;
        Ok::<_, Refusal>((tree, kept))
    };
    let tree = placed.device_tree.map(finish).transpose()?;
    Ok(Prepared {
        placed,
        tree,
        seeds,
        memory,
    })
}

/// Tells whether the VM's payload has an initial RAM disk, which the device tree then names.
const fn has_initrd(vm: &Vm<'_>) -> bool {
    matches!(
        vm.payload,
        Payload::Linux {
            initrd: Some(_),
            ..
        }
    )
}

/// Returns the archive's device tree of a VM that owns no device, finished with the facts of this
/// boot. A VM without one gets none, which an empty tree stands for.
fn patched_template(
    vm: &Vm<'_>,
    archive: &Archive<'_>,
    board: &Board,
    memory: Region,
    initrd: Region,
) -> Result<Vec<u8>, Refusal> {
    let Some(file) = archive.guest_dtb(vm.name) else {
        return Ok(Vec::new());
    };
    let facts = GuestFacts {
        memory,
        initrd,
        seed: first_seed(board, vm),
        gic_version: board.gic.version,
        gic: gic_regions(board, vm.vcpu_count),
    };
    guest_dt::patch(file.data, file.name, &facts)
}

/// Returns the seed of a VM's first start.
pub(crate) fn first_seed(board: &Board, vm: &Vm<'_>) -> [u8; SEED_SIZE] {
    let first = Start {
        key: &key(&board.seed),
        vm: vm.id.reg() as u32,
        number: 0,
    };
    first.seed()
}

/// Places of the seed in a VM's device tree: each start of the VM has its own (G1-BOOT-007).
#[derive(Debug)]
struct Seeds {
    /// For `rng-seed` and `kaslr-seed`: offset in the tree, offset in a seed, bytes.
    pieces: [(usize, usize, usize); 2],
}

impl Seeds {
    /// Finds the first start's seed in a finished tree; `None`: it has none. The runtime formats no
    /// device tree, so it copies the bytes of a start's seed over those of the first.
    fn find(tree: &[u8], first: &[u8; SEED_SIZE]) -> Option<Self> {
        let (rng, kaslr) = first.split_at_checked(RNG_SEED_SIZE)?;
        Some(Self {
            pieces: [
                (find(tree, rng)?, 0, rng.len()),
                (find(tree, kaslr)?, rng.len(), kaslr.len()),
            ],
        })
    }

    /// Returns the pieces that load the seed; `tree` is the address of the tree.
    fn loads(&self, tree: u64) -> impl Iterator<Item = BootLoad> {
        self.pieces
            .into_iter()
            .map(move |(to, from, size)| BootLoad {
                source: from as u64,
                destination: tree + to as u64,
                size: size as u64,
                is_seed: true,
            })
    }
}

/// Returns the offset of a property's value in a tree, where each value begins at a cell.
fn find(tree: &[u8], value: &[u8]) -> Option<usize> {
    let first = value.first_chunk::<4>()?;
    let cells = tree.as_chunks::<4>().0.iter().enumerate();
    let mut places = cells.filter(|(_, cell)| *cell == first);
    places.find_map(|(index, _)| {
        tree.get(index * 4..)?
            .starts_with(value)
            .then_some(index * 4)
    })
}

impl Prepared<'_> {
    /// Returns the mapping of the VM's memory in its stage 2. The guest may execute all of it:
    /// Gear1 does not know where its code is.
    #[must_use]
    pub fn mapping(&self, vm: &Vm<'_>, attributes: Attributes) -> Mapping {
        let BootRegion { ipa, pa, size } = self.memory;
        Mapping {
            space: Space::Vm(vm.id),
            ipa,
            pa,
            size,
            attributes,
            why: Purpose::Memory,
        }
    }

    /// Keeps the finished device tree, fills the VM's memory if `fills`, and returns what the
    /// runtime is to know. `root` is the VM's stage 2.
    pub fn load<M: PhysicalMemory>(
        &self,
        vm: &Vm<'_>,
        (archive_pa, fills): (Pa, bool),
        root: Pa,
        memory: &mut M,
    ) -> BootVm {
        let mut boot = self.described(vm, root);
        for (slot, load) in boot.loads.iter_mut().zip(self.loads(archive_pa)) {
            *slot = load;
        }
        self.keep(memory);
        if fills {
            self.fill(memory);
        }
        boot
    }

    /// Returns what the runtime is to know of the VM's memory and start. The rest of [`BootVm`]
    /// comes from the manifest alone, once all VMs are loaded.
    fn described(&self, vm: &Vm<'_>, root: Pa) -> BootVm {
        let ipa = self.memory.ipa;
        let mut boot = BootVm {
            vcpu_count: vm.vcpu_count as u16,
            root: root.get(),
            vmid: FIRST_VMID + vm.id.reg() as u16,
            entry: ipa + self.placed.entry,
            argument: self.placed.device_tree.map_or(0, |offset| ipa + offset),
            ..BootVm::default()
        };
        boot.regions[0] = self.memory;
        boot
    }

    /// Returns what the runtime copies to load the VM: files, the device tree, and a seed of the
    /// start over the tree's own. The order counts: a later copy lies over an earlier one.
    fn loads(&self, archive_pa: Pa) -> impl Iterator<Item = BootLoad> {
        let pa = self.memory.pa;
        let files = self.placed.pieces.iter().map(move |piece| BootLoad {
            source: archive_pa.get() + piece.file.offset as u64,
            destination: pa + piece.offset,
            size: piece.file.data.len() as u64,
            is_seed: false,
        });
        let tree = pa + self.placed.device_tree.unwrap_or(0);
        let seeds = self.seeds.iter();
        let seeds = seeds.flat_map(move |seeds| seeds.loads(tree));
        files.chain(self.tree_load()).chain(seeds)
    }

    /// Returns the copy of the finished device tree. The guest may write its tree, so each start
    /// gets the kept one.
    fn tree_load(&self) -> Option<BootLoad> {
        let (offset, (bytes, kept)) = self.placed.device_tree.zip(self.tree.as_ref())?;
        Some(BootLoad {
            source: kept.get(),
            destination: self.memory.pa + offset,
            size: bytes.len() as u64,
            is_seed: false,
        })
    }

    /// Keeps the finished device tree for every later start. Nothing is cleaned: the runtime alone
    /// reads it, and its accesses are cacheable as init's are.
    fn keep<M: PhysicalMemory>(&self, memory: &mut M) {
        if let Some((bytes, kept)) = &self.tree {
            memory.write(*kept, bytes);
        }
    }

    /// Writes the payload, and zeroes everywhere else: RAM holds what ran before the boot, which
    /// may be another VM's.
    fn fill<M: PhysicalMemory>(&self, memory: &mut M) {
        let start = self.memory.pa;
        let end = start + self.memory.size;
        let pieces = self.placed.pieces.iter();
        let files = pieces.map(|piece| (start + piece.offset, piece.file.data));
        let trees = self.placed.device_tree.iter().zip(&self.tree);
        let trees = trees.map(|(offset, (bytes, _))| (start + offset, &bytes[..]));
        let mut behind = start;
        // In ascending order, without overlap: `linux::place` saw to it.
        for (at, bytes) in files.chain(trees) {
            memory.wipe(Pa::new(behind), at - behind);
            memory.write(Pa::new(at), bytes);
            memory.clean(Pa::new(at), bytes.len() as u64);
            behind = at + bytes.len() as u64;
        }
        memory.wipe(Pa::new(behind), end - behind);
    }
}

//! Every rule on ranges that must not overlap, with a range in every relevant position: ahead of
//! the other one and adjacent to it, reaching into its beginning, inside, around it, reaching out
//! of its end, adjacent behind it.
//!
//! Requirements: G1-BOOT-002.

use std::string::String;
use std::vec::Vec;

use super::{BOARD, DEVICE, VM, errors_on, flat, served, smallest};
use crate::testing::{Tree, cells, text};
use crate::{Board, Region};

const KIB4: u64 = 4 << 10;
const MIB: u64 = 1 << 20;
const RESERVED: Region = Region::new(0x6000_0000, 0x6080_0000);
const SHARED: &str = "/shared-memory/board";

/// The board without one.
const WITHOUT_HOLE: Board<'_> = Board {
    reserved: &[],
    ..BOARD
};

/// The board with a hole in the middle of a bank.
const WITH_HOLE: Board<'_> = Board {
    reserved: &[RESERVED],
    ..BOARD
};

/// Two ranges that a rule keeps apart.
struct Pair {
    rule: &'static str,
    /// The range that stays.
    fixed: Region,
    /// Alignment of the other range.
    step: u64,
    /// Sizes that the other range can have.
    sizes: &'static [u64],
    /// Bytes ahead of the other range that belong to it.
    lead: u64,
    /// Makes the manifest from the start and the size of the other range.
    tree: fn(u64, u64) -> Tree,
}

/// Returns where a range of `size` bytes may begin next to, in and around `fixed`.
fn starts(fixed: Region, size: u64, step: u64) -> Vec<u64> {
    let first = fixed.start.saturating_sub(size + step) / step * step;
    let last = (fixed.end + step).next_multiple_of(step);
    let near = |start: &u64| {
        let edges = [fixed.start, fixed.end, fixed.start + fixed.bytes() / 2];
        let reach = 2 * step;
        let ends = [*start, start + size];
        edges
            .iter()
            .any(|edge| ends.iter().any(|end| end.abs_diff(*edge) <= reach))
    };
    let all = (0..=(last - first) / step).map(|index| first + index * step);
    all.filter(near).collect()
}

fn number(value: u64) -> Vec<u8> {
    cells(&[(value >> 32) as u32, value as u32])
}

fn mib(size: u64) -> Vec<u8> {
    cells(&[(size / MIB) as u32])
}

/// A guest whose memory is where nothing else is.
fn elsewhere() -> Tree {
    smallest()
        .set(VM, "memory-mib", cells(&[8]))
        .set(VM, "memory-ipa", cells(&[0x5000_0000]))
}

fn memory_at(tree: Tree, vm: &str, start: u64, size: u64) -> Tree {
    tree.set(vm, "memory-mib", mib(size))
        .set(vm, "memory-address", number(start))
}

fn shared(tree: Tree, node: &str, start: u64, size: u64) -> Tree {
    let vms = [text("linux"), text("other")].concat();
    tree.set(node, "address", number(start))
        .set(node, "size-mib", mib(size))
        .set(node, "vms", vms)
}

fn two() -> Tree {
    flat(elsewhere(), "/vms/other")
}

/// A guest with a disk, and the device VM at a fixed place.
fn served_elsewhere() -> Tree {
    let device = memory_at(served(), DEVICE, 0x7000_0000, 2 * MIB);
    device
        .set(VM, "memory-mib", cells(&[8]))
        .set(VM, "memory-ipa", cells(&[0x5000_0000]))
}

/// Returns a manifest of that guest with a watchdog at an address.
fn watched_elsewhere(start: u64) -> Tree {
    let tree = elsewhere().set(VM, "watchdog-ms", cells(&[10_000]));
    tree.set(VM, "watchdog-address", number(start))
}

/// Returns the pair of a watchdog's two pages that move.
fn watchdog_pages(fixed: Region, tree: fn(u64, u64) -> Tree) -> Pair {
    Pair {
        sizes: &[2 * KIB4],
        ..registers("M-WDG-002", fixed, tree)
    }
}

const MEMORY: Region = Region::new(0x5000_0000, 0x5080_0000);
const GIC: Region = Region::new(0x0800_0000, 0x0900_0000);
const RTC: &str = "/vms/linux/rtc";
const CONSOLE: Region = Region::new(0x1000_0000, 0x1000_1000);
const WINDOW: Region = Region::new(0x1000_0000, 0x1010_0000);
/// Memory of 8 MiB with the 2 MiB ahead of it that describe it.
const WITH_LEAD: Region = Region::new(0x6fe0_0000, 0x7080_0000);
const SIZES: &[u64] = &[2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB];

/// Returns the pair of a range in steps of 2 MiB, to which a VM's memory is aligned.
fn pages(rule: &'static str, fixed: Region, tree: fn(u64, u64) -> Tree) -> Pair {
    Pair {
        rule,
        fixed,
        step: 2 * MIB,
        sizes: SIZES,
        lead: 0,
        tree,
    }
}

/// Returns the pair of a page of registers that moves.
fn registers(rule: &'static str, fixed: Region, tree: fn(u64, u64) -> Tree) -> Pair {
    Pair {
        step: KIB4,
        sizes: &[KIB4],
        ..pages(rule, fixed, tree)
    }
}

/// Returns the pair of shared memory that moves, with the 2 MiB ahead of it that describe it.
fn shared_pages(rule: &'static str, fixed: Region, tree: fn(u64, u64) -> Tree) -> Pair {
    Pair {
        lead: 2 * MIB,
        ..pages(rule, fixed, tree)
    }
}

fn memory_pairs() -> [Pair; 4] {
    let behind = |start, size| {
        let tree = memory_at(flat(smallest(), "/vms/other"), "/vms/other", start, size);
        memory_at(tree, VM, MEMORY.start, MEMORY.bytes())
    };
    // The one that moves stands first in the file.
    let ahead = |start, size| {
        let other = "/vms/other";
        let tree = memory_at(smallest(), VM, start, size);
        memory_at(flat(tree, other), other, MEMORY.start, MEMORY.bytes())
    };
    let beside_the_gic = |start, size| {
        smallest()
            .set(VM, "memory-mib", mib(size))
            .set(VM, "memory-ipa", number(start))
    };
    [
        pages("M-MEM-003", MEMORY, behind),
        pages("M-MEM-003", MEMORY, ahead),
        pages("M-MEM-006", RESERVED, |start, size| {
            memory_at(smallest(), VM, start, size)
        }),
        Pair {
            sizes: &[2 * MIB, 16 * MIB, 32 * MIB],
            ..pages("M-MEM-008", GIC, beside_the_gic)
        },
    ]
}

fn register_pairs() -> [Pair; 11] {
    let console =
        |start, _| -> Tree { elsewhere().set("/vms/linux/console", "address", number(start)) };
    let virtio = |start, _| -> Tree { served_elsewhere().set(VM, "virtio-address", number(start)) };
    let rtc = |start, _| -> Tree { served_elsewhere().set(RTC, "address", number(start)) };
    let watchdog = |start, _| -> Tree { watched_elsewhere(start) };
    [
        registers("M-RTC-002", MEMORY, rtc),
        registers("M-RTC-002", GIC, rtc),
        registers("M-RTC-002", CONSOLE, |start, _| {
            let tree = served_elsewhere().set(RTC, "address", number(start));
            tree.set("/vms/linux/console", "address", number(CONSOLE.start))
        }),
        watchdog_pages(MEMORY, watchdog),
        watchdog_pages(GIC, watchdog),
        watchdog_pages(CONSOLE, |start, _| {
            let tree = watched_elsewhere(start);
            tree.set("/vms/linux/console", "address", number(CONSOLE.start))
        }),
        registers("M-CON-003", MEMORY, console),
        registers("M-CON-003", GIC, console),
        registers("M-VIO-009", MEMORY, virtio),
        registers("M-VIO-009", GIC, virtio),
        registers("M-VIO-009", CONSOLE, |start, _| {
            served_elsewhere()
                .set(VM, "virtio-address", number(start))
                .set("/vms/linux/console", "address", number(CONSOLE.start))
        }),
    ]
}

fn window_pairs() -> [Pair; 3] {
    let beside_memory = |start, _| {
        let tree = memory_at(served(), DEVICE, MEMORY.start, MEMORY.bytes());
        tree.set(DEVICE, "window-address", number(start))
    };
    let beside_the_gic =
        |start, _| -> Tree { served_elsewhere().set(DEVICE, "window-address", number(start)) };
    let beside_a_console = |start, _| {
        served_elsewhere()
            .set(DEVICE, "window-address", number(WINDOW.start))
            .set("/vms/device/console", "address", number(start))
    };
    let window = |fixed, tree| Pair {
        step: MIB,
        sizes: &[MIB],
        ..pages("M-DEV-006", fixed, tree)
    };
    [
        window(MEMORY, beside_memory),
        window(GIC, beside_the_gic),
        registers("M-DEV-006", WINDOW, beside_a_console),
    ]
}

fn shared_pairs() -> [Pair; 5] {
    let beside_shared = |start, size| {
        let tree = shared(two(), SHARED, 0x7000_0000, 8 * MIB);
        shared(tree, "/shared-memory/moving", start, size)
    };
    // Beside the memory of a VM that shares it: where that lies, and where the VM sees it.
    let beside_memory = |start, size| {
        let tree = memory_at(two(), VM, MEMORY.start, MEMORY.bytes());
        shared(tree.unset(VM, "memory-ipa"), SHARED, start, size)
    };
    let where_seen = |start, size| shared(two(), SHARED, start, size);
    // Beside the memory of a VM that is served: what describes that to the device VM is taken too.
    let beside_served = |start, size| {
        let tree = memory_at(served(), VM, 0x7000_0000, 8 * MIB);
        let tree = flat(flat(tree, "/vms/other"), "/vms/third");
        let vms = [text("third"), text("other")].concat();
        shared(tree, SHARED, start, size).set(SHARED, "vms", vms)
    };
    [
        shared_pages("M-SHM-002", WITH_LEAD, beside_shared),
        shared_pages("M-SHM-002", MEMORY, beside_memory),
        shared_pages("M-SHM-002", MEMORY, where_seen),
        shared_pages("M-SHM-002", WITH_LEAD, beside_served),
        shared_pages("M-MEM-006", RESERVED, where_seen),
    ]
}

#[test]
fn ranges_that_overlap_are_refused_and_adjacent_ones_taken() {
    let pairs = memory_pairs()
        .into_iter()
        .chain(register_pairs())
        .chain(window_pairs())
        .chain(shared_pairs());
    for pair in pairs {
        let mut verdicts = [0, 0];
        for &size in pair.sizes {
            for start in starts(pair.fixed, size, pair.step) {
                let range = Region::new(start - pair.lead, start + size);
                // Byte by byte, as it were: no use of the function under test.
                let apart = range.end <= pair.fixed.start || pair.fixed.end <= range.start;
                let tree = (pair.tree)(start, size).flatten();
                let found = errors_on(&WITH_HOLE, &tree);
                let rules: Vec<&str> = found.iter().map(|(rule, _)| rule.id()).collect();
                let expected: &[&str] = if apart { &[] } else { &[pair.rule] };
                let (range, fixed) = (range.show(), pair.fixed.show());
                assert_eq!(rules, expected, "{range} beside {fixed}: {found:?}");
                verdicts[usize::from(apart)] += 1;
            }
        }
        assert!(verdicts.iter().all(|&count| count >= 1), "{}", pair.rule);
    }
}

/// Memory in a bank of the machine: what reaches out of it on either side is refused.
#[test]
fn memory_lies_in_one_bank() {
    let bank = Region::new(0x4000_0000, 0x8000_0000);
    for &size in SIZES {
        for start in starts(bank, size, 2 * MIB) {
            let inside = bank.start <= start && start + size <= bank.end;
            let vm = memory_at(smallest(), VM, start, size);
            // Shared memory has the 2 MiB ahead of it in the bank, too.
            let lead = start >= bank.start + 2 * MIB;
            for (tree, inside) in [
                (vm, inside),
                (shared(two(), SHARED, start, size), inside && lead),
            ] {
                let found = errors_on(&WITHOUT_HOLE, &tree.flatten());
                let rules: Vec<&str> = found.iter().map(|(rule, _)| rule.id()).collect();
                let expected: &[&str] = if inside { &[] } else { &["M-MEM-005"] };
                assert_eq!(rules, expected, "{start:#x}, {size:#x}: {found:?}");
            }
        }
    }
}

/// All pairs of ranges on a short line of addresses, against a look at each address.
#[test]
fn overlaps_and_contains_say_what_each_address_says() {
    const LINE: u64 = 7;
    let ranges = || (0..=LINE).flat_map(|start| (start..=LINE).map(move |end| (start, end)));
    for ((start, end), (from, to)) in ranges().flat_map(|one| ranges().map(move |two| (one, two))) {
        let (one, two) = (Region::new(start, end), Region::new(from, to));
        let (has, other) = (start..end, from..to);
        let common = (0..LINE).any(|at| has.contains(&at) && other.contains(&at));
        let both = !has.is_empty() && !other.is_empty();
        if both {
            assert_eq!(one.overlaps(&two), common, "{one:?} {two:?}");
            let all = other.clone().all(|at| has.contains(&at));
            assert_eq!(one.contains(&two), all, "{one:?} {two:?}");
        }
    }
}

impl Region {
    fn show(&self) -> String {
        std::format!("{:#x} to {:#x}", self.start, self.end)
    }
}

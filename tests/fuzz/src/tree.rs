//! The board's device tree.
//!
//! The tree is firmware's, and is believed as far as memory and devices go: no reader can tell a
//! wrong address from a right one. What must hold is that the numbers are in the ranges that init
//! maps and computes with.

use gear1_init::region::Region;
use gear1_init::{devices, fdt};

use crate::aligned;

/// Reads the bytes as a board's tree, in all the ways in which init reads one.
pub(crate) fn run(bytes: &[u8]) {
    let words = aligned(bytes);
    let copy: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let copy = &copy[..bytes.len().min(copy.len())];
    look_for_interrupts(copy);
    let found = fdt::read(copy);
    if let Ok(board) = found.board {
        check(&board);
        assert_eq!(board.uart, found.console);
    }
}

/// Judges a board that is accepted: memory below the limit, CPUs, and an archive with bytes. Init
/// computes with these numbers without another look at them.
fn check(board: &fdt::Board) {
    assert!(!board.memory.is_empty() && !board.cpus.is_empty());
    assert!(board.cpus.len() <= gear1_abi::id::MAX_CPUS);
    let is_bank = |bank: &Region| bank.start < bank.end && bank.end <= 0x7000_0000_0000;
    assert!(board.memory.iter().all(is_bank));
    assert!(board.archive.start < board.archive.end);
    assert!(board.reserved.iter().all(|one| one.start <= one.end));
    // Other bits are flags or reserved (Arm ARM, MPIDR_EL1).
    let affinity = |cpu: &fdt::Cpu| cpu.mpidr & !0xff_00ff_ffff == 0;
    assert!(board.cpus.iter().all(affinity));
    // A shared interrupt: the runtime routes it to one CPU.
    let intid = |uart: &fdt::Uart| (32..1020).contains(&uart.intid);
    assert!(board.uart.iter().all(intid));
}

/// Looks for the sources of interrupts: one that machines have, and one that makes the search read
/// every node. What is found has a path.
fn look_for_interrupts(bytes: &[u8]) {
    let mut index = Vec::new();
    let Ok(tree) = fdt::indexed(bytes, &mut index, fdt::BOARD_NODES) else {
        return;
    };
    for intid in [35, u32::MAX] {
        let source = devices::source_of(&tree, intid);
        assert!(source.is_none_or(|path| path.starts_with('/')));
    }
}

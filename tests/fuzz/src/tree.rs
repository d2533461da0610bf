//! The board's device tree.

use gear1_init::fdt;
use gear1_init::region::Region;

use crate::aligned;

/// A board that is accepted has memory below the limit, CPUs, and an archive with bytes.
pub(crate) fn run(bytes: &[u8]) {
    let words = aligned(bytes);
    let copy: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let found = fdt::read(&copy[..bytes.len().min(copy.len())]);
    let Ok(board) = found.board else {
        return;
    };
    assert!(!board.memory.is_empty() && !board.cpus.is_empty());
    assert!(board.cpus.len() <= gear1_abi::id::MAX_CPUS);
    let is_bank = |bank: &Region| bank.start < bank.end && bank.end <= 0x7000_0000_0000;
    assert!(board.memory.iter().all(is_bank));
    assert!(board.archive.start < board.archive.end);
    assert!(board.reserved.iter().all(|one| one.start <= one.end));
    let affinity = |cpu: &fdt::Cpu| cpu.mpidr & !0xff_00ff_ffff == 0;
    assert!(board.cpus.iter().all(affinity));
    let intid = |uart: &fdt::Uart| (32..1020).contains(&uart.intid);
    assert!(board.uart.iter().all(intid));
    assert_eq!(board.uart, found.console);
}

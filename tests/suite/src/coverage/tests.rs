//! QEMU's log, read.

use super::translated;

#[test]
fn instructions_of_the_runtime_are_taken_from_a_log() {
    let log = "----------------\nIN: \n0x800000000850:  a9000fe2  stp x2, x3, [sp]\n0x800000000854:  d65f03c0  ret\n\n\
               ----------------\nIN: \n0x40000000:  580000c0  ldr x0, #0x40000018\n";
    let found: Vec<u64> = translated(log).collect();
    assert_eq!(found, [0x8000_0000_0850, 0x8000_0000_0854]);
}

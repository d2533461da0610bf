//! Files by their names.

use super::{is_test, of_arch};

#[test]
fn tests_are_told_from_code() {
    assert!(is_test("gear1/core/src/vgic/tests/random.rs"));
    assert!(is_test("gear1/core/src/psci/tests.rs"));
    assert!(is_test("gear1/init/src/testing.rs"));
    assert!(is_test("gear1/ghost/src/lib.rs"));
    assert!(is_test("gear1/runtime/src/ghost.rs"));
    assert!(!is_test("gear1/core/src/psci.rs"));
}

#[test]
fn raw_pointers_and_assembly_are_found_but_not_in_comments() {
    assert_eq!(of_arch("// asm!(\nunsafe { page.map(memory) };\n"), None);
    assert_eq!(of_arch("let word = address as *mut u64;\n"), Some("*mut "));
    let sync = "unsafe impl Sync for Cell {}\n";
    assert_eq!(of_arch(sync), Some("unsafe impl"));
    assert_eq!(
        of_arch("unsafe { core::arch::asm!(\"nop\") };\n"),
        Some("asm!(")
    );
}

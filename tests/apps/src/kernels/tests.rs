use super::{Kernel, THREADS};

#[test]
fn kernels_have_names_and_sizes() {
    assert_eq!(Kernel::parse(&["dhrystone"]), Ok(Kernel::Dhrystone));
    assert_eq!(Kernel::parse(&["copy", "16"]), Ok(Kernel::Copy(16)));
    for wrong in [&["stream"][..], &["modify", "0"], &["copy", "-1"], &[]] {
        assert!(Kernel::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn all_of_the_memory_is_moved() {
    let threads = THREADS as u64;
    assert_eq!(Kernel::Copy(2).run(1), threads * 2 * 1024);
    assert_eq!(Kernel::Modify(4).run(3), threads * 1024 * 3);
}

#[test]
fn the_arrays_have_the_sums_of_their_arithmetic() {
    // c = a = 1, b = 3, c = 4, a = (3 + 12) / 15 = 1.
    assert_eq!(Kernel::Stream(100).run(2), THREADS as u64 * 100);
}

#[test]
fn each_round_counts() {
    let [some, more] = [10, 20].map(|rounds| Kernel::Dhrystone.run(rounds));
    assert!(some >= 10 * THREADS as u64);
    assert!(more > some);
}

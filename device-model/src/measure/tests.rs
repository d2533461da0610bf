use super::*;

#[test]
fn a_report_is_sorted_and_reads_as_the_benchmark_guests() {
    let mut samples: Vec<u64> = (1..=200).rev().collect();
    assert_eq!(report("x", &mut samples), "BENCH x 1 101 100 199 200");
    assert_eq!(report("x", &mut []), "BENCH x 0 0 0 0 0");
}

#[test]
fn what_signals_is_waited_for() {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(theirs));
    io::Write::write_all(&mut ours, b"x").unwrap();
    assert!(wait_for(&file).is_ok());
}

#[test]
fn names_are_known() {
    assert_eq!(What::from_name("native-uio"), Some(What::NativeUio));
    assert_eq!(What::from_name("uio"), None);
}

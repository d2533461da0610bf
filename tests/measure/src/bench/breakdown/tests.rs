use super::*;

#[test]
fn instructions_are_told_apart() {
    for (word, in_mmio, kind) in [
        (0xd53c_5200, false, Kind::Register),    // mrs x0, esr_el2
        (0xd51c_1100, false, Kind::Register),    // msr hcr_el2, x0
        (0xd51c_cc00, false, Kind::GicRegister), // msr ich_lr0_el2, x0
        (0xd538_cc00, false, Kind::GicRegister), // mrs x0, icc_iar1_el1
        (0xd503_3fdf, false, Kind::Barrier),     // isb
        (0xd503_3f9f, false, Kind::Barrier),     // dsb sy
        (0xd503_203f, false, Kind::Other),       // yield
        (0xd69f_03e0, false, Kind::Return),      // eret
        (0xb940_0000, true, Kind::GicMemory),    // ldr w0, [x0]
        (0xb940_0000, false, Kind::Other),
        (0x9100_0400, true, Kind::Other), // add x0, x0, #1
    ] {
        assert_eq!(Kind::of(word, in_mmio), kind, "{word:#x}");
    }
}

/// Returns a new directory for one test.
fn directory(test: &str) -> PathBuf {
    let name = format!("gearv-breakdown-{test}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn a_log_counts_up_to_its_end_and_is_an_error_without_it() {
    let directory = directory("log");
    let log = directory.join("trace");
    let line = |pc: u64| format!("Trace 0: 0x7f00 [00000000/{pc:016x}/00000000/ff000000]\n");
    let first = [0x40, 0x10, 0x10, 0x14, 0x40, 0x10].map(line).concat();
    fs::write(&log, first).unwrap();
    // The first 0x40 is the boot loader's, and the second one ends the counts.
    let counts = count(&log, Some(0x40)).unwrap();
    assert_eq!(counts, BTreeMap::from([(0x40, 1), (0x10, 2), (0x14, 1)]));
    let error = count(&log, Some(0x80)).unwrap_err().to_string();
    assert!(error.contains("0x80"), "{error}");
    assert_eq!(count(&log, None).unwrap()[&0x10], 3);
    fs::remove_dir_all(directory).unwrap();
}

/// A sleeping program stands for a machine whose log never comes to its end, and one that ends at
/// once for a machine that has never opened the pipe. Neither may keep the reader waited for.
#[test]
fn a_reader_that_never_ends_is_given_up() {
    let directory = directory("reader");
    let pipe = directory.join("trace");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || count(&pipe, Some(0x80))
    });
    for (seconds, says) in [("60", "within 0 s"), ("0", "ended")] {
        let mut command = Command::new("sleep");
        command.arg(seconds);
        let mut session = Session::start(command, &directory.join("log")).unwrap();
        let limit = if seconds == "0" {
            TIMEOUT
        } else {
            Duration::from_millis(200)
        };
        let error = wait_for(&reader, &mut session, limit).unwrap_err();
        assert!(error.to_string().contains(says), "{error:#}");
    }
    // A writer that comes and goes ends the reader.
    drop(File::create(&pipe).unwrap());
    assert!(reader.join().unwrap().is_err());
    fs::remove_dir_all(directory).unwrap();
}

/// The guest's numbers are in its source alone: it is a program for another machine.
#[test]
fn the_guest_repeats_as_often_as_the_counts_are_divided_by() {
    let guest = include_str!("../../../../guests/src/bin/bench.rs");
    let number = |name: &str| {
        let line = guest.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.trim_end_matches(';').parse::<u64>().ok())
    };
    let numbers = ["const ITERATIONS: usize = ", "const WARM_UP: usize = "].map(number);
    let sum = numbers.into_iter().sum::<Option<u64>>();
    assert_eq!(sum, Some(ITERATIONS));
}

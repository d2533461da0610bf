use std::sync::atomic::Ordering;

use gear1_abi::call::VmState;
use gear2_protocol::PROTOCOL_VERSION;
use vm_memory::Bytes as _;

use super::*;
use crate::command::tests::{gearctl, with_gdm};
use crate::testing::{DATA, Directory, RAM, RAM_SIZE, memory, region};

#[test]
fn a_vm_that_is_not_dumped_is_told_why() {
    let vm = |state: VmState| Vm {
        state: state as u64,
        dumps: true,
        ..Vm::default()
    };
    assert_eq!(hindrance(&vm(VmState::Running)), None);
    assert_eq!(hindrance(&vm(VmState::Stopped)), None);
    let reason = hindrance(&vm(VmState::Loading)).unwrap();
    assert!(
        reason.starts_with("it is loading; it can be dumped when"),
        "{reason}"
    );
    let silent = Vm {
        dumps: false,
        ..vm(VmState::Running)
    };
    let reason = hindrance(&silent).unwrap();
    assert!(reason.contains("the property `dump` of the VM"), "{reason}");
    let error = gearctl(&["dump", "rt", "/dev/null"]).unwrap_err();
    assert!(
        error.starts_with("VM rt is not dumped: it is real-time"),
        "{error}"
    );
    let error = gearctl(&["dump", "device", "/dev/null"]).unwrap_err();
    assert!(
        error.starts_with("VM device is not dumped: gearctl runs in it"),
        "{error}"
    );
    // The host of this test has no guests' memory.
    let error = gearctl(&["dump", "linux", "/dev/null"]).unwrap_err();
    assert!(
        error.starts_with("VM linux is not dumped: /proc/device-tree"),
        "{error}"
    );
}

/// The file has the registers of each vCPU and the RAM, whose pages of zeroes take no place.
#[test]
fn a_paused_vm_is_written() {
    let region = region();
    region.header.vm_count.store(3, Ordering::Relaxed);
    let directory = Directory::new("dump");
    let path = format!("{}/core", directory.text());
    // Everybody may read what is there.
    fs::write(&path, "older").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let memory = memory();
    memory.write_slice(b"here", GuestAddress(DATA)).unwrap();
    let ram = (memory, (RAM, RAM_SIZE as u64));
    with_gdm(region, |run_directory| {
        let mut client = Client::connect(run_directory).unwrap();
        let vm = client.find("linux").unwrap();
        let dump = to_file(&mut client, &vm, &ram, &path).unwrap();
        let expected = Dump {
            vm: "linux".into(),
            file: path.clone(),
            vcpus: 2,
            memory_bytes: RAM_SIZE as u64,
            stored_bytes: PAGE,
            kernel_mappings: 0,
            vmcoreinfo: false,
            fp_registers: true,
            devices_rested: true,
            paused_ms: None,
        };
        assert_eq!(dump, expected);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others can read the guest's secrets");
        let core = fs::read(&path).unwrap();
        let at = core.len() - RAM_SIZE + (DATA - RAM) as usize;
        assert_eq!(&core[at..at + 4], b"here");
        let notes = core.windows(5).filter(|bytes| bytes == b"CORE\0").count();
        // General and FP registers of each vCPU.
        assert_eq!(notes, 4);
        // What cannot be finished leaves no file.
        let (memory, (ipa, size)) = &ram;
        let longer = (memory.clone(), (*ipa, size + PAGE));
        let error = to_file(&mut client, &vm, &longer, &path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Failed);
        assert!(error.sentence.starts_with(&path), "{error}");
        assert!(!Path::new(&path).exists());
    });
}

/// Devices that still write to the memory of a VM that has stopped would mix states.
#[test]
fn the_devices_of_a_stopped_vm_are_waited_for() {
    let region = region();
    region.header.vm_count.store(4, Ordering::Relaxed);
    let version = &region.header.version;
    version.store(PROTOCOL_VERSION, Ordering::Relaxed);
    let directory = Directory::new("dump-stopped");
    let path = format!("{}/core", directory.text());
    let ram = (memory(), (RAM, RAM_SIZE as u64));
    with_gdm(region, |run_directory| {
        let mut client = Client::connect(run_directory).unwrap();
        let vm = client.find("halted").unwrap();
        let error = to_file(&mut client, &vm, &ram, &path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TimedOut);
        let what = "VM halted has stopped, but requests of its devices are still under way";
        assert!(error.sentence.contains(what), "{error}");
        assert!(!Path::new(&path).exists());
    });
}

/// A signal ends the dump when the VM goes on.
#[test]
fn a_signal_waits_until_the_vm_goes_on() {
    let signals = Deferred::begin().unwrap();
    assert!(!signals.came());
    let (memory, ram) = (memory(), (RAM, RAM_SIZE as u64));
    let directory = Directory::new("signal");
    let file = File::create(directory.path().join("core")).unwrap();
    assert_eq!(copy(&memory, ram, &file, &signals), Ok(0));
    crate::sys::signal_this_thread(libc::SIGTERM);
    assert!(signals.came());
    let error = copy(&memory, ram, &file, &signals).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Failed);
    crate::sys::forget_signal(libc::SIGTERM);
    assert!(!signals.came());
}

//! Pauses of a guest with its devices, and its core file: fio loses nothing while its VM is paused
//! again and again, devices rest meanwhile, and the core file has the registers and the kernel.
//!
//! A device that goes on in a pause writes into memory while a dump reads it. A request that is
//! dropped in between leaves the guest waiting for ever.

use std::io::Read as _;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;
use object::LittleEndian;
use object::elf::{FileHeader64, NT_PRFPREG, NT_PRSTATUS, PT_LOAD, PT_NOTE, ProgramHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use serde_json::Value;
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use xtask::smoke::device_vm::{enter, json, leave, number};
use xtask::smoke::{LONG, shell, shell_within};

/// Pauses the guest so often, as soon as it goes on again. The time between two pauses has eight
/// lengths in turn, so that pauses meet requests at each stage.
const PAUSES: &str = "i=0; while [ $i -lt COUNT ] && gearctl suspend linux > /run/paused && \
    gearctl resume linux > /run/paused; do sleep 0.0$((i % 8)); i=$((i + 1)); done; [ $i = COUNT ]";
/// Time for which the paused guest is looked at, in seconds. Long beside a request of fio's.
const LOOK: &str = "sleep 0.5";
/// Looks, of half a second of the device VM's time each, until a device of a guest that goes on has
/// to have done something.
const LOOKS: u32 = 60;
/// The guest suspends itself when its console has no more to do with it. `deep` is what Linux calls
/// a suspend that ends in firmware: PSCI's SYSTEM_SUSPEND.
const SUSPEND: &str = "echo -n deep > /sys/power/mem_sleep 2> /dev/null; rm -f /run/woken; \
    (sleep 2; echo mem > /sys/power/state; echo $? > /run/woken) & :";
/// Waits until the guest is awake, reads its disk, and prints how often it was suspended. Direct
/// I/O: a cached block would not show that the disk works again.
const WOKEN: &str = "until [ -s /run/woken ]; do sleep 0.2; done; \
    dd if=/dev/vda of=/dev/null bs=4k count=16 iflag=direct 2> /dev/null && \
    echo \"success: $(cat /sys/power/suspend_stats/success)\"";
/// File of the dump, in the device VM's memory.
pub(crate) const CORE: &str = "/run/core";
/// Prints what precedes the memory in the core file. Only notes and headers go through the serial
/// console, packed: the memory is too long for it.
const HEAD: &str = "size=$(stat -c %s /run/core); head -c $((size - MEMORY)) /run/core | gzip | \
    xxd -p; rm /run/core";

type Header = FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;

/// Pauses the guest, which is busy, and looks whether its devices rest. The terminal is the device
/// VM's. Equal counts over a while mean rest only if the guest was busy; the larger count
/// afterwards shows that it is.
pub(super) fn rests(session: &mut Session, count: u32) -> Result<()> {
    let pauses = PAUSES.replace("COUNT", &count.to_string());
    shell_within(session, &pauses, LONG).context("a pause or its end is refused")?;
    shell(session, "gearctl pause linux")?;
    let before = requests(session)?;
    shell(session, LOOK)?;
    let after = requests(session)?;
    ensure!(
        before == after,
        "devices of a paused guest go on: {before:?}, {after:?}"
    );
    let refused = shell(session, "gearctl pause linux 2>&1; [ $? = 4 ]")?;
    ensure!(
        refused.contains("it is paused already"),
        "gearctl says {refused:?}"
    );
    shell(session, "gearctl resume linux")?;
    go_on(session, &after)?;
    println!("{count} pauses under fio; devices rested in each");
    Ok(())
}

/// Waits until a device has completed more requests than `before`. Between two runs of fio the
/// guest starts a program, for which a busy host may take longer than for a look.
fn go_on(session: &mut Session, before: &[u64]) -> Result<()> {
    for _ in 0..LOOKS {
        shell(session, LOOK)?;
        if requests(session)?.as_slice() > before {
            return Ok(());
        }
    }
    bail!("no device goes on: {before:?}")
}

/// Returns the requests that each device of the guest's has completed. The counters are GDM's own:
/// the paused guest can be asked nothing.
fn requests(session: &mut Session) -> Result<Vec<u64>> {
    let stats = json(session, "gearctl stats linux --json")?;
    let devices = stats["devices"].as_array().context("no devices")?;
    devices
        .iter()
        .map(|device| number(&device["requests"]))
        .collect()
}

/// Has the guest suspend itself, and wakes it: its disk and its counter of suspends say so. A guest
/// that sleeps cannot listen to `gearctl shutdown`, which is refused with the reason.
pub(super) fn suspends_itself(session: &mut Session, guest: &VmSummary) -> Result<()> {
    shell(session, SUSPEND)?;
    leave(session)?;
    let slept = "gearctl wait linux suspended --timeout 120 --json";
    json(session, slept).context("the guest does not suspend itself")?;
    let refused = shell(session, "gearctl shutdown linux 2>&1; [ $? = 4 ]")?;
    ensure!(
        refused.contains("has suspended itself"),
        "gearctl says {refused:?}"
    );
    shell(session, "gearctl resume linux")?;
    enter(session, guest)?;
    let woken = shell_within(session, WOKEN, LONG)?;
    ensure!(
        woken.trim().ends_with("success: 1"),
        "the guest says {woken:?}"
    );
    Ok(())
}

/// Dumps the guest, which runs before and after. The device VM cannot dump itself: `gearctl` would
/// stop with it.
pub(super) fn is_dumped(session: &mut Session) -> Result<()> {
    let refused = shell(session, "gearctl dump device /run/core 2>&1; [ $? = 4 ]")?;
    ensure!(
        refused.contains("gearctl runs in it"),
        "gearctl says {refused:?}"
    );
    let dump = json(session, &format!("gearctl dump linux {CORE} --json"))?;
    println!("gearctl says {dump}");
    ensure!(dump["vmcoreinfo"] == Value::Bool(true), "no VMCOREINFO");
    ensure!(number(&dump["paused_ms"])? > 0, "it was not paused");
    let memory = number(&dump["memory_bytes"])?;
    describes_linux(&head_of_core(session, memory)?, memory)
}

/// Returns what precedes the memory in the core file, and removes the file. Hexadecimal survives a
/// terminal.
pub(crate) fn head_of_core(session: &mut Session, memory: u64) -> Result<Vec<u8>> {
    let printed = shell_within(session, &HEAD.replace("MEMORY", &memory.to_string()), LONG)?;
    let digits: Vec<u8> = printed.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digits = String::from_utf8(digits)?;
    let bytes = (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16));
    let packed = bytes.collect::<Result<Vec<u8>, _>>()?;
    let mut head = Vec::new();
    GzDecoder::new(&*packed).read_to_end(&mut head)?;
    Ok(head)
}

/// Checks what a core file of Linux tells, without its memory. Tools such as `crash` need these: a
/// note for each vCPU, VMCOREINFO, and segments that map the kernel's virtual addresses.
fn describes_linux(head: &[u8], memory: u64) -> Result<()> {
    let header = Header::parse(head)?;
    let segments = header.program_headers(ENDIAN, head)?;
    let (mut threads, mut info, mut fp) = (Vec::new(), String::new(), 0);
    let notes = segments
        .iter()
        .find(|segment| segment.p_type(ENDIAN) == PT_NOTE);
    let notes = notes.context("no notes")?.notes(ENDIAN, head)?;
    let mut notes = notes.context("no notes")?;
    while let Some(note) = notes.next()? {
        match (note.name(), note.n_type(ENDIAN)) {
            (b"CORE", NT_PRSTATUS) => threads.push(note.desc().to_vec()),
            (b"CORE", NT_PRFPREG) => fp += 1,
            (b"VMCOREINFO", _) => info = String::from_utf8_lossy(note.desc()).into_owned(),
            _ => {}
        }
    }
    ensure!(threads.len() == 2, "{} vCPUs", threads.len());
    ensure!(fp == 2, "{fp} vCPUs with FP registers");
    ensure!(info.starts_with("OSRELEASE=6."), "VMCOREINFO says {info:?}");
    let symbol = info
        .lines()
        .find_map(|line| line.strip_prefix("SYMBOL(_stext)="));
    let text = u64::from_str_radix(symbol.context("no _stext")?, 16)?;
    let code = place(segments, text).context("the kernel's code is not mapped")?;
    // A kernel's vCPU is in its code or in its modules; a program's is in neither. Offset of the PC
    // in `struct elf_prstatus` of arm64: 112 bytes of head, then X0 to X30 and SP.
    let pc = |thread: &Vec<u8>| u64::from_le_bytes(thread[368..376].try_into().unwrap_or_default());
    let places = threads.iter().map(pc).map(|pc| (pc, place(segments, pc)));
    let places: Vec<_> = places.collect();
    println!("kernel's code {text:#x} at {code:#x}, program counters {places:x?}");
    for (pc, place) in places {
        ensure!(
            pc >> 63 == 0 || place.is_some(),
            "the PC {pc:#x} is nowhere"
        );
    }
    let first = segments
        .iter()
        .find(|segment| segment.p_type(ENDIAN) == PT_LOAD);
    let first = first.context("no memory")?;
    ensure!(first.p_memsz(ENDIAN) == memory && first.p_vaddr(ENDIAN) == first.p_paddr(ENDIAN));
    let offset = usize::try_from(first.p_offset(ENDIAN))?;
    ensure!(
        offset == head.len(),
        "the memory does not begin behind the notes"
    );
    Ok(())
}

/// Returns the guest-physical address of a virtual one. Both lists of addresses are in the
/// segments, so no page table is walked.
fn place(segments: &[ProgramHeader64<LittleEndian>], va: u64) -> Option<u64> {
    let loads = segments
        .iter()
        .filter(|segment| segment.p_type(ENDIAN) == PT_LOAD);
    let mut places = loads.filter_map(|segment| {
        let behind = va.checked_sub(segment.p_vaddr(ENDIAN))?;
        (behind < segment.p_memsz(ENDIAN)).then(|| segment.p_paddr(ENDIAN) + behind)
    });
    places.next()
}

//! `gearctl dump`: the memory and the registers of a VM, as a core file.
//!
//! The VM is paused meanwhile, and its devices rest, also those of a VM that has stopped, so that the
//! file is of one moment. Whoever ends gearctl by a signal ends the dump, and the VM goes on; if
//! gearctl is killed, the VM stays paused until `gearctl resume`.

use std::fs::{self, File, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gear1_abi::call::vcpu_reg::{COUNT, FP, PER_CALL};
use gear2_protocol::{op, outcome};
use vm_memory::{Bytes as _, GuestAddress};

use super::answer::{Dump, State};
use super::{pause, refusal, vm_row};
use crate::board::Board;
use crate::client::{Client, Vm};
use crate::core_file::elf::Content;
use crate::core_file::{FpRegisters, PAGE, Registers, translation, vmcoreinfo};
use crate::error::{Error, ErrorKind};
use crate::mapping;
use crate::memory::Memory;
use crate::sys::Deferred;

#[cfg(test)]
mod tests;

/// Another CPU has so long to let go of a vCPU's registers.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two questions for them.
const STEP: Duration = Duration::from_millis(1);
/// Mode of the file.
const PRIVATE: u32 = 0o600;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Guest RAM: the memory, its guest-physical address, its bytes.
type Ram = (Memory, (u64, u64));

/// Writes a VM to a file, and says what is in it. `tree` is the device tree of the device VM.
pub(super) fn take(
    client: &mut Client,
    tree: &Path,
    name: &str,
    file: &str,
) -> Result<Dump, Error> {
    let vm = client.find(name)?;
    if let Some(reason) = hindrance(&vm) {
        return Err(refused(&vm, &reason));
    }
    let ram = ram_of(tree, &vm.name).map_err(|reason| refused(&vm, &reason))?;
    to_file(client, &vm, &ram, file)
}

/// Writes a VM that can be dumped to a file.
fn to_file(client: &mut Client, vm: &Vm, ram: &Ram, file: &str) -> Result<Dump, Error> {
    // A path that cannot be written to is told of before the VM is paused.
    let to = create(file).map_err(|error| Error::failed(format!("{file}: {error}")))?;
    let signals = Deferred::begin().map_err(|error| Error::failed(error.to_string()))?;
    let taken = with_paused(client, vm, |client| {
        let written = write(client, vm, ram, &to, &signals);
        written.map_err(|error| error.within(|sentence| format!("{file}: {sentence}")))
    });
    if taken.is_err() && to.metadata().is_ok_and(|file| file.is_file()) {
        // A part of a core file is of no use.
        let _ = fs::remove_file(file);
    }
    taken.map(|dump| Dump {
        file: file.into(),
        ..dump
    })
}

/// Makes an empty file that nobody but its owner can read: the guest's secrets are in a dump.
fn create(file: &str) -> io::Result<File> {
    let to = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(file)?;
    // A file that was there has kept its mode.
    if to.metadata()?.is_file() {
        to.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(to)
}

/// Says why a VM that is so is not dumped.
fn hindrance(vm: &Vm) -> Option<String> {
    let state = vm_row(vm);
    let is_settled = matches!(state.state, State::Running | State::Stopped);
    if vm.device_model {
        Some("gearctl runs in it, and it cannot be paused".into())
    } else if vm.real_time {
        Some("it is real-time: it is not paused, and nobody but itself sees its memory".into())
    } else if !vm.dumps {
        Some(
            "its manifest does not allow it; the property `dump` of the VM lets the device VM \
             read its registers"
                .into(),
        )
    } else {
        let text = state.state_text();
        (!is_settled)
            .then(|| format!("it is {text}; it can be dumped when it runs, or has stopped"))
    }
}

fn refused(vm: &Vm, reason: &str) -> Error {
    Error::refused(format!("VM {} is not dumped: {reason}", vm.name))
}

/// Maps the RAM of a VM, to read it. The error is a reason.
fn ram_of(tree: &Path, vm: &str) -> Result<Ram, String> {
    let board = Board::read(tree)?;
    let device = board.devices.iter().find(|device| device.vm == vm);
    let [ipa, address, size] = device
        .ok_or("it has no virtio device, and so the device VM does not see its memory")?
        .memory;
    let bytes = usize::try_from(size).map_err(|error| error.to_string())?;
    let memory = mapping::view_dax(address, bytes, ipa).map_err(|error| error.to_string())?;
    Ok((memory, (ipa, size)))
}

/// Does something while the VM does not run. A VM that was paused by somebody else stays so.
fn with_paused(
    client: &mut Client,
    vm: &Vm,
    act: impl FnOnce(&mut Client) -> Result<Dump, Error>,
) -> Result<Dump, Error> {
    let begin = Instant::now();
    let runs = vm_row(vm).state == State::Running;
    // An older Gear2 does not tell when the devices of a VM that has stopped are done.
    let rests = runs || client.holds_stopped()?;
    let is_ours = rests && !vm.paused;
    if is_ours {
        pause::begin(client, vm, true)?;
    }
    let quiet = match rests {
        // planted: a dump does not wait for the devices
        true => pause::until_quiet(client, vm),
        false => Ok(()),
    };
    let acted = quiet.and_then(|()| act(client));
    let (is_same, resumed) = go_on(client, vm, is_ours).map_err(|error| {
        let name = &vm.name;
        error.within(|sentence| {
            format!("{sentence}; VM {name} may be paused still: `gearctl resume {name}`")
        })
    })?;
    let paused_ms = (is_ours && runs).then(|| begin.elapsed().as_millis() as u64);
    let dump = Dump {
        paused_ms,
        devices_rested: rests,
        ..acted?
    };
    if is_same && resumed == is_ours {
        return Ok(dump);
    }
    let meanwhile = "it was started, stopped or resumed by somebody else meanwhile";
    Err(refused(vm, meanwhile))
}

/// Lets the VM go on if it `is_ours` to resume. Returns whether it lives the life of before, and
/// whether it was resumed.
fn go_on(client: &mut Client, vm: &Vm, is_ours: bool) -> Result<(bool, bool), Error> {
    let now = client.vm(vm.id)?;
    let is_same = now.state == vm.state && now.restarts == vm.restarts;
    let resumes = is_ours && is_same && now.paused;
    if resumes {
        pause::end(client, vm, true)?;
    }
    Ok((is_same && (is_ours || now.paused == vm.paused), resumes))
}

/// Writes the core file of a VM that does not run.
fn write(
    client: &mut Client,
    vm: &Vm,
    (memory, ram): &Ram,
    mut to: &File,
    signals: &Deferred,
) -> Result<Dump, Error> {
    let failed = |error: io::Error| Error::failed(error.to_string());
    let vcpus = (0..vm.vcpus).map(|vcpu| registers_from(client, vm, vcpu, 0));
    let vcpus = vcpus.collect::<Result<Vec<Registers>, _>>()?;
    let tells_fp = client.tells_fp()?;
    let fp = (0..vm.vcpus).filter(|_| tells_fp);
    let fp = fp.map(|vcpu| registers_from(client, vm, vcpu, FP as u64));
    let fp = fp.collect::<Result<Vec<FpRegisters>, _>>()?;
    let first = vcpus.first().copied().unwrap_or([0; COUNT]);
    let mapped = translation::mapped(memory, *ram, &first);
    let vmcoreinfo = vmcoreinfo::find(memory, *ram);
    let content = Content {
        vcpus: &vcpus,
        fp: &fp,
        ram: *ram,
        mapped: &mapped,
        vmcoreinfo: vmcoreinfo.as_deref(),
    };
    let head = content.head();
    to.write_all(&head).map_err(failed)?;
    let stored_bytes = copy(memory, *ram, to, signals)?;
    to.set_len(head.len() as u64 + ram.1).map_err(failed)?;
    Ok(Dump {
        vm: vm.name.clone(),
        file: String::new(),
        vcpus: vm.vcpus,
        memory_bytes: ram.1,
        stored_bytes,
        kernel_mappings: mapped.len() as u64,
        vmcoreinfo: vmcoreinfo.is_some(),
        fp_registers: tells_fp,
        devices_rested: false,
        paused_ms: None,
    })
}

/// Copies the RAM behind what the file has. Pages of zeroes become holes. Returns the bytes of the
/// others.
fn copy(
    memory: &Memory,
    (ipa, size): (u64, u64),
    to: &File,
    signals: &Deferred,
) -> Result<u64, Error> {
    let mut buffer = vec![0; CHUNK];
    let mut stored = 0;
    for at in (0..size).step_by(CHUNK) {
        if signals.came() {
            return Err(Error::failed("a signal ended the dump; the VM goes on"));
        }
        let length = CHUNK.min((size - at) as usize);
        let chunk = buffer.get_mut(..length).unwrap_or_default();
        let read = memory.read_slice(chunk, GuestAddress(ipa + at));
        read.map_err(|error| Error::failed(error.to_string()))?;
        stored += store(chunk, to).map_err(|error| Error::failed(error.to_string()))?;
    }
    Ok(stored)
}

/// Writes the pages in a row that are not zero at once, and passes over the others. Returns the bytes
/// that were written.
fn store(chunk: &[u8], mut to: &File) -> io::Result<u64> {
    let (pages, _) = chunk.as_chunks::<{ PAGE as usize }>();
    let mut stored = 0;
    for row in pages.chunk_by(|one, next| is_zero(one) == is_zero(next)) {
        let bytes = row.as_flattened();
        if row.first().is_some_and(|page| is_zero(page)) {
            to.seek(SeekFrom::Current(bytes.len() as i64))?;
        } else {
            to.write_all(bytes)?;
            stored += bytes.len() as u64;
        }
    }
    Ok(stored)
}

/// Tells whether a page has zeroes alone, word by word: a byte at a time takes several times as long
/// as the copy.
fn is_zero(page: &[u8]) -> bool {
    let (words, rest) = page.as_chunks();
    let words = words.iter().map(|word| u128::from_ne_bytes(*word));
    words.fold(0, |any, word| any | word) == 0 && rest.iter().all(|byte| *byte == 0)
}

/// Returns registers of a vCPU, named by its index in the VM, from a number on.
fn registers_from<const N: usize>(
    client: &mut Client,
    vm: &Vm,
    vcpu: u64,
    first: u64,
) -> Result<[u64; N], Error> {
    let mut all = [0; N];
    for (first, part) in (first..).step_by(PER_CALL).zip(all.chunks_mut(PER_CALL)) {
        let six = six(client, vm, vcpu, first)?;
        part.copy_from_slice(six.get(..part.len()).unwrap_or_default());
    }
    Ok(all)
}

/// Returns six registers of a vCPU, once its CPU has let go of them.
fn six(client: &mut Client, vm: &Vm, vcpu: u64, first: u64) -> Result<[u64; 6], Error> {
    let begin = Instant::now();
    loop {
        let answer = client.call(op::VCPU_REGISTERS, &[vm.id, vcpu, first])?;
        match answer.outcome {
            outcome::OK => return Ok(answer.results),
            outcome::BUSY if begin.elapsed() < PATIENCE => sleep(STEP),
            outcome::BUSY => {
                let sentence = format!("the registers of vCPU {vcpu} are still in use");
                return Err(Error::new(ErrorKind::TimedOut, sentence));
            }
            other => return Err(refusal::of(op::VCPU_REGISTERS, vm, other)),
        }
    }
}

//! The ELF file: headers, notes, and from a page boundary on the RAM, once.
//!
//! A segment (PT_LOAD) shows the RAM at its guest-physical address. Others show parts of it at
//! virtual addresses, for gdb, which knows no others. `crash` takes the physical ones.

use gear1_abi::call::vcpu_reg;

use super::{FpRegisters, Mapped, PAGE, Registers, vmcoreinfo};

/// Bytes of the ELF header.
const FILE_HEADER: u16 = 64;
/// Bytes of a program header.
const PROGRAM_HEADER: u16 = 56;
const ET_CORE: u16 = 4;
const EM_AARCH64: u16 = 183;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_ALL: u32 = 7;
/// Registers of a thread, as Linux lays them out (`struct elf_prstatus`).
const NT_PRSTATUS: u32 = 1;
/// FP and SIMD registers of the thread whose NT_PRSTATUS precedes (`struct user_fpsimd_state`).
const NT_FPREGSET: u32 = 2;
/// Halves of V0 to V31, with which it begins, and its size.
const VECTORS: usize = 64;
const FPSIMD_STATE: usize = 528;
/// Offset of the general registers in `struct elf_prstatus` of a 64-bit machine, and its size.
const PR_REG: usize = 112;
const PR_STATUS: usize = 392;
/// Offset of the number of the thread, by which gdb names it.
const PR_PID: usize = 32;
/// Note with all [`Registers`] of a vCPU, in the order of their numbers; its name is `GEARV`.
pub const NT_REGISTERS: u32 = 0x4756_0001;

/// Contents of a core file, beside the RAM.
#[derive(Debug)]
pub struct Content<'a> {
    /// Registers of each vCPU.
    pub vcpus: &'a [Registers],
    /// FP registers of each vCPU; none if Gear1 does not tell them.
    pub fp: &'a [FpRegisters],
    /// Guest-physical address of the RAM, and its bytes.
    pub ram: (u64, u64),
    /// Parts of the RAM at virtual addresses.
    pub mapped: &'a [Mapped],
    /// The note of the guest's kernel for `crash`.
    pub vmcoreinfo: Option<&'a [u8]>,
}

impl Content<'_> {
    /// Returns what precedes the RAM in the file, whose length is a multiple of [`PAGE`].
    pub fn head(&self) -> Vec<u8> {
        let segments = 2 + self.mapped.len();
        let notes_at = u64::from(FILE_HEADER) + u64::from(PROGRAM_HEADER) * segments as u64;
        let notes = self.notes();
        let ram_at = (notes_at + notes.len() as u64).next_multiple_of(PAGE);
        let mut head = file_header(segments as u16);
        head.extend(program_header(
            PT_NOTE,
            0,
            notes_at,
            [0, 0],
            notes.len() as u64,
        ));
        head.extend(self.load_segments(ram_at));
        head.extend(notes);
        head.resize(ram_at as usize, 0);
        head
    }

    /// Returns the program headers of the RAM, which lies at `ram_at` in the file: once by its
    /// physical address, for what the kernel's tables do not map, then as the kernel sees it.
    fn load_segments(&self, ram_at: u64) -> Vec<u8> {
        let (ipa, size) = self.ram;
        let ram = Mapped {
            va: ipa,
            pa: ipa,
            size,
        };
        let parts = [&ram].into_iter().chain(self.mapped);
        let headers = parts.flat_map(|part| {
            let at = ram_at + part.pa.wrapping_sub(ipa);
            program_header(PT_LOAD, PF_ALL, at, [part.va, part.pa], part.size)
        });
        headers.collect()
    }

    /// Returns all notes.
    fn notes(&self) -> Vec<u8> {
        let mut notes = Vec::new();
        let mut fp = self.fp.iter();
        for (index, registers) in (1..).zip(self.vcpus) {
            notes.extend(note(b"CORE\0", NT_PRSTATUS, &status(index, registers)));
            // Readers take the note for the thread that was named last.
            if let Some(registers) = fp.next() {
                notes.extend(note(b"CORE\0", NT_FPREGSET, &fpsimd_state(registers)));
            }
        }
        for registers in self.vcpus {
            let words = registers.iter().flat_map(|word| word.to_le_bytes());
            notes.extend(note(b"GEARV\0", NT_REGISTERS, &words.collect::<Vec<_>>()));
        }
        if let Some(info) = self.vmcoreinfo {
            notes.extend(note(vmcoreinfo::NAME, vmcoreinfo::TYPE, info));
        }
        notes
    }
}

/// Returns the ELF header of a core file.
fn file_header(segments: u16) -> Vec<u8> {
    // 64 bits, little-endian, version 1, System V.
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend([ET_CORE, EM_AARCH64].map(u16::to_le_bytes).concat());
    header.extend(1_u32.to_le_bytes());
    // No entry point, the program headers behind this, no sections.
    let [entry, programs, sections] = [0, u64::from(FILE_HEADER), 0];
    header.extend([entry, programs, sections].map(u64::to_le_bytes).concat());
    header.extend(0_u32.to_le_bytes());
    let sizes = [FILE_HEADER, PROGRAM_HEADER, segments, 0, 0, 0];
    header.extend(sizes.map(u16::to_le_bytes).concat());
    header
}

/// Returns a program header; `addresses` are the virtual and the physical one.
fn program_header(kind: u32, flags: u32, at: u64, addresses: [u64; 2], size: u64) -> Vec<u8> {
    let [va, pa] = addresses;
    let mut header = [kind, flags].map(u32::to_le_bytes).concat();
    // A file of notes has no memory.
    let in_memory = if kind == PT_LOAD { size } else { 0 };
    header.extend(
        [at, va, pa, size, in_memory, 0]
            .map(u64::to_le_bytes)
            .concat(),
    );
    header
}

/// Returns a note: its name ends with a zero, and both parts are padded to four bytes.
fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
    let lengths = [name.len() as u32, description.len() as u32, kind];
    let mut note = lengths.map(u32::to_le_bytes).concat();
    for part in [name, description] {
        note.extend(part);
        note.resize(note.len().next_multiple_of(4), 0);
    }
    note
}

/// Returns a vCPU's `struct elf_prstatus`; threads are counted from 1.
fn status(thread: u32, registers: &Registers) -> Vec<u8> {
    let mut status = vec![0; PR_STATUS];
    let general = registers.iter().take(vcpu_reg::SP_EL0).copied();
    let general = general.chain([
        stack_pointer(registers),
        registers[vcpu_reg::PC],
        registers[vcpu_reg::PSTATE],
    ]);
    let bytes = general.flat_map(u64::to_le_bytes);
    for (place, byte) in status.iter_mut().skip(PR_REG).zip(bytes) {
        *place = byte;
    }
    let numbers = status.iter_mut().skip(PR_PID);
    for (place, byte) in numbers.zip(thread.to_le_bytes()) {
        *place = byte;
    }
    status
}

/// Returns a vCPU's `struct user_fpsimd_state`: V0 to V31, and the lower halves of FPSR and FPCR, as
/// the upper ones are reserved.
fn fpsimd_state(registers: &FpRegisters) -> Vec<u8> {
    let (vectors, controls) = registers.split_at(VECTORS);
    let mut state: Vec<u8> = vectors.iter().flat_map(|half| half.to_le_bytes()).collect();
    // planted: FPSR and FPCR of a core file are exchanged
    for register in controls {
        state.extend((*register as u32).to_le_bytes());
    }
    state.resize(FPSIMD_STATE, 0);
    state
}

/// Returns the stack pointer that the vCPU used: at EL1 PSTATE.SP chooses one.
const fn stack_pointer(registers: &Registers) -> u64 {
    const MODE: u64 = 0b1111;
    const EL1H: u64 = 0b0101;
    // planted: the stack pointer of a core file is that of EL0
    match registers[vcpu_reg::PSTATE] & MODE {
        EL1H => registers[vcpu_reg::SP_EL1],
        _ => registers[vcpu_reg::SP_EL0],
    }
}

use gear1_abi::call::vcpu_reg;
use object::elf;
use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _};
use vm_memory::{Bytes as _, GuestAddress};

use super::elf::{Content, NT_REGISTERS};
use super::*;
use crate::testing::{RAM, RAM_SIZE, memory};

type Header = elf::FileHeader64<object::LittleEndian>;
const ENDIAN: object::LittleEndian = object::LittleEndian;

/// Registers that tell their numbers and the vCPU.
fn registers(vcpu: u64) -> Registers {
    let mut registers = [0; vcpu_reg::COUNT];
    for (number, register) in (0..).zip(&mut registers) {
        *register = 1_000 * vcpu + number;
    }
    registers
}

/// Another reader of ELF files finds the registers and the RAM.
#[test]
fn a_core_file_is_what_readers_expect() {
    let mut second = registers(2);
    second[vcpu_reg::PSTATE] = 0x3c5;
    let mut user = registers(3);
    user[vcpu_reg::PSTATE] = 0;
    let vcpus = [registers(1), second, user];
    let mapped = [Mapped {
        va: 0xffff_8000_0000_0000,
        pa: RAM + 0x2000,
        size: 0x3000,
    }];
    let content = Content {
        vcpus: &vcpus,
        fp: &[],
        ram: (RAM, 0x10_0000),
        mapped: &mapped,
        vmcoreinfo: Some(b"OSRELEASE=6.12\n"),
    };
    let mut file = content.head();
    let at = file.len();
    assert!(at.is_multiple_of(PAGE as usize));
    file.resize(at + 0x10_0000, 0xa5);
    let header = Header::parse(&*file).unwrap();
    assert_eq!(header.e_type(ENDIAN), elf::ET_CORE);
    assert_eq!(header.e_machine(ENDIAN), elf::EM_AARCH64);
    let segments = header.program_headers(ENDIAN, &*file).unwrap();
    let loads = segments
        .iter()
        .filter(|segment| segment.p_type(ENDIAN) == elf::PT_LOAD);
    let loads: Vec<[u64; 4]> = loads
        .map(|segment| {
            let data = segment.data(ENDIAN, &*file).unwrap();
            assert!(data.iter().all(|byte| *byte == 0xa5));
            let [va, pa] = [segment.p_vaddr(ENDIAN), segment.p_paddr(ENDIAN)];
            [
                va,
                pa,
                segment.p_memsz(ENDIAN),
                segment.p_offset(ENDIAN) - at as u64,
            ]
        })
        .collect();
    let kernel = [0xffff_8000_0000_0000, RAM + 0x2000, 0x3000, 0x2000];
    assert_eq!(loads, [[RAM, RAM, 0x10_0000, 0], kernel]);
    let notes = segments
        .iter()
        .find(|segment| segment.p_type(ENDIAN) == elf::PT_NOTE);
    let notes: NoteIterator<'_, Header> = notes.unwrap().notes(ENDIAN, &*file).unwrap().unwrap();
    let notes: Vec<_> = notes.map(Result::unwrap).collect();
    let names: Vec<_> = notes
        .iter()
        .map(|note| (note.name(), note.n_type(ENDIAN).0))
        .collect();
    let [general, all] = [
        (&b"CORE"[..], elf::NT_PRSTATUS.0),
        (&b"GEARV"[..], NT_REGISTERS),
    ];
    let info = (&b"VMCOREINFO"[..], 0);
    assert_eq!(names, [general, general, general, all, all, all, info]);
    assert_eq!(notes[6].desc(), b"OSRELEASE=6.12\n");
    let word = |note: usize, at: usize| {
        let bytes = &notes[note].desc()[at..at + 8];
        u64::from_le_bytes(bytes.try_into().unwrap())
    };
    assert_eq!(notes[0].desc().len(), 392);
    assert_eq!([word(0, 32) as u32, word(1, 32) as u32], [1, 2]);
    // X0, X30, SP, PC, PSTATE: EL1h has a stack pointer of its own, EL0 and EL1t have that of EL0.
    let of = |note| [0, 30, 31, 32, 33].map(|index| word(note, 112 + 8 * index));
    let second_sp = 2_000 + vcpu_reg::SP_EL1 as u64;
    assert_eq!(of(1), [2_000, 2_030, second_sp, 2_032, 0x3c5]);
    assert_eq!(of(2), [3_000, 3_030, 3_031, 3_032, 0]);
    assert_eq!(word(3, 8 * vcpu_reg::TTBR1), 1_000 + vcpu_reg::TTBR1 as u64);
}

/// FP registers stand behind the thread that they are of, as Linux lays them out.
#[test]
fn fp_registers_are_those_of_linux() {
    let fp = |vcpu: u64| std::array::from_fn(|number| 100 * vcpu + number as u64);
    let content = Content {
        vcpus: &[registers(1), registers(2)],
        fp: &[fp(1), fp(2)],
        ram: (RAM, PAGE),
        mapped: &[],
        vmcoreinfo: None,
    };
    let file = content.head();
    let header = Header::parse(&*file).unwrap();
    let segments = header.program_headers(ENDIAN, &*file).unwrap();
    let notes = segments[0].notes(ENDIAN, &*file).unwrap().unwrap();
    let notes: Vec<_> = notes.map(Result::unwrap).collect();
    let kinds: Vec<_> = notes.iter().map(|note| note.n_type(ENDIAN).0).collect();
    let [general, fp] = [elf::NT_PRSTATUS.0, elf::NT_PRFPREG.0];
    assert_eq!(
        kinds,
        [general, fp, general, fp, NT_REGISTERS, NT_REGISTERS]
    );
    let state = notes[3].desc();
    assert_eq!((notes[3].name(), state.len()), (&b"CORE"[..], 528));
    let half = |at: usize| u64::from_le_bytes(state[at..at + 8].try_into().unwrap());
    // V0 and V31, the low halves first.
    let places = [0, 8, 16 * 31, 16 * 31 + 8];
    assert_eq!(places.map(half), [200, 201, 262, 263]);
    // FPSR and FPCR of 32 bits, and what is reserved.
    assert_eq!([512, 520].map(half), [264 | 265 << 32, 0]);
}

/// Registers of a kernel with tables of 4 KiB, 39 bits of virtual addresses, its first table here.
fn kernel(table: u64) -> Registers {
    let mut registers = [0; vcpu_reg::COUNT];
    registers[vcpu_reg::SCTLR] = 1;
    registers[vcpu_reg::TCR] = 2 << 30 | 25 << 16;
    // An ASID, and CnP.
    registers[vcpu_reg::TTBR1] = 7 << 48 | table | 1;
    registers
}

/// Parts of the RAM are found at the kernel's addresses: pages in a row become one part, a block
/// counts as far as RAM is behind it, and devices do not count.
#[test]
fn virtual_addresses_are_the_kernels() {
    let memory = memory();
    let ram = (RAM, RAM_SIZE as u64);
    let put = |at: u64, entry: u64| {
        memory
            .write_slice(&entry.to_le_bytes(), GuestAddress(at))
            .unwrap()
    };
    let [first, second, third] = [RAM + 0x1000, RAM + 0x2000, RAM + 0x3000];
    put(first + 8 * 3, second | 3);
    // A block of 2 MiB, the device at 0, and a table of pages.
    put(second + 8 * 5, (RAM + 0x20_0000) | 0x701);
    put(second + 8 * 6, 0x701);
    put(second + 8 * 9, third | 3);
    for page in 0..4 {
        put(
            third + 8 * page,
            (RAM + 0x5000 + (page << 12)) | 0x60_0000_0000_0703,
        );
    }
    put(third + 8 * 4, (RAM + 0x1_0000) | 0x703);
    // At the last level this is no block, and the next entry no page.
    put(third + 8 * 5, (RAM + 0x1_1000) | 0x701);
    let base = 0xffff_ff80_0000_0000 + (3 << 30);
    let part = |va, pa, size| Mapped { va, pa, size };
    let found = translation::mapped(&memory, ram, &kernel(first));
    let expected = [
        part(base + (5 << 21), RAM + 0x20_0000, 0x20_0000),
        part(base + (9 << 21), RAM + 0x5000, 0x4000),
        part(base + (9 << 21) + 0x4000, RAM + 0x1_0000, 0x1000),
    ];
    assert_eq!(found, expected);
    let mut off = kernel(first);
    off[vcpu_reg::SCTLR] = 0;
    assert_eq!(translation::mapped(&memory, ram, &off), []);
}

/// A guest's tables may say anything: what leads to itself, or out of the RAM, ends.
#[test]
fn tables_that_lead_nowhere_end() {
    let memory = memory();
    let ram = (RAM, RAM_SIZE as u64);
    let table = RAM + 0x1000;
    for entry in 0..512 {
        let at = GuestAddress(table + 8 * entry);
        memory.write_slice(&(table | 3).to_le_bytes(), at).unwrap();
    }
    let found = translation::mapped(&memory, ram, &kernel(table));
    assert!(found.len() <= translation::MOST_PARTS);
    assert_eq!(translation::mapped(&memory, ram, &kernel(0)), []);
    for tcr in [0, u64::MAX, 2 << 30, 2 << 30 | 60 << 16, 3 << 30 | 12 << 16] {
        let mut registers = kernel(table);
        registers[vcpu_reg::TCR] = tcr;
        assert_eq!(
            translation::mapped(&memory, ram, &registers),
            [],
            "{tcr:#x}"
        );
    }
}

#[test]
fn the_kernels_note_is_found() {
    let memory = memory();
    let ram = (RAM, RAM_SIZE as u64);
    assert_eq!(vmcoreinfo::find(&memory, ram), None);
    let note = |length: u32, text: &[u8]| {
        let mut note = [11, length, 0].map(u32::to_le_bytes).concat();
        note.extend(b"VMCOREINFO\0\0");
        note.extend(text);
        note
    };
    let text = b"OSRELEASE=6.12.0\nPAGESIZE=4096\n";
    let put = |at: u64, note: &[u8]| memory.write_slice(note, GuestAddress(RAM + at)).unwrap();
    // No page begins here, this one is too long, and that one is none of a kernel's.
    put(0x1_0010, &note(text.len() as u32, text));
    put(0x2_0000, &note(1 << 20, text));
    put(0x3_0000, &note(8, b"whatever"));
    assert_eq!(vmcoreinfo::find(&memory, ram), None);
    put(0x4_0000, &note(text.len() as u32, text));
    assert_eq!(vmcoreinfo::find(&memory, ram).unwrap(), text);
}

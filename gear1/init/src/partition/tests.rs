//! Invalid lists of mappings, each with one mapping too many or one change of a valid list.
//!
//! Requirements: G1-MEM-004, G1-MEM-024.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gear1_core::stage2::{Attributes, Memory, PageState};
use gearv_manifest::VmId;

use super::{Emulated, Ground, Mapping, Partition, Purpose, Space};
use crate::prepare::tests::Case;
use crate::region::Region;
use crate::trees::{cells, smallest, text};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const LINUX: u64 = 0x4800_0000;
const OTHER: u64 = 0x5000_0000;
const RUNTIME: Region = Region::new(0x4100_0000, 0x4110_0000);
const GICC: Region = Region::new(0x801_0000, 0x801_2000);

fn vm(index: usize) -> Space {
    Space::Vm(VmId::new(index).unwrap())
}

fn mapping(space: Space, ipa: u64, pa: u64, size: u64) -> Mapping {
    Mapping {
        space,
        ipa,
        pa,
        size,
        attributes: Attributes::RAM,
        why: Purpose::Memory,
    }
}

fn with(mapping: Mapping, attributes: Attributes, why: Purpose) -> Mapping {
    Mapping {
        attributes,
        why,
        ..mapping
    }
}

/// VM 0 has 16 MiB where they lie, VM 1 as many at another address.
fn good() -> Vec<Mapping> {
    [
        mapping(vm(0), LINUX, LINUX, 16 * MIB),
        mapping(vm(1), 0x8000_0000, OTHER, 16 * MIB),
    ]
    .to_vec()
}

/// Judges the good list with `more`.
fn judge(more: &[Mapping]) -> Result<(), String> {
    judge_list([good(), more.to_vec()].concat())
}

fn judge_list(list: Vec<Mapping>) -> Result<(), String> {
    let tree = smallest()
        .set("/vms/other", "memory-mib", cells(&[16]))
        .set("/vms/other", "image", text("guest.bin"));
    let blob = tree.flatten();
    let manifest = gearv_manifest::judge(blob.as_slice(), None, &mut |_| {}).manifest;
    let memory = [Region::new(0x4000_0000, 0x8000_0000)];
    let ground = Ground {
        memory: &memory,
        gear1: [(RUNTIME, "the runtime"), (GICC, "the GIC's CPU interface")].to_vec(),
        gicc: Some(GICC),
        limit: 1 << 40,
    };
    let emulated = Emulated {
        vm: VmId::FIRST,
        region: Region::new(0x900_0000, 0x900_1000),
        what: "console",
    };
    let partition = Partition::new(list, [emulated].to_vec());
    let judged = partition.check(&ground, &manifest.unwrap());
    judged.map_err(|refusal| refusal.to_string())
}

fn refused(more: &[Mapping], expected: &str) {
    let message = judge(more).expect_err(expected);
    assert!(
        message.starts_with("machine: ") && message.contains(expected),
        "{message:?} does not say {expected:?}"
    );
}

#[test]
fn a_second_mapping_of_an_address_is_refused() {
    assert_eq!(judge(&[]), Ok(()));
    refused(
        &[mapping(
            vm(0),
            LINUX + 16 * MIB - PAGE,
            OTHER + 32 * MIB,
            2 * PAGE,
        )],
        "/vms/linux: memory at 0x48000000 to 0x49000000 cannot be mapped: memory is mapped at 0x48fff000",
    );
    let behind = mapping(vm(0), LINUX + 16 * MIB, OTHER + 32 * MIB, PAGE);
    assert_eq!(judge(&[behind]), Ok(()));
}

#[test]
fn a_page_with_two_owners_is_refused() {
    let last = OTHER + 16 * MIB - PAGE;
    let expected = "the page at 0x50fff000 is memory in /vms/other too";
    refused(&[mapping(vm(0), 0xa000_0000, last, PAGE)], expected);
    // Neither twice in one VM, nor in Gear2.
    refused(
        &[mapping(vm(1), 0xa000_0000, last, PAGE)],
        "is memory in /vms/other too",
    );
    refused(
        &[with(
            mapping(Space::Gear2, 0x1000, last, PAGE),
            Attributes::DATA,
            Purpose::Gear2("heap"),
        )],
        "/gear2: heap at 0x1000 to 0x2000 cannot be mapped: the page at 0x50fff000",
    );
    // What is declared shared must be so in both.
    let served = Purpose::ServedMemory(VmId::FIRST);
    let borrowed = Attributes::DATA.with_state(PageState::SharedBorrowed);
    let view = with(mapping(vm(1), LINUX, LINUX, 16 * MIB), borrowed, served);
    refused(&[view], "is memory of /vms/linux in /vms/other too");
}

/// Each thing that is shared by design, and that thing with one detail changed.
#[test]
fn what_is_declared_shared_has_one_owner_and_one_kind_of_memory() {
    let at = 0x5800_0000;
    let owned = Attributes::REGISTERS.with_state(PageState::SharedOwned);
    let registers = Purpose::VirtioRegisters(VmId::FIRST);
    let device = with(mapping(vm(1), 0xc09_0000, at, PAGE), owned, registers);
    let guest = with(
        mapping(vm(0), 0xa00_0000, at, PAGE),
        Attributes::REGISTERS,
        registers,
    );
    assert_eq!(judge(&[device, guest]), Ok(()));
    let cached = Attributes {
        memory: Memory::Normal,
        ..guest.attributes
    };
    let too = "too";
    refused(&[device, with(guest, cached, registers)], too);
    refused(&[device, with(guest, owned, registers)], too);
    let of_other = Purpose::VirtioRegisters(VmId::new(1).unwrap());
    refused(&[device, with(guest, guest.attributes, of_other)], too);

    // Gear2 borrows the page beside the guest, which cannot write it; no VM does beside Gear2.
    let written = Attributes {
        write: true,
        ..Attributes::REGISTERS
    };
    let gear2 = mapping(Space::Gear2, 0x5100_0000, at, PAGE);
    let gear2 = with(gear2, written, registers);
    assert_eq!(judge(&[device, guest, gear2]), Ok(()));
    refused(&[device, with(guest, written, registers), gear2], too);
    refused(&[device, guest, with(gear2, written, of_other)], too);
    refused(&[device, guest, with(gear2, owned, registers)], too);
    let second = with(guest, guest.attributes, registers);
    let second = Mapping {
        space: vm(2),
        ..second
    };
    refused(&[device, guest, second], too);

    let control = Purpose::ControlRegion;
    let (lent, borrowed) = (PageState::SharedOwned, PageState::SharedBorrowed);
    let gear2 = mapping(Space::Gear2, 0x1_0000, at, PAGE);
    let gear2 = with(gear2, Attributes::DATA.with_state(lent), control);
    let device = mapping(vm(1), at, at, PAGE);
    let device = with(device, Attributes::DATA.with_state(borrowed), control);
    assert_eq!(judge(&[gear2, device]), Ok(()));
    refused(&[gear2, with(device, Attributes::DATA, control)], too);

    let first = Purpose::SharedMemory(0);
    let one = with(
        mapping(vm(0), at, at, PAGE),
        Attributes::READ_ONLY_UNOWNED,
        first,
    );
    let other = with(
        mapping(vm(1), at, at, PAGE),
        Attributes::READ_ONLY_UNOWNED,
        first,
    );
    assert_eq!(judge(&[one, other]), Ok(()));
    let second = Purpose::SharedMemory(1);
    refused(
        &[one, with(other, Attributes::READ_ONLY_UNOWNED, second)],
        too,
    );
    refused(&[one, with(other, Attributes::DATA, first)], too);
}

#[test]
fn gear1s_own_memory_is_refused() {
    let expected = "the runtime at 0x41000000 to 0x41100000 is Gear1's own";
    for at in [RUNTIME.start, RUNTIME.end - PAGE] {
        refused(&[mapping(vm(0), 0xa000_0000, at, PAGE)], expected);
    }
    refused(
        &[mapping(
            vm(0),
            0xa000_0000,
            RUNTIME.start - PAGE,
            MIB + 2 * PAGE,
        )],
        expected,
    );
    // A GIC's CPU interface is a VM's as such, not as any device.
    let gicc = mapping(vm(0), GICC.start, GICC.start, GICC.bytes());
    let device = with(gicc, Attributes::DEVICE, Purpose::Device);
    refused(&[device], "is Gear1's own");
    let interface = with(gicc, Attributes::DEVICE, Purpose::CpuInterface);
    assert_eq!(judge(&[interface]), Ok(()));
}

#[test]
fn an_emulated_device_is_not_hidden() {
    let over = mapping(vm(0), 0x900_0000, OTHER + 32 * MIB, PAGE);
    refused(
        &[over],
        "/vms/linux: memory at 0x9000000 to 0x9001000 cannot be mapped: console is emulated at 0x9000000",
    );
    let of_other = Mapping {
        space: vm(1),
        ..over
    };
    assert_eq!(judge(&[of_other]), Ok(()));
}

#[test]
fn registers_are_device_memory() {
    let page = mapping(vm(0), 0xa00_0000, 0xa00_0000, PAGE);
    let device = with(page, Attributes::DEVICE, Purpose::Device);
    assert_eq!(judge(&[device]), Ok(()));
    let expected = "registers at 0xa000000 are no Device memory";
    refused(&[with(page, Attributes::DATA, Purpose::Device)], expected);
    refused(
        &[with(page, Attributes::REGISTERS, Purpose::Memory)],
        expected,
    );
    let executable = Attributes {
        execute: true,
        ..Attributes::DEVICE
    };
    refused(&[with(page, executable, Purpose::Device)], expected);
    // Whoever has registers in RAM has a reserved region's.
    let in_ram = Mapping {
        pa: 0x5800_0000,
        ..page
    };
    refused(
        &[with(in_ram, Attributes::DATA, Purpose::Device)],
        "are no Device memory",
    );
}

#[test]
fn addresses_are_whole_pages_below_the_limit() {
    let page = mapping(vm(0), 0xa000_0000, 0x5800_0000, PAGE);
    for (ipa, pa, size) in [(1, 0, 0), (0, 0x800, 0), (0, 0, 8)] {
        let odd = Mapping {
            ipa: page.ipa + ipa,
            pa: page.pa + pa,
            size: page.size + size,
            ..page
        };
        refused(&[odd], "are no whole pages");
    }
    let last = (1 << 40) - PAGE;
    assert_eq!(judge(&[mapping(vm(0), last, page.pa, PAGE)]), Ok(()));
    let expected = "stage 2 translates no address from 0x10000000000 on";
    for ipa in [1 << 40, u64::MAX - PAGE + 1] {
        refused(&[mapping(vm(0), ipa, page.pa, PAGE)], expected);
    }
    refused(&[mapping(vm(0), last, page.pa, 2 * PAGE)], expected);
    refused(&[mapping(vm(0), page.ipa, last, 2 * PAGE)], expected);
}

#[test]
fn stolen_time_is_only_read() {
    let page = mapping(vm(0), 0x5800_0000, 0x5800_0000, PAGE);
    let stolen_time = with(page, Attributes::READ_ONLY_UNOWNED, Purpose::StolenTime);
    assert_eq!(judge(&[stolen_time]), Ok(()));
    let written = with(page, Attributes::DATA, Purpose::StolenTime);
    refused(&[written], "the VM could write it");
}

/// G1-TIM-007: a VM whose memory lies, in the VM's own addresses, where the page with its stolen
/// time would be, finds the page elsewhere.
#[test]
fn stolen_time_gives_way_to_memory() {
    let (prepared, _, _) = Case::new().run();
    let stolen_time = prepared.unwrap().partition.stolen_time(VmId::FIRST);
    let mut case = Case::new();
    let over = u32::try_from(stolen_time & !(2 * MIB - 1)).unwrap();
    case.manifest = case
        .manifest
        .set("/vms/linux", "memory-ipa", cells(&[0, over]));
    let (prepared, memory, _) = case.run();
    let partition = prepared.unwrap().partition;
    let elsewhere = partition.stolen_time(VmId::FIRST);
    let own = memory.boot_info.unwrap().1.vms[0];
    assert_eq!(own.stolen_time_ipa, elsewhere);
    let [ram, ..] = own.regions;
    let ram = Region::new(ram.ipa, ram.ipa + ram.size);
    assert!(ram.contains(&Region::new(stolen_time, stolen_time + PAGE)));
    assert!(!ram.overlaps(&Region::new(elsewhere, elsewhere + PAGE)));
    let mut mappings = partition.mappings.iter();
    let page = mappings.find(|one| one.space == vm(0) && one.ipa == elsewhere);
    assert_eq!(
        page.map(|page| (page.pa, page.why)),
        Some((stolen_time, Purpose::StolenTime))
    );
}

#[test]
fn a_mapping_without_a_place_is_refused() {
    let all = mapping(vm(0), 0, OTHER + 32 * MIB, 1 << 24);
    let mut partition = Partition::new([all].to_vec(), Vec::new());
    let page = mapping(vm(0), 0x1000, 0x5800_0000, PAGE);
    let stolen_time = with(page, Attributes::READ_ONLY_UNOWNED, Purpose::StolenTime);
    partition.add_anywhere(stolen_time, &[], 1 << 24);
    assert_eq!(partition.stolen_time(VmId::FIRST), 0x1000);
    assert!(judge_list(partition.mappings.clone()).is_err());
    partition.mappings.pop();
    partition.add_anywhere(stolen_time, &[], (1 << 24) + PAGE);
    assert_eq!(partition.stolen_time(VmId::FIRST), 1 << 24);
}

/// G1-TIM-007: a VM retrieves memory that a peer shares at the physical address, so a page that
/// gives way lies behind a bank of RAM and in none, wherever the board has its RAM.
#[test]
fn a_mapping_that_gives_way_leaves_the_addresses_of_ram_to_peers() {
    let page = mapping(vm(0), 0x5800_0000, 0x5800_0000, PAGE);
    let stolen_time = with(page, Attributes::READ_ONLY_UNOWNED, Purpose::StolenTime);
    let place = |memory: u64, ram: &[Region], limit| {
        let over = mapping(vm(0), memory, LINUX, 32 * MIB);
        let mut partition = Partition::new([over].to_vec(), Vec::new());
        partition.add_anywhere(stolen_time, ram, limit);
        partition.stolen_time(VmId::FIRST)
    };
    let limit = 1 << 40;
    let high = [Region::new(0x4000_0000, 0x8000_0000)];
    assert_eq!(place(0x5700_0000, &high, limit), 0x8000_0000);
    let low = [Region::new(0, 0x8000_0000), Region::new(1 << 32, 1 << 33)];
    assert_eq!(place(0x5700_0000, &low, limit), 0x8000_0000);
    // A bank that ends inside a page.
    let odd = [Region::new(0, 0x8000_0800)];
    assert_eq!(place(0x5700_0000, &odd, limit), 0x8000_1000);
    // The VM's memory lies behind the first bank.
    assert_eq!(
        place(
            0x5700_0000,
            &[low[0], Region::new(0x8000_0000, 1 << 32)],
            limit
        ),
        1 << 32
    );
    // All addresses are RAM: the first free one has to do.
    assert_eq!(
        place(0x5700_0000, &[Region::new(0, limit)], limit),
        0x5900_0000
    );
    // Nothing is in the way: RAM or not, the page is Gear1's own.
    assert_eq!(place(0x4000_0000, &low, limit), 0x5800_0000);
}

/// Whatever one mapping of a whole boot's list is doubled, in whatever VM, the list is refused.
#[test]
fn every_mapping_of_a_boot_is_there_once() {
    let (prepared, _, _) = Case::new().run();
    let partition = prepared.unwrap().partition;
    assert!(partition.mappings.len() > 10);
    for one in &partition.mappings {
        for space in [Space::Gear2, vm(0), vm(1)] {
            let again = Mapping {
                space,
                ipa: 0x80_0000_0000,
                ..*one
            };
            let doubled = [partition.mappings.clone(), [again].to_vec()].concat();
            assert!(judge_list(doubled).is_err(), "{again:x?}");
        }
    }
}

use gear1_abi::id::VmId;

use super::answer::{NEEDED, NOT_NEEDED, NOT_REQUIRED, NOT_SUPPORTED};
use super::function::{WORKAROUND_1, WORKAROUND_2, WORKAROUND_3};
use super::{Core, Mitigations, NO_FIRMWARE, SocId};

const A53: u64 = 0x410f_d034;
const A57: u64 = 0x411f_d073;
const A72: u64 = 0x410f_d083;
const A73: u64 = 0x410f_d090;

fn vm(index: usize) -> VmId {
    VmId::new(index).expect("an identifier")
}

fn core(midr: u64, csv2: u64) -> Core {
    Core {
        midr,
        csv2,
        ssbs: false,
    }
}

fn told(mitigations: &Mitigations) -> [i32; 3] {
    [WORKAROUND_1, WORKAROUND_2, WORKAROUND_3].map(|id| mitigations.feature(id))
}

/// G1-CPU-012: an affected core has what its firmware has.
#[test]
fn guests_are_told_what_firmware_says() {
    let of = |answers| told(&Mitigations::of(core(A72, 0), answers));
    assert_eq!(of(NO_FIRMWARE), [NOT_SUPPORTED; 3]);
    assert_eq!(of([NEEDED; 3]), [NEEDED, NOT_REQUIRED, NEEDED]);
    assert_eq!(of([NOT_NEEDED; 3]), [NOT_NEEDED, NOT_REQUIRED, NOT_NEEDED]);
    let odd = [7, -9, NOT_REQUIRED];
    assert_eq!(of(odd), [NOT_SUPPORTED; 3], "answers of no specification");
}

/// G1-CPU-012: the lists of Linux, `spectre_v2_safe_list` and `spectre_v4_safe_list`.
#[test]
fn cores_that_are_not_affected_say_so_without_firmware() {
    let safe = [NOT_NEEDED, NOT_REQUIRED, NOT_NEEDED];
    for midr in [0x410f_d040, A53, 0x412f_d050, 0x411f_d461, 0x410f_d800] {
        assert_eq!(told(&Mitigations::of(core(midr, 0), NO_FIRMWARE)), safe);
    }
    let others_a53 = 0x510f_d034;
    let foreign = Mitigations::of(core(others_a53, 0), NO_FIRMWARE);
    assert_eq!(told(&foreign), [NOT_SUPPORTED; 3]);
    let by_csv2 = |csv2| told(&Mitigations::of(core(A73, csv2), NO_FIRMWARE));
    assert_eq!(by_csv2(1), [NOT_NEEDED, NOT_SUPPORTED, NOT_SUPPORTED]);
    assert_eq!(by_csv2(2), [NOT_NEEDED, NOT_SUPPORTED, NOT_SUPPORTED]);
    assert_eq!(by_csv2(3), [NOT_NEEDED, NOT_SUPPORTED, NOT_NEEDED]);
}

/// FEAT_SSBS is the guest's own switch: firmware's is not offered beside it.
#[test]
fn a_guest_with_ssbs_is_not_told_that_its_loads_need_nothing() {
    let ssbs = |answer| {
        let core = Core {
            ssbs: true,
            ..core(A72, 1)
        };
        Mitigations::of(core, [NOT_SUPPORTED, answer, NOT_SUPPORTED]).feature(WORKAROUND_2)
    };
    assert_eq!(ssbs(NEEDED), NOT_SUPPORTED);
    assert_eq!(ssbs(NOT_NEEDED), NOT_REQUIRED);
}

/// G1-CPU-013: once for each change of VM, and at no other load.
#[test]
fn firmware_is_called_when_another_vm_comes() {
    let mut cpu = Mitigations::of(core(A57, 0), [NEEDED, NOT_SUPPORTED, NOT_SUPPORTED]);
    assert!(cpu.is_needed());
    let mut at = |index| cpu.moves_in(vm(index));
    assert_eq!(at(0), None, "nobody ran before");
    assert_eq!(at(0), None, "a sibling, or the same vCPU again");
    assert_eq!(at(1), Some(WORKAROUND_1));
    assert_eq!(at(1), None);
    assert_eq!(at(0), Some(WORKAROUND_1), "back again");
}

/// G1-CPU-013.
#[test]
fn the_wider_workaround_is_the_one_that_is_called() {
    let call = |core, answers| {
        let mut cpu = Mitigations::of(core, answers);
        let is_needed = cpu.is_needed();
        cpu.moves_in(vm(0));
        let call = cpu.moves_in(vm(1)).filter(|function| *function != 0);
        assert_eq!(is_needed, call.is_some());
        call
    };
    let all = [NEEDED; 3];
    assert_eq!(call(core(A72, 0), all), Some(WORKAROUND_3));
    let only_1 = [NEEDED, NEEDED, NOT_NEEDED];
    assert_eq!(call(core(A72, 0), only_1), Some(WORKAROUND_1));
    let only_3 = [NOT_SUPPORTED, NEEDED, NEEDED];
    assert_eq!(call(core(A72, 0), only_3), Some(WORKAROUND_3));
    assert_eq!(call(core(A72, 0), [NOT_NEEDED; 3]), None);
    assert_eq!(call(core(A72, 0), NO_FIRMWARE), None);
    assert_eq!(call(core(A72, 1), all), None, "FEAT_CSV2");
    assert_eq!(call(core(A53, 0), all), None, "in order");
}

#[test]
fn the_soc_is_told_as_firmware_does() {
    let soc = SocId([0x0426_8000, 2]);
    assert_eq!(soc.feature(), 0);
    assert_eq!([0, 1, 2].map(|kind| soc.answer(kind)), [0x0426_8000, 2, -3]);
    assert_eq!(SocId::NONE.feature(), NOT_SUPPORTED);
    assert_eq!(SocId::NONE.answer(0), NOT_SUPPORTED);
    assert_eq!(SocId::NONE.answer(9), NOT_SUPPORTED);
}

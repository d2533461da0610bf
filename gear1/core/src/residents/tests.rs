//! Requirements: G1-MEM-022.

use gear1_abi::id::VmId;

use super::Residents;
use crate::vgic::VcpuIndex;

fn vcpu(index: usize) -> VcpuIndex {
    VcpuIndex::new(index).unwrap()
}

fn vm(index: usize) -> VmId {
    VmId::new(index).unwrap()
}

#[test]
fn nothing_is_forgotten_for_a_vcpu_alone_on_its_cpu() {
    let mut residents = Residents::NONE;
    assert!(residents.moves_in(vm(0), vcpu(0), 1), "what boot left");
    assert!(residents.moves_in(vm(3), vcpu(2), 1), "what boot left");
    for _ in 0..3 {
        assert!(!residents.moves_in(vm(0), vcpu(0), 1));
        assert!(
            !residents.moves_in(vm(3), vcpu(2), 1),
            "beside another VM's"
        );
    }
}

#[test]
fn a_sibling_is_forgotten_each_time() {
    let mut residents = Residents::NONE;
    residents.moves_in(vm(1), vcpu(0), 1);
    for number in [1, 0, 2, 1, 0] {
        assert!(residents.moves_in(vm(1), vcpu(number), 1));
        assert!(!residents.moves_in(vm(1), vcpu(number), 1));
    }
}

#[test]
fn a_former_life_is_forgotten_once() {
    let mut residents = Residents::NONE;
    residents.moves_in(vm(1), vcpu(0), 1);
    assert!(residents.moves_in(vm(1), vcpu(0), 2));
    assert!(!residents.moves_in(vm(1), vcpu(0), 2));
}

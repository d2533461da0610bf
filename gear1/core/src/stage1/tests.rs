use super::{Rights, tcr};
use crate::addr::Pa;

const ALL: [Rights; 4] = [
    Rights::Read,
    Rights::ReadExecute,
    Rights::ReadWrite,
    Rights::Device,
];

/// G1-MEM-001: no page of EL2 is writable and executable.
#[test]
fn nothing_is_writable_and_executable() {
    for rights in ALL {
        let bits = rights.bits();
        let writable = bits & 1 << 7 == 0;
        let executable = bits & 1 << 54 == 0;
        assert!(!(writable && executable), "{rights:?}");
    }
}

#[test]
fn pages_keep_address_and_attributes_apart() {
    assert_eq!(
        Rights::ReadWrite.page(Pa::new(0x4000_1234)),
        1 << 54 | 0x4000_1743
    );
    assert_eq!(
        Rights::Device.page(Pa::new(0x900_0000)),
        1 << 54 | 0x900_0447
    );
}

#[test]
fn tcr_names_the_physical_address_size() {
    assert_eq!(tcr(2), 0x8082_3510);
    assert_eq!(tcr(4), 0x8084_3510);
    assert_eq!(tcr(6), 0x8085_3510);
}

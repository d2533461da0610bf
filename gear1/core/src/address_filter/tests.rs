use super::AddressFilter;

/// Registers of a virtio device that are channels, at the beginning of a page.
const CHANNELS: [u64; 3] = [0x1_0000_0050, 0x1_0000_0064, 0x1_0000_0ffc];

fn filter() -> AddressFilter {
    let none = AddressFilter::EMPTY;
    CHANNELS.into_iter().fold(none, AddressFilter::with)
}

#[test]
fn no_address_of_the_set_is_missed() {
    assert!(CHANNELS.into_iter().all(|ipa| filter().may_have(ipa)));
    // A set of many addresses has them all.
    let all = (0..200).map(|word| 0xfff_ffff_0000 + 4 * word);
    let many = all.clone().fold(AddressFilter::EMPTY, AddressFilter::with);
    assert!(all.clone().all(|ipa| many.may_have(ipa)));
}

#[test]
fn registers_of_a_set_up_are_told_apart_from_channels() {
    // DeviceFeaturesSel, QueueSel, QueueNum, Status, QueueDesc.
    for register in [0x14, 0x30, 0x38, 0x70, 0x80] {
        assert!(
            !filter().may_have(0x1_0000_0000 + register),
            "{register:#x}"
        );
    }
    assert!((0..64).all(|word| !AddressFilter::EMPTY.may_have(4 * word)));
}

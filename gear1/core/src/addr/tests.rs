use super::Pa;

#[test]
fn sums_are_checked() {
    let top = Pa::new(u64::MAX);
    assert_eq!(top.checked_add(1), None);
    assert_eq!(top.align_up(4096), None);
}

#[test]
fn alignment_rounds_to_multiples() {
    let address = Pa::new(0x12_3456);
    assert_eq!(address.align_down(0x1000), Pa::new(0x12_3000));
    assert_eq!(address.align_up(0x1000), Some(Pa::new(0x12_4000)));
    assert_eq!(address.page(), Pa::new(0x12_3000));
    assert!(!address.is_aligned(4) && Pa::new(0x20_0000).is_aligned(0x20_0000));
    assert_eq!(
        Pa::new(0x20_0000).align_up(0x20_0000),
        Some(Pa::new(0x20_0000))
    );
}

use super::*;

#[test]
fn addresses_are_found_in_words() {
    let line = "elr=0x40081234 lr=0x0000_0000_4008_0010, x0=17 (0xzz) pc 0x8]";
    assert_eq!(
        addresses(line).collect::<Vec<_>>(),
        [0x4008_1234, 0x4008_0010, 8]
    );
}

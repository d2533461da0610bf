use super::*;

#[test]
fn a_checksum_is_the_sum_of_the_bytes() {
    assert_eq!(checksum(b"OK"), 0x9a);
    assert_eq!(checksum(&[0xff, 0x02]), 1);
}

#[test]
fn a_register_has_its_lowest_byte_first() {
    assert_eq!(value("341e001000000000").ok(), Some(0x1000_1e34));
    assert_eq!(value("c0030040").ok(), Some(0x4000_03c0));
    assert!(value("").is_err() && value("E14x").is_err());
}

#[test]
fn a_register_is_found_by_its_whole_name() {
    let description = "<feature><reg name=\"TPIDR_EL01\" regnum=\"7\"/>\
                       <reg name=\"TPIDR_EL0\" bitsize=\"64\" regnum=\"228\" type=\"int\"/>\
                       <reg name=\"PC\" bitsize=\"64\"/></feature>";
    assert_eq!(number_of("TPIDR_EL0", description), Some(228));
    assert_eq!(number_of("PC", description), None);
    assert_eq!(number_of("TPIDR_EL", description), None);
}

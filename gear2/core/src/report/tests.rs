use super::*;

/// Two values stand in another order than they have in the record.
#[test]
fn a_text_names_its_values_in_any_order() {
    let record = Record {
        time: 1_500_000,
        id_and_cpu: 2 << 32 | RecordId::CpuUnfit as u64,
        values: [2, 0x22, 0x28],
    };
    let text = "    1.500000 CPU 2: CPU 0x2 stays off: stage 2 needs PARange 0x28, it has 0x22";
    assert_eq!(record_text(&record, 1_000_000), text);
}

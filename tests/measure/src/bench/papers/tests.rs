use super::*;
use crate::report::parse;

#[test]
fn both_stand_side_by_side() {
    let columns = [
        ("GearV EL0 a57 GICv3", 122),
        ("KVM blocking a57 GICv3", 1734),
    ];
    let mut results = Results {
        guest: String::new(),
        conditions: Default::default(),
        columns: columns
            .map(|(name, ns)| (name.to_owned(), parse(&format!("RAW hypercall {ns}x10"))))
            .into(),
        ..Results::default()
    };
    let text = table(&results);
    assert!(
        text.contains("441     3458    7.8   hypercall             122     1734   14.2"),
        "{text}"
    );
    results.columns.pop();
    assert!(table(&results).is_empty());
}

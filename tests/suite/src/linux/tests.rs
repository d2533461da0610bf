use super::*;

#[test]
fn gear2_gets_its_switch_once() {
    let with = with_gear2_at_el1("/ { gear2 { cpus = <0>; }; vms { }; };").unwrap();
    assert_eq!(
        with,
        "/ { gear2 {\n\t\tprivilege = \"el1\"; cpus = <0>; }; vms { }; };"
    );
    let without = with_gear2_at_el1("/ { vms { }; };").unwrap();
    assert_eq!(
        without,
        "/ { gear2 {\n\t\tprivilege = \"el1\";\n\t};\n\n\tvms { }; };"
    );
    assert_eq!(with_gear2_at_el1("/ { };"), None);
}

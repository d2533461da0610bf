use super::*;

#[test]
fn exits_are_counted_by_reason_and_vm() {
    let stats = |channel: u64, wfi: u64| {
        let rows = format!(
            r#"{{"vcpus":[{{"vm":"a"}},{{"vm":"b"}}],"exits":[
            {{"vm":"a","reason":"channel","exits":{channel}}},
            {{"vm":"a","reason":"channel","exits":1}},
            {{"vm":"b","reason":"wfi","exits":{wfi}}}],"devices":[
            {{"type":"block","requests":{channel}}},{{"type":"net","requests":1}}]}}"#
        );
        serde_json::from_str::<Value>(&rows).unwrap()
    };
    let (before, after) = (stats(10, 10), stats(2010, 15));
    assert_eq!(names_of(&after), ["a", "b"]);
    assert_eq!(
        exits_each(&before, &after, "a").unwrap(),
        "1.00 (channel 1.00)"
    );
    assert_eq!(exits_each(&before, &after, "b").unwrap(), "0.00 ()");
}

#[test]
fn fio_that_found_an_error_is_told_from_one_that_did_not() {
    let line = |error: &str| {
        let mut fields = vec![
            "3", "fio-3.33", "verify", "0", error, "8192", "4096", "1024",
        ];
        fields.resize(48, "0");
        fields.push("512");
        fields.join(";")
    };
    let good = format!("noise\n{}\n", line("0"));
    assert_eq!(fio_result(&good).unwrap(), "512 writes/s, 1024 reads/s");
    assert!(fio_result(&line("84")).is_err());
    assert!(fio_result("killed").is_err());
}

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

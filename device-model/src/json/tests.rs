use serde_json::json;

use super::*;

#[test]
fn a_tree_keeps_the_order_of_fields() {
    let text = r#"{"z":1,"a":[null,true,-2,2.5,"x"],"m":{"y":"","b":false}}"#;
    let Json::Object(fields) = serde_json::from_str(text).unwrap() else {
        panic!("no object");
    };
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
    assert_eq!(fields[0].1, 1.into());
    let list = [
        Json::Null,
        true.into(),
        Json::Number((-2).into()),
        Json::Number(Number::from_f64(2.5).unwrap()),
        "x".into(),
    ];
    assert_eq!(fields[1].1, Json::List(list.into()));
    let inner = Json::object([("y", "".into()), ("b", false.into())]);
    assert_eq!(fields[2].1, inner);
}

#[test]
fn a_line_has_no_control_characters() {
    let value = json!(["\u{1b}[2J\n\t\"\\", "\u{7f}\u{9b}31m", "ä \u{2028}"]);
    let text = line(&value);
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(text.contains(r"\u001b[2J\n\t") && text.contains(r"\u007f\u009b31m"));
    let again: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(again, value);
}

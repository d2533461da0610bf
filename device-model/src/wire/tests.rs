//! The schema in the repository, against the types and against messages as they are.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::json;

/// Lines of both directions.
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the schema alone is of use")]
enum Line {
    Asked(Asked),
    Answered(Answered),
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/control.schema.json")
}

/// The file is made anew by `GEARV_WRITE_SCHEMA=1 cargo test -p device-model schema`.
#[test]
fn the_schema_is_that_of_the_messages() {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    let schema = settings.into_generator().into_root_schema_for::<Line>();
    let mut schema = schema.to_value();
    schema["title"] = "A line of GDM's control socket".into();
    for name in ["Asked", "Answered"] {
        schema["$defs"][name]["properties"]["version"]["const"] = VERSION.into();
    }
    if std::env::var_os("GEARV_WRITE_SCHEMA").is_some() {
        let text = serde_json::to_string_pretty(&schema).unwrap();
        // Whole or not at all: another test reads the file meanwhile.
        let new = path().with_extension("new");
        fs::write(&new, text + "\n").unwrap();
        fs::rename(&new, path()).unwrap();
    }
    let file: Value = serde_json::from_str(&fs::read_to_string(path()).unwrap()).unwrap();
    assert!(
        schema == file,
        "docs/control.schema.json is another one; `GEARV_WRITE_SCHEMA=1 cargo test -p device-model \
         schema` writes it"
    );
    let validator = jsonschema::validator_for(&file).unwrap();
    for line in lines() {
        assert!(validator.is_valid(&line), "{line}");
        let mut other = line.clone();
        other["version"] = 2.into();
        assert!(!validator.is_valid(&other), "{other}");
        let mut without = line.clone();
        without.as_object_mut().unwrap().remove("version");
        assert!(!validator.is_valid(&without), "{without}");
    }
}

fn lines() -> Vec<Value> {
    let version = VERSION;
    let of = |order| Request::Order { channel: 3, order };
    let call = Request::Call {
        operation: 1,
        arguments: [u64::MAX, 0, 0, 0],
    };
    let words = Request::Words {
        operation: 29,
        arguments: [8, 16, 0, 0],
    };
    let requests = [
        words,
        Request::About,
        Request::Figures,
        Request::Devices,
        of(Order::Resize),
        of(Order::Detach),
        of(Order::Power),
        of(Order::Attach("/srv/a b".into())),
        of(Order::Link(true)),
        call,
    ];
    let about = About {
        protocol: 1,
        vcpus: 2,
        vms: 3,
        starts: 4,
        beats: 5,
        hz: 6,
    };
    let answers = [
        Answer::About(about),
        Answer::Figures(vec![Figures::default()]),
        Answer::Devices(vec![Device::default()]),
        Answer::Order(7),
        Answer::Call(Called::default()),
        Answer::Words(Words::default()),
        Answer::error(ErrorKind::Refused, "why"),
    ];
    let requests = requests.map(|request| read_back(&Asked { version, request }));
    let answers = answers.map(|answer| read_back(&Answered { version, answer }));
    requests.into_iter().chain(answers).collect()
}

/// Returns a message as JSON, after a way there and back.
fn read_back<T>(message: &T) -> Value
where
    T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug,
{
    let line = json::line(message);
    assert_eq!(&serde_json::from_str::<T>(&line).unwrap(), message);
    serde_json::from_str(&line).unwrap()
}

#[test]
fn messages_have_these_forms() {
    let lines = lines();
    for expected in [
        json!({"version": 1, "request": "about"}),
        json!({"version": 1, "request": "order", "channel": 3, "order": "resize"}),
        json!({"version": 1, "request": "order", "channel": 3, "order": {"attach": "/srv/a b"}}),
        json!({"version": 1, "request": "order", "channel": 3, "order": {"link": true}}),
        json!({"version": 1, "request": "call", "operation": 1, "arguments": [u64::MAX, 0, 0, 0]}),
        json!({"version": 1, "answer": "order", "value": 7}),
        json!({"version": 1, "answer": "error", "value": {"kind": "refused", "message": "why"}}),
    ] {
        assert!(lines.contains(&expected), "{expected}");
    }
}

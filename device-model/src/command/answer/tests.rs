//! The schema in the repository, against the types and against what each command prints.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::Reply;
use crate::board::{DeviceKind, DeviceNode};
use crate::command::failure;
use crate::command::tests::{attempt, gearctl_beside};
use crate::order::Order;
use crate::testing::{self, CHANNEL, Directory, region};

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/gearctl.schema.json")
}

fn generated() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let schema = settings
        .into_generator()
        .into_root_schema_for::<Reply<'_>>();
    let mut schema = schema.to_value();
    schema["title"] = "A line of gearctl --json".into();
    schema["properties"]["version"]["const"] = super::VERSION.into();
    schema
}

fn in_repository() -> Value {
    serde_json::from_str(&fs::read_to_string(path()).unwrap()).unwrap()
}

/// The file is made anew by `GEARV_WRITE_SCHEMA=1 cargo test -p device-model schema`.
#[test]
fn the_schema_is_that_of_the_types() {
    let generated = generated();
    if std::env::var_os("GEARV_WRITE_SCHEMA").is_some() {
        let text = serde_json::to_string_pretty(&generated).unwrap();
        // Whole or not at all: another test reads the file meanwhile.
        let new = path().with_extension("new");
        fs::write(&new, text + "\n").unwrap();
        fs::rename(&new, path()).unwrap();
    }
    assert!(
        generated == in_repository(),
        "docs/gearctl.schema.json is another one; `GEARV_WRITE_SCHEMA=1 cargo test -p device-model \
         schema` writes it"
    );
}

/// Runs a command beside a disk and a card that obey.
fn printed(words: &str) -> String {
    let node = |channel, kind, label: &str| DeviceNode {
        channel,
        kind,
        label: label.into(),
        ..testing::node()
    };
    let disk = node(CHANNEL, DeviceKind::Block, "disk");
    let card = node(CHANNEL + 1, DeviceKind::Net, "card");
    // A graphics card.
    let screen = node(CHANNEL + 2, DeviceKind::VhostUser(16), "screen");
    let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
    gearctl_beside(
        region(),
        vec![disk, card, screen],
        &words,
        |order| match order {
            Order::Link(up) => Ok(up.into()),
            _ => Ok(4096),
        },
    )
    .unwrap()
}

/// A line for each command that prints an answer.
fn lines() -> Vec<String> {
    let commands = [
        "list",
        "start rt",
        "stop linux",
        "restart linux",
        "pause linux",
        "resume linux",
        "info linux",
        "info rt",
        "last-words linux",
        "vcpu",
        "wait device running",
        "events",
        "stats",
        "stats linux",
        "top 1",
        "top --vcpus 1",
        "sched",
        "sched move linux 0 1",
        "sched pin linux 0 1",
        "sched unpin linux 0",
        "sched set linux weight 300",
        "sched set linux budget-us 2000 period-us 10000",
        "sched cpu 1 off",
        "sched pool linux default",
        "device list",
        "device resize linux disk",
        "device detach linux disk",
        "device attach linux disk",
        "device link linux card down",
        "log",
        "version",
    ];
    let directory = Directory::new("schema");
    let picture = format!("screenshot linux {}/a.png", directory.text());
    let trace = format!(
        "trace --seconds 0.01 --output {}/trace.json",
        directory.text()
    );
    let commands = commands
        .into_iter()
        .chain([picture.as_str(), trace.as_str()]);
    let mut lines: Vec<String> = commands.map(printed).collect();
    // A guest's memory is at hand in a device VM alone.
    lines.push(crate::command::json_line(&super::Answer::Dump(
        super::Dump {
            vm: "linux".into(),
            file: "core".into(),
            vcpus: 2,
            memory_bytes: 4096,
            stored_bytes: 0,
            kernel_mappings: 0,
            vmcoreinfo: false,
            fp_registers: true,
            devices_rested: true,
            paused_ms: Some(7),
        },
    )));
    lines.push(failure(&attempt(&["stop", "nobody"]).unwrap_err()));
    lines
}

#[test]
fn each_command_prints_what_the_schema_describes() {
    let schema = in_repository();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut kinds = BTreeSet::new();
    for line in lines() {
        let value: Value = serde_json::from_str(&line).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{line}: {errors:?}");
        kinds.insert(value["kind"].as_str().unwrap().to_owned());
        // The schema describes this value alone: without a field, or with another type, it is none.
        for (broken, what) in broken(&value) {
            assert!(!validator.is_valid(&broken), "{what} of {line}");
        }
    }
    let described: BTreeSet<String> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| {
            kind["properties"]["kind"]["const"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds, described, "each kind is printed by a command");
}

/// Returns a value without each of its fields, and with each number as a text.
fn broken(value: &Value) -> Vec<(Value, String)> {
    let mut all = Vec::new();
    for pointer in pointers(value, "") {
        let (above, name) = pointer.rsplit_once('/').unwrap();
        let mut without = value.clone();
        if let Some(Value::Object(fields)) = without.pointer_mut(above) {
            fields.remove(name);
            all.push((without, format!("without {pointer}")));
        }
        if value.pointer(&pointer).is_some_and(Value::is_number) {
            let mut text = value.clone();
            *text.pointer_mut(&pointer).unwrap() = "1".into();
            all.push((text, format!("text at {pointer}")));
        }
    }
    all
}

/// Returns the places of all values below a value.
fn pointers(value: &Value, at: &str) -> Vec<String> {
    let fields: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), value))
            .collect(),
        Value::Array(values) => (0..)
            .zip(values)
            .map(|(index, value): (usize, _)| (index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    let below = fields.into_iter().flat_map(|(name, value)| {
        let at = format!("{at}/{name}");
        let mut below = pointers(value, &at);
        below.push(at);
        below
    });
    below.collect()
}

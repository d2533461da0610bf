//! The commands of `gearctl`.
//!
//! Owns: reading the command line, and the form of the answers: each is one JSON
//! value, printed as it is with `--json` and as tables without.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::exit::ExitReason;
use gear1_abi::record::{Record, RecordId};
use gear2_protocol::{PROTOCOL_VERSION, op, outcome};

use crate::client::{Client, LogReader, Logged, Vm, describe};
use crate::control::{DEVICE_NUMBERS, DeviceLine};
use crate::hub::RUN_DIRECTORY;
use crate::json::Json;
use crate::output::Output;
use crate::serial::file_name;
use crate::terminal;

#[cfg(test)]
mod tests;

/// Help text of `gearctl`.
pub const USAGE: &str = "\
usage: gearctl [--json] [--run DIR] COMMAND

  list                    the VMs
  start|stop|restart VM   change a VM's life; stop --force VM: the device VM's, too
  pause|resume VM         hold its vCPUs, let them go on
  console VM [--virtio]   its serial console, or its virtio console; Ctrl-] leaves
  stats [VM]              vCPUs, exits by reason, devices
  top [COUNT]             CPU share and exits, each second
  log [-f]                Gear1's records; -f waits for more
  version                 versions of all parts";

/// A subcommand of `gearctl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Show the VMs.
    List,
    /// Ask for an operation of [`op`] on a VM.
    Change {
        /// The operation.
        op: u32,
        /// The VM.
        vm: String,
        /// Although nobody could start it again.
        force: bool,
    },
    /// Connect to a VM's console.
    Console {
        /// The VM.
        vm: String,
        /// The virtio console, not the serial one.
        virtio: bool,
    },
    /// Show figures of a VM, or all.
    Stats(Option<String>),
    /// Show figures each second, this number of times.
    Top(u64),
    /// Show the log, and wait for more.
    Log(bool),
    /// Show versions.
    Version,
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Print JSON.
    pub json: bool,
    /// Directory of GDM's sockets.
    pub run_directory: String,
    /// Subcommand.
    pub command: Command,
}

/// Reads a command line.
pub fn parse(words: &[&str]) -> Result<Line, String> {
    let mut json = false;
    let mut run_directory = RUN_DIRECTORY.to_owned();
    let mut rest = Vec::new();
    // Options may stand anywhere: a person adds `--json` at the end.
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "--json" => json = true,
            "--run" => words
                .next()
                .ok_or("--run takes a directory")?
                .clone_into(&mut run_directory),
            _ => rest.push(word),
        }
    }
    Ok(Line {
        json,
        run_directory,
        command: parse_command(&rest)?,
    })
}

/// Returns the command that asks for an operation on a VM.
fn change_command(op: u32, vm: &str, force: bool) -> Command {
    Command::Change {
        op,
        vm: vm.into(),
        force,
    }
}

/// Reads a subcommand with its arguments. VMs are named or numbered; GDM tells which there are, so
/// no name is refused here.
fn parse_command(words: &[&str]) -> Result<Command, String> {
    Ok(match words {
        ["list"] => Command::List,
        ["start", vm] => change_command(op::VM_START, vm, false),
        ["stop", vm] => change_command(op::VM_STOP, vm, false),
        ["stop", "--force", vm] | ["stop", vm, "--force"] => change_command(op::VM_STOP, vm, true),
        ["restart", vm] => change_command(op::VM_RESTART, vm, false),
        ["pause", vm] => change_command(op::VM_PAUSE, vm, false),
        ["resume", vm] => change_command(op::VM_RESUME, vm, false),
        ["console", vm] => console_command(vm, false),
        ["console", "--virtio", vm] | ["console", vm, "--virtio"] => console_command(vm, true),
        ["stats"] => Command::Stats(None),
        ["stats", vm] => Command::Stats(Some((*vm).into())),
        ["top"] => Command::Top(u64::MAX),
        ["top", count] => Command::Top(
            count
                .parse()
                .map_err(|_| format!("`{count}` is not a number of times"))?,
        ),
        ["log"] => Command::Log(false),
        ["log", "-f"] => Command::Log(true),
        ["version"] => Command::Version,
        [] => return Err(USAGE.into()),
        [word, ..] => return Err(format!("cannot do `{word}` like this\n{USAGE}")),
    })
}

fn console_command(vm: &str, virtio: bool) -> Command {
    let vm = vm.to_owned();
    Command::Console { vm, virtio }
}

/// Does what a command line says, and prints to `out`. The error is a sentence.
pub fn run(line: &Line, out: &mut dyn Write) -> Result<(), String> {
    let mut client = Client::connect(&line.run_directory)?;
    let mut print = |json: &Json| show(json, line.json, out);
    match &line.command {
        Command::List => print(&list(&mut client)?),
        Command::Change { op, vm, force } => print(&change(&mut client, *op, vm, *force)?),
        Command::Console { vm, virtio } => {
            let vm = client.find(vm)?;
            // GDM serves few clients at once, and nothing more is asked.
            drop(client);
            console(&line.run_directory, &vm.name, *virtio)
        }
        Command::Stats(vm) => print(&stats(&mut client, vm.as_deref())?),
        Command::Top(count) => top(&mut client, *count, !line.json, &mut print),
        Command::Log(follow) => log(&mut client, *follow, &mut print),
        Command::Version => print(&version(&mut client)?),
    }
}

/// Prints a value, for a program or for a person, at once: `top` and `log -f` go on for ever.
fn show(json: &Json, for_program: bool, out: &mut dyn Write) -> Result<(), String> {
    let text = match for_program {
        true => format!("{json}\n"),
        false => as_text(json),
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot print: {error}"))
}

/// Says in which state a VM is. A number that this gearctl does not know is shown as it is: Gear2
/// may be newer.
fn vm_state(vm: &Vm) -> String {
    let state = match VmState::from_reg(vm.state) {
        Some(state) => format!("{state:?}").to_lowercase(),
        None => format!("state {}", vm.state),
    };
    let marks = [
        (vm.paused, "paused"),
        (vm.waits, "waits"),
        (vm.given_up, "given up"),
    ];
    let marks = marks.iter().filter(|(set, _)| *set);
    marks.fold(state, |text, (_, mark)| format!("{text}, {mark}"))
}

/// Returns the VMs with their lives and faults.
fn list(client: &mut Client) -> Result<Json, String> {
    let rows = client.vms()?.into_iter().map(|vm| {
        Json::Object(vec![
            ("id", vm.id.into()),
            ("name", vm.name.as_str().into()),
            ("state", vm_state(&vm).as_str().into()),
            ("vcpus", vm.vcpus.into()),
            ("restarts", vm.restarts.into()),
            ("powers_off", Json::Bool(vm.powers_off)),
            ("faults", vm.faults.into()),
            ("last_fault", fault_text(vm.last_fault).as_str().into()),
        ])
    });
    Ok(Json::List(rows.collect()))
}

/// Says with which registers a vCPU could not go on.
fn fault_text(fault: Option<[u64; 6]>) -> String {
    match fault {
        Some([vcpu, esr, far, ipa, pc, spsr]) => format!(
            "vCPU {vcpu}: PC {pc:#x}, SPSR {spsr:#x}, ESR {esr:#x}, FAR {far:#x}, IPA {ipa:#x}"
        ),
        None => "none".into(),
    }
}

/// Asks for an operation on a VM. A refusal names the VM's state, which is most often the reason.
fn change(client: &mut Client, op: u32, name: &str, force: bool) -> Result<Json, String> {
    let vm = client.find(name)?;
    let outcome = client.call(op, &[vm.id, force.into()])?.outcome;
    match outcome {
        outcome::OK | outcome::STARTED => Ok(Json::Object(vec![
            ("vm", vm.name.as_str().into()),
            ("outcome", describe(outcome).as_str().into()),
        ])),
        other => Err(format!(
            "VM {} is {}: {}",
            vm.name,
            vm_state(&vm),
            describe(other)
        )),
    }
}

/// Returns the figures of one VM or of all. They are read one by one while the VMs run, so sums may
/// differ by what happens meanwhile.
fn stats(client: &mut Client, name: Option<&str>) -> Result<Json, String> {
    let vms = match name {
        Some(name) => vec![client.find(name)?],
        None => client.vms()?,
    };
    let [_, _, counter, _, forwarded, _] = client.version()?;
    let mut vcpus = Vec::new();
    let mut exits = Vec::new();
    for vm in &vms {
        for vcpu in vm.numbers() {
            vcpus.push(vcpu_row(client, vm, vcpu, counter, &mut exits)?);
        }
    }
    let devices = client.devices()?.into_iter();
    let devices = devices.filter(|line| vms.iter().any(|vm| line.texts.first() == Some(&vm.name)));
    Ok(Json::Object(vec![
        ("vcpus", Json::List(vcpus)),
        ("exits", Json::List(exits)),
        ("devices", Json::List(devices.map(device_row).collect())),
        ("mmio_events", forwarded.into()),
        ("counter", counter.into()),
    ]))
}

/// Returns the row of a vCPU, and adds the rows of its exits. The vCPU's share is that of its ticks
/// in `counter`, the counter's value.
fn vcpu_row(
    client: &mut Client,
    vm: &Vm,
    vcpu: u64,
    counter: u64,
    exits: &mut Vec<Json>,
) -> Result<Json, String> {
    let [ran, cpu, state] = client.vcpu(vcpu)?;
    let total = exit_rows(client, vm, vcpu, exits)?;
    Ok(Json::Object(vec![
        ("vcpu", vcpu.into()),
        ("vm", vm.name.as_str().into()),
        ("cpu", cpu.into()),
        ("state", vcpu_state(state).as_str().into()),
        ("ran_ticks", ran.into()),
        ("share", share(ran, counter).as_str().into()),
        ("exits", total.into()),
    ]))
}

/// Adds a row for each reason for which a vCPU has left its guest; returns the number of all exits.
fn exit_rows(client: &mut Client, vm: &Vm, vcpu: u64, rows: &mut Vec<Json>) -> Result<u64, String> {
    let mut total = 0;
    for reason in ExitReason::ALL {
        let [exits, ticks] = client.exits(vcpu, *reason as u64)?;
        total += exits;
        if exits > 0 {
            rows.push(Json::Object(vec![
                ("vcpu", vcpu.into()),
                ("vm", vm.name.as_str().into()),
                ("reason", reason.label().into()),
                ("exits", exits.into()),
                ("ticks", ticks.into()),
            ]));
        }
    }
    Ok(total)
}

/// Returns a device's row: the texts, then the numbers by their names.
fn device_row(line: DeviceLine) -> Json {
    let names = ["vm", "type", "backend"];
    let texts = names.into_iter().zip(&line.texts);
    let texts = texts.map(|(name, text)| (name, text.as_str().into()));
    let numbers = DEVICE_NUMBERS.into_iter().zip(line.numbers);
    let numbers = numbers.map(|(name, number)| (name, number.into()));
    Json::Object(texts.chain(numbers).collect())
}

/// Says in which state a vCPU is, like [`vm_state`].
fn vcpu_state(state: u64) -> String {
    match VcpuState::from_reg(state) {
        Some(state) => format!("{state:?}").to_lowercase(),
        None => format!("state {state}"),
    }
}

/// Returns a part of a time as a percentage.
fn share(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Counter, then for each vCPU the ticks it ran and its exits.
type Sample = (u64, BTreeMap<u64, [u64; 2]>);

/// Takes the figures that [`top`] compares. Times are differences of the counter in Gear2's
/// answers, not of this program's clock: what the answers take does not count.
fn sample(client: &mut Client, vms: &[Vm]) -> Result<Sample, String> {
    let [_, _, counter, ..] = client.version()?;
    let mut vcpus = BTreeMap::new();
    for vcpu in vms.iter().flat_map(Vm::numbers) {
        let [ran, ..] = client.vcpu(vcpu)?;
        let mut exits = 0;
        for reason in ExitReason::ALL {
            exits += client.exits(vcpu, *reason as u64)?[0];
        }
        vcpus.insert(vcpu, [ran, exits]);
    }
    Ok((counter, vcpus))
}

/// Prints each second what the vCPUs did in it, over the table of the second before.
fn top(
    client: &mut Client,
    count: u64,
    clear: bool,
    print: &mut dyn FnMut(&Json) -> Result<(), String>,
) -> Result<(), String> {
    let vms = client.vms()?;
    let (mut time, mut old) = sample(client, &vms)?;
    for _ in 0..count {
        std::thread::sleep(Duration::from_secs(1));
        let (now, new) = sample(client, &vms)?;
        if clear {
            // Home, and clear the screen.
            let cleared = Output.write_all(b"\x1b[H\x1b[2J");
            cleared.map_err(|error| format!("cannot print: {error}"))?;
        }
        print(&top_rows(&vms, now.wrapping_sub(time), &old, &new))?;
        time = now;
        old = new;
    }
    Ok(())
}

/// Returns a row for each vCPU: its share of `ticks`, and its exits in that time.
fn top_rows(
    vms: &[Vm],
    ticks: u64,
    old: &BTreeMap<u64, [u64; 2]>,
    new: &BTreeMap<u64, [u64; 2]>,
) -> Json {
    let row = |vm: &Vm, vcpu: u64| {
        let [ran_before, exits_before] = old.get(&vcpu).copied().unwrap_or_default();
        let [ran, exits] = new.get(&vcpu).copied().unwrap_or_default();
        let share = share(ran.saturating_sub(ran_before), ticks);
        Json::Object(vec![
            ("vcpu", vcpu.into()),
            ("vm", vm.name.as_str().into()),
            ("share", share.as_str().into()),
            ("exits", exits.saturating_sub(exits_before).into()),
        ])
    };
    let rows = vms
        .iter()
        .flat_map(|vm| vm.numbers().map(move |vcpu| (vm, vcpu)));
    Json::List(rows.map(|(vm, vcpu)| row(vm, vcpu)).collect())
}

/// Prints Gear1's records. With `follow` an empty answer prints nothing: a table without rows would
/// come twice a second.
fn log(
    client: &mut Client,
    follow: bool,
    print: &mut dyn FnMut(&Json) -> Result<(), String>,
) -> Result<(), String> {
    let hz = client.about()?.hz.max(1);
    let mut reader = LogReader::default();
    loop {
        let records = reader.read(client)?;
        let rows: Vec<Json> = records
            .iter()
            .flat_map(|logged| log_rows(logged, hz))
            .collect();
        if !rows.is_empty() || !follow {
            print(&Json::List(rows))?;
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the row of a record, after a row about lost records before it.
fn log_rows(logged: &Logged, hz: u64) -> Vec<Json> {
    let record = &logged.record;
    let lost = (logged.lost > 0).then(|| {
        let lost = logged.lost;
        format!("{lost} records of this CPU were overwritten before they were read")
    });
    let time = seconds(record.time, hz);
    let row = |message: String| {
        Json::Object(vec![
            ("time", time.as_str().into()),
            ("cpu", (record.id_and_cpu >> 32).into()),
            ("message", message.as_str().into()),
        ])
    };
    let rows = lost.into_iter().chain([message(record)]);
    rows.map(row).collect()
}

/// Returns a record's text with its values; a newer Gear1 may have records without a text here.
fn message(record: &Record) -> String {
    let id = record.id_and_cpu & 0xffff_ffff;
    let text = match RecordId::from_index(id) {
        Some(id) => id.text().to_owned(),
        None => format!("record {id}: {{0}} {{1}} {{2}}"),
    };
    let values = record.values.iter().enumerate();
    values.fold(text, |text, (index, value)| {
        text.replace(&format!("{{{index}}}"), &format!("{value:#x}"))
    })
}

/// Returns a time of the counter in seconds, to a microsecond.
fn seconds(ticks: u64, hz: u64) -> String {
    let microseconds = u128::from(ticks) * 1_000_000 / u128::from(hz);
    format!(
        "{}.{:06}",
        microseconds / 1_000_000,
        microseconds % 1_000_000
    )
}

/// Returns the versions of all parts, which must fit together, and how often they were started.
fn version(client: &mut Client) -> Result<Json, String> {
    let about = client.about()?;
    let [abi, protocol, _, cpus, _, restarts] = client.version()?;
    let pair = |version: u64| format!("{}.{}", version >> 16, version & 0xffff);
    Ok(Json::Object(vec![
        ("gearctl", env!("CARGO_PKG_VERSION").into()),
        (
            "protocol",
            pair(u64::from(PROTOCOL_VERSION)).as_str().into(),
        ),
        ("gear1_abi", pair(abi).as_str().into()),
        ("gear2_protocol", pair(protocol).as_str().into()),
        ("cpus", cpus.into()),
        ("gear2_restarts", restarts.into()),
        ("gdm_starts", about.starts.into()),
    ]))
}

/// Connects the terminal with a console until Ctrl-] is typed or either side ends.
fn console(run_directory: &str, vm: &str, virtio: bool) -> Result<(), String> {
    let kind = if virtio { "console" } else { "serial" };
    let path = format!("{run_directory}/{}.{kind}", file_name(vm));
    let socket = UnixStream::connect(&path)
        .map_err(|error| format!("VM {vm} has no {kind} at {path}: {error}"))?;
    match terminal::connect(socket) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("the console of VM {vm} was closed")),
        Err(error) => Err(format!("the console of VM {vm}: {error}")),
    }
}

/// Prints lists of objects as tables, and an object's numbers and texts as lines.
fn as_text(json: &Json) -> String {
    match json {
        Json::List(rows) => table(rows),
        Json::Object(fields) => {
            let mut text = String::new();
            for (name, value) in fields {
                let _ = match value {
                    Json::List(rows) => writeln!(text, "{name}:\n{}", table(rows)),
                    other => writeln!(text, "{name}: {}", cell(other)),
                };
            }
            text
        }
        other => format!("{}\n", cell(other)),
    }
}

/// Returns a value as a table shows it. An empty text is a dash, so that no column looks empty.
fn cell(json: &Json) -> String {
    match json {
        Json::Text(text) if text.is_empty() => "-".into(),
        Json::Text(text) => text.clone(),
        Json::Bool(value) => (if *value { "yes" } else { "no" }).into(),
        Json::Number(_) | Json::List(_) | Json::Object(_) => json.to_string(),
    }
}

/// Returns the rows below their names, each column as wide as its widest cell.
fn table(rows: &[Json]) -> String {
    let lines = cells(rows);
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns the cells of a table, the names of the first row's fields at the top: all rows of a list
/// have the same fields.
fn cells(rows: &[Json]) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let Json::Object(fields) = row else {
            continue;
        };
        if lines.is_empty() {
            lines.push(fields.iter().map(|(name, _)| name.to_uppercase()).collect());
        }
        lines.push(fields.iter().map(|(_, value)| cell(value)).collect());
    }
    lines
}

//! The commands of `gearctl`.
//!
//! Owns: reading the command line, and the form of the answers: each is one JSON
//! value, printed as it is with `--json` and as tables without.

use std::io::Write;
use std::time::Duration;

use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::exit::ExitReason;
use gear2_protocol::{PROTOCOL_VERSION, op, outcome};

use crate::client::{Client, LogReader, Vm, describe};
use crate::control::{DEVICE_NUMBERS, DeviceLine};
use crate::json::Json;
use crate::options::RUN_DIRECTORY;

mod console;
mod device;
mod records;
mod refusal;
mod sched;
mod screenshot;
mod table;
#[cfg(test)]
mod tests;
mod top;

pub use console::Kind;
pub use device::Ask as DeviceAsk;
use records::{Names, log_rows};
pub use sched::Ask;
pub use table::wrap;

/// Help text of `gearctl`.
pub const USAGE: &str = "\
usage: gearctl [--json] [--run DIR] COMMAND

  list                    the VMs
  start|stop|restart VM   change a VM's life; stop --force: the device VM's, too
  pause|resume VM         hold its vCPUs, let them go on; not a real-time VM's,
                          which Gear2 does not schedule
  console VM [--all]      its serial console, from the last screen on, or from
                          the first line that is kept; Ctrl-] leaves
  console VM --virtio     its virtio console
  console VM --messages   what Gear2 says of it; the device VM's: of no VM, too
  screenshot VM [CHANNEL] FILE
                          the last frame of its screen, as PNG
  stats [VM]              vCPUs, exits by reason, devices
  top [--vcpus] [COUNT]   each second, by VM or by vCPU: parts in which it ran,
                          and was ready and waited; stolen time as the VM sees
                          that; preemptions, exits
  sched                   pools, CPUs, places of vCPUs, parameters of VMs
  sched set VM WHAT N     weight, priority, latency-us, cap-percent (or none),
                          budget-us N period-us N, budget-us none
  sched move VM VCPU CPU  move a vCPU, by its index in the VM
  sched pin VM VCPU CPU   and keep it there; unpin VM VCPU: no longer
  sched cpu CPU off|on    give its vCPUs to other CPUs; let it take some again
  sched pool VM POOL      move all vCPUs of a VM to the CPUs of a pool
  device list [VM]        the devices that GDM serves
  device resize VM DEV    a disk looks at its size; DEV is a name or a channel
  device detach VM DEV    take a disk's medium out: no sectors, requests fail
  device attach VM DEV [FILE]  put FILE in, or the manifest's medium again
  device link VM DEV up|down  a card's link: as its tap device's, or down
  log [-f]                Gear1's records; -f waits for more
  version                 versions of all parts

On a terminal tables are as wide as it is; in pipes and files, and with --json,
nothing is wrapped. A real-time VM's share is `own CPU`: it has CPUs of its own.";

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
        /// Which of its consoles.
        kind: Kind,
        /// Show all earlier output, and not only the last screen.
        all: bool,
    },
    /// Write the last frame of a VM's screen to a file.
    Screenshot {
        /// The VM.
        vm: String,
        /// Number of the screen's device; `None`: the VM's only one.
        channel: Option<u64>,
        /// The file.
        file: String,
    },
    /// Show figures of a VM, or all.
    Stats(Option<String>),
    /// Show figures each second.
    Top {
        /// Number of times.
        count: u64,
        /// A row for each vCPU, instead of each VM.
        by_vcpu: bool,
    },
    /// Show or change how Gear2 schedules.
    Sched(Ask),
    /// Show or change the devices that GDM serves.
    Device(DeviceAsk),
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
    /// Width of the terminal, if there is one that a person reads.
    pub width: Option<usize>,
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
        // `main` knows whether a terminal shows the answer.
        width: None,
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
        // Other words behind `console` fall through to the usage.
        ["console", rest @ ..] if let Some(console) = console::parse(rest) => console,
        // Another word than a number falls through to the usage.
        ["screenshot", rest @ ..] if let Some(command) = screenshot::parse(rest) => command,
        ["stats"] => Command::Stats(None),
        ["stats", vm] => Command::Stats(Some((*vm).into())),
        ["top", rest @ ..] => top::parse(rest)?,
        // Other words behind `sched` fall through to the usage.
        ["sched", rest @ ..] if let Some(ask) = sched::parse(rest) => Command::Sched(ask),
        ["device", rest @ ..] if let Some(ask) = device::parse(rest) => Command::Device(ask),
        ["log"] => Command::Log(false),
        ["log", "-f"] => Command::Log(true),
        ["version"] => Command::Version,
        [] => return Err(USAGE.into()),
        [word, ..] => return Err(misused(word)),
    })
}

/// Says how a command is written. The whole help would push the sentence off a small screen.
fn misused(word: &str) -> String {
    let usage = usage_of(word);
    match usage.is_empty() {
        true => format!(
            "there is no command `{word}`; there are {}; `gearctl --help` describes them",
            names().join(", ")
        ),
        false => format!(
            "cannot do `{word}` like this; there is\n{}",
            usage.join("\n")
        ),
    }
}

/// Returns the commands that a line of the help describes, or none.
fn heads(line: &str) -> impl Iterator<Item = &str> {
    // Two blanks stand before a command, and more before a line that goes on.
    let line = line.strip_prefix("  ");
    let line = line.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    let words = line.and_then(|line| line.split(' ').next());
    words.into_iter().flat_map(|words| words.split('|'))
}

/// Returns the names of all commands.
fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = USAGE.lines().flat_map(heads).collect();
    names.dedup();
    names
}

/// Returns the lines of the help on one command, with those on which they go on.
fn usage_of(word: &str) -> Vec<&'static str> {
    let mut is_of_word = false;
    let lines = USAGE.lines().filter(|line| {
        let goes_on = line.starts_with("   ");
        is_of_word = heads(line).any(|head| head == word) || is_of_word && goes_on;
        is_of_word
    });
    lines.collect()
}

/// Does what a command line says, and prints to `out`. The error is a sentence.
pub fn run(line: &Line, out: &mut dyn Write) -> Result<(), String> {
    let mut client = Client::connect(&line.run_directory)?;
    let mut print = |json: &Json| show(json, line, out);
    match &line.command {
        Command::List => print(&list(&mut client)?),
        Command::Change { op, vm, force } => print(&change(&mut client, *op, vm, *force)?),
        Command::Console { vm, kind, all } => {
            let vm = console::find(&mut client, vm, *kind)?;
            // GDM serves few clients at once, and nothing more is asked.
            drop(client);
            console::connect(&line.run_directory, &vm.name, *kind, *all)
        }
        Command::Screenshot { vm, channel, file } => {
            let run_directory = &line.run_directory;
            print(&screenshot::take(
                &mut client,
                run_directory,
                vm,
                *channel,
                file,
            )?)
        }
        Command::Stats(vm) => print(&stats(&mut client, vm.as_deref())?),
        Command::Top { count, by_vcpu } => {
            top::run(&mut client, *count, *by_vcpu, !line.json, &mut print)
        }
        Command::Sched(ask) => print(&sched::run(&mut client, ask)?),
        Command::Device(ask) => print(&device::run(&mut client, ask)?),
        Command::Log(follow) => log(&mut client, *follow, &mut print),
        Command::Version => print(&version(&mut client)?),
    }
}

/// Prints a value, for a program or for a person, at once: `top` and `log -f` go on for ever.
fn show(json: &Json, line: &Line, out: &mut dyn Write) -> Result<(), String> {
    let text = match line.json {
        true => format!("{json}\n"),
        false => table::as_text(json, line.width),
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
    // To Gear1 a paused VM runs as before: the mark says what holds it.
    let marks = [
        (vm.paused, "paused"),
        (vm.waits, "waits"),
        (vm.given_up, "given up"),
        (vm.failed_over, "failed over"),
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

/// Asks for an operation on a VM. A refusal says why, by what the VM is and does.
fn change(client: &mut Client, op: u32, name: &str, force: bool) -> Result<Json, String> {
    let vm = client.find(name)?;
    let outcome = client.call(op, &[vm.id, force.into()])?.outcome;
    match outcome {
        outcome::OK | outcome::STARTED => Ok(Json::Object(vec![
            ("vm", vm.name.as_str().into()),
            ("outcome", describe(outcome).as_str().into()),
        ])),
        other => Err(refusal::text(op, &vm, other)),
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
    // GDM tells of the devices of all VMs, and knows the VMs by their names.
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
    let [ran, cpu, state, ..] = client.vcpu(vcpu)?;
    // The exits of all reasons go to one list: a program selects by the field `vcpu`.
    let total = exit_rows(client, vm, vcpu, exits)?;
    Ok(Json::Object(vec![
        ("vcpu", vcpu.into()),
        ("vm", vm.name.as_str().into()),
        ("cpu", cpu.into()),
        ("state", vcpu_state(state).as_str().into()),
        ("ran_ticks", ran_ticks(vm, ran)),
        ("share", share_of(vm, ran, counter).as_str().into()),
        ("exits", total.into()),
    ]))
}

/// Adds a row for each reason for which a vCPU has left its guest; returns the number of all exits.
fn exit_rows(client: &mut Client, vm: &Vm, vcpu: u64, rows: &mut Vec<Json>) -> Result<u64, String> {
    let mut total = 0;
    for reason in ExitReason::ALL {
        let [exits, ticks] = client.exits(vcpu, *reason as u64)?;
        total += exits;
        // Most reasons never occur on a vCPU, and would hide the others.
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

/// Share of a real-time VM's vCPU.
/// Gear2 has no account of it, and nothing takes the CPU from it.
const OWN_CPU: &str = "own CPU";

/// Returns how long a vCPU ran; nobody counts that of a real-time VM's, which nothing interrupts.
fn ran_ticks(vm: &Vm, ran: u64) -> Json {
    match vm.real_time {
        true => Json::Null,
        false => ran.into(),
    }
}

/// Returns a vCPU's share of its CPU: a part of the time, or all of a CPU of its own.
fn share_of(vm: &Vm, part: u64, whole: u64) -> String {
    match vm.real_time {
        true => OWN_CPU.into(),
        false => share(part, whole),
    }
}

/// Returns a part of a time as a percentage.
fn share(part: u64, whole: u64) -> String {
    // A thousand times the ticks of seven months at 1 GHz has more than 64 bits.
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Prints Gear1's records. With `follow` an empty answer prints nothing: a table without rows would
/// come twice a second.
fn log(
    client: &mut Client,
    follow: bool,
    print: &mut dyn FnMut(&Json) -> Result<(), String>,
) -> Result<(), String> {
    let hz = client.about()?.hz.max(1);
    let names = Names::of(&client.vms()?);
    let mut reader = LogReader::default();
    loop {
        // No signal tells of a record: the log is read again and again.
        let records = reader.read(client)?;
        let rows: Vec<Json> = records
            .iter()
            .flat_map(|logged| log_rows(logged, &names, hz))
            .collect();
        // Without `follow` the empty table is the answer.
        if !rows.is_empty() || !follow {
            print(&Json::List(rows))?;
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
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

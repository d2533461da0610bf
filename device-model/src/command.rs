//! The commands of `gearctl`.
//!
//! Owns: what each command asks GDM for, and the form of its answer: a typed value
//! ([`answer::Answer`]), printed as JSON with `--json` and as tables without.

use std::io::{IsTerminal as _, Write};
use std::path::Path;
use std::time::Duration;

use gear1_abi::call;
use gear1_abi::exit::ExitReason;
use gear2_protocol::{PROTOCOL_VERSION, op, outcome};

use crate::client::{Client, LogReader, Vm};
use crate::error::{Error, ErrorKind};
use crate::json;

pub mod answer;
mod console;
mod device;
mod dump;
mod events;
mod info;
mod last_words;
mod line;
mod manual;
mod metrics;
mod pause;
mod records;
mod refusal;
mod sched;
mod screenshot;
mod shutdown;
mod table;
#[cfg(test)]
mod tests;
mod top;
mod trace;
mod wait;

use answer::{
    Answer, Exits, Failure, Fault, Outcome, Percent, Reply, State, Stats, VERSION, VcpuState,
    VcpuStats, Versions, VmChanged,
};
pub use line::{Command, Console, Line, Name, Parsed, Wait, parse};
use records::{Names, log_rows};
pub use table::wrap;

/// The device tree of the device VM, which tells where the memory of its guests is.
const TREE: &str = "/proc/device-tree";

/// Says why `metrics` has no JSON.
const METRICS_JSON: &str = "`metrics` has a format for programs already, Prometheus' text; \
                            `gearctl stats --json` prints figures as JSON";

/// Does what a command line says, and prints to `out`.
pub fn run(line: &Line, out: &mut dyn Write) -> Result<(), Error> {
    match &line.command {
        // What is of this program alone needs no GDM.
        Command::Completions { shell } => write(out, &manual::completions(*shell)),
        Command::Man { directory } => manual::man(directory.as_deref(), out),
        Command::Metrics { .. } if line.json => Err(Error::new(ErrorKind::Usage, METRICS_JSON)),
        // Whoever asks decides whether GDM is asked.
        Command::Metrics { socket: Some(path) } => metrics::serve(&line.run_directory, path),
        // The terminal is no output like others: its size changes, and keys come from it.
        Command::Top {
            vcpus,
            count,
            lines,
        } if is_for_screen(line, *count, *lines) => top::watch(&line.run_directory, *vcpus),
        command => ask(command, line, out),
    }
}

/// Tells whether `top` has a terminal for itself: both to print to and to type at.
fn is_for_screen(line: &Line, count: Option<u64>, lines: bool) -> bool {
    let is_plain = line.json || lines || count.is_some();
    !is_plain && line.width.is_some() && std::io::stdin().is_terminal()
}

/// Does a command that asks GDM.
fn ask(command: &Command, line: &Line, out: &mut dyn Write) -> Result<(), Error> {
    let mut connection = Client::connect(&line.run_directory)?;
    let client = &mut connection;
    let mut print = |answer: &Answer| show(answer, line, out);
    let answer = match command {
        // A format of its own, and no table.
        Command::Metrics { .. } => return write(out, &metrics::collect(client)?),
        Command::Console(words) => return enter(connection, words, line),
        Command::Top { vcpus, count, .. } => {
            let count = count.unwrap_or(u64::MAX);
            // A pipe is not cleared.
            let clear = !line.json && line.width.is_some();
            return top::run(client, count, *vcpus, clear, &mut print);
        }
        Command::Events { follow } => return events::run(client, *follow, &mut print),
        Command::Log { follow } => return log(client, *follow, &mut print),
        Command::Screenshot { vm, channel, file } => Answer::Screenshot(screenshot::take(
            client,
            &line.run_directory,
            vm,
            *channel,
            file,
        )?),
        Command::Trace { seconds, output } => {
            Answer::Trace(trace::take(client, seconds.0, output)?)
        }
        Command::Dump { vm, file } => Answer::Dump(dump::take(client, Path::new(TREE), vm, file)?),
        command => answer(client, command)?,
    };
    print(&answer)
}

/// Returns the answer of a command that has one, and needs nothing but GDM for it.
fn answer(client: &mut Client, command: &Command) -> Result<Answer, Error> {
    let now = Wait::default();
    match command {
        Command::List => list(client),
        Command::Info(name) => info::of(client, &name.vm).map(Box::new).map(Answer::VmInfo),
        Command::LastWords(name) => last_words::of(client, &name.vm).map(Answer::LastWords),
        Command::Vcpu { vm } => info::vcpus(client, vm.as_deref()).map(Answer::Vcpus),
        Command::Start { vm, wait } => change(client, op::VM_START, vm, false, wait),
        Command::Stop { vm, force, wait } => change(client, op::VM_STOP, vm, *force, wait),
        Command::Shutdown { vm, wait } => shutdown::run(client, vm, wait).map(Answer::VmChanged),
        Command::Restart { vm, wait } => change(client, op::VM_RESTART, vm, false, wait),
        Command::Pause(name) => pause(client, &name.vm),
        Command::Resume(name) => change(client, op::VM_RESUME, &name.vm, false, &now),
        Command::Wait { vm, state, timeout } => {
            let timeout = timeout.map(|timeout| timeout.0);
            wait::run(client, vm, *state, timeout).map(Answer::VmReached)
        }
        Command::Stats { vm } => stats(client, vm.as_deref()).map(Answer::Stats),
        Command::Sched { ask } => sched::run(client, ask.as_ref()),
        Command::Device { ask } => device::run(client, ask),
        _ => version(client).map(Answer::Versions),
    }
}

/// Connects with a console. GDM serves few clients at once, and nothing more is asked.
fn enter(mut client: Client, words: &Console, line: &Line) -> Result<(), Error> {
    let kind = console::Kind::of(words);
    let vm = console::find(&mut client, &words.vm, kind)?;
    drop(client);
    console::connect(&line.run_directory, &vm.name, kind, words.all)
}

/// Prints an answer, for a program or for a person, at once: `top` and `log -f` go on for ever.
fn show(answer: &Answer, line: &Line, out: &mut dyn Write) -> Result<(), Error> {
    let text = match line.json {
        true => json_line(answer),
        false => table::as_text(&answer.shown(), line.width),
    };
    write(out, &text)
}

fn write(out: &mut dyn Write, text: &str) -> Result<(), Error> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Error::failed(format!("cannot print: {error}")))
}

/// Returns the line of an answer.
fn json_line(answer: &Answer) -> String {
    let version = VERSION;
    format!("{}\n", json::line(&Reply { version, answer }))
}

/// Returns the line of an error, for a program.
pub fn failure(error: &Error) -> String {
    json_line(&Answer::Error(Failure {
        error: error.kind,
        status: error.kind.status(),
        message: error.sentence.clone(),
    }))
}

/// Returns the VMs with their lives and faults.
fn list(client: &mut Client) -> Result<Answer, Error> {
    let vms = client.vms()?;
    Ok(Answer::Vms(vms.iter().map(vm_row).collect()))
}

/// Returns the row of a VM.
fn vm_row(vm: &Vm) -> answer::Vm {
    answer::Vm {
        id: vm.id,
        name: vm.name.clone(),
        state: vm_state(vm.state),
        paused: vm.paused,
        suspended: vm.suspended,
        waits: vm.waits,
        given_up: vm.given_up,
        failed_over: vm.failed_over,
        real_time: vm.real_time,
        device_model: vm.device_model,
        console: vm.console,
        vcpus: vm.vcpus,
        restarts: vm.restarts,
        powers_off: vm.powers_off,
        faults: vm.faults,
        hangs: vm.health.map(|[hangs, ..]| hangs),
        late_refreshes: vm.health.map(|[_, late, ..]| late),
        starvations: vm.health.map(|[_, _, starved, ..]| starved),
        aborted_accesses: vm.aborted_accesses(),
        last_fault: vm.last_fault.map(|[vcpu, esr, far, ipa, pc, spsr]| Fault {
            vcpu,
            esr,
            far,
            ipa,
            pc,
            spsr,
        }),
    }
}

/// Returns the state that a number stands for. Gear1 may be newer, and have others.
fn vm_state(number: u64) -> State {
    use call::VmState;
    match VmState::from_reg(number) {
        Some(VmState::Stopped) => State::Stopped,
        Some(VmState::Loading) => State::Loading,
        Some(VmState::Loaded) => State::Loaded,
        Some(VmState::Running) => State::Running,
        Some(VmState::Stopping) => State::Stopping,
        None => State::Unknown,
    }
}

/// Returns the state of a vCPU that a number stands for.
fn vcpu_state(number: u64) -> VcpuState {
    use call::VcpuState as Gear1;
    match Gear1::from_reg(number) {
        Some(Gear1::Off) => VcpuState::Off,
        Some(Gear1::Ready) => VcpuState::Ready,
        Some(Gear1::Running) => VcpuState::Running,
        Some(Gear1::Wfi) => VcpuState::Wfi,
        Some(Gear1::AwaitsMmio) => VcpuState::AwaitsMmio,
        Some(Gear1::AwaitsHypercall) => VcpuState::AwaitsHypercall,
        None => VcpuState::Unknown,
    }
}

/// Asks for an operation on a VM, and waits for its end if that is wished. A refusal says why, by
/// what the VM is and does.
fn change(
    client: &mut Client,
    op: u32,
    name: &str,
    force: bool,
    wait: &Wait,
) -> Result<Answer, Error> {
    let vm = client.find(name)?;
    let mut outcome = match client.call(op, &[vm.id, force.into()])?.outcome {
        outcome::OK => Outcome::Done,
        outcome::STARTED => Outcome::Begun,
        other => return Err(refusal::of(op, &vm, other)),
    };
    if wait.wait {
        wait::for_end(client, op, &vm, wait.timeout.map(|timeout| timeout.0))?;
        outcome = Outcome::Done;
    }
    let vm = vm.name;
    Ok(Answer::VmChanged(VmChanged { vm, outcome }))
}

/// Pauses a VM, and returns when its devices rest, too.
fn pause(client: &mut Client, name: &str) -> Result<Answer, Error> {
    let vm = client.find(name)?;
    pause::begin(client, &vm, false)?;
    pause::until_quiet(client, &vm)?;
    let (vm, outcome) = (vm.name, Outcome::Done);
    Ok(Answer::VmChanged(VmChanged { vm, outcome }))
}

/// Returns the figures of one VM or of all. They are read one by one while the VMs run, so sums may
/// differ by what happens meanwhile.
fn stats(client: &mut Client, name: Option<&str>) -> Result<Stats, Error> {
    let vms = match name {
        Some(name) => vec![client.find(name)?],
        None => client.vms()?,
    };
    let [_, _, counter, _, mmio_events, _] = client.version()?;
    let mut vcpus = Vec::new();
    let mut exits = Vec::new();
    for vm in &vms {
        for vcpu in vm.numbers() {
            vcpus.push(vcpu_row(client, vm, vcpu, counter, &mut exits)?);
        }
    }
    let devices = client.figures()?.into_iter();
    // GDM tells of the devices of all VMs, and knows the VMs by their names.
    let devices = devices.filter(|device| vms.iter().any(|vm| device.vm == vm.name));
    Ok(Stats {
        vcpus,
        exits,
        devices: devices.collect(),
        mmio_events,
        counter,
    })
}

/// Returns the row of a vCPU, and adds the rows of its exits. The vCPU's share is that of its ticks
/// in `counter`, the counter's value.
fn vcpu_row(
    client: &mut Client,
    vm: &Vm,
    vcpu: u64,
    counter: u64,
    exits: &mut Vec<Exits>,
) -> Result<VcpuStats, Error> {
    let [ran, cpu, state, ..] = client.vcpu(vcpu)?;
    // The exits of all reasons go to one list: a program selects by the field `vcpu`.
    let total = exit_rows(client, vm, vcpu, exits)?;
    let ran = (!vm.real_time).then_some(ran);
    let may_have_idled = client.may_have_idled(vcpu)?.filter(|_| !vm.real_time);
    Ok(VcpuStats {
        vcpu,
        vm: vm.name.clone(),
        cpu,
        state: vcpu_state(state),
        ran_ticks: ran,
        share_percent: ran.map(|ran| Percent::of(ran, counter)),
        may_have_idled,
        exits: total,
    })
}

/// Adds a row for each reason for which a vCPU has left its guest; returns the number of all exits.
fn exit_rows(client: &mut Client, vm: &Vm, vcpu: u64, rows: &mut Vec<Exits>) -> Result<u64, Error> {
    let mut total = 0;
    for reason in ExitReason::ALL {
        let [exits, ticks] = client.exits(vcpu, *reason as u64)?;
        total += exits;
        // Most reasons never occur on a vCPU, and would hide the others.
        if exits > 0 {
            rows.push(Exits {
                vcpu,
                vm: vm.name.clone(),
                reason: reason.label().into(),
                exits,
                ticks,
            });
        }
    }
    Ok(total)
}

/// Prints Gear1's records. With `follow` an empty answer prints nothing: a table without rows would
/// come twice a second.
fn log(
    client: &mut Client,
    follow: bool,
    print: &mut dyn FnMut(&Answer) -> Result<(), Error>,
) -> Result<(), Error> {
    let hz = client.about()?.hz.max(1);
    let names = Names::of(&client.vms()?);
    let mut reader = LogReader::default();
    loop {
        // No signal tells of a record: the log is read again and again.
        let records = reader.read(client)?;
        let records = records.iter();
        let rows: Vec<answer::Logged> = records
            .flat_map(|logged| log_rows(logged, &names, hz))
            .collect();
        // Without `follow` the empty table is the answer.
        if !rows.is_empty() || !follow {
            print(&Answer::Log(rows))?;
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the versions of all parts, which must fit together, and how often they were started.
fn version(client: &mut Client) -> Result<Versions, Error> {
    let about = client.about()?;
    let [abi, protocol, _, cpus, _, restarts] = client.version()?;
    let pair = |version: u64| format!("{}.{}", version >> 16, version & 0xffff);
    Ok(Versions {
        gearctl: env!("CARGO_PKG_VERSION").into(),
        protocol: pair(u64::from(PROTOCOL_VERSION)),
        gear1_abi: pair(abi),
        gear2_protocol: pair(protocol),
        cpus,
        gear2_restarts: restarts,
        gdm_starts: about.starts,
    })
}

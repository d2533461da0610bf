//! Answers as a person reads them: the rows of tables.
//!
//! Most tables have the fields of the JSON. Those here join fields, or show numbers by words.

use super::{
    Answer, Fault, LastEnd, LastWords, Load, Parameters, Percent, Quota, Sched, Stats, VcpuStats,
    Vm, VmInfo,
};
use crate::json::Json;

/// Share of a real-time VM's vCPU.
/// Gear2 has no account of it, and nothing takes the CPU from it.
pub(crate) const OWN_CPU: &str = "own CPU";

impl Answer {
    /// Returns what is shown of the answer, as a tree for tables.
    pub(crate) fn shown(&self) -> Json {
        match self {
            Self::Vms(vms) => rows(vms, vm),
            Self::VmChanged(change) => Json::of(change),
            Self::VmInfo(info) => vm_info(info),
            Self::LastWords(words) => last_words(words),
            Self::Vcpus(vcpus) => Json::of(vcpus),
            Self::VmReached(vm) => Json::of(vm),
            Self::Events(events) => Json::of(events),
            Self::Screenshot(picture) => Json::of(picture),
            Self::Dump(dump) => Json::of(dump),
            Self::Trace(trace) => Json::of(trace),
            Self::Stats(stats) => of_stats(stats),
            Self::Top(loads) => rows(loads, load),
            Self::Sched(sched) => of_sched(sched),
            Self::VcpuPlace(place) => Json::of(place),
            Self::VmParameters(vm) => parameters(vm),
            Self::CpuSwitched(cpu) => Json::of(cpu),
            Self::PoolChanged(vm) => Json::of(vm),
            Self::Devices(devices) => Json::of(devices),
            Self::DeviceChanged(device) => Json::of(device),
            Self::Log(records) => Json::of(records),
            Self::Versions(versions) => Json::of(versions),
            Self::Error(error) => Json::of(error),
        }
    }
}

fn rows<T>(list: &[T], row: impl Fn(&T) -> Json) -> Json {
    Json::List(list.iter().map(row).collect())
}

/// Returns the word of an enumeration, as JSON has it.
fn word(value: &impl serde::Serialize) -> String {
    match Json::of(value) {
        Json::Text(text) => text,
        other => format!("{other:?}"),
    }
}

impl Vm {
    /// Says in which state the VM is. To Gear1 a paused VM runs as before: the mark says what holds
    /// it.
    pub(crate) fn state_text(&self) -> String {
        let marks = [
            (self.paused, "paused"),
            (self.suspended, "suspended"),
            (self.waits, "waits"),
            (self.given_up, "given up"),
            (self.failed_over, "failed over"),
        ];
        let marks = marks.iter().filter(|(set, _)| *set);
        let state = word(&self.state);
        marks.fold(state, |text, (_, mark)| format!("{text}, {mark}"))
    }
}

/// Returns what `list` shows of a VM: a table for terminals of 80 columns, which have no room for
/// more.
fn vm(vm: &Vm) -> Json {
    Json::object([
        ("id", vm.id.into()),
        ("name", vm.name.as_str().into()),
        ("state", vm.state_text().into()),
        ("vcpus", vm.vcpus.into()),
        ("restarts", vm.restarts.into()),
        ("faults", vm.faults.into()),
        ("hangs", vm.hangs.into()),
        ("slow", slow(vm).into()),
        ("last_fault", fault(vm.last_fault.as_ref()).into()),
    ])
}

/// Returns how often a VM was slow and did not hang.
fn slow(vm: &Vm) -> Option<u64> {
    let late = vm.late_refreshes?;
    Some(late.saturating_add(vm.starvations?))
}

/// Returns the end of a VM as lines, and tables of its registers and of its console's lines.
fn last_words(words: &LastWords) -> Json {
    let line = |line: &String| Json::object([("line", line.as_str().into())]);
    Json::object([
        ("vm", words.vm.as_str().into()),
        ("life", words.life.into()),
        ("cause", word(&words.cause).into()),
        ("time", words.time.as_str().into()),
        ("registers", Json::of(&words.registers)),
        ("console", rows(&words.console, line)),
    ])
}

/// Returns the fields of the VM and its parameters as lines, and tables of its vCPUs and devices.
fn vm_info(info: &VmInfo) -> Json {
    let mut fields = Vec::new();
    let end = info.last_end.as_ref();
    let marks = [
        ("late_refreshes", info.vm.late_refreshes.into()),
        ("starvations", info.vm.starvations.into()),
        ("aborted_accesses", info.vm.aborted_accesses.into()),
        ("watchdog_ticks", info.watchdog_ticks.into()),
        ("progress_ticks", info.progress_ticks.into()),
        (
            "last_end",
            end.map_or_else(|| "none".into(), last_end).into(),
        ),
        ("powers_off", info.vm.powers_off.into()),
        ("real_time", info.vm.real_time.into()),
        ("device_model", info.vm.device_model.into()),
        ("consoles", Json::of(&info.consoles)),
    ];
    fields.extend(fields_of(vm(&info.vm)));
    fields.extend(marks.map(|(name, value)| (name.to_owned(), value)));
    match &info.scheduling {
        // The name stands above.
        Some(scheduling) => fields.extend(fields_of(parameters(scheduling)).into_iter().skip(1)),
        None => fields.push(("scheduling".into(), Json::Null)),
    }
    fields.push(("vcpus".into(), Json::of(&info.vcpus)));
    fields.push(("devices".into(), Json::of(&info.devices)));
    Json::Object(fields)
}

fn fields_of(json: Json) -> Vec<(String, Json)> {
    match json {
        Json::Object(fields) => fields,
        other => vec![("value".into(), other)],
    }
}

/// Says how a life ended.
fn last_end(end: &LastEnd) -> String {
    let cause = word(&end.cause);
    format!("life {}: {cause} at {}", end.life, end.time)
}

/// Says with which registers a vCPU could not go on.
fn fault(fault: Option<&Fault>) -> String {
    match fault {
        Some(fault) => format!(
            "vCPU {}: PC {:#x}, SPSR {:#x}, ESR {:#x}, FAR {:#x}, IPA {:#x}",
            fault.vcpu, fault.pc, fault.spsr, fault.esr, fault.far, fault.ipa
        ),
        None => "none".into(),
    }
}

fn percent(percent: Percent) -> String {
    format!("{:.1} %", percent.number())
}

/// Returns a vCPU's share of its CPU: a part of the time, or all of a CPU of its own.
fn share(share: Option<Percent>) -> Json {
    share.map_or_else(|| OWN_CPU.into(), percent).into()
}

/// Returns a vCPU's share since the boot, of which idle time may be a part.
fn share_since_boot(vcpu: &VcpuStats) -> Json {
    match (vcpu.share_percent, vcpu.may_have_idled) {
        (Some(most), Some(true)) => format!("at most {}", percent(most)).into(),
        (of_cpu, _) => share(of_cpu),
    }
}

fn of_stats(stats: &Stats) -> Json {
    let vcpu = |vcpu: &VcpuStats| {
        Json::object([
            ("vcpu", vcpu.vcpu.into()),
            ("vm", vcpu.vm.as_str().into()),
            ("cpu", vcpu.cpu.into()),
            ("state", word(&vcpu.state).into()),
            ("ran_ticks", vcpu.ran_ticks.into()),
            ("share", share_since_boot(vcpu)),
            ("exits", vcpu.exits.into()),
        ])
    };
    Json::object([
        ("vcpus", rows(&stats.vcpus, vcpu)),
        ("exits", Json::of(&stats.exits)),
        ("devices", Json::of(&stats.devices)),
        ("mmio_events", stats.mmio_events.into()),
        ("counter", stats.counter.into()),
    ])
}

fn load(load: &Load) -> Json {
    let mut row = Vec::new();
    row.extend(load.vcpu.map(|vcpu| ("vcpu".to_owned(), vcpu.into())));
    let rest = [
        ("vm", load.vm.as_str().into()),
        ("share", share(load.share_percent)),
        ("wait", load.wait_percent.map(percent).into()),
        ("steal", load.steal_percent.map(percent).into()),
        ("preemptions", load.preemptions.into()),
        ("exits", load.exits.into()),
    ];
    row.extend(rest.map(|(name, value)| (name.to_owned(), value)));
    Json::Object(row)
}

fn quota(quota: Quota) -> String {
    format!("{} of {}", quota.us, quota.period_us)
}

fn parameters(vm: &Parameters) -> Json {
    Json::object([
        ("vm", vm.vm.as_str().into()),
        ("weight", vm.weight.into()),
        ("cap_us", vm.cap.map(quota).into()),
        ("budget_us", vm.budget.map(quota).into()),
        ("priority", vm.priority.into()),
        ("latency_us", vm.latency_us.into()),
    ])
}

fn of_sched(sched: &Sched) -> Json {
    Json::object([
        ("pools", Json::of(&sched.pools)),
        ("cpus", Json::of(&sched.cpus)),
        ("vcpus", Json::of(&sched.vcpus)),
        ("vms", rows(&sched.vms, parameters)),
        ("moves", sched.moves.into()),
    ])
}

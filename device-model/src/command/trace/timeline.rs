//! The Trace Event format, which Perfetto and chrome://tracing open.
//!
//! One process stands for the machine, with a thread for each CPU, and one for each VM, with a
//! thread for each vCPU. What happens between two records of a CPU follows from the second one: the
//! CPU has run whatever trapped then. A gap where records were lost is left empty.

use std::io::{self, Write};

use gear1_abi::call::number;
use gear1_abi::trace::{CLASS_SHIFT, Cause};
use gear2_protocol::traced;
use serde::Serialize;

use super::{Recorded, Ring, Words};
use crate::client::Vm;

/// Process of the CPUs. VMs follow in their order.
const CPUS: u64 = 0;

/// A record of Gear1's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trap {
    pub(super) time: u64,
    /// Number of the vCPU; `None`: Gear2.
    pub(super) vcpu: Option<u64>,
    pub(super) cause: Cause,
}

impl Trap {
    /// Takes the words of a record apart.
    pub(super) fn of([time, word]: Words) -> Self {
        Self {
            time,
            vcpu: (word & 0xffff_ffff).checked_sub(1),
            cause: Cause::of((word >> 32) as u32),
        }
    }

    /// Tells whether Gear2 has asked for the next event: it has run until then.
    fn is_next(&self) -> bool {
        let Cause::Exception(syndrome) = self.cause else {
            return false;
        };
        let is_call = matches!(syndrome >> CLASS_SHIFT, 0x15 | 0x16);
        self.vcpu.is_none() && is_call && syndrome & 0xffff == u32::from(number::NEXT)
    }
}

/// Use of a CPU for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Runs(u64),
    Gear2,
    Idle,
}

/// An event of the format.
#[derive(Debug, Default, Serialize)]
struct Event {
    name: String,
    ph: &'static str,
    pid: u64,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant: its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args>,
}

/// Further facts of an event.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Args {
    Name { name: String },
    Exit { cpu: u64, syndrome: String },
    Cpu { cpu: u64 },
}

/// Writes the file.
pub(super) fn write(
    recorded: &Recorded,
    vms: &[Vm],
    hz: u64,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut writer = Writer {
        vms,
        hz,
        origin: origin(recorded),
        separator: "",
        to,
    };
    write!(writer.to, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    writer.names(recorded)?;
    for ring in &recorded.traps {
        writer.traps(ring)?;
    }
    for ring in &recorded.decisions {
        writer.decisions(ring)?;
    }
    writeln!(writer.to, "\n]}}")
}

/// Returns the time of the first record, which the file calls 0.
fn origin(recorded: &Recorded) -> u64 {
    let rings = recorded.traps.iter().chain(&recorded.decisions);
    let records = rings.flat_map(|ring| ring.records.first());
    records.map(|[time, _]| *time).min().unwrap_or(0)
}

struct Writer<'w, W> {
    vms: &'w [Vm],
    hz: u64,
    origin: u64,
    separator: &'static str,
    to: &'w mut W,
}

impl<W: Write> Writer<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        writeln!(self.to, "{}", self.separator)?;
        self.separator = ",";
        serde_json::to_writer(&mut *self.to, event).map_err(io::Error::from)
    }

    /// Names processes and threads.
    fn names(&mut self, recorded: &Recorded) -> io::Result<()> {
        self.name("process_name", CPUS, 0, "CPUs".into())?;
        for ring in &recorded.traps {
            self.name("thread_name", CPUS, ring.cpu, format!("CPU {}", ring.cpu))?;
        }
        let vms = self.vms;
        for vm in vms {
            self.name("process_name", 1 + vm.id, 0, vm.name.clone())?;
            for index in 0..vm.vcpus {
                self.name("thread_name", 1 + vm.id, index, format!("vCPU {index}"))?;
            }
        }
        Ok(())
    }

    fn name(&mut self, what: &str, pid: u64, tid: u64, name: String) -> io::Result<()> {
        self.event(&Event {
            name: what.into(),
            ph: "M",
            pid,
            tid,
            args: Some(Args::Name { name }),
            ..Event::default()
        })
    }

    /// Writes what a CPU has done, and the exits.
    fn traps(&mut self, ring: &Ring) -> io::Result<()> {
        let mut last: Option<Trap> = None;
        // What lasts, and since when.
        let mut lasting: Option<(Doing, u64)> = None;
        for (place, words) in ring.records.iter().enumerate() {
            let trap = Trap::of(*words);
            if ring.gaps.contains(&place) {
                self.span(ring.cpu, lasting.take(), last.map(|last| last.time))?;
                last = None;
            }
            if let Some(before) = last {
                let doing = between(&before, &trap);
                if lasting.map(|(what, _)| what) != Some(doing) {
                    self.span(ring.cpu, lasting.take(), Some(before.time))?;
                    lasting = Some((doing, before.time));
                }
            }
            self.exit(ring.cpu, &trap)?;
            last = Some(trap);
        }
        self.span(ring.cpu, lasting, last.map(|last| last.time))
    }

    /// Writes what lasted until a time.
    fn span(&mut self, cpu: u64, lasted: Option<(Doing, u64)>, end: Option<u64>) -> io::Result<()> {
        let Some(((doing, begin), end)) = lasted.zip(end) else {
            return Ok(());
        };
        let on_cpu = |name: String| Event {
            name,
            pid: CPUS,
            tid: cpu,
            ..self.lasting(begin, end)
        };
        let vcpu = match doing {
            Doing::Gear2 => return self.event(&on_cpu("Gear2".into())),
            Doing::Idle => return self.event(&on_cpu("idle".into())),
            Doing::Runs(vcpu) => vcpu,
        };
        self.event(&on_cpu(self.vcpu_name(vcpu)))?;
        self.of_vcpu(vcpu, cpu, self.lasting(begin, end))
    }

    /// Writes that a vCPU ran on a CPU, into the vCPU's own line: a vCPU that moves is seen there
    /// whole.
    fn of_vcpu(&mut self, vcpu: u64, cpu: u64, lasting: Event) -> io::Result<()> {
        let (pid, tid) = self.thread(vcpu);
        self.event(&Event {
            name: "runs".into(),
            pid,
            tid,
            args: Some(Args::Cpu { cpu }),
            ..lasting
        })
    }

    /// Returns an event without a name that lasts from one time to another: a complete event (`X`),
    /// since a ring that lost records would leave pairs of begin and end broken.
    fn lasting(&self, begin: u64, end: u64) -> Event {
        Event {
            ph: "X",
            ts: Some(self.time(begin)),
            dur: Some(self.microseconds(end.saturating_sub(begin))),
            ..Event::default()
        }
    }

    /// Writes an exit of a vCPU. Gear2's calls show as the ends of what it does.
    fn exit(&mut self, cpu: u64, trap: &Trap) -> io::Result<()> {
        let Some(vcpu) = trap.vcpu else {
            return Ok(());
        };
        let (name, syndrome) = label(trap.cause);
        let args = Args::Exit {
            cpu,
            syndrome: format!("{syndrome:#x}"),
        };
        let (pid, tid) = self.thread(vcpu);
        self.instant(name, (pid, tid), trap.time, Some(args))
    }

    /// Writes what Gear2's policy of a CPU was told, and what it has chosen.
    fn decisions(&mut self, ring: &Ring) -> io::Result<()> {
        for [time, word] in &ring.records {
            let vcpu = (word & 0xffff_ffff).checked_sub(1);
            let cpu = (CPUS, ring.cpu);
            let Some(vcpu) = vcpu else {
                self.instant("chosen: nobody".into(), cpu, *time, None)?;
                continue;
            };
            let args = Some(Args::Cpu { cpu: ring.cpu });
            let thread = self.thread(vcpu);
            let (name, thread) = match (word >> 32) as u32 {
                traced::WOKEN => ("woken".into(), thread),
                traced::BLOCKED => ("blocked".into(), thread),
                traced::YIELDED => ("yields".into(), thread),
                traced::CHOSEN => (format!("chosen: {}", self.vcpu_name(vcpu)), cpu),
                other => (format!("event {other}"), thread),
            };
            self.instant(name, thread, *time, args)?;
        }
        Ok(())
    }

    fn instant(
        &mut self,
        name: String,
        (pid, tid): (u64, u64),
        time: u64,
        args: Option<Args>,
    ) -> io::Result<()> {
        let event = Event {
            name,
            ph: "i",
            pid,
            tid,
            ts: Some(self.time(time)),
            s: Some("t"),
            args,
            ..Event::default()
        };
        self.event(&event)
    }

    /// Returns process and thread of a vCPU. One of no VM gets a process of its own.
    fn thread(&self, vcpu: u64) -> (u64, u64) {
        let owner = self.vms.iter().find(|vm| vm.numbers().contains(&vcpu));
        owner.map_or((1 + self.vms.len() as u64, vcpu), |vm| {
            (1 + vm.id, vcpu.saturating_sub(vm.first_vcpu))
        })
    }

    /// Returns a vCPU's name.
    fn vcpu_name(&self, vcpu: u64) -> String {
        let owner = self.vms.iter().find(|vm| vm.numbers().contains(&vcpu));
        match owner {
            Some(vm) => format!("{} {}", vm.name, vcpu.saturating_sub(vm.first_vcpu)),
            None => format!("vCPU {vcpu}"),
        }
    }

    /// Returns a time since the first record in microseconds.
    fn time(&self, time: u64) -> f64 {
        self.microseconds(time.saturating_sub(self.origin))
    }

    /// Returns ticks as microseconds, in whole nanoseconds.
    fn microseconds(&self, ticks: u64) -> f64 {
        let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(self.hz);
        nanoseconds as f64 / 1_000.0
    }
}

/// Returns what a CPU has done between two records of it.
fn between(before: &Trap, trap: &Trap) -> Doing {
    match trap.vcpu {
        Some(vcpu) => Doing::Runs(vcpu),
        // The event that ended the wait, and Gear2's work for it, are the end of the same gap.
        None if before.is_next() => Doing::Idle,
        None => Doing::Gear2,
    }
}

/// Returns the name of an exit, and its syndrome.
fn label(cause: Cause) -> (String, u32) {
    let syndrome = match cause {
        Cause::Interrupt(Some(intid)) => return (format!("interrupt {intid}"), intid),
        Cause::Interrupt(None) => return ("interrupt".into(), 0),
        Cause::Exception(syndrome) => syndrome,
    };
    // Bits of the syndrome (Arm ARM, D24.2.40): a read of a register, a write to memory, a fault of
    // rights.
    let (is_read, is_write) = (syndrome & 1 != 0, syndrome & 1 << 6 != 0);
    let is_permission = syndrome & 0x3c == 0xc;
    let name = match syndrome >> CLASS_SHIFT {
        0x01 if is_read => "wfe",
        0x01 => "wfi",
        0x07 => "fp",
        0x19 => "sve",
        0x16 => "hvc",
        0x17 => "smc",
        0x18 if is_read => "register read",
        0x18 => "register write",
        0x20 => "instruction abort",
        // What a guest may read and not write are the pages of its channels.
        0x24 if is_write && is_permission => "channel",
        0x24 if is_write => "store",
        0x24 => "load",
        _ => "undefined",
    };
    (name.into(), syndrome)
}

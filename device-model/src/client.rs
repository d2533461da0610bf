//! gearctl's side of the control socket: typed questions about VMs, vCPUs, devices.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gear1_abi::record::{CURSOR_CPU_SHIFT, Record};
use gear2_protocol::{op, outcome, vm_flag};

use crate::control::name_of;
use crate::error::{Error, ErrorKind};
use crate::json;
use crate::order::Order;
use crate::wire::{
    About, Answer, Answered, Asked, Called, Device, Figures, Request, VERSION, Words,
};

/// Longest time until GDM answers: several times as long as GDM waits for Gear2, so that GDM's own
/// error comes first.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to GDM.
#[derive(Debug)]
pub struct Client {
    /// Answers are lines: buffered in this direction only.
    stream: BufReader<UnixStream>,
}

/// A VM.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Number.
    pub id: u64,
    /// Name.
    pub name: String,
    /// [`VmState`](gear1_abi::call::VmState) as a number.
    pub state: u64,
    /// vCPUs.
    pub vcpus: u64,
    /// Number of the first vCPU.
    pub first_vcpu: u64,
    /// Number of restarts.
    pub restarts: u64,
    /// Number of vCPU faults that the VM could not continue from.
    pub faults: u64,
    /// Last such fault: index of the vCPU, ESR, FAR, IPA, PC, SPSR.
    pub last_fault: Option<[u64; 6]>,
    /// How the VM did: hangs, late refreshes of its watchdog, times for which it got more time; then
    /// the longest time without a refresh, and without an exit of its own, in ticks or 0; then
    /// accesses of its devices that the SMMU aborted. An older Gear2 does not tell, and one before
    /// protocol 3.10 tells of no access.
    pub health: Option<[u64; 6]>,
    /// Whether the VM may power the machine off.
    pub powers_off: bool,
    /// Whether the vCPUs are paused.
    pub paused: bool,
    /// Whether it is paused, and its devices rest.
    pub quiet: bool,
    /// Whether it has suspended itself.
    pub suspended: bool,
    /// Whether its manifest lets its registers be read.
    pub dumps: bool,
    /// Whether the start of the VM waits, for another VM or for the end of a restart pause.
    pub waits: bool,
    /// Whether Gear2 has given the VM up: too many ends, no automatic restart.
    pub given_up: bool,
    /// Whether its standby was started in its place.
    pub failed_over: bool,
    /// Whether the VM has CPUs of its own, on which Gear2 does not schedule it.
    pub real_time: bool,
    /// Whether the device model runs in it.
    pub device_model: bool,
    /// Whether it has a serial console. A Gear2 that does not tell is believed to have one.
    pub console: bool,
}

impl Vm {
    /// Returns how many accesses of its devices the SMMU aborted.
    pub fn aborted_accesses(&self) -> Option<u64> {
        self.health.map(|[.., aborted]| aborted)
    }
}

impl Vm {
    /// Returns the numbers of the vCPUs over all VMs, by which Gear2 is asked about them.
    pub(crate) fn numbers(&self) -> Range<u64> {
        self.first_vcpu..self.first_vcpu.saturating_add(self.vcpus)
    }
}

impl Client {
    /// Connects to the GDM whose sockets are in `run_directory`.
    pub fn connect(run_directory: &str) -> Result<Self, Error> {
        let path = format!("{run_directory}/control");
        let stream = UnixStream::connect(&path)
            .map_err(|error| Error::unreachable(format!("no gdm answers at {path}: {error}")))?;
        Self::over(stream)
    }

    /// Speaks over a stream that is connected.
    pub fn over(stream: UnixStream) -> Result<Self, Error> {
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(|error| Error::failed(error.to_string()))?;
        let stream = BufReader::new(stream);
        Ok(Self { stream })
    }

    /// Reads a line of an answer.
    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(Error::unreachable("gdm closed the connection")),
            Ok(_) => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
            Err(error) => Err(Error::unreachable(format!("gdm does not answer: {error}"))),
        }
    }

    /// Sends a request and returns its answer, which is no error.
    fn ask(&mut self, request: Request) -> Result<Answer, Error> {
        let version = VERSION;
        let line = json::line(&Asked { version, request }) + "\n";
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let closed = |error| Error::unreachable(format!("gdm closed the connection: {error}"));
        sent.map_err(closed)?;
        let line = self.line()?;
        match serde_json::from_str::<Answered>(&line) {
            Ok(Answered { version, .. }) if version != VERSION => Err(garbled(&line)),
            Ok(Answered {
                answer: Answer::Error(refusal),
                ..
            }) => Err(Error::new(refusal.kind, refusal.message)),
            Ok(Answered { answer, .. }) => Ok(answer),
            Err(_) => Err(garbled(&line)),
        }
    }

    /// Asks Gear2 for an operation.
    pub fn call(&mut self, operation: u32, arguments: &[u64]) -> Result<Called, Error> {
        let mut words = [0; 4];
        words
            .iter_mut()
            .zip(arguments)
            .for_each(|(word, argument)| *word = *argument);
        let arguments = words;
        match self.ask(Request::Call {
            operation,
            arguments,
        })? {
            Answer::Call(called) => Ok(called),
            other => Err(garbled(other.name())),
        }
    }

    /// Asks Gear2 for an operation that answers with more words.
    pub fn words(&mut self, operation: u32, arguments: &[u64]) -> Result<Words, Error> {
        let mut all = [0; 4];
        all.iter_mut()
            .zip(arguments)
            .for_each(|(word, argument)| *word = *argument);
        let arguments = all;
        match self.ask(Request::Words {
            operation,
            arguments,
        })? {
            Answer::Words(words) => Ok(words),
            other => Err(garbled(other.name())),
        }
    }

    /// Asks for something that must succeed.
    fn fetch(&mut self, op: u32, arguments: &[u64]) -> Result<[u64; 6], Error> {
        let answer = self.call(op, arguments)?;
        match answer.outcome {
            outcome::OK => Ok(answer.results),
            other => Err(Error::new(
                kind_of(other),
                format!(
                    "Gear2 does not tell {}: {}",
                    question(op, arguments),
                    describe(other)
                ),
            )),
        }
    }

    /// Returns what GDM says of itself.
    pub fn about(&mut self) -> Result<About, Error> {
        match self.ask(Request::About)? {
            Answer::About(about) => Ok(about),
            other => Err(garbled(other.name())),
        }
    }

    /// Tells whether Gear2 has the devices of a VM rest that it pauses, and tells when they do.
    pub(crate) fn tells_quiet(&mut self) -> Result<bool, Error> {
        Ok(self.about()?.protocol >= 0x3_0005)
    }

    /// Tells whether Gear2 has the devices of a VM rest that has stopped.
    pub(crate) fn holds_stopped(&mut self) -> Result<bool, Error> {
        Ok(self.about()?.protocol >= 0x3_0009)
    }

    /// Tells whether Gear1 and Gear2 tell FP registers.
    pub(crate) fn tells_fp(&mut self) -> Result<bool, Error> {
        let [gear1, gear2, ..] = self.version()?;
        Ok(gear1 >= 0x1_0009 && gear2 >= 0x3_0009)
    }

    /// Returns all VMs.
    pub fn vms(&mut self) -> Result<Vec<Vm>, Error> {
        // The region's header has the number: no answer of Gear2's is needed for it.
        let count = self.about()?.vms;
        (0..count).map(|id| self.vm(id)).collect()
    }

    /// Returns a VM by its number.
    pub(crate) fn vm(&mut self, id: u64) -> Result<Vm, Error> {
        let [state, vcpus, first_vcpu, restarts, flags, faults] = self.fetch(op::VM_INFO, &[id])?;
        // Asked for only where there was one: most VMs never have a fault.
        let last_fault = match faults {
            0 => None,
            _ => Some(self.fetch(op::VM_FAULT, &[id])?),
        };
        let health = self.call(op::VM_HEALTH, &[id])?;
        let health = (health.outcome == outcome::OK).then_some(health.results);
        Ok(Vm {
            id,
            health,
            name: name_of(&self.fetch(op::VM_NAME, &[id])?),
            state,
            vcpus,
            first_vcpu,
            restarts,
            faults,
            last_fault,
            powers_off: flags & vm_flag::MAY_POWER_OFF != 0,
            paused: flags & vm_flag::PAUSED != 0,
            quiet: flags & vm_flag::QUIET != 0,
            suspended: flags & vm_flag::SUSPENDED != 0,
            dumps: flags & vm_flag::DUMP != 0,
            waits: flags & vm_flag::WAITS != 0,
            given_up: flags & vm_flag::GIVEN_UP != 0,
            failed_over: flags & vm_flag::FAILED_OVER != 0,
            real_time: flags & vm_flag::REAL_TIME != 0,
            device_model: flags & vm_flag::DEVICE_MODEL != 0,
            console: flags & vm_flag::NO_CONSOLE == 0,
        })
    }

    /// Finds a VM by name or number.
    pub fn find(&mut self, name: &str) -> Result<Vm, Error> {
        let vms = self.vms()?;
        let number = name.parse().ok();
        // A name comes before a number: a VM may be named `1`.
        let found = vms.iter().find(|vm| vm.name == name);
        let found = found.or_else(|| vms.iter().find(|vm| Some(vm.id) == number));
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
            let names = names.join(", ");
            Error::not_found(format!("there is no VM `{name}`; there are: {names}"))
        })
    }

    /// Returns a vCPU's ticks run, CPU and state, ticks waited, ticks stolen and preemptions.
    pub fn vcpu(&mut self, vcpu: u64) -> Result<[u64; 6], Error> {
        self.fetch(op::VCPU_INFO, &[vcpu])
    }

    /// Tells whether the ticks for which a vCPU ran have time that it may have spent idle. `None`:
    /// Gear2 is an older one, which counts no idle time.
    pub fn may_have_idled(&mut self, vcpu: u64) -> Result<Option<bool>, Error> {
        let answer = self.call(op::VCPU_UNSEEN, &[vcpu])?;
        let [unseen, ..] = answer.results;
        Ok((answer.outcome == outcome::OK).then_some(unseen != 0))
    }

    /// Returns how often a vCPU exited for a reason, and the ticks spent on it in Gear2.
    pub fn exits(&mut self, vcpu: u64, reason: u64) -> Result<[u64; 2], Error> {
        let [exits, ticks, ..] = self.fetch(op::EXIT_STATS, &[vcpu, reason])?;
        Ok([exits, ticks])
    }

    /// Returns Gear1's ABI version, the protocol version, the counter, CPUs, forwarded MMIO
    /// accesses, and restarts of Gear2.
    pub fn version(&mut self) -> Result<[u64; 6], Error> {
        self.fetch(op::VERSION, &[])
    }

    /// Returns the log record at a cursor and the next cursor.
    fn log(&mut self, cursor: u64) -> Result<Option<(u64, Record)>, Error> {
        let answer = self.call(op::LOG_READ, &[cursor])?;
        if answer.outcome != outcome::OK {
            return Ok(None);
        }
        let [next, time, id_and_cpu, values @ ..] = answer.results;
        let record = Record {
            time,
            id_and_cpu,
            values,
        };
        Ok(Some((next, record)))
    }

    /// Returns the devices' figures.
    pub fn figures(&mut self) -> Result<Vec<Figures>, Error> {
        match self.ask(Request::Figures)? {
            Answer::Figures(figures) => Ok(figures),
            other => Err(garbled(other.name())),
        }
    }

    /// Returns what the devices are and who serves them.
    pub fn devices(&mut self) -> Result<Vec<Device>, Error> {
        match self.ask(Request::Devices)? {
            Answer::Devices(devices) => Ok(devices),
            other => Err(garbled(other.name())),
        }
    }

    /// Gives a device an order; returns its answer.
    pub fn order(&mut self, channel: u64, order: Order) -> Result<u64, Error> {
        // A channel of GDM's own answer.
        let channel = usize::try_from(channel).unwrap_or(usize::MAX);
        match self.ask(Request::Order { channel, order })? {
            Answer::Order(number) => Ok(number),
            other => Err(garbled(other.name())),
        }
    }
}

/// A record of Gear1's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The record.
    pub record: Record,
    /// Records of this CPU's log that were overwritten before this one, unread.
    pub lost: u64,
}

/// Position in each CPU's log. A cursor that has moved on to a CPU does not return to earlier CPUs.
#[derive(Debug, Default)]
pub struct LogReader {
    /// The number of the next record, by CPU. Real-time VMs have CPUs that Gear2 does not count,
    /// and these have a log too: who has one shows by its records.
    next: BTreeMap<u64, u64>,
}

impl LogReader {
    /// Most records of a CPU read at once: one that writes all the time must not keep the reader
    /// from the others. Gear1 keeps fewer.
    const MOST: usize = 64;

    /// Returns new records, in the order of time; at the first call, all that Gear1 keeps.
    pub fn read(&mut self, client: &mut Client) -> Result<Vec<Logged>, Error> {
        let mut records = Vec::new();
        let (mut cpu, mut count) = (0, 0);
        loop {
            let next = self.next.get(&cpu).copied().unwrap_or(0);
            let Some((cursor, record)) = client.log(cpu << CURSOR_CPU_SHIFT | next)? else {
                // No later CPU has a record at all.
                break;
            };
            let found = cursor >> CURSOR_CPU_SHIFT;
            // planted: gearctl follows the log with one cursor
            if found > cpu {
                // The cursor skips the CPUs between: neither they nor the asked one have more
                // records.
                cpu = found;
                count = 0;
                continue;
            }
            if found < cpu {
                break;
            }
            let behind = cursor & ((1 << CURSOR_CPU_SHIFT) - 1);
            let lost = behind.saturating_sub(next).saturating_sub(1);
            self.next.insert(cpu, behind);
            records.push(Logged { record, lost });
            count += 1;
            if count == Self::MOST {
                cpu += 1;
                count = 0;
            }
        }
        records.sort_by_key(|logged| logged.record.time);
        Ok(records)
    }
}

/// Says that an answer is none of this protocol's version.
fn garbled(line: &str) -> Error {
    Error::new(
        ErrorKind::Version,
        format!(
            "gdm answers `{line}`, which this gearctl does not understand: take both from the \
             same GearV"
        ),
    )
}

/// Says what is asked for by an operation that only asks.
fn question(op: u32, arguments: &[u64]) -> String {
    let first = arguments.first().copied().unwrap_or_default();
    match op {
        op::VM_INFO => format!("the state of VM {first}"),
        op::VM_NAME => format!("the name of VM {first}"),
        op::VM_FAULT => format!("the last fault of VM {first}"),
        op::VCPU_INFO => format!("the state of vCPU {first}"),
        op::EXIT_STATS => format!("the exits of vCPU {first}"),
        op::VERSION => "its version".into(),
        other => format!("the answer to operation {other} with {arguments:?}"),
    }
}

/// Returns the kind of the error that an outcome is.
pub(crate) fn kind_of(outcome: u32) -> ErrorKind {
    match outcome {
        outcome::NOT_FOUND => ErrorKind::NotFound,
        outcome::UNKNOWN => ErrorKind::Version,
        _ => ErrorKind::Refused,
    }
}

/// Says what an outcome means.
pub fn describe(outcome: u32) -> String {
    match outcome {
        outcome::OK => "done".into(),
        outcome::STARTED => "begun".into(),
        outcome::NOT_FOUND => "it does not exist".into(),
        outcome::WRONG_STATE => "its state does not allow it".into(),
        outcome::UNKNOWN => "it knows no such operation".into(),
        outcome::BUSY => "it is in use; try again".into(),
        outcome::FORBIDDEN => "its manifest does not allow it".into(),
        outcome::NEEDED => "nobody could start it again from here; restart it, or stop --force, \
             which powers the machine off if only VMs that it serves are left, and else restarts it"
            .into(),
        other => format!("outcome {other}"),
    }
}

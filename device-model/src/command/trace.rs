//! `gearctl trace`: what each CPU does for a while, as a file of the Trace Event format.
//!
//! Gear1 and Gear2 write rings of records; they are read while the trace lasts, so that a ring need not
//! hold all of it. At the end the records of each vCPU's exits are compared with its counters.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gear1_abi::trace::{RECORD_SIZE, RECORD_WORDS};
use gear2_protocol::{TRACE_RECORDS, op, outcome};

use super::answer::{Agreement, Trace};
use crate::client::{Client, describe, kind_of};
use crate::error::{Error, ErrorKind};
use crate::sys::Deferred;

mod agreement;
#[cfg(test)]
mod tests;
mod timeline;

use agreement::Notes;

/// Modes of [`op::TRACE`].
const END: u64 = 0;
const BEGIN: u64 = 1;
const TELL: u64 = 2;
/// Rings of each gear, and the cursor behind the newest record.
const RINGS: u64 = 8;
const NEWEST: u64 = u64::MAX;
/// All loops of Gear2's have so long to begin or to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether they have.
const STEP: Duration = Duration::from_millis(1);
/// Between two reads of the rings. A ring of 256 KiB holds the records of 160,000 exits a second for
/// that long.
const PAUSE: Duration = Duration::from_millis(100);

/// Words of a record, as Gear2 passes it on.
type Words = [u64; RECORD_WORDS];

/// Records of a ring.
#[derive(Clone, Debug, Default)]
struct Ring {
    /// Number of the CPU.
    cpu: u64,
    /// Number of the ring in the protocol.
    number: u64,
    cursor: u64,
    records: Vec<Words>,
    /// Places in `records` before which some were lost.
    gaps: Vec<usize>,
    /// Number of records that were lost.
    lost: u64,
}

/// Everything that was recorded.
#[derive(Clone, Debug, Default)]
struct Recorded {
    /// Gear1's rings.
    traps: Vec<Ring>,
    /// Gear2's rings.
    decisions: Vec<Ring>,
}

/// Traces for so long, and writes the file.
pub(super) fn take(client: &mut Client, time: Duration, file: &str) -> Result<Trace, Error> {
    // A path that cannot be written to is told of before anything is traced.
    let to = File::create(file).map_err(|error| Error::failed(format!("{file}: {error}")))?;
    let (vms, hz) = (client.vms()?, client.about()?.hz.max(1));
    let recorded = match time.is_zero() {
        true => kept(client)?,
        false => record(client, time)?,
    };
    let notes = match time.is_zero() {
        true => None,
        false => Some(Notes::read(client, &vms)?),
    };
    let trace = agreement::compare(&recorded, notes.as_ref(), &vms);
    let mut writer = BufWriter::new(to);
    let written = timeline::write(&recorded, &vms, hz, &mut writer);
    let written = written.and_then(|()| writer.flush());
    written.map_err(|error| Error::failed(format!("{file}: {error}")))?;
    if trace.agreement == Agreement::Differs {
        return Err(differs(file, &trace));
    }
    let file = file.into();
    Ok(Trace { file, ..trace })
}

/// Says which vCPU's numbers differ.
fn differs(file: &str, trace: &Trace) -> Error {
    let mut other = trace.exits.iter().filter(|row| row.recorded != row.counted);
    let first = other.next().map_or_else(String::new, |row| {
        format!(
            ": vCPU {} of {}, {}: {} recorded, {} counted",
            row.vcpu, row.vm, row.group, row.recorded, row.counted
        )
    });
    Error::failed(format!("{file} and the counters differ{first}"))
}

/// Returns what the rings hold.
fn kept(client: &mut Client) -> Result<Recorded, Error> {
    switch(client, TELL)?;
    let mut recorded = Recorded::find(client, 0)?;
    recorded.drain(client)?;
    // What was overwritten before anybody asked is no loss of this trace.
    recorded.forget_losses();
    Ok(recorded)
}

/// Records for so long, or until a signal.
fn record(client: &mut Client, time: Duration) -> Result<Recorded, Error> {
    let signals = Deferred::begin().map_err(|error| Error::failed(error.to_string()))?;
    // A gearctl that was killed has left the trace on.
    switch(client, END)?;
    let mut recorded = Recorded::find(client, NEWEST)?;
    switch(client, BEGIN)?;
    let begin = Instant::now();
    let read = read_until(client, &mut recorded, || {
        let left = time.saturating_sub(begin.elapsed());
        (!left.is_zero() && !signals.came()).then(|| left.min(PAUSE))
    });
    // Whatever has failed, the loops are to trace no longer.
    switch(client, END)?;
    read?;
    recorded.drain(client)?;
    Ok(recorded)
}

/// Reads the rings after each pause, while there is one.
fn read_until(
    client: &mut Client,
    recorded: &mut Recorded,
    mut pause: impl FnMut() -> Option<Duration>,
) -> Result<(), Error> {
    while let Some(pause) = pause() {
        sleep(pause);
        recorded.drain(client)?;
    }
    Ok(())
}

/// Has all loops of Gear2's begin or end, and waits until they have.
fn switch(client: &mut Client, mode: u64) -> Result<(), Error> {
    let begin = Instant::now();
    loop {
        match client.call(op::TRACE, &[mode])?.outcome {
            outcome::OK => return Ok(()),
            outcome::BUSY if begin.elapsed() < PATIENCE => sleep(STEP),
            other => return Err(refused(other)),
        }
    }
}

/// Says why nothing is traced.
fn refused(outcome: u32) -> Error {
    let reason = match outcome {
        outcome::NOT_FOUND => {
            let reason = "the manifest has no rings; the property `trace-kib` of /gear2 makes some";
            return Error::new(ErrorKind::Refused, format!("nothing is traced: {reason}"));
        }
        outcome::UNKNOWN => "this Gear1 or Gear2 cannot trace; see `gearctl version`".into(),
        outcome::BUSY => "a CPU of Gear2's does not answer".into(),
        other => describe(other),
    };
    Error::new(kind_of(outcome), format!("nothing is traced: {reason}"))
}

impl Recorded {
    /// Finds the rings of both gears, and begins to read them at a cursor.
    fn find(client: &mut Client, cursor: u64) -> Result<Self, Error> {
        let mut find = |first: u64| -> Result<Vec<Ring>, Error> {
            let mut rings = Vec::new();
            for cpu in 0..RINGS {
                let number = first + cpu;
                let begin = client.call(op::TRACE_READ, &[number, cursor])?;
                if begin.outcome != outcome::OK {
                    break;
                }
                let [newest, ..] = begin.results;
                rings.push(Ring {
                    cpu,
                    number,
                    cursor: if cursor == NEWEST { newest } else { cursor },
                    ..Ring::default()
                });
            }
            Ok(rings)
        };
        Ok(Self {
            traps: find(0)?,
            decisions: find(RINGS)?,
        })
    }

    fn rings(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.traps.iter_mut().chain(&mut self.decisions)
    }

    /// Reads what is new.
    fn drain(&mut self, client: &mut Client) -> Result<(), Error> {
        self.rings().try_for_each(|ring| ring.drain(client))
    }

    /// Takes losses for the beginning of the rings.
    fn forget_losses(&mut self) {
        for ring in self.rings() {
            ring.lost = 0;
            ring.gaps.clear();
        }
    }
}

impl Ring {
    /// Reads what is new. Bound: a ring that is written faster than it is read would be read for ever.
    fn drain(&mut self, client: &mut Client) -> Result<(), Error> {
        for _ in 0..MOST_READS {
            let answer = client.words(op::TRACE_READ, &[self.number, self.cursor])?;
            if answer.called.outcome != outcome::OK {
                return Err(refused(answer.called.outcome));
            }
            let [next, count, lost, ..] = answer.called.results;
            if lost != 0 {
                self.gaps.push(self.records.len());
                self.lost += lost / RECORD_SIZE;
            }
            self.cursor = next;
            self.records.extend_from_slice(answer.words.as_chunks().0);
            if count < TRACE_RECORDS as u64 {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Reads of one ring in a row: the largest ring has so many.
const MOST_READS: usize = 1024;

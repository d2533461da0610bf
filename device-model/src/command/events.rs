//! `gearctl events`: what happens to VMs, to Gear2 and to GDM.
//!
//! Starts, stops, faults and silences are records of Gear1's log, with their own times. Pauses,
//! waits, the end of automatic restarts and aborted accesses of devices are Gear2's, which keeps no
//! record of them: `events --follow` compares the states of VMs twice a second. A pause and a
//! resumption between two looks are not seen.

use std::time::Duration;

use gear1_abi::record::RecordId;

use super::answer::{Answer, Event, EventKind, State};
use super::records::{self, Names};
use super::vm_state;
use crate::client::{Client, LogReader, Logged, Vm};
use crate::error::Error;

#[cfg(test)]
mod tests;

/// Between two looks.
const STEP: Duration = Duration::from_millis(500);

/// Prints the events that Gear1's log still has, and with `follow` each one that comes.
pub(super) fn run(
    client: &mut Client,
    follow: bool,
    print: &mut dyn FnMut(&Answer) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut reader = LogReader::default();
    let mut before = Look::take(client)?;
    let names = Names::of(&before.vms);
    loop {
        let logged = reader.read(client)?;
        let logged = logged
            .iter()
            .flat_map(|one| of_record(one, &names, before.hz));
        let mut events: Vec<Event> = logged.collect();
        if follow {
            let now = Look::take(client)?;
            events.extend(now.since(&before));
            before = now;
        }
        // Nothing new is no line.
        if !events.is_empty() || !follow {
            print(&Answer::Events(events))?;
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(STEP);
    }
}

/// Returns the events that a record tells of.
fn of_record(logged: &Logged, names: &Names, hz: u64) -> Vec<Event> {
    let record = &logged.record;
    let [number, ..] = record.values;
    let time = records::seconds(record.time, hz);
    let event = |event, vm: Option<String>, message: String| Event {
        time: time.clone(),
        event,
        vm,
        message,
    };
    let mut events = Vec::new();
    if logged.lost > 0 {
        let text = records::lost_text(logged.lost);
        events.push(event(EventKind::Lost, None, text));
    }
    let (kind, vm) = match RecordId::from_index(records::id(record)) {
        Some(RecordId::VmStart) => (EventKind::Started, Some(names.vm(number))),
        Some(RecordId::VmStop) => (EventKind::Stops, Some(names.vm(number))),
        Some(RecordId::VmSilent) => (EventKind::Hung, Some(names.vm(number))),
        Some(RecordId::VcpuFault) => (EventKind::Faulted, names.vm_of_vcpu(number)),
        Some(RecordId::Gear2Restart) => (EventKind::Gear2Restarted, None),
        _ => return events,
    };
    events.push(event(kind, vm, records::message(record, names)));
    events
}

/// States at a moment.
struct Look {
    /// Counter value of Gear2's answer.
    counter: u64,
    /// Ticks a second.
    hz: u64,
    /// Starts of GDM.
    starts: u64,
    vms: Vec<Vm>,
}

impl Look {
    fn take(client: &mut Client) -> Result<Self, Error> {
        let about = client.about()?;
        let [_, _, counter, ..] = client.version()?;
        Ok(Self {
            counter,
            hz: about.hz.max(1),
            starts: about.starts,
            vms: client.vms()?,
        })
    }

    /// Returns what has changed that stands in no record.
    fn since(&self, before: &Self) -> Vec<Event> {
        let time = records::seconds(self.counter, self.hz);
        let vms = self.vms.iter().zip(&before.vms);
        let changes = vms.flat_map(|(now, then)| {
            let name = now.name.clone();
            let kinds = changes(then, now).into_iter();
            kinds.map(move |(kind, what)| (kind, Some(name.clone()), format!("VM {name} {what}")))
        });
        let gdm = (self.starts != before.starts).then(|| {
            let message = format!("GDM was started, {} times so far", self.starts);
            (EventKind::GdmStarted, None, message)
        });
        let all = changes.chain(gdm).map(|(event, vm, message)| Event {
            time: time.clone(),
            event,
            vm,
            message,
        });
        all.collect()
    }
}

/// Returns the changes of a VM between two looks.
fn changes(then: &Vm, now: &Vm) -> Vec<(EventKind, String)> {
    let has_stopped = |vm: &Vm| vm_state(vm.state) == State::Stopped;
    let all = [
        (
            has_stopped(now) && !has_stopped(then),
            (EventKind::Stopped, "has stopped"),
        ),
        (
            now.paused && !then.paused && !has_stopped(now),
            (EventKind::Paused, "is paused"),
        ),
        (
            !now.paused && then.paused && !has_stopped(now),
            (EventKind::Resumed, "goes on"),
        ),
        (
            now.waits && !then.waits,
            (EventKind::Waits, "waits for its start"),
        ),
        (
            now.given_up && !then.given_up,
            (EventKind::GivenUp, "is given up: no automatic restart"),
        ),
        (
            now.failed_over && !then.failed_over,
            (EventKind::FailedOver, "has failed over to its standby"),
        ),
    ];
    let all = all.into_iter().filter(|(is_so, _)| *is_so);
    let states = all.map(|(_, (kind, what))| (kind, what.to_owned()));
    aborts(then, now).into_iter().chain(states).collect()
}

/// Returns the event of accesses that the SMMU has aborted between two looks. A Gear2 that was
/// restarted counts anew.
fn aborts(then: &Vm, now: &Vm) -> Option<(EventKind, String)> {
    let [before, count] = [then, now].map(|vm| vm.aborted_accesses().unwrap_or(0));
    let new = count.checked_sub(before).unwrap_or(count);
    let what = format!("has devices whose accesses were aborted: {new} more, {count} in all");
    (new > 0).then_some((EventKind::Aborted, what))
}

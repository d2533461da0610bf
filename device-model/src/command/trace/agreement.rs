//! Whether the records of a trace and the counters agree.
//!
//! Gear2 has noted the counters of each vCPU at a time of which the vCPU's own exits are surely before
//! or behind. Records of exits between the two notes are as many as the counters have grown by.

use std::collections::BTreeMap;

use gear1_abi::exit::ExitReason;
use gear1_abi::trace::Group;
use gear2_protocol::{op, outcome};

use super::super::answer::{Agreement, Trace, TracedExits};
use super::timeline::Trap;
use super::{Recorded, Ring};
use crate::client::{Client, Vm};
use crate::error::Error;

/// Counters of a vCPU at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    time: u64,
    /// By reason.
    exits: Vec<u64>,
}

/// Notes of all vCPUs, by number, at the beginning and at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(pub(super) BTreeMap<u64, [Note; 2]>);

impl Notes {
    /// Returns those that Gear2 has.
    pub(super) fn read(client: &mut Client, vms: &[Vm]) -> Result<Self, Error> {
        let mut notes = BTreeMap::new();
        for vcpu in vms.iter().flat_map(Vm::numbers) {
            let answer = client.words(op::TRACE_NOTE, &[vcpu])?;
            if answer.called.outcome == outcome::OK {
                let (begin, end) = answer.words.split_at(answer.words.len() / 2);
                notes.insert(vcpu, [begin, end].map(Note::of));
            }
        }
        Ok(Self(notes))
    }
}

impl Note {
    /// Takes words apart.
    pub(super) fn of(words: &[u64]) -> Self {
        let (time, exits) = words.split_first().unwrap_or((&0, &[]));
        Self {
            time: *time,
            exits: exits.to_vec(),
        }
    }
}

/// Compares records and counters.
pub(super) fn compare(recorded: &Recorded, notes: Option<&Notes>, vms: &[Vm]) -> Trace {
    let count = |rings: &[Ring]| rings.iter().map(|ring| ring.records.len() as u64).sum();
    let rings = recorded.traps.iter().chain(&recorded.decisions);
    let mut exits = Vec::new();
    let mut not_compared = Vec::new();
    for vm in vms {
        for vcpu in vm.numbers() {
            match notes.and_then(|notes| notes.0.get(&vcpu)) {
                Some(notes) => exits.extend(rows(recorded, notes, vm, vcpu)),
                None => not_compared.push(vcpu),
            }
        }
    }
    let lost = recorded.traps.iter().map(|ring| ring.lost).sum();
    let agrees = exits.iter().all(|row| row.recorded == row.counted);
    Trace {
        file: String::new(),
        traps: count(&recorded.traps),
        decisions: count(&recorded.decisions),
        lost: rings.map(|ring| ring.lost).sum(),
        agreement: agreement(notes, lost, agrees),
        not_compared,
        exits,
    }
}

/// Judges the comparison of the numbers.
fn agreement(notes: Option<&Notes>, lost: u64, agrees: bool) -> Agreement {
    match (notes, lost) {
        (None, _) => Agreement::NotCompared,
        // planted: gearctl says that a trace agrees whose records differ
        (Some(_), 0) if agrees => Agreement::Exact,
        (Some(_), 0) => Agreement::Differs,
        (Some(_), _) => Agreement::Lost,
    }
}

/// Returns the exits of a vCPU by group.
fn rows(recorded: &Recorded, [begin, end]: &[Note; 2], vm: &Vm, vcpu: u64) -> Vec<TracedExits> {
    let records = recorded.traps.iter().flat_map(|ring| &ring.records);
    let traps = records.map(|words| Trap::of(*words));
    let own = traps.filter(|trap| trap.vcpu == Some(vcpu));
    // An exit at the time of a note was before it.
    let own = own.filter(|trap| begin.time < trap.time && trap.time <= end.time);
    let mut numbers = BTreeMap::<Group, [u64; 2]>::new();
    for trap in own {
        numbers.entry(trap.cause.group()).or_default()[0] += 1;
    }
    for ((reason, before), after) in ExitReason::ALL.iter().zip(&begin.exits).zip(&end.exits) {
        numbers.entry(Group::of(*reason)).or_default()[1] += after.saturating_sub(*before);
    }
    let some = numbers.into_iter().filter(|(_, counts)| *counts != [0; 2]);
    some.map(|(group, [recorded, counted])| TracedExits {
        vcpu,
        vm: vm.name.clone(),
        group: group.label().into(),
        recorded,
        counted,
    })
    .collect()
}

//! Output of the workloads' script, as figures and as tables.
//!
//! The script prints in the order in which it runs, and that order differs between places: the
//! device VM prints GearV's counters around its own figures, and both states of the guest's
//! counters before the guest's figure arrives. The parser therefore pairs counters and figures by
//! their order of appearance and refuses any other number of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::papers;
use super::places::{GUEST, NATIVE};
use super::size::REPETITION;

/// Reasons of exits that are interrupts (`gear1/abi/src/exit.rs`). The papers' formula 1 counts
/// these alone, because each of them makes two world switches more.
const INTERRUPTS: [&str; 5] = ["timer", "irq-direct", "irq-other", "kick", "deadline"];
/// The reasons whose time in Gear2 is no work, but sleep.
const SLEEP: [&str; 2] = ["wfi", "wfe"];

/// Word in the names of the places whose two vCPUs share a CPU.
const ONE_CPU: &str = "one CPU";
/// Word in the names of the places that Gear2 does not schedule.
const NULL: &str = " null";
/// Begin of the names of KVM's places, and end of those of GearV's guests.
const KVM: &str = "KVM";
const GUEST_ENDS: &str = "guest";

/// Least number of exits an operation of a kind that is told. Rarer kinds come from the machine's
/// background and not from the workload.
const LEAST: f64 = 0.01;

/// A workload in one place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) place: String,
    pub(super) name: String,
    /// Virtual time, and the operations done in it.
    pub(super) ns: u64,
    pub(super) operations: u64,
    /// Operations of the least size.
    least: u64,
    /// Instructions of all CPUs in the least size and in this one.
    instructions: Option<[u64; 2]>,
    /// Exits by VM, if the place is a VM: those of the measured VM, then those of the VM that
    /// serves it.
    pub(super) exits: Vec<(String, u64)>,
    /// Exits by VM and reason, if GearV counts them.
    pub(super) kinds: BTreeMap<(String, String), u64>,
    /// Interrupts that the kernel took, by its own count.
    pub(super) took: BTreeMap<String, u64>,
    /// Exits of the measured VM that were interrupts, and the time that all its exits spent in
    /// Gear2.
    pub(super) interrupts: u64,
    pub(super) gear2_ns: u64,
    /// Instructions an operation of all runs of a workload that a place repeats, the lowest first.
    /// The other figures are then those of the run in the middle.
    runs: Vec<f64>,
}

/// Parses `WHERE <place>`, `APP <name> <ns> <operations> <operations of the least size>`, `TOOK <name> <kind>=<interrupts> ...`,
/// `COUNTERS <name> <JSON>`, `START <name>` and KVM's `EXITS <count>`.
pub(super) fn parse(place: &str, printed: &str) -> Result<Vec<Figure>> {
    let mut parser = Parser::default();
    for line in printed.lines() {
        parser.line(place, line)?;
    }
    let Parser {
        mut figures,
        counters,
        ..
    } = parser;
    ensure!(
        counters.is_empty() || counters.len() == 2 * figures.len(),
        "{} states of the counters for {} workloads",
        counters.len(),
        figures.len()
    );
    // In the guest's part the figure comes behind both, in the device VM's between them.
    for (figure, pair) in figures.iter_mut().zip(counters.chunks(2)) {
        if let [before, after] = pair {
            count(figure, before, after)?;
        }
    }
    Ok(figures)
}

/// Adds what QEMU's plugin has counted: a line for the least size of each workload and one for the
/// size that was asked for, in the order in which they ran. Another number of lines would give a
/// figure the instructions of others.
pub(super) fn add_instructions(figures: &mut [Figure], counts: &str) -> Result<()> {
    let counts = counts.lines().map(str::parse);
    let counts: Vec<u64> = counts.collect::<Result<_, _>>().context("counts")?;
    ensure!(
        counts.len() == 2 * figures.len(),
        "{} counts of instructions for {} workloads",
        counts.len(),
        figures.len()
    );
    for (figure, pair) in figures.iter_mut().zip(counts.chunks(2)) {
        figure.instructions = pair.try_into().ok();
    }
    Ok(())
}

/// Returns the figures with one for all runs of a workload in a place: that of the run in the
/// middle by its instructions, of an even number the higher one of both. Its exits and its time are
/// of the same run, so that they belong together. The counts of instructions have been added. A run
/// whose least size took more than the whole has no figure, and comes first.
pub(super) fn in_the_middle(figures: Vec<Figure>) -> Result<Vec<Figure>> {
    let mut all: Vec<Vec<Figure>> = Vec::new();
    for figure in figures {
        let is_same = |of: &&mut Vec<Figure>| {
            (of.first()).is_some_and(|first| {
                first.place == figure.place && first.workload() == figure.workload()
            })
        };
        match all.iter_mut().find(is_same) {
            Some(of) => of.push(figure),
            None => all.push(vec![figure]),
        }
    }
    let all = all.into_iter().map(|mut of| {
        if of.len() == 1 {
            return Ok(of.remove(0));
        }
        for figure in &of {
            let name = &figure.name;
            ensure!(figure.instructions.is_some(), "{name} has no instructions");
        }
        let each = of.iter().filter_map(Figure::instructions_an_operation);
        let mut each: Vec<f64> = each.collect();
        of.sort_by(|one, other| {
            let [one, other] = [one, other].map(Figure::instructions_an_operation);
            one.partial_cmp(&other).unwrap_or(Ordering::Equal)
        });
        each.sort_by(f64::total_cmp);
        let figure = of.swap_remove(of.len() / 2);
        Ok(Figure {
            name: figure.workload().to_owned(),
            runs: each,
            ..figure
        })
    });
    all.collect()
}

/// State behind the lines so far.
#[derive(Default)]
struct Parser {
    figures: Vec<Figure>,
    /// The VM that prints.
    own: String,
    /// States of GearV's counters.
    counters: Vec<Value>,
    /// KVM's count of exits, and that before the workload.
    kvm_now: Option<u64>,
    kvm_before: Option<u64>,
    /// Whether the workload has ended.
    ended: bool,
}

impl Parser {
    /// Takes in a line of the console. Lines that begin with no known word are messages of the
    /// kernel or of programs, and are skipped. The words are searched in the whole line, as a VM's
    /// name may stand before them on a shared console.
    fn line(&mut self, place: &str, line: &str) -> Result<()> {
        let after = |word| line.split_once(word).map(|(_, rest)| rest);
        if let Some(vm) = after("WHERE ") {
            vm.trim().clone_into(&mut self.own);
        } else if let Some(rest) = after("COUNTERS ") {
            let (_, json) = rest.split_once(' ').context("COUNTERS without JSON")?;
            self.counters.push(serde_json::from_str(json.trim())?);
        } else if let Some(count) = after("EXITS ").and_then(|rest| rest.trim().parse().ok()) {
            self.exits(count);
        } else if line.contains("START ") {
            self.kvm_before = self.kvm_now;
            self.ended = false;
        } else if let Some(rest) = after("APP ") {
            let figure = Figure::parse(rest).with_context(|| line.to_owned())?;
            let place = format!("{place} {}", self.own).trim().to_owned();
            self.figures.push(Figure { place, ..figure });
            self.ended = true;
        } else if let Some(rest) = after("TOOK ") {
            self.took(rest).with_context(|| line.to_owned())?;
        }
        Ok(())
    }

    /// Takes in the interrupts of a workload, which come behind all workloads of their place. The
    /// last figure of the name is meant, as these lines follow the workloads of their own place.
    fn took(&mut self, words: &str) -> Option<()> {
        let (name, kinds) = words.trim().split_once(' ')?;
        let figure = (self.figures.iter_mut().rev()).find(|figure| figure.name == name)?;
        for kind in kinds.split_whitespace() {
            let (kind, count) = kind.split_once('=')?;
            figure.took.insert(kind.to_owned(), count.parse().ok()?);
        }
        Some(())
    }

    /// Takes in a count of KVM's. The first count behind a workload, after which the guest sleeps,
    /// ends the workload's. A count that KVM prints while the workload still runs has a part of the
    /// exits only.
    fn exits(&mut self, count: u64) {
        self.kvm_now = Some(count);
        let counted = self.figures.last_mut().filter(|f| f.exits.is_empty());
        if let (Some(figure), Some(before)) = (counted, self.kvm_before.take_if(|_| self.ended)) {
            figure.exits = vec![("KVM".to_owned(), count - before)];
        }
    }
}

impl Figure {
    /// Parses `<name> <ns> <operations> <operations of the least size>`.
    fn parse(words: &str) -> Option<Figure> {
        let mut words = words.split_whitespace();
        let name = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Figure {
            place: String::new(),
            name,
            ns: number()?,
            operations: number()?,
            least: number()?,
            instructions: None,
            exits: Vec::new(),
            kinds: BTreeMap::new(),
            took: BTreeMap::new(),
            interrupts: 0,
            gear2_ns: 0,
            runs: Vec::new(),
        })
    }

    /// Returns the workload's name without the number of its repetition.
    fn workload(&self) -> &str {
        let name = self.name.split_once(REPETITION);
        name.map_or(&self.name, |(name, _)| name)
    }

    /// Returns the lowest and the highest instructions an operation of a workload that repeats.
    fn spread(&self) -> Option<[f64; 2]> {
        let [lowest, .., highest] = self.runs[..] else {
            return None;
        };
        Some([lowest, highest])
    }

    /// Returns the instructions of an operation, if they were counted: without those of the least
    /// size, which has a program's start and end as well.
    pub(super) fn instructions_an_operation(&self) -> Option<f64> {
        let [least, all] = self.instructions?;
        let operations = self.operations.checked_sub(self.least)?;
        let difference = all.checked_sub(least)?;
        (operations > 0).then(|| difference as f64 / operations as f64)
    }

    /// Returns the exits of a VM an operation, by kind.
    fn kinds_of(&self, vm: &str) -> String {
        let kinds = self.kinds.iter().filter(|((of, _), _)| of == vm);
        self.an_operation(kinds.map(|((_, kind), count)| (kind.as_str(), *count)))
    }

    /// Returns counts by kind as counts an operation, the most frequent first. Division by at least
    /// one operation keeps a workload that did nothing from a figure that is no number.
    fn an_operation<'a>(&self, counts: impl Iterator<Item = (&'a str, u64)>) -> String {
        let mut kinds: Vec<(f64, &str)> = counts
            .map(|(kind, count)| (count as f64 / self.operations.max(1) as f64, kind))
            .filter(|(each, _)| *each >= LEAST)
            .collect();
        kinds.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let kinds = kinds.iter().map(|(each, kind)| format!("{kind} {each:.2}"));
        kinds.collect::<Vec<_>>().join(", ")
    }

    /// Returns the ratio to native that the papers have for a guest, beside which GearV's is put.
    fn of_papers(&self) -> Option<f64> {
        let is_kvm = self.place.starts_with(KVM);
        let is_guest = self.place.ends_with(GUEST_ENDS);
        let is_one_cpu = self.place.contains(ONE_CPU);
        let ratio = || papers::ratio(&self.name, is_one_cpu, is_kvm);
        (is_kvm || is_guest).then(ratio).flatten()
    }

    /// Returns the figure's line of the table. There are ratios only if the native place was
    /// measured, which `--only` may leave out.
    fn row(&self, native: Option<&Figure>) -> String {
        let an_operation = |count: u64| count as f64 / self.operations.max(1) as f64;
        let instructions = self.instructions_an_operation();
        let natively = native.and_then(Figure::instructions_an_operation);
        let cells = [
            (instructions, 0),
            (ratio(instructions, natively), 3),
            (Some(an_operation(self.ns)), 0),
            (ratio(Some(self.ns as f64), native.map(|f| f.ns as f64)), 3),
            (self.of_papers(), 3),
        ];
        let cells = cells.map(|(value, digits)| cell(value, digits)).concat();
        let (name, place, operations) = (&self.name, &self.place, self.operations);
        let mut text = format!("{name:18} {place:24} {operations:>10}{cells}  ");
        for (vm, exits) in &self.exits {
            let _ = write!(text, " {vm} {exits} ({:.3})", an_operation(*exits));
        }
        if let Some([lowest, highest]) = self.spread() {
            let runs = self.runs.len();
            let _ = write!(text, "  {lowest:.0} to {highest:.0} in {runs} runs");
        }
        text + "\n"
    }
}

/// Returns how many times the native value a value is, if both were measured.
fn ratio(value: Option<f64>, native: Option<f64>) -> Option<f64> {
    value.zip(native).map(|(value, native)| value / native)
}

/// Returns a cell of the table with so many digits behind the point.
fn cell(value: Option<f64>, digits: usize) -> String {
    let text = value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    format!(" {text:>13}")
}

/// Notes what both states of GearV's counters say. The counters have all VMs: the device VM's work
/// for a guest shows as exits of the device VM. Interrupts and the time in Gear2 are of the
/// measured VM alone. A reason that was not there before counts from zero.
fn count(figure: &mut Figure, before: &Value, after: &Value) -> Result<()> {
    let is_guest = figure.place.ends_with("guest");
    let own = if is_guest { "guest" } else { "device" };
    let before = rows(before)?;
    let mut exits = BTreeMap::<String, u64>::new();
    for ((vm, vcpu, reason), [count, ticks]) in rows(after)? {
        let key = (vm.clone(), vcpu, reason.clone());
        let [old_count, old_ticks] = before.get(&key).copied().unwrap_or_default();
        let (count, ticks) = (count - old_count, ticks - old_ticks);
        *exits.entry(vm.clone()).or_default() += count;
        let kind = (vm.clone(), reason.clone());
        *figure.kinds.entry(kind).or_default() += count;
        if vm == own && INTERRUPTS.contains(&reason.as_str()) {
            figure.interrupts += count;
        }
        if vm == own && !SLEEP.contains(&reason.as_str()) {
            figure.gear2_ns += ticks;
        }
    }
    figure.exits = exits.into_iter().collect();
    Ok(())
}

/// Returns exits and ticks by VM, vCPU and reason, of what `gearctl stats --json` printed. A row
/// without one of its members is an error: exits that were left out would make GearV look better.
/// The vCPU is a part of the key, as each has counters of its own.
fn rows(stats: &Value) -> Result<BTreeMap<(String, u64, String), [u64; 2]>> {
    let rows = stats["answer"]["exits"].as_array();
    let rows = rows.context("gearctl stats has no exits")?.iter();
    let row = |row: &Value| {
        let key = (
            row["vm"].as_str()?.to_owned(),
            row["vcpu"].as_u64()?,
            row["reason"].as_str()?.to_owned(),
        );
        Some((key, [row["exits"].as_u64()?, row["ticks"].as_u64()?]))
    };
    rows.map(|text| row(text).with_context(|| text.to_string()))
        .collect()
}

/// Returns a line for each workload in each place. Places of one workload stand below each other,
/// as they are what is compared.
pub(super) fn table(figures: &[Figure]) -> String {
    let mut text = format!(
        "{:18} {:24} {:>10} {:>13} {:>13} {:>13} {:>13} {:>13}   exits, exits an operation\n",
        "", "", "operations", "instructions", "x native", "ns", "x native", "papers, x"
    );
    let mut names: Vec<&str> = Vec::new();
    for figure in figures {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    for name in names {
        for figure in figures.iter().filter(|figure| figure.name == name) {
            text += &figure.row(native_of(figures, figure));
        }
    }
    text
}

/// Returns the native figure of the same workload on as many CPUs.
fn native_of<'a>(figures: &'a [Figure], of: &Figure) -> Option<&'a Figure> {
    let is_one = |figure: &Figure| figure.place.contains(ONE_CPU);
    let is_same = |figure: &&Figure| figure.name == of.name && is_one(figure) == is_one(of);
    let mut same = figures.iter().filter(is_same);
    same.find(|figure| figure.place.starts_with(NATIVE))
}

/// Returns what Gear2 costs: how many more instructions an operation takes as shipped than under the
/// policy that never decides; and what the counters say.
pub(super) fn gear2_cost(figures: &[Figure]) -> String {
    let mut text = String::new();
    let null = figures.iter().filter(|figure| figure.place.contains(NULL));
    for null in null {
        let place = null.place.replace(NULL, "");
        let same = |figure: &&Figure| figure.place == place && figure.name == null.name;
        let shipped = figures.iter().find(same);
        let shipped = shipped.and_then(Figure::instructions_an_operation);
        if let Some((shipped, without)) = shipped.zip(null.instructions_an_operation()) {
            let cost = (shipped / without - 1.0) * 100.0;
            let name = &null.name;
            let _ = writeln!(
                text,
                "{name}, {place}: {shipped:.0} instructions an operation, {without:.0} without \
                 Gear2: it costs {cost:.2} %"
            );
        }
    }
    text + &in_gear2(figures)
}

/// Returns the guest's interrupts (the papers' table 8), and the part of its time that its exits
/// spend in Gear2 by Gear1's counters.
fn in_gear2(figures: &[Figure]) -> String {
    let mut text = String::new();
    for figure in figures.iter().filter(|figure| figure.place == GUEST) {
        let interrupts = figure.interrupts as f64 / (figure.ns as f64 * 1e-9);
        let in_gear2 = figure.gear2_ns as f64 / figure.ns as f64 * 100.0;
        let name = &figure.name;
        let _ = writeln!(
            text,
            "{name}, {GUEST}: {interrupts:.0} interrupts a second, {in_gear2:.3} % of its time in \
             Gear2"
        );
    }
    text
}

/// Returns the exits an operation by kind, the most frequent first, of the workloads whose names
/// begin with `begin`. The split tells why a VM exits, which a sum of exits hides.
pub(super) fn kinds(figures: &[Figure], begin: &str) -> String {
    let mut text = String::new();
    for figure in figures.iter().filter(|f| f.name.starts_with(begin)) {
        let Figure { name, place, .. } = figure;
        for (vm, _) in &figure.exits {
            let kinds = figure.kinds_of(vm);
            if !kinds.is_empty() {
                let _ = writeln!(text, "{name}, {place}: exits of {vm} an operation: {kinds}");
            }
        }
    }
    text
}

/// Returns likewise the interrupts that the kernel took an operation, by its own count. The
/// kernel's count and GearV's exits differ: one exit may bring several interrupts.
pub(super) fn interrupts(figures: &[Figure], begin: &str) -> String {
    let mut text = String::new();
    for figure in figures.iter().filter(|f| f.name.starts_with(begin)) {
        let Figure { name, place, .. } = figure;
        let took = figure.took.iter();
        let took = figure.an_operation(took.map(|(kind, count)| (kind.as_str(), *count)));
        if !took.is_empty() {
            let _ = writeln!(text, "{name}, {place}: interrupts an operation: {took}");
        }
    }
    text
}

/// Returns all figures as JSON. Names of exits and interrupts are keys, so that two runs can be
/// compared by a program.
pub(super) fn to_json(figures: &[Figure]) -> Value {
    let figure = |figure: &Figure| {
        json!({
            "place": figure.place,
            "name": figure.name,
            "ns": figure.ns,
            "operations": figure.operations,
            "least-operations": figure.least,
            "instructions": figure.instructions,
            "exits": figure.exits.iter().cloned().collect::<BTreeMap<_, _>>(),
            "took": figure.took,
            "interrupts": figure.interrupts,
            "gear2-ns": figure.gear2_ns,
            "runs": figure.runs,
        })
    };
    json!({ "figures": figures.iter().map(figure).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests;

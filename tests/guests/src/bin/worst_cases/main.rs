//! Searches for Gear1's most expensive paths: sequences of steps that bring a VM's interrupt
//! controller, timers and vCPUs into bad states and then make a request.
//!
//! The score of a sequence for a goal is the duration of its longest step of the goal's kind, in
//! ticks of the virtual counter: QEMU counts instructions (`icount`), a tick each. The search for a
//! goal begins at random and at the sequences of `inputs.txt`, changes one step at a time, and
//! keeps a change that does not lower the score. `tests/exit-counter` counts the instructions that
//! Gear1 executes from outside, exactly, for all exits on the way.
//!
//! Command line: `seed=<number>`, `rounds=<sequences a goal>`. Each line `INPUT <goal> <score>
//! <step>...` has the best sequence for a goal, in the format of `inputs.txt`.
//!
//! Requirements: G1-RUN-011.
#![no_std]
#![no_main]

use core::fmt::Write as _;
use core::sync::atomic::{AtomicBool, Ordering};

use test_guests::attack::Random;
use test_guests::uart::Console;
use test_guests::{Machine, cpu, gic, guest, psci, report, say, timer};

mod step;

use step::{KINDS, State, Step};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other
);

/// Sequences tried for each goal, if the command line does not say. A search takes long under
/// `icount`, so that it is not part of each test run.
const ROUNDS: u64 = 0;
/// The longest sequence. Enough to fill all list registers (16 at most) and to go on from there.
const STEPS: usize = 24;
/// Rounds without improvement after which a sequence is replaced by another one. A local best is
/// left by a new random sequence.
const PATIENCE: u64 = 60;
/// Worst sequences found so far: lines as `INPUT` prints them. Each run replays them, so that a
/// longer path that a change of Gear1 makes shows at once.
const KEPT: &str = include_str!("inputs.txt");

/// Set before the other vCPUs are turned on, so that their wait is over with the first look.
static READY: AtomicBool = AtomicBool::new(false);

/// Some steps, one after another. The size is fixed, as the guest has no heap.
#[derive(Clone, Copy)]
/// The steps are replayed from a state that is set up anew, so that a score depends on the sequence
/// alone.
struct Sequence {
    steps: [Step; STEPS],
    count: usize,
}

impl Sequence {
    /// Steps behind `count` are not taken.
    const NONE: Sequence = Sequence {
        steps: [Step::NONE; STEPS],
        count: 0,
    };

    /// Makes a sequence of any length.
    fn random(goal: u8, random: &mut Random) -> Sequence {
        let mut sequence = Sequence::NONE;
        sequence.count = 1 + random.below(STEPS as u64 - 1) as usize;
        for step in &mut sequence.steps[..sequence.count] {
            *step = Step::random(goal, random);
        }
        sequence
    }

    /// Changes, adds or removes a step. One step at a time keeps most of what made a sequence slow.
    fn mutate(&mut self, goal: u8, random: &mut Random) {
        let at = random.below(self.count as u64) as usize;
        match random.below(4) {
            0 if self.count < STEPS => {
                self.steps.copy_within(at..self.count, at + 1);
                self.steps[at] = Step::random(goal, random);
                self.count += 1;
            }
            1 if self.count > 1 => {
                self.steps.copy_within(at + 1..self.count, at);
                self.count -= 1;
            }
            2 => self.steps[at].change(random),
            _ => self.steps[at] = Step::random(goal, random),
        }
    }

    /// Takes all steps, from the same state each time, and returns the score. A maximum and not a
    /// sum: the bound in question is that of one exit (G1-RUN-011).
    fn run(&self, machine: &Machine, goal: u8) -> u64 {
        let mut state = State::fresh(machine);
        let mut score = 0;
        for step in &self.steps[..self.count] {
            let before = timer::now();
            step.take(&mut state);
            let ticks = timer::now() - before;
            if step.kind == goal {
                score = score.max(ticks);
            }
        }
        state.leave();
        score
    }

    /// Reads the steps of a line. A word that is no step makes the whole line invalid.
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Option<Sequence> {
        let mut sequence = Sequence::NONE;
        for (place, word) in sequence.steps.iter_mut().zip(words) {
            *place = Step::parse(word)?;
            sequence.count += 1;
        }
        Some(sequence)
    }

    /// Prints a line as `inputs.txt` has it, so that the host copies it.
    fn print(&self, goal: u8, score: u64) {
        let mut console = Console;
        let _ = write!(console, "INPUT {} {score}", KINDS[usize::from(goal)]);
        for step in &self.steps[..self.count] {
            let _ = write!(console, " {step}");
        }
        say!("");
    }
}

/// Replays what was kept, then searches for each goal. Without rounds a search runs the kept
/// sequence once more and prints it.
fn main(machine: &Machine) {
    let seed = machine.option("seed").unwrap_or(1);
    let rounds = machine.option("rounds").unwrap_or(ROUNDS);
    gic::enable(timer::INTID);
    READY.store(true, Ordering::Release);
    for other in 1..machine.cpus {
        psci::cpu_on(other);
    }
    // Whatever was kept, for the counter outside.
    for (goal, sequence) in KEPT.lines().filter_map(kept) {
        sequence.run(machine, goal);
    }
    for goal in 0..KINDS.len() as u8 {
        search(
            machine,
            goal,
            rounds,
            &mut Random::new(seed + u64::from(goal)),
        );
    }
    report::pass("searched");
}

/// Parses a kept line.
fn kept(line: &str) -> Option<(u8, Sequence)> {
    let mut words = line.split(' ');
    let _ = words.next().filter(|word| *word == "INPUT")?;
    let name = words.next()?;
    let goal = KINDS.iter().position(|kind| *kind == name)? as u8;
    let _score = words.next()?;
    Some((goal, Sequence::parse(words)?))
}

/// Searches for one goal. The random numbers depend on the goal and the seed alone: leaving one
/// goal out changes no other. A score that stays equal is accepted as well, since many steps matter
/// only together with another one.
fn search(machine: &Machine, goal: u8, rounds: u64, random: &mut Random) {
    let before = KEPT.lines().filter_map(kept).find(|(of, _)| *of == goal);
    let mut best = before.map_or_else(|| Sequence::random(goal, random), |(_, kept)| kept);
    let mut best_score = best.run(machine, goal);
    let (mut at, mut score, mut idle) = (best, best_score, 0);
    for _ in 0..rounds {
        let mut next = at;
        next.mutate(goal, random);
        let reached = next.run(machine, goal);
        idle = if reached > score { 0 } else { idle + 1 };
        if reached >= score {
            at = next;
            score = reached;
        }
        if score > best_score {
            best = at;
            best_score = score;
        }
        if idle > PATIENCE {
            at = Sequence::random(goal, random);
            score = at.run(machine, goal);
            idle = 0;
        }
    }
    best.print(goal, best_score);
}

/// Another vCPU takes whatever comes, and waits. A vCPU in WFI is the expensive target of a kick:
/// it has to be woken by Gear2's loop.
fn other(_: usize) {
    cpu::wait_until(|| READY.load(Ordering::Acquire));
    loop {
        cpu::wfi();
        loop {
            let acknowledged = gic::acknowledge();
            if !gic::is_real(acknowledged) {
                break;
            }
            gic::end(acknowledged);
        }
    }
}

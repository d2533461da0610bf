//! IC IALLUIS that Gear1 carries out: two vCPUs change code, invalidate, and tell the others, while
//! a third computes, waits, is turned off and on, or moves to another CPU. Each function does what
//! the one of the runtime does that it names.
//!
//! Code is a number that grows. A CPU's instruction cache holds what the CPU fetched first since it
//! invalidated its cache. A vCPU that was told of a number and executes a lower one executes stale
//! code.
//!
//! Requirements: G1-CPU-011.

use std::sync::Arc;

use gear1_abi::call::VcpuState;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Runner, thread};

use crate::config;
use crate::vcpu::{IcacheRequests, Notify, Requests, VcpuShared};

/// Orders that are drawn where there are too many; `GEARV_ORDERS` says otherwise.
const DRAWN: usize = 2_000;
const SEED: u64 = 0x6963_6163_6865;

/// Protocol, as it is or with an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Shipped,
    /// The issuer goes on at once.
    Impatient,
    /// The issuer looks who runs, and asks then.
    LooksFirst,
    /// A sibling forgets the request when it has invalidated, and takes the number then.
    TakesLast,
    /// A start voids the request.
    ForgetsAtStart,
    /// A vCPU that comes back to a CPU finds its instructions there.
    MovesWithout,
}

/// A vCPU, and what only its owner CPU uses.
#[derive(Default)]
struct Vcpu {
    shared: VcpuShared,
    /// The owner CPU is kicked.
    kicked: AtomicU64,
    /// Number of the CPU that the vCPU runs on.
    cpu: AtomicU64,
}

struct Machine {
    rule: Rule,
    vcpus: Vec<Vcpu>,
    requests: IcacheRequests,
    /// Instruction caches of the CPUs: the code that each holds.
    caches: Vec<Mutex<Option<u64>>>,
    /// Code in memory, at the point of unification.
    code: AtomicU64,
    /// Code that the vCPUs were told of.
    told: AtomicU64,
}

impl Machine {
    /// Makes vCPUs that run, each on the CPU of its number, and one CPU more.
    fn new(rule: Rule, vcpus: u64) -> Self {
        let machine = Self {
            rule,
            vcpus: (0..vcpus).map(|_| Vcpu::default()).collect(),
            requests: IcacheRequests::new(),
            caches: (0..=vcpus).map(|_| Mutex::new(None)).collect(),
            code: AtomicU64::new(0),
            told: AtomicU64::new(0),
        };
        for (number, vcpu) in (0..).zip(&machine.vcpus) {
            vcpu.shared.set_state(VcpuState::Running);
            vcpu.cpu.store(number, Ordering::SeqCst);
        }
        machine
    }

    fn cache(&self, vcpu: usize) -> &Mutex<Option<u64>> {
        &self.caches[self.vcpus[vcpu].cpu.load(Ordering::SeqCst) as usize]
    }

    /// Fetches an instruction of the guest, perhaps long before it is executed.
    fn fetch(&self, vcpu: usize) -> u64 {
        let mut cache = self.cache(vcpu).lock().unwrap();
        *cache.get_or_insert_with(|| self.code.load(Ordering::SeqCst))
    }

    /// Executes an instruction of the guest.
    fn execute(&self, vcpu: usize) {
        let told = self.told.load(Ordering::SeqCst);
        let code = self.fetch(vcpu);
        assert!(code >= told, "stale code: {code} after {told}");
    }

    /// `vcpu::serve_icache`.
    fn serve(&self, vcpu: usize) {
        let shared = &self.vcpus[vcpu].shared;
        let invalidate = || {
            *self.cache(vcpu).lock().unwrap() = None;
            // By speculation.
            self.fetch(vcpu);
        };
        if self.rule == Rule::TakesLast {
            invalidate();
            shared.serve_icache(&self.requests, || {});
        } else {
            shared.serve_icache(&self.requests, invalidate);
        }
    }

    /// `vcpu::prepare_entry`: the vCPU is Running.
    fn prepare_entry(&self, vcpu: usize) {
        let shared = &self.vcpus[vcpu].shared;
        let wanted = shared.requests();
        let _start = shared.take_reset();
        if wanted.intersects(Requests::ICACHE) {
            self.serve(vcpu);
        }
        shared.take_each(Requests::INTERRUPTS);
    }

    /// `exit::kicked`, if the guest is interrupted.
    fn interrupt(&self, vcpu: usize) {
        if self.vcpus[vcpu].kicked.swap(0, Ordering::SeqCst) != 0 {
            self.prepare_entry(vcpu);
        }
    }

    /// `sysreg::ask_siblings`: returns the request's number, and whom the issuer waits for.
    fn ask_siblings(&self, issuer: usize) -> (u64, Vec<usize>) {
        let number = self.requests.add();
        self.serve(issuer);
        let mut awaited = Vec::new();
        for sibling in (0..self.vcpus.len()).filter(|other| *other != issuer) {
            let shared = &self.vcpus[sibling].shared;
            let did_run = shared.is(VcpuState::Running);
            let notify = shared.request_icache();
            assert_ne!(notify, Notify::Wake);
            if notify == Notify::Kick {
                self.vcpus[sibling].kicked.store(1, Ordering::SeqCst);
            }
            let waits = match self.rule {
                Rule::Impatient => false,
                Rule::LooksFirst => did_run,
                _ => true,
            };
            awaited.extend(waits.then_some(sibling));
        }
        (number, awaited)
    }

    /// `sysreg::invalidate_icaches`, until the instruction is complete.
    fn invalidate(&self, issuer: usize) {
        let (number, awaited) = self.ask_siblings(issuer);
        let has_served = |other: &usize| self.vcpus[*other].shared.has_served_icache(number);
        while !awaited.iter().all(has_served) {
            // The guest is entered again, and traps again.
            self.interrupt(issuer);
            thread::yield_now();
        }
    }

    /// Runs a guest that changes code, invalidates, and tells the others.
    fn changes(&self, issuer: usize) {
        let code = self.code.fetch_add(1, Ordering::SeqCst) + 1;
        self.invalidate(issuer);
        self.told.fetch_max(code, Ordering::SeqCst);
        self.execute(issuer);
    }

    /// Runs a guest that executes twice, and is interrupted if it is kicked.
    fn executes(&self, vcpu: usize) {
        for _ in 0..2 {
            self.interrupt(vcpu);
            self.execute(vcpu);
        }
    }

    /// The vCPU leaves its CPU, which does something else: `vcpu::leave_as_is`.
    fn leaves(&self, vcpu: usize, state: VcpuState) {
        self.vcpus[vcpu].shared.set_state(state);
    }

    /// `run::run_another` on the owner CPU.
    fn enters(&self, vcpu: usize) {
        assert!(self.vcpus[vcpu].shared.claim());
        self.prepare_entry(vcpu);
    }

    /// `gear2_call::assign`, and `vcpu::load` with `vcpu::forget_others` on the new owner CPU.
    fn moves(&self, vcpu: usize, to: u64) {
        self.vcpus[vcpu].cpu.store(to, Ordering::SeqCst);
        if self.rule != Rule::MovesWithout {
            *self.cache(vcpu).lock().unwrap() = None;
        }
    }

    /// Runs a guest to its end: nobody waits for it any longer.
    fn ends(&self, vcpu: usize) {
        self.leaves(vcpu, VcpuState::Off);
    }
}

/// Life of a vCPU beside the issuers.
type Life = fn(&Machine, usize);

fn computes(machine: &Machine, vcpu: usize) {
    machine.executes(vcpu);
}

/// A vCPU that is woken by others, or at once.
fn waits(machine: &Machine, vcpu: usize) {
    machine.executes(vcpu);
    let shared = &machine.vcpus[vcpu].shared;
    if shared.wait_quiet(Requests::ICACHE) {
        thread::yield_now();
        let _woken = shared.wake_up();
        machine.enters(vcpu);
    } else {
        machine.prepare_entry(vcpu);
    }
    machine.executes(vcpu);
}

/// A vCPU that Gear2 takes its CPU from.
fn is_preempted(machine: &Machine, vcpu: usize) {
    machine.executes(vcpu);
    machine.leaves(vcpu, VcpuState::Ready);
    machine.enters(vcpu);
    machine.executes(vcpu);
}

/// A vCPU that is off for a time.
fn restarts(machine: &Machine, vcpu: usize) {
    machine.executes(vcpu);
    machine.leaves(vcpu, VcpuState::Off);
    let shared = &machine.vcpus[vcpu].shared;
    if machine.rule == Rule::ForgetsAtStart {
        shared.take(Requests::ICACHE);
    }
    shared.request_reset(0, 0);
    machine.leaves(vcpu, VcpuState::Ready);
    machine.enters(vcpu);
    machine.executes(vcpu);
}

/// A vCPU that leaves its CPU and comes back.
fn moves(machine: &Machine, vcpu: usize) {
    machine.executes(vcpu);
    let (own, spare) = (vcpu as u64, machine.vcpus.len() as u64);
    for to in [spare, own] {
        machine.leaves(vcpu, VcpuState::Ready);
        machine.moves(vcpu, to);
        machine.enters(vcpu);
        machine.executes(vcpu);
    }
}

const LIVES: [Life; 5] = [computes, waits, is_preempted, restarts, moves];

/// Runs issuers beside a life.
fn once(rule: Rule, issuers: usize, life: Life) {
    let machine = Arc::new(Machine::new(rule, issuers as u64 + 1));
    let threads: Vec<_> = (0..issuers)
        .map(|issuer| {
            let machine = Arc::clone(&machine);
            thread::spawn(move || {
                machine.changes(issuer);
                machine.ends(issuer);
            })
        })
        .collect();
    life(&machine, issuers);
    machine.ends(issuers);
    threads.into_iter().for_each(|other| other.join().unwrap());
}

fn run(scheduler: impl Scheduler + 'static, rule: Rule, issuers: usize, life: Life) -> usize {
    let mut config = config();
    // An instruction that never completes.
    config.max_steps = shuttle::MaxSteps::FailAfter(5_000);
    Runner::new(scheduler, config).run(move || once(rule, issuers, life))
}

fn drawn() -> usize {
    let said = std::env::var("GEARV_ORDERS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(DRAWN)
}

/// Tries orders of one issuer and of two beside each life.
fn many_orders(rule: Rule, lives: &[Life]) {
    for (issuers, life) in [1, 2]
        .into_iter()
        .flat_map(|n| lives.iter().map(move |l| (n, *l)))
    {
        let orders = drawn() / 2;
        run(
            RandomScheduler::new_from_seed(SEED, orders),
            rule,
            issuers,
            life,
        );
        run(
            PctScheduler::new_from_seed(SEED, 3, orders),
            rule,
            issuers,
            life,
        );
    }
}

/// G1-CPU-011: nobody executes stale code, and each instruction completes.
#[test]
fn an_instruction_cache_is_invalid_for_all() {
    many_orders(Rule::Shipped, &LIVES);
    println!("figure: {} orders beside each life of a sibling", drawn());
}

/// G1-CPU-011: all orders of a request and an entry. The vCPU is Running at the end, so the issuer
/// may go on only if the request is served.
#[test]
fn who_asks_and_who_enters_see_each_other() {
    let runner = Runner::new(DfsScheduler::new(None, false), config());
    let orders = runner.run(|| {
        let machine = Arc::new((VcpuShared::new(), IcacheRequests::new()));
        machine.0.set_state(VcpuState::Wfi);
        let beside = Arc::clone(&machine);
        let issuer = thread::spawn(move || {
            let (vcpu, requests) = &*beside;
            let number = requests.add();
            vcpu.request_icache();
            (number, vcpu.has_served_icache(number))
        });
        let (vcpu, requests) = &*machine;
        assert!(vcpu.claim());
        if vcpu.requests().intersects(Requests::ICACHE) {
            vcpu.serve_icache(requests, || {});
        }
        let (number, goes_on) = issuer.join().unwrap();
        assert!(!goes_on || vcpu.has_served_icache(number), "stale code");
    });
    println!("figure: all {orders} orders of a request and an entry");
    assert!(orders > 100, "{orders} orders only");
}

#[test]
#[should_panic(expected = "stale code")]
fn an_issuer_that_does_not_wait_is_found() {
    many_orders(Rule::Impatient, &[computes]);
}

#[test]
#[should_panic(expected = "stale code")]
fn an_issuer_that_looks_too_early_is_found() {
    many_orders(Rule::LooksFirst, &[is_preempted]);
}

#[test]
#[should_panic(expected = "stale code")]
fn a_sibling_that_takes_the_request_last_is_found() {
    many_orders(Rule::TakesLast, &[computes]);
}

#[test]
#[should_panic(expected = "stale code")]
fn a_start_that_forgets_is_found() {
    many_orders(Rule::ForgetsAtStart, &[restarts]);
}

#[test]
#[should_panic(expected = "stale code")]
fn a_move_without_an_invalidation_is_found() {
    many_orders(Rule::MovesWithout, &[moves]);
}

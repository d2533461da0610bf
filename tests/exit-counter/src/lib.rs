//! A QEMU plugin (TCG, QEMU 10) that counts Gear1's instructions from each exit to the entry that
//! follows; or, with the argument `guests`, what any hypervisor executes by kind (`costs`); or, with
//! `total`, what all software executes (`total`).
//!
//! An exit begins at one of the vectors for lower exception levels and ends with ERET. A CPU that
//! waits at EL2 looks for interrupts there: such a look ends one stretch and begins another, named
//! `look`. For each kind of exit the longest stretch is kept, with the registers at the exit and
//! the functions that were executed. A line is written whenever one grows, so the file is whole at
//! any time:
//!
//! `<kind> <instructions> <count so far> x=<X0>,...,<X7> far=<FAR_EL2> path=<function>,...`
//!
//! With `-icount`, one thread of QEMU executes all CPUs in turns, and QEMU 10 tells a plugin the
//! wrong one (it takes the CPU for which a block was translated). So each block asks for TPIDR_EL2,
//! which the runtime sets once for each CPU. Instructions are counted for all CPUs together: what was
//! added since the last look is the current CPU's.
//!
//! Arguments: `symbols=<file>`, lines `<address in hex> <name>` of the runtime's functions, in
//! which `gear1_vectors` and `gear1_end` say where its code is; `out=<file>`.

mod costs;
mod kinds;
mod qemu;
mod total;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::{self, File};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kinds::Exit;
use qemu::{Id, Registers};

/// The version of QEMU's plugin interface that this is written for (QEMU 10.0).
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU names it")]
pub static qemu_plugin_version: c_int = 4;

/// Offset of the first vector for exceptions from a lower level, and of the end of the table. Arm
/// ARM, "Exception vectors": four of the current level stand before.
const LOWER: u64 = 0x400;
const TABLE: u64 = 0x800;
/// Distance of two vectors. 32 instructions.
const VECTOR: u64 = 0x80;
/// The one instruction that leaves EL2 for a guest or Gear2.
const ERET: u32 = 0xd69f_03e0;
/// Function that looks for interrupts while a CPU waits at EL2.
const LOOK: &str = "handle_pending";

/// State of one CPU's current exit. QEMU interleaves CPUs, so each has a count of its own.
#[derive(Default)]
struct Cpu {
    /// TPIDR_EL2.
    name: u64,
    exit: Option<Exit>,
    /// Executed since the exit began.
    instructions: u64,
    /// Functions in the order of their first call, by their number in the symbols.
    path: Vec<u32>,
}

/// Longest exit of a kind. The count tells how often the kind came.
#[derive(Default)]
struct Longest {
    instructions: u64,
    count: u64,
}

/// Fixed after the start, but for the state.
struct Counter {
    /// Address of the vector table, which begins Gear1's code.
    vectors: u64,
    /// End of the code.
    end: u64,
    /// Names of functions, by address.
    names: HashMap<u64, u32>,
    /// Names by number.
    texts: Vec<String>,
    state: Mutex<State>,
}

/// Changed by callbacks.
struct State {
    /// Handles of the registers that are read at an exit.
    registers: Option<Registers>,
    cpus: Vec<Cpu>,
    /// Index of the one that executes.
    current: usize,
    /// The count up to which instructions are some CPU's.
    counted: u64,
    longest: BTreeMap<String, Longest>,
    out: File,
}

impl State {
    /// No CPU has executed anything yet.
    fn new(out: File) -> State {
        State {
            registers: None,
            cpus: Vec::new(),
            current: 0,
            counted: 0,
            longest: BTreeMap::new(),
            out,
        }
    }
}

/// QEMU's callbacks carry no pointer of a plugin's own.
static COUNTER: OnceLock<Counter> = OnceLock::new();
/// Instructions of Gear1's that were executed, on all CPUs.
static EXECUTED: AtomicU64 = AtomicU64::new(0);

/// The state, of which only the one thread that executes all CPUs has a use. The current CPU has all
/// instructions so far.
fn with(what: impl FnOnce(&Counter, &mut State)) {
    if let Some(counter) = COUNTER.get() {
        let state: &mut MutexGuard<'_, State> =
            &mut counter.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count(EXECUTED.load(Relaxed));
        what(counter, state);
    }
}

impl State {
    /// Gives the current CPU what was executed since the last call.
    fn count(&mut self, sum: u64) {
        let more = sum - self.counted;
        self.counted = sum;
        if let Some(cpu) = self.cpu() {
            cpu.instructions += more;
        }
    }

    /// Finds the CPU that executes.
    fn turn(&mut self) {
        let Some(name) = self.registers.as_ref().map(Registers::cpu) else {
            return;
        };
        let known = self.cpus.iter().position(|cpu| cpu.name == name);
        self.current = known.unwrap_or_else(|| {
            self.cpus.push(Cpu {
                name,
                ..Cpu::default()
            });
            self.cpus.len() - 1
        });
    }

    /// Nothing before the first block of code at EL2.
    fn cpu(&mut self) -> Option<&mut Cpu> {
        self.cpus.get_mut(self.current)
    }

    /// An exit within an exit begins anew: EL2 takes none, but for a halt.
    fn exit(&mut self, vector: u64) {
        let exit = self
            .registers
            .as_ref()
            .map(|registers| registers.exit(vector));
        if let Some(cpu) = self.cpu() {
            cpu.exit = exit;
            cpu.instructions = 0;
            cpu.path.clear();
        }
    }

    /// Each function once: a path is a set in the order of first calls.
    fn call(&mut self, function: u32) {
        if let Some(cpu) = self.cpu()
            && !cpu.path.contains(&function)
        {
            cpu.path.push(function);
        }
    }

    /// Ends a stretch: with an entry, or with a look for interrupts, which begins the next one.
    fn end(&mut self, texts: &[String], look: bool) {
        let Some(cpu) = self.cpus.get_mut(self.current) else {
            return;
        };
        if let Some(exit) = cpu.exit.take() {
            let names = cpu.path.iter().filter_map(|name| texts.get(*name as usize));
            let path = names.map(String::as_str).collect::<Vec<_>>();
            let instructions = cpu.instructions;
            self.keep(&exit, instructions, &path);
        }
        if let Some(cpu) = self.cpu() {
            cpu.path.clear();
            if look {
                cpu.exit = Some(Exit::Look);
                cpu.instructions = 0;
            }
        }
    }

    /// Counts a stretch, and writes a line if none of the kind was longer.
    fn keep(&mut self, exit: &Exit, instructions: u64, path: &[&str]) {
        let kind = exit.kind(path);
        let longest = self.longest.entry(kind.clone()).or_default();
        longest.count += 1;
        if instructions > longest.instructions {
            longest.instructions = instructions;
            let (count, registers) = (longest.count, exit.registers());
            let path = path.join(",");
            let line = format!("{kind} {instructions} {count} {registers} path={path}\n");
            let _ = self.out.write_all(line.as_bytes());
        }
    }
}

/// Runs before anything else of a block, since the others use the current CPU.
extern "C" fn on_block(_: c_uint, _: *mut c_void) {
    with(|_, state| state.turn());
}

/// Counts instructions, not time: QEMU's time says nothing of hardware. Without the state's lock,
/// since only one thread executes CPUs.
extern "C" fn on_instruction(_: c_uint, _: *mut c_void) {
    EXECUTED.store(EXECUTED.load(Relaxed) + 1, Relaxed);
}

/// QEMU passes a pointer to callbacks and nothing else, so the vector's number is one.
extern "C" fn on_exit(_: c_uint, vector: *mut c_void) {
    with(|_, state| state.exit(vector.addr() as u64));
}

/// Set at the first instruction of each function of the symbols.
extern "C" fn on_call(_: c_uint, function: *mut c_void) {
    with(|_, state| state.call(function.addr() as u32));
}

/// Set at ERET, and where a wait looks for interrupts.
extern "C" fn on_end(_: c_uint, look: *mut c_void) {
    with(|counter, state| state.end(&counter.texts, look.addr() != 0));
}

/// Registers have names only once a CPU is there. All CPUs have the same ones.
extern "C" fn on_cpu(_: Id, _: c_uint) {
    with(|_, state| {
        if state.registers.is_none() {
            state.registers = Registers::find();
        }
    });
}

/// Only Gear1's code gets callbacks: everything else runs at full speed.
extern "C" fn on_translation(_: Id, block: *mut qemu::Block) {
    let Some(counter) = COUNTER.get() else {
        return;
    };
    let code = counter.vectors..counter.end;
    let instructions = qemu::instructions(block);
    let own = instructions.filter(|(_, address, _)| code.contains(address));
    for (index, (instruction, address, word)) in own.enumerate() {
        if index == 0 {
            qemu::before(instruction, on_block, true, 0);
        }
        counter.watch_place(instruction, address);
        qemu::before(instruction, on_instruction, false, 0);
        if word == ERET {
            qemu::before(instruction, on_end, false, 0);
        }
    }
}

impl Counter {
    /// Takes in a line of the symbols.
    fn add(&mut self, line: &str) -> Option<()> {
        let (address, name) = line.split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        match name {
            "gear1_vectors" => self.vectors = address,
            "gear1_end" => self.end = address,
            _ => {
                self.names.insert(address, self.texts.len() as u32);
                self.texts.push(name.to_owned());
            }
        }
        Some(())
    }

    /// Has QEMU tell when a vector or the first instruction of a function is executed.
    fn watch_place(&self, instruction: *mut qemu::Instruction, address: u64) {
        let offset = address - self.vectors;
        if (LOWER..TABLE).contains(&offset) && offset.is_multiple_of(VECTOR) {
            let vector = (offset - LOWER) / VECTOR;
            qemu::before(instruction, on_exit, true, vector);
        }
        if let Some(&name) = self.names.get(&address) {
            let text = self.texts.get(name as usize);
            if text.is_some_and(|text| text == LOOK) {
                qemu::before(instruction, on_end, false, 1);
            }
            qemu::before(instruction, on_call, false, name.into());
        }
    }
}

/// Reads what the arguments say.
fn counter(arguments: &[String]) -> Option<Counter> {
    let argument = |name: &str| arguments.iter().find_map(|text| text.strip_prefix(name));
    let symbols = fs::read_to_string(argument("symbols=")?).ok()?;
    let out = File::create(argument("out=")?).ok()?;
    let mut counter = Counter {
        vectors: 0,
        end: 0,
        names: HashMap::new(),
        texts: Vec::new(),
        state: Mutex::new(State::new(out)),
    };
    symbols.lines().try_for_each(|line| counter.add(line))?;
    Some(counter)
}

/// QEMU calls this once.
///
/// # Safety
///
/// `argv` holds `argc` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let arguments: Vec<String> = (0..argc as usize)
        .map(|index| {
            // SAFETY: by this function's contract.
            let argument = unsafe { argv.wrapping_add(index).read() };
            // SAFETY: the same: it is a text that ends with a zero.
            unsafe { CStr::from_ptr(argument) }
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    if arguments.iter().any(|text| text.starts_with("guests=")) {
        return match costs::install(id, &arguments) {
            Some(()) => 0,
            None => {
                eprintln!("exit-counter: wants guests=FIRST-END,out=FILE");
                -1
            }
        };
    }
    if arguments.iter().any(|text| text.starts_with("total")) {
        return match total::install(id, &arguments) {
            Some(()) => 0,
            None => {
                eprintln!("exit-counter: wants total=on,out=FILE");
                -1
            }
        };
    }
    let Some(counter) = counter(&arguments) else {
        eprintln!("exit-counter: wants symbols=FILE,out=FILE");
        return -1;
    };
    if counter.vectors == 0 || counter.end <= counter.vectors || COUNTER.set(counter).is_err() {
        eprintln!("exit-counter: the symbols do not say where the code is");
        return -1;
    }
    qemu::register(id, on_cpu, on_translation);
    0
}

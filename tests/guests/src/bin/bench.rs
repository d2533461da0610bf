//! The benchmark: path lengths and latencies of what guests do most, native and in a VM alike.
//!
//! Two CPUs, each a vCPU's own. Every figure is the distribution of 1,000 iterations after a
//! discarded warm-up, in nanoseconds of the virtual counter. Two adjacent counter reads are
//! subtracted from what is measured between two reads; a latency ends with the counter read that is
//! the handler's first instruction. A CPU that waits for the other one executes YIELD, or WFI where
//! the name says so: under QEMU's `icount` all CPUs' instructions count, so `ipi*` is the sum of
//! both.
//!
//! The measured sequences are single pieces of assembly, with interrupts unmasked nowhere else.
//! The sequences and the handler share X9 (time of the handler, 0 until then), X10 (scratch), X11
//! (where the time is stored for the other CPU) and X14 (GICv2's CPU interface).
//!
//! `BENCH <name> <min> <median> <mean> <p99> <max>` is followed by all samples in the order in
//! which they were taken, `RAW <name> <ns>x<count> ...`: runs of equal ones are counted. The
//! command line `row=<name>` measures only that row, so that a trace of the machine is of it alone.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::fmt::Write as _;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gear1_abi::guest::GEAR2_NOP;
use test_guests::gic::Version;
use test_guests::psci::{self, affinity, function};
use test_guests::uart::Console;
use test_guests::{Machine, cpu, gic, guest, report, say, timer, write_sysreg};

#[path = "bench/kick.rs"]
mod kick;

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = target
);

/// Samples of a row. `cargo xtask bench --breakdown` divides by their number and the warm-up's.
const ITERATIONS: usize = 1000;
/// Discarded samples: first uses of pages and of paths in the gears are in them. Among them are the
/// fills of TLBs and, in QEMU, the translation of the code.
const WARM_UP: usize = 100;
/// Any SGI that nothing else of the guest uses.
const SGI: u32 = 5;
/// The other CPU has fallen asleep, or is back in its loop, after so long: many times its path.
const SETTLE_US: u64 = 5;
/// Long enough for a device VM to fall asleep.
const PAUSE_US: u64 = 1_000;
/// The command line's `role` of a guest that a device VM serves.
const SERVED: u64 = 3;
/// Registers of a virtio-mmio device (virtio 1.2, 4.2.2): one that tells its state, one whose
/// writes change what the device shows, and one whose writes the device model alone can answer. An
/// acknowledgement of nothing changes nothing.
const DEVICE_STATUS: u64 = 0x70;
const DEVICE_FEATURES_SEL: u64 = 0x14;
const INTERRUPT_ACK: u64 = 0x64;
/// Distance of the timer's deadline: long enough for a WFI to begin.
const DEADLINE_US: u64 = 20;

/// Address at which the other CPU's handler stores its time. 0 until then, and so no time that a
/// counter could have.
static ANSWER: AtomicU64 = AtomicU64::new(0);
/// Set by the other CPU before its first wait, so that no SGI comes before its vectors are set.
static TARGET_READY: AtomicBool = AtomicBool::new(false);
/// Whether the other CPU waits in WFI or spins. The two rows differ by the way into WFI and out of
/// it.
static TARGET_SLEEPS: AtomicBool = AtomicBool::new(false);
/// Ends the other CPU's loop, so that it turns itself off and can start anew in the other way. One
/// byte: the loop in assembly reads it by LDRB.
static TARGET_STOPS: AtomicBool = AtomicBool::new(false);

global_asm!(
    ".section .text.bench, \"ax\"",
    ".macro bench_vectors name, end, counter, acknowledge:vararg",
    ".balign 2048",
    "\\name:",
    ".set slot, 0",
    ".rept 16",
    ".if slot != 0x280", // IRQ at the current level, with its own stack
    "  b vectors + slot",
    ".else",
    "  mrs x9, \\counter",
    "  \\acknowledge",
    "  b \\end",
    ".endif",
    "  .balign 128",
    "  .set slot, slot + 128",
    ".endr",
    ".endm",
    // GICC_IAR, ICC_IAR1_EL1.
    // The acknowledge stands behind the counter read, which must be the handler's first
    // instruction.
    "bench_vectors bench_vectors_v2, bench_end_v2, cntvct_el0, ldr w10, [x14, #0xc]",
    "bench_vectors bench_vectors_v3, bench_end_v3, cntvct_el0, mrs x10, s3_0_c12_c12_0",
    // VMs have a virtual count each, and the physical one in common.
    "bench_vectors kick_vectors_v2, bench_end_v2, cntpct_el0, ldr w10, [x14, #0xc]",
    "bench_vectors kick_vectors_v3, bench_end_v3, cntpct_el0, mrs x10, s3_0_c12_c12_0",
    // The end of the interrupt is common to both kinds of vectors, and behind the measured part.
    // Turning the timer off is needed for rows of the timer and harmless for others.
    "bench_end_v2:",
    "  msr cntv_ctl_el0, xzr",
    "  str w10, [x14, #0x10]", // GICC_EOIR
    "  str x9, [x11]",
    "  eret",
    "bench_end_v3:",
    "  msr cntv_ctl_el0, xzr",
    "  msr s3_0_c12_c12_1, x10", // ICC_EOIR1_EL1
    "  str x9, [x11]",
    "  eret",
);

unsafe extern "C" {
    static bench_vectors_v2: [u8; 2048];
    static bench_vectors_v3: [u8; 2048];
}

/// Sets the vectors of the benchmark, all of which but the IRQ's lead to those of the library.
/// Handlers of the library save all registers first, which would be in every latency.
fn set_vectors() {
    let vectors = match gic::version() {
        Version::V2 => &raw const bench_vectors_v2,
        Version::V3 => &raw const bench_vectors_v3,
    };
    write_sysreg!("vbar_el1", vectors as u64);
}

/// Measures what the role in the command line names. Roles with a peer or a served device have rows
/// of their own; the other rows need neither.
fn main(machine: &Machine) {
    say!("counter {} Hz", timer::frequency());
    set_vectors();
    gic::enable(SGI);
    gic::enable(timer::INTID);
    match machine.option("role") {
        Some(kick::KICKER) => return kick::send(machine),
        Some(kick::KICKED) => kick::receive(machine),
        _ => {}
    }
    let read_twice = median_of(read_twice);
    if machine.option("role") == Some(SERVED) {
        served(machine, read_twice);
        return report::pass("bench");
    }
    let between = |sample: fn() -> u64| move || sample().saturating_sub(read_twice);
    measure(machine, "hypercall", between(hypercall));
    let gicd = machine.gicd.start + gic::register::TYPER;
    measure(machine, "mmio_gicd", || {
        load(gicd).saturating_sub(read_twice)
    });
    measure(machine, "sysreg", between(id_register));
    measure(machine, "eoi", between(acknowledge_and_end));
    measure(machine, "sgi_self_entry", sgi_to_self);
    measure(machine, "timer", timer_spinning);
    measure(machine, "timer_wfi", timer_asleep);
    device(machine, read_twice);
    if machine.gearv {
        measure(machine, "gear2_roundtrip", between(gear2_round_trip));
    } else {
        say!("BENCH-SKIP gear2_roundtrip native");
    }
    between_cpus(machine);
    report::pass("bench");
}

/// A register of a device that a program answers, and one that it is told of. Where there is no
/// such device a line says which rows are left out. Under KVM each store exits to a program, so
/// both kinds of writes are the same there; under GearV they are rows of their own in `served`.
fn device(machine: &Machine, read_twice: u64) {
    let Some(device) = machine.bench_device else {
        say!("BENCH-SKIP mmio_user_read no such device");
        say!("BENCH-SKIP mmio_user_write no such device");
        return;
    };
    measure(machine, "mmio_user_read", || {
        load(device).saturating_sub(read_twice)
    });
    measure(machine, "mmio_user_write", || {
        store(device).saturating_sub(read_twice)
    });
    measure(machine, "mmio_user_write_asleep", || {
        timer::sleep_us(PAUSE_US);
        store(device).saturating_sub(read_twice)
    });
    // A program in the host answers each write.
    measure(machine, "mmio_user_answer", || {
        store(device).saturating_sub(read_twice)
    });
    measure(machine, "mmio_user_answer_asleep", || {
        timer::sleep_us(PAUSE_US);
        store(device).saturating_sub(read_twice)
    });
}

/// Measures registers of a virtio device that the device model serves: writes in sequence, as under
/// KVM and as a driver sets a device up, and with a pause before each write, in which all others
/// fall asleep. Gear2 does most writes of a set-up; the device model answers the others.
fn served(machine: &Machine, read_twice: u64) {
    let Some(device) = machine.virtio[0] else {
        report::fail("served", format_args!("there is no virtio device"));
        return;
    };
    measure(machine, "mmio_user_read", || {
        timer::sleep_us(PAUSE_US);
        load(device.registers + DEVICE_STATUS).saturating_sub(read_twice)
    });
    measure(machine, "mmio_user_write", || {
        store(device.registers + DEVICE_FEATURES_SEL).saturating_sub(read_twice)
    });
    measure(machine, "mmio_user_write_asleep", || {
        timer::sleep_us(PAUSE_US);
        store(device.registers + DEVICE_FEATURES_SEL).saturating_sub(read_twice)
    });
    measure(machine, "mmio_user_answer", || {
        store(device.registers + INTERRUPT_ACK).saturating_sub(read_twice)
    });
    measure(machine, "mmio_user_answer_asleep", || {
        timer::sleep_us(PAUSE_US);
        store(device.registers + INTERRUPT_ACK).saturating_sub(read_twice)
    });
}

/// Measures the rows of two CPUs. The other CPU is turned off behind each row: the next one starts
/// it in the other way to wait, without a leftover of the first. A sleeper has to be woken to see
/// the order to stop, hence the SGI.
fn between_cpus(machine: &Machine) {
    if machine.cpus < 2 {
        say!("BENCH-SKIP ipi_entry one CPU");
        say!("BENCH-SKIP ipi_wfi_entry one CPU");
        return;
    }
    for (name, sleeps) in [("ipi_entry", false), ("ipi_wfi_entry", true)] {
        TARGET_SLEEPS.store(sleeps, Ordering::Release);
        TARGET_STOPS.store(false, Ordering::Release);
        TARGET_READY.store(false, Ordering::Release);
        let result = psci::cpu_on(1);
        if result != psci::result::SUCCESS {
            report::fail(name, format_args!("CPU_ON returns {result}"));
            return;
        }
        cpu::wait_until(|| TARGET_READY.load(Ordering::Acquire));
        measure(machine, name, sgi_to_other);
        TARGET_STOPS.store(true, Ordering::Release);
        gic::send_sgi(1, SGI);
        cpu::wait_until(|| psci::affinity_info(1) == affinity::OFF);
    }
}

/// Tells whether a row is measured. A row that is not chosen is not executed at all, or its
/// instructions would be in the trace.
fn is_chosen(machine: &Machine, name: &str) -> bool {
    let mut words = machine.command_line.split(' ');
    let row = words.find_map(|word| word.strip_prefix("row="));
    row.is_none_or(|row| row == name)
}

/// Prints the distribution of `sample`, in ticks, as nanoseconds. Conversion to nanoseconds comes
/// last, so that rounding is done once for each printed value. The 99th percentile and the maximum
/// show what disturbs a path now and then; a median alone hides that.
fn measure(machine: &Machine, name: &str, sample: impl FnMut() -> u64) {
    if !is_chosen(machine, name) {
        return;
    }
    let in_order = between_marks(|| collect(sample));
    let mut samples = in_order;
    samples.sort_unstable();
    let [min, median, p99, max] = [0, ITERATIONS / 2, ITERATIONS * 99 / 100, ITERATIONS - 1]
        .map(|at| timer::to_ns(samples[at]));
    let mean = timer::to_ns(samples.iter().sum()) / ITERATIONS as u64;
    say!("BENCH {name} {min} {median} {mean} {p99} {max}");
    print_raw(name, &in_order);
}

/// Executes two hints around a row, by which a plugin of QEMU knows the row's instructions
/// (`tests/exit-counter/src/costs.rs`). The architecture has not allocated the hints, so CPUs
/// execute them as NOP (Arm DDI 0487, C6.2, HINT).
fn between_marks<R>(row: impl FnOnce() -> R) -> R {
    // SAFETY: a hint that does nothing.
    unsafe { asm!("hint #0x70", options(nostack)) };
    let result = row();
    // SAFETY: as above.
    unsafe { asm!("hint #0x71", options(nostack)) };
    result
}

/// Prints the samples in order, equal ones in a row as one with their number. A thousand equal
/// samples are one word: each character on a guest's console is an exit.
fn print_raw(name: &str, samples: &[u64]) {
    // The console does not fail.
    let _ = write!(Console, "RAW {name}");
    for run in samples.chunk_by(|a, b| a == b) {
        let _ = write!(Console, " {}x{}", timer::to_ns(run[0]), run.len());
    }
    say!("");
}

/// Takes samples behind the warm-up. Nothing is printed between samples. A console's exit in
/// between would leave caches and TLBs in another state.
fn collect(mut sample: impl FnMut() -> u64) -> [u64; ITERATIONS] {
    for _ in 0..WARM_UP {
        sample();
    }
    core::array::from_fn(|_| sample())
}

/// Returns the median, for the price of a measurement itself.
fn median_of(sample: fn() -> u64) -> u64 {
    let mut samples = collect(sample);
    samples.sort_unstable();
    samples[ITERATIONS / 2]
}

/// Measures a sequence between two counter reads; the operands may name X0 to X17 as lost.
macro_rules! between_reads {
    // The ISB in front keeps the first counter read from being executed early: reads of the counter
    // may be reordered (Arm DDI 0487, the Generic Timer).
    ($($line:literal,)* ; $($operand:tt)*) => {{
        let (start, end): (u64, u64);
        // SAFETY: the sequence changes only the registers listed, and interrupts are masked.
        unsafe {
            asm!(
                "isb",
                "mrs x20, cntvct_el0",
                $($line,)*
                "mrs x21, cntvct_el0",
                out("x20") start, out("x21") end,
                $($operand)*
                options(nostack),
            );
        }
        end - start
    }};
}

/// Returns the price of two adjacent counter reads, which is subtracted from the other figures. No
/// ISB stands between them: the ISBs of a row are part of the row.
fn read_twice() -> u64 {
    between_reads!(;)
}

/// Measures a call that Gear1 answers by itself: PSCI_VERSION needs no state of the VM. ISB on both
/// sides keeps a counter read from being executed early, inside the call or before it.
fn hypercall() -> u64 {
    between_reads!("isb", "hvc #0", "isb",; in("x0") u64::from(function::VERSION), clobber_abi("C"),)
}

/// Measures a call that Gear2 answers. GEAR2_NOP does nothing there, so that only the way there and
/// back is measured.
fn gear2_round_trip() -> u64 {
    between_reads!("isb", "hvc #0", "isb",; in("x0") u64::from(GEAR2_NOP), clobber_abi("C"),)
}

/// Measures a load of 32 bits, the size of all registers that a row reads.
fn load(address: u64) -> u64 {
    between_reads!("isb", "ldr w0, [x1]", "isb",; out("x0") _, in("x1") address,)
}

/// Measures a store of zero, which is a valid value of each register that a row writes.
fn store(address: u64) -> u64 {
    between_reads!("isb", "str wzr, [x1]", "isb",; in("x1") address,)
}

/// Measures a read of a feature register, which Gear1 traps to hide features from guests. KVM traps
/// the same group (HCR_EL2.TID3) for the same reason.
fn id_register() -> u64 {
    between_reads!("isb", "mrs x0, id_aa64mmfr0_el1", "isb",; out("x0") _,)
}

/// Measures acknowledge and end without the exception. The pause lets the SGI arrive before the
/// first counter read. DSB between both, as Linux has it in `gic_read_iar`. Neither traps: list
/// registers serve them without an exit.
fn acknowledge_and_end() -> u64 {
    gic::send_sgi(cpu::index(), SGI);
    timer::delay_us(1);
    match gic::version() {
        Version::V2 => between_reads!(
            "isb",
            "ldr w0, [x1, #0xc]",
            "dsb sy",
            "str w0, [x1, #0x10]",
            "isb",
            ; out("x0") _, in("x1") gic::v2::cpu_interface(),
        ),
        Version::V3 => between_reads!(
            "isb",
            "mrs x0, s3_0_c12_c12_0",
            "dsb sy",
            "msr s3_0_c12_c12_1, x0",
            "isb",
            ; out("x0") _,
        ),
    }
}

/// Runs a sequence, which sets X20 to its start, with interrupts unmasked; returns the time from
/// there to the handler. `x11` points to where the handler stores its time for others.
macro_rules! until_handler {
    ($($line:literal),+ ; $($operand:tt)*) => {{
        let (start, handler): (u64, u64);
        let mut unread = 0_u64;
        // SAFETY: the handler changes X9, X10 and what X11 points to; the sequence only the
        // registers listed. Interrupts are masked again at its end.
        unsafe {
            asm!(
                "mov x9, xzr",
                $($line,)+
                "msr daifset, #2",
                out("x20") start, out("x9") handler, out("x10") _, in("x11") &raw mut unread,
                in("x14") gic::v2::cpu_interface(),
                $($operand)*
                options(nostack),
            );
        }
        handler - start
    }};
}

/// Register and value that send an SGI to a target. Both are computed before the measurement, which
/// then has the store alone.
#[derive(Clone, Copy)]
struct Sgi {
    value: u64,
    /// GICD_SGIR; a GICv3 has ICC_SGI1R_EL1.
    register: u64,
}

impl Sgi {
    /// GICD_SGIR has the targets in bits 23:16; ICC_SGI1R_EL1 has them in bits 15:0 and the SGI in
    /// bits 27:24. Affinities above 0 are 0 in the machines of the benchmark.
    fn to(cpu: usize) -> Sgi {
        let value = match gic::version() {
            Version::V2 => 1 << cpu << 16 | u64::from(SGI),
            Version::V3 => u64::from(SGI) << 24 | 1 << cpu,
        };
        let register = gic::distributor() + gic::register::SGIR;
        Sgi { value, register }
    }
}

/// Interrupts are unmasked before the counter is read: the instructions of unmasking are not the
/// row's.
fn sgi_to_self() -> u64 {
    macro_rules! by {
        ($send:literal, $sgi:expr) => {
            until_handler!(
                "msr daifclr, #2",
                "isb",
                "mrs x20, cntvct_el0",
                $send,
                "isb",
                "2: yield",
                "cbz x9, 2b"
                ; in("x1") $sgi.value, in("x2") $sgi.register,
            )
        };
    }
    let sgi = Sgi::to(cpu::index());
    match gic::version() {
        Version::V2 => by!("str w1, [x2]", sgi),
        Version::V3 => by!("msr s3_0_c12_c11_5, x1", sgi),
    }
}

/// Spins without YIELD: nobody else runs yet, and QEMU is much faster so. The deadline is the
/// start: what is measured begins when the timer's condition is met.
fn timer_spinning() -> u64 {
    let deadline = timer::now() + timer::from_us(DEADLINE_US);
    until_handler!(
        "mov x20, x1",
        "msr cntv_cval_el0, x20",
        "msr cntv_ctl_el0, x2",
        "isb",
        "msr daifclr, #2",
        "2: cbz x9, 2b"
        ; in("x1") deadline, in("x2") 1_u64,
    )
}

/// WFI with interrupts masked, as operating systems do it: nothing is missed between check and WFI.
fn timer_asleep() -> u64 {
    let deadline = timer::now() + timer::from_us(DEADLINE_US);
    until_handler!(
        "mov x20, x1",
        "msr cntv_cval_el0, x20",
        "msr cntv_ctl_el0, x2",
        "isb",
        "2: wfi",
        "msr daifclr, #2",
        "isb",
        "msr daifset, #2",
        "cbz x9, 2b"
        ; in("x1") deadline, in("x2") 1_u64,
    )
}

/// Measures an SGI to the other CPU, until that one's handler has stored its time. The DSB makes
/// the cleared answer visible before the SGI is sent. The pause lets the other CPU get back into
/// its loop, or to sleep, from the sample before.
fn sgi_to_other() -> u64 {
    macro_rules! by {
        ($send:literal, $sgi:expr) => {{
            let (start, handler): (u64, u64);
            // SAFETY: writes the SGI register; reads `ANSWER`, which the other CPU writes, as an
            // aligned load.
            unsafe {
                asm!(
                    "dsb sy",
                    "isb",
                    "mrs x20, cntvct_el0",
                    $send,
                    "isb",
                    "2: yield",
                    "ldr x9, [x3]",
                    "cbz x9, 2b",
                    in("x1") $sgi.value, in("x2") $sgi.register, in("x3") ANSWER.as_ptr(),
                    out("x20") start, out("x9") handler,
                    options(nostack),
                );
            }
            handler - start
        }};
    }
    let sgi = Sgi::to(1);
    timer::delay_us(SETTLE_US);
    ANSWER.store(0, Ordering::Release);
    match gic::version() {
        Version::V2 => by!("str w1, [x2]", sgi),
        Version::V3 => by!("msr s3_0_c12_c11_5, x1", sgi),
    }
}

/// Entry point of the other CPU: its interrupt handler stores its time to `ANSWER`, until it is
/// told to stop. The way to wait is read once: CPU 0 changes it only while this CPU is off.
fn target(_cpu: usize) {
    set_vectors();
    gic::enable(SGI);
    let sleeps = TARGET_SLEEPS.load(Ordering::Acquire);
    TARGET_READY.store(true, Ordering::Release);
    if sleeps {
        sleep_until_stopped()
    } else {
        spin_until_stopped()
    }
}

/// Expands to a loop with interrupts let in, whose handler stores its time to `$answer`, until the
/// byte at `$stop` is not zero.
macro_rules! handle_until {
    ($answer:expr, $stop:expr; $($line:literal),+) => {
        // SAFETY: reads `$stop` as aligned loads; the handler changes X9, X10 and `$answer`.
        // Interrupts are masked again at its end.
        unsafe {
            core::arch::asm!(
                $($line,)+
                "msr daifset, #2",
                out("x9") _, out("x10") _, out("x12") _,
                in("x11") $answer, in("x13") $stop,
                in("x14") gic::v2::cpu_interface(),
                options(nostack),
            )
        }
    };
}
use handle_until;

/// Waits awake. YIELD ends this CPU's turn in QEMU; without it the receiver's instructions of a
/// whole turn would be in the row.
fn spin_until_stopped() {
    handle_until!(
        ANSWER.as_ptr(), TARGET_STOPS.as_ptr();
        "msr daifclr, #2",
        "2: yield",
        "ldrb w12, [x13]",
        "cbz w12, 2b"
    );
}

/// Waits in WFI. Interrupts are masked around WFI, so that the interrupt that tells to stop is not
/// taken between the check and WFI.
fn sleep_until_stopped() {
    handle_until!(
        ANSWER.as_ptr(), TARGET_STOPS.as_ptr();
        "2: wfi",
        "msr daifclr, #2",
        "isb",
        "msr daifset, #2",
        "ldrb w12, [x13]",
        "cbz w12, 2b"
    );
}

//! The steps of a search: what a guest can do, with two numbers that say how.
//!
//! A step is small and always allowed: what makes a long exit is the state that earlier steps have
//! left. The search therefore changes sequences of steps, and no step checks a result.

use core::arch::asm;
use core::fmt;

use test_guests::attack::Random;
use test_guests::exception::catch;
use test_guests::gic::{self, Version, register, v3};
use test_guests::mmio::{read8, read32, read64, write8, write32, write64};
use test_guests::psci::{self, function};
use test_guests::{Machine, cpu, read_sysreg, timer, write_sysreg};

/// Kinds of steps. Each is a possible goal of the search. The names are those of the reports; the
/// numbers below are their places in the list.
pub(super) const KINDS: [&str; 14] = [
    "distributor-store",
    "distributor-load",
    "redistributor-store",
    "redistributor-load",
    "whole-distributor",
    "priorities",
    "routes",
    "sgi",
    "call",
    "register",
    "interrupts",
    "wait",
    "timer",
    "ends",
];
/// Names for the places in [`KINDS`], as a kept sequence has the numbers: a new kind goes to the
/// end of the list. A kind that changed its place would make every kept sequence another one.
const DISTRIBUTOR_STORE: u8 = 0;
/// Gear1 answers GICD_CTLR, GICD_TYPER and GICD_IIDR without a stack frame. Loads of pending and
/// active bits are the long ones: Gear1 reads the list registers first.
const DISTRIBUTOR_LOAD: u8 = 1;
const REDISTRIBUTOR_STORE: u8 = 2;
/// Before a load of pending or active bits the SGIs that were posted to that vCPU become pending.
const REDISTRIBUTOR_LOAD: u8 = 3;
/// A sequence has at most 24 steps, too few to set several registers of 15 words by single stores.
const WHOLE: u8 = 4;
const PRIORITIES: u8 = 5;
const ROUTES: u8 = 6;
/// An SGI for one vCPU that is on is posted without the VM's lock. An SGI for several takes the
/// lock, and each target may need a kick.
const SGI: u8 = 7;
const CALL: u8 = 8;
const REGISTER: u8 = 9;
const INTERRUPTS: u8 = 10;
/// Eight vCPUs share two CPUs, so a wait may unload this vCPU and save all its list registers.
const WAIT: u8 = 11;
const TIMER: u8 = 12;
const ENDS: u8 = 13;

/// Registers with a bit for each interrupt. Each word of them concerns 32 interrupts, so that one
/// store can make much work. Pending and active bits of a loaded vCPU are in its list registers,
/// which Gear1 takes over before an access to GICD_ISPENDR, GICD_ICPENDR, GICD_ISACTIVER or
/// GICD_ICACTIVER. The other three registers are Gear1's memory alone.
const BITMAPS: [u64; 7] = [
    register::ISENABLER,
    register::ISPENDR,
    register::ISACTIVER,
    register::ICENABLER,
    register::ICPENDR,
    register::ICACTIVER,
    register::IGROUPR,
];
/// GearV's distributor has INTIDs up to 511. Words of a bitmap from INTID 32 on: word 0 is the
/// private interrupts', in the redistributor.
const SPI_WORDS: u64 = 15;
const SPIS: u64 = 480;
/// Most acknowledged interrupts that a sequence leaves to its end. Deeper than the priorities of
/// any list register allow.
const MAX_ACKNOWLEDGED: usize = 32;
/// Calls with any arguments; what would end the VM or the vCPU is left out. Numbers without a name
/// are the 32-bit forms, FF-A's, and some that nobody has. 0x8000_8000 and 0x8000_3fff are
/// SMCCC_ARCH_WORKAROUND_1 and _3, 0xc500_0020 and 0xc500_0021 ask for stolen time (Arm DEN 0057),
/// 0x8400_0063 and 0x8400_0066 are FFA_VERSION and FFA_RXTX_MAP. 0xc600_0011 and 0xc600_0012 are
/// nobody's in Gear1, which hands the vendor's range to Gear2.
const CALLS: [u32; 22] = [
    function::VERSION,
    function::CPU_ON,
    function::AFFINITY_INFO,
    function::FEATURES,
    function::NODE_HW_STATE,
    function::SYSTEM_SUSPEND,
    function::SMCCC_VERSION,
    function::ARCH_FEATURES,
    0x8000_8000,
    0x8000_3fff,
    0x8400_0003,
    0x8400_0004,
    0x8400_0006,
    0x8400_000d,
    0x8400_0063,
    0x8400_0066,
    0x8600_ff01,
    0xc500_0020,
    0xc500_0021,
    0xc600_0010,
    0xc600_0011,
    0xc600_0012,
];

/// A step. Plain numbers: a sequence can be printed, repeated and changed at one place. The meaning
/// of both numbers is the kind's; any values are valid.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) kind: u8,
    a: u32,
    b: u32,
}

impl fmt::Display for Step {
    /// Prints a step as [`Step::parse`] reads it. Hexadecimal numbers keep a line of the kept
    /// inputs short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}:{:x}", self.kind, self.a, self.b)
    }
}

/// State to restore after a sequence. A sequence must not depend on the one before.
pub(super) struct State {
    /// As the acknowledge register gave them: GICC_EOIR needs the sender of an SGI as well (IHI
    /// 0048, 4.4.5).
    acknowledged: [u32; MAX_ACKNOWLEDGED],
    count: usize,
    /// GICC_CTLR.EOImode or ICC_CTLR_EL1.EOImode. At 1 an end only drops the priority, and the
    /// interrupt stays active until it is deactivated.
    two_step: bool,
    /// Entry points of calls lie at both edges of the VM's memory, where Gear1's search through
    /// regions decides.
    ram: u64,
    ram_end: u64,
    cpus: usize,
}

impl State {
    /// Brings the interrupt controller into the same state each time. Private interrupts stay
    /// enabled: the timer's ends a wait.
    pub(super) fn fresh(machine: &Machine) -> State {
        let base = gic::distributor();
        for word in 1..=SPI_WORDS {
            for clear in [register::ICENABLER, register::ICPENDR, register::ICACTIVER] {
                write32(base + clear + 4 * word, !0);
            }
        }
        let frame = gic::frame(0);
        for clear in [register::ICPENDR, register::ICACTIVER] {
            write32(frame + clear, !0);
        }
        gic::set_mask(0xff);
        write32(base + register::CTLR, enabled());
        State {
            acknowledged: [0; MAX_ACKNOWLEDGED],
            count: 0,
            two_step: false,
            ram: machine.ram.start,
            ram_end: machine.ram.end,
            cpus: machine.cpus,
        }
    }

    /// Ends the acknowledged interrupts, in the order that the architecture requires. Ends in
    /// another order than that of the acknowledges are UNPREDICTABLE (IHI 0069). EOImode is 0
    /// before the ends: at 1 the interrupts would stay active for the next sequence.
    pub(super) fn leave(&mut self) {
        write32(gic::distributor() + register::CTLR, 0);
        timer::disarm();
        write_sysreg!("cntp_ctl_el0", 0);
        gic::set_two_step(false);
        while self.count > 0 {
            self.count -= 1;
            gic::end(self.acknowledged[self.count]);
        }
    }

    /// Keeps what came, for its end. Acknowledges without an end lower the running priority for the
    /// steps that follow. INTIDs 1020 to 1023 are no interrupts: nothing became active, and an end
    /// of them is wrong.
    fn acknowledge(&mut self) {
        if self.count < MAX_ACKNOWLEDGED {
            let acknowledged = gic::acknowledge();
            if gic::is_real(acknowledged) {
                self.acknowledged[self.count] = acknowledged;
                self.count += 1;
            }
        }
    }
}

/// Returns GICD_CTLR with the group enabled that arrives as IRQ. GICv3: affinity routing and Group
/// 1; GICv2: Group 0, which arrives as IRQ here. 0x12 is GICD_CTLR.ARE and EnableGrp1; GearV's ARE
/// reads as one in any case.
fn enabled() -> u32 {
    match gic::version() {
        Version::V2 => 1,
        Version::V3 => 0x12,
    }
}

/// Returns all bits, some, or one. Dense words are tried more often, since they make more work. The
/// multiplier is 2^32 over the golden ratio, which spreads few bits over the word.
fn bits(b: u32) -> u32 {
    match b & 3 {
        0 | 1 => !0,
        2 => (b >> 2).wrapping_mul(0x9e37_79b9),
        _ => 1 << (b >> 2 & 31),
    }
}

/// Returns a priority for an interrupt: falling, rising, all the same, or mixed. The pattern
/// decides how often a better interrupt turns up while the vGIC searches. Five bits remain, as a
/// virtual CPU interface has at least: lower ones would read as zero.
fn priority(pattern: u32, intid: u64) -> u8 {
    let intid = intid as u32;
    (match pattern & 3 {
        0 => 0xff - intid / 2,
        1 => intid / 2,
        2 => pattern >> 2,
        _ => intid.wrapping_mul(0x9e37_79b9).wrapping_add(pattern) >> 24,
    }) as u8
        & 0xf8
}

impl Step {
    /// Fills the places behind a sequence's end, which nobody takes.
    pub(super) const NONE: Step = Step {
        kind: 0,
        a: 0,
        b: 0,
    };

    /// Makes a step: one of the goal's as often as any other. A goal's own kind is preferred: what
    /// makes a kind of step long stands before it.
    pub(super) fn random(goal: u8, random: &mut Random) -> Step {
        let kind = match random.below(3) {
            0 => goal,
            _ => random.below(KINDS.len() as u64) as u8,
        };
        Step {
            kind,
            a: random.next() as u32 & 0xffff,
            b: random.next() as u32 & 0xffff,
        }
    }

    /// Changes one of the step's numbers. Small changes keep what was found, and large ones leave a
    /// dead end.
    pub(super) fn change(&mut self, random: &mut Random) {
        let number = match random.below(2) {
            0 => &mut self.a,
            _ => &mut self.b,
        };
        *number = match random.below(2) {
            0 => *number ^ 1 << random.below(16),
            _ => random.next() as u32 & 0xffff,
        };
    }

    /// The reverse of [`Step`]'s text, as a command line has it.
    pub(super) fn parse(word: &str) -> Option<Step> {
        let mut numbers = word
            .split(':')
            .map(|number| u32::from_str_radix(number, 16));
        let mut next = || numbers.next()?.ok();
        let kind = u8::try_from(next()?).ok()?;
        Some(Step {
            kind,
            a: next()?,
            b: next()?,
        })
    }

    /// Takes the step. Every step is one that any guest may take. A number beyond the list is no
    /// step: a command line may have any.
    pub(super) fn take(self, state: &mut State) {
        match self.kind {
            DISTRIBUTOR_STORE => self.store_to_distributor(),
            DISTRIBUTOR_LOAD => self.load_from_distributor(),
            REDISTRIBUTOR_STORE => self.store_to_redistributor(state),
            REDISTRIBUTOR_LOAD => self.load_from_redistributor(state),
            WHOLE => self.store_to_all_words(),
            PRIORITIES => self.set_priorities(),
            ROUTES => self.set_routes(state),
            SGI => self.sgi(),
            CALL => self.call(state),
            REGISTER => self.register(state),
            INTERRUPTS => self.take_interrupts(state),
            WAIT => self.wait(),
            TIMER => self.use_timer(),
            ENDS => self.end_many(state),
            _ => {}
        }
    }

    /// Other offsets than those of bitmaps are mostly reserved, and cost a decode. One case in
    /// eight stores anywhere in the first 4 KiB. Offset 0xf00 among those is GICD_SGIR, by which a
    /// GICv2 sends SGIs.
    fn store_to_distributor(self) {
        let (base, a) = (gic::distributor(), u64::from(self.a));
        let word = 1 + a / 8 % SPI_WORDS;
        match BITMAPS.get(a as usize % 8) {
            Some(bitmap) => write32(base + bitmap + 4 * word, bits(self.b)),
            None => write32(base + (a / 8 % 0x400) * 4, bits(self.b)),
        }
    }

    /// Wrong sizes and unaligned places may abort, which is caught. Bytes are legal in
    /// GICD_IPRIORITYR and GICD_ITARGETSR alone, doublewords in GICD_IROUTER alone. Gear1 reads
    /// other sizes as zero.
    fn load_from_distributor(self) {
        let place = gic::distributor() + u64::from(self.a) % 0x1000;
        match self.b & 3 {
            0 => _ = catch(|| _ = read8(place)),
            1 => _ = catch(|| _ = read64(place & !7)),
            _ => _ = catch(|| _ = read32(place & !3)),
        }
    }

    /// Bit 30 is the physical timer's, which ends no wait of this guest's. The frame may be another
    /// vCPU's, which runs on the other CPU with its list registers loaded: Gear1 kicks that vCPU.
    fn store_to_redistributor(self, state: &State) {
        let a = u64::from(self.a);
        let frame = redistributor(state, a / 8);
        match BITMAPS.get(a as usize % 8) {
            Some(bitmap) => write32(frame + bitmap, bits(self.b) & !(1 << 30)),
            None => write32(
                frame + register::IPRIORITYR + ((a / 8) & 0x1c),
                self.b.into_word(),
            ),
        }
    }

    /// Also of other vCPUs, whose state may be in use. List registers of another CPU cannot be read
    /// from here: the answer is what that vCPU had at its last exit.
    fn load_from_redistributor(self, state: &State) {
        let place = redistributor(state, u64::from(self.a)) + u64::from(self.b) % 0x1000;
        _ = catch(|| _ = read32(place & !3));
    }

    /// Stores to all words of a register, or turns the distributor on and off. All words in one
    /// step leave most interrupts to be looked through by the next exit. GICD_CTLR written, with
    /// all interrupts pending and enabled, is among the longest paths of `docs/worst-cases.md`:
    /// each interrupt becomes deliverable at once.
    fn store_to_all_words(self) {
        let (base, b) = (gic::distributor(), self.b);
        if self.a & 0x18 == 0x18 {
            write32(base + register::CTLR, b & 3);
            return;
        }
        let bitmap = BITMAPS[self.a as usize % BITMAPS.len()];
        for word in 1..=SPI_WORDS {
            write32(
                base + bitmap + 4 * word,
                bits(b.wrapping_add(word as u32 & b >> 8)),
            );
        }
    }

    /// All at once, as a driver does at boot. Interrupts that are pending or in list registers
    /// meanwhile have to be ranked anew. Word 8 of GICD_IPRIORITYR is the first of SPIs: words 0 to
    /// 7 are SGIs' and PPIs'.
    fn set_priorities(self) {
        for four in 8..8 + SPIS / 4 {
            let bytes = [0, 1, 2, 3].map(|n| priority(self.a, 4 * four + n));
            write32(
                gic::distributor() + register::IPRIORITYR + 4 * four,
                u32::from_le_bytes(bytes),
            );
        }
    }

    /// A route to nobody leaves an interrupt pending for ever. A change of GICD_IROUTER or
    /// GICD_ITARGETSR takes a pending interrupt from one vCPU to another, which has to be kicked.
    fn set_routes(self, state: &State) {
        for intid in 32..32 + SPIS as u32 {
            let to = if self.b & 1 == 0 {
                self.a
            } else {
                self.a.wrapping_add(intid)
            };
            route(intid, to as usize % (state.cpus + 1), state.cpus);
        }
    }

    /// Calls that would end the VM get arguments that are refused. CPU_ON gets entry 3, which is no
    /// multiple of 4 (PSCI INVALID_ADDRESS); SYSTEM_SUSPEND gets an entry below 8, where the VM has
    /// no memory.
    fn call(self, state: &State) {
        let function = CALLS[self.a as usize % CALLS.len()];
        let [x, y] = [self.b & 0xff, self.b >> 8].map(u64::from);
        let entry = match y & 3 {
            0 => state.ram,
            1 => state.ram_end,
            2 => state.ram_end - 4,
            _ => y,
        };
        // 0x8400_0003 is CPU_ON in the 32-bit convention.
        if matches!(
            function,
            function::SYSTEM_SUSPEND | function::CPU_ON | 0x8400_0003
        ) {
            // The entry point is invalid: the CPU never starts.
            psci::hvc(function, [x & 7, 3, y]);
        } else {
            psci::hvc(function, [x, entry, y]);
        }
    }

    /// Active interrupts without an end fill the list registers. Ends are of the last one
    /// acknowledged, as the order of priorities demands. A level of preemption more is an active
    /// priority more, which the hardware keeps in `ICH_AP0R<n>_EL2` and `ICH_AP1R<n>_EL2` or in
    /// GICH_APR.
    fn take_interrupts(self, state: &mut State) {
        for _ in 0..=self.a % 8 {
            state.acknowledge();
        }
        if self.b & 1 != 0 && state.count > 0 {
            state.count -= 1;
            gic::end(state.acknowledged[state.count]);
        }
    }

    /// Waits in WFI for the timer. Whatever the steps before have done, the timer's interrupt is
    /// set up anew, so that the wait has an end. Group and active state of the timer may be
    /// anything after the stores before: an active timer interrupt, or one of a disabled group,
    /// would never be signalled.
    fn wait(self) {
        let frame = gic::frame(timer::INTID);
        let group = if gic::version() == Version::V2 { 0 } else { !0 };
        write32(frame + register::IGROUPR, group);
        write32(frame + register::ICACTIVER, 1 << timer::INTID);
        write32(frame + register::ISENABLER, 1 << timer::INTID);
        write32(gic::distributor() + register::CTLR, enabled());
        gic::set_mask(0xff);
        gic::set_priority(timer::INTID, 0);
        timer::arm(timer::now() + 4 * u64::from(self.a & 0x3fff));
        cpu::wfi();
        timer::disarm();
    }

    /// The physical timer is emulated, and its accesses trap. The spin until 300 ticks after the
    /// deadline has the interrupt arrive while the vCPU runs. Registers of the virtual timer are
    /// the guest's own and cost no exit.
    fn use_timer(self) {
        let ahead = timer::now() + 16 * u64::from(self.a & 0xff);
        if self.b & 1 == 0 {
            timer::arm(ahead);
            cpu::wait_until(|| timer::now() > ahead + 300);
            timer::disarm();
        } else {
            write_sysreg!("cntp_cval_el0", ahead);
            write_sysreg!("cntp_ctl_el0", u64::from(self.b >> 1 & 3));
        }
    }

    /// Ends interrupts that no list register has. The GIC counts such ends, and the next exit
    /// reports the count. ICH_HCR_EL2.EOIcount and GICH_HCR.EOICount have five bits, so that up to
    /// 39 ends pass the highest count.
    fn end_many(self, state: &mut State) {
        if self.b & 1 != 0 {
            state.two_step = !state.two_step;
            gic::set_two_step(state.two_step);
        }
        for _ in 0..self.a % 40 {
            gic::end(32 + u32::from(self.b as u8));
        }
        if self.b & 2 != 0 {
            gic::deactivate(32 + (self.b >> 2) % SPIS as u32);
        }
    }

    /// Both groups and the alias register: only one of them reaches a guest here. Group 0 and the
    /// other Security state's SGIs are trapped all the same, and Gear1 has to find out that nobody
    /// gets them.
    fn sgi(self) {
        let (a, b) = (self.a, self.b);
        let target = (a & 0xff) as u8;
        match b & 7 {
            0 => gic::send_sgi_to_others(a >> 8 & 15),
            1 if gic::version() == Version::V3 => {
                let value = u64::from(a >> 8 & 15) << 24 | u64::from(target);
                write_sysreg!("icc_sgi0r_el1", value);
            }
            2 if gic::version() == Version::V3 => {
                let value = u64::from(a >> 8 & 15) << 24 | u64::from(target);
                write_sysreg!("icc_asgi1r_el1", value);
            }
            3 => gic::send_sgi(0, a >> 8 & 15),
            4 if gic::version() == Version::V2 => {
                write32(
                    gic::distributor() + register::SPENDSGIR + (a >> 8 & 12) as u64,
                    !0,
                );
            }
            _ => gic::send_sgi_to(target, a >> 8 & 15),
        }
    }

    /// Reads that trap, writes that are ignored, and accesses that abort. ID registers trap by
    /// HCR_EL2.TID3, ACTLR_EL1 by TACR, S3_1_C15_C2_1, which is implementation defined, by TIDCP,
    /// and OSLAR_EL1 by MDCR_EL2.TDOSA. Gear1 cleans at most 32 KiB for one trapped DC CISW, and
    /// the guest executes the instruction again.
    fn register(self, state: &State) {
        match self.a % 10 {
            0 => _ = read_sysreg!("id_aa64pfr0_el1"),
            1 => write_sysreg!("csselr_el1", u64::from(self.b & 0xf)),
            2 => _ = read_sysreg!("ccsidr_el1"),
            // SAFETY: all of this guest's data is clean or is cleaned by it.
            // Cache maintenance by set and way traps (HCR_EL2.TSW).
            3 => unsafe { asm!("dc cisw, {}", in(reg) u64::from(self.b), options(nostack)) },
            4 => write_sysreg!("oslar_el1", 0),
            5 => _ = read_sysreg!("cntp_tval_el0"),
            6 => _ = catch(|| _ = read_sysreg!("S3_1_C15_C2_1")),
            7 => write_sysreg!("actlr_el1", u64::from(self.b)),
            // Nothing is behind the memory: an abort.
            8 => _ = catch(|| write8(state.ram_end + u64::from(self.b), 0)),
            _ => _ = catch(|| write64(0x0a00_0000 + u64::from(self.b & 0xff8), 0)),
        }
    }
}

/// Four bytes of a priority register.
trait IntoWord {
    fn into_word(self) -> u32;
}

impl IntoWord for u32 {
    fn into_word(self) -> u32 {
        self.wrapping_mul(0x0101_0101)
    }
}

/// Returns the frame with the private interrupts of a vCPU; with a GICv2 it is the caller's. A
/// GICv2 banks them instead. GICR_TYPER tells a driver whose frame is whose; GearV has them in the
/// order of the vCPUs, 128 KiB each.
fn redistributor(state: &State, number: u64) -> u64 {
    match gic::version() {
        Version::V2 => gic::distributor(),
        Version::V3 => {
            let first = v3::sgi_frame();
            first + number % state.cpus as u64 * v3::FRAMES
        }
    }
}

/// Routes an SPI; the vCPU behind the last is nobody. GICv2 has a target mask and GICv3 an
/// affinity. A GICv2's 0xff names all CPUs instead, each of which is a candidate for the interrupt
/// (1 of N). An affinity that no vCPU has leaves the interrupt of a GICv3 pending.
fn route(intid: u32, to: usize, cpus: usize) {
    match gic::version() {
        Version::V2 => {
            let targets = if to == cpus { 0xff } else { 1 << to };
            write8(
                gic::distributor() + register::ITARGETSR + u64::from(intid),
                targets,
            );
        }
        Version::V3 => {
            let place = gic::distributor() + register::IROUTER + 8 * u64::from(intid);
            write64(place, to as u64);
        }
    }
}

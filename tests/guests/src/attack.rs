//! Whatever a guest can do to others, at random: one step at a time, the same for the same seed.
//!
//! Owns the choice of steps, and memory of the VM's own that they may spoil. Invariant: a step
//! leaves the guest able to take the next one; what would stop or reset its VM, mask its exceptions
//! or spoil its code is left out. Interrupts stay masked.
//!
//! A step's result is not checked, since any answer is right as long as nobody else is harmed. The
//! other VMs and the gears tell whether one is: they go on as before, or their tests fail.

use core::arch::asm;

use crate::exception::catch;
use crate::ffa::{self, Descriptor, regs};
use crate::gic::{self, Version, v3::FRAMES};
use crate::mmio::{read8, read32, read64, write8, write32, write64};
use crate::psci::{self, function};
use crate::{MAX_CPUS, Machine, read_sysreg, write_sysreg};

/// Addresses of devices on QEMU's `virt`: UARTs, clock, GPIO, flash, firmware configuration,
/// virtio, SMMU, and the memory of others.
pub const PLACES: [u64; 10] = [
    0,
    0x0802_0000,
    0x0900_0000,
    0x0901_0000,
    0x0902_0000,
    0x0903_0000,
    0x0904_0000,
    0x0905_0000,
    0x0a00_0000,
    0x4000_0000,
];
/// Op1, CRn, CRm and Op2. QEMU 10 does not check three bits of the written value, and aborts on an
/// interrupt if they are zero.
const ICC_BPR1_EL1: u32 = 12 << 7 | 12 << 3 | 3;
/// Calls that would end the attacks: after each step the VM must be on and awake.
pub const SPARED: [u32; 10] = [
    function::SYSTEM_OFF,
    function::SYSTEM_RESET,
    function::SYSTEM_RESET2,
    function::CPU_OFF,
    function::CPU_SUSPEND,
    function::CPU_SUSPEND & !0x4000_0000,
    function::CPU_DEFAULT_SUSPEND,
    function::CPU_DEFAULT_SUSPEND & !0x4000_0000,
    0x8400_000E,
    0xC400_000E,
];
/// Services whose functions are called: architecture, PSCI, FF-A, stolen time, the hypervisor's.
pub const SERVICES: [u32; 8] = [
    0x8000_0000,
    0x8400_0000,
    0xC400_0000,
    0x8400_0060,
    0xC400_0060,
    0xC500_0020,
    0x8600_0000,
    0xC600_0010,
];
/// FF-A functions that wait for another VM, which may not answer.
const WAITS: [u32; 5] = [
    ffa::function::MSG_WAIT as u32,
    ffa::function::RUN as u32,
    ffa::function::DIRECT_REQ as u32,
    ffa::function::DIRECT_REQ as u32 | 0x4000_0000,
    ffa::function::YIELD as u32,
];
/// The call that makes Gear2 fail, in its build for that: another guest's.
pub const FAIL_GEAR2: u32 = gear1_abi::guest::GEAR2_FAIL;
/// The kinds of steps, by name.
pub const KINDS: [&str; 10] = [
    "distributor",
    "redistributors",
    "places",
    "SGIs",
    "calls",
    "interface",
    "registers",
    "maintenance",
    "walks",
    "FF-A",
];
const PAGE: u64 = 0x1000;
/// TCR_EL1: EPD1; and T1SZ, TG1 for 39 bits and 4 KiB. The guest itself uses TTBR0_EL1 alone, so
/// the upper half is free for walks of any table.
const NO_TTBR1: u64 = 1 << 23;
/// TG1 names 4 KiB by 2, unlike TG0.
const TTBR1_39_BITS: u64 = 25 << 16 | 0b10 << 30;
/// Pages that are given away, lent and shared, behind the buffers and the code page. Few pages, so
/// that transactions meet pages that others have taken already.
const GIVEN: u64 = 64;
/// Most VMs. Identifiers of FF-A up to this one are tried as receivers, most of which nobody has.
const VMS: u64 = 16;

/// Marsaglia's xorshift. A generator without state elsewhere: a failed run is repeated by its seed.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins a stream.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// Returns the next number.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and is no iterator"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns one of a list.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Loads two registers, an access that tells EL2 neither its size nor its register. Loads of pairs
/// have no valid syndrome (ESR_EL2.ISV is 0), so that Gear1 cannot emulate them and has to reflect
/// an abort. KVM leaves it to user space for the same reason.
fn read_pair(address: u64) {
    // SAFETY: a load by itself changes nothing of Rust's; if it aborts, the vector handles it.
    unsafe {
        asm!("ldp {a}, {b}, [{at}]", a = out(reg) _, b = out(reg) _, at = in(reg) address, options(nostack))
    };
}

/// Loads from an address of the upper half, whose translation table is at `table`: there may be
/// none. The walk itself is an access of the CPU's to the table, which stage 2 checks like a load
/// (ESR_EL2.S1PTW). The TLB would answer the next walk otherwise, whatever the table is then.
fn walk(table: u64) {
    let control = read_sysreg!("tcr_el1");
    write_sysreg!("ttbr1_el1", table & 0xffff_ffff_f000);
    write_sysreg!("tcr_el1", control & !NO_TTBR1 | TTBR1_39_BITS);
    read32(u64::MAX << 38);
    write_sysreg!("tcr_el1", control);
    // SAFETY: drops what was cached of that translation.
    unsafe { asm!("tlbi vmalle1", "dsb nsh", "isb", options(nostack)) };
}

/// FF-A functions of attacks. Shares are twice as likely.
const FFA: [u64; 13] = [
    ffa::function::SHARE,
    ffa::function::SHARE,
    ffa::function::LEND,
    ffa::function::DONATE,
    ffa::function::RETRIEVE_REQ,
    ffa::function::RELINQUISH,
    ffa::function::RECLAIM,
    ffa::function::FRAG_TX,
    ffa::function::FRAG_RX,
    ffa::function::RXTX_MAP,
    ffa::function::RXTX_UNMAP,
    ffa::function::RX_RELEASE,
    ffa::function::PARTITION_INFO_GET,
];

/// A source of random attacks.
#[derive(Debug)]
pub struct Attacker {
    random: Random,
    /// Page with made-up instructions, followed by the buffers and pages of FF-A.
    scratch: u64,
    /// FF-A identifier of this VM, as far as FF-A returned one.
    own: u64,
    /// Handle of a transaction.
    handle: u64,
    /// Number of attacks of each kind.
    pub counts: [u64; KINDS.len()],
}

impl Attacker {
    /// Makes one with `scratch` and 1 MiB behind it to spoil, page aligned.
    pub fn new(seed: u64, scratch: u64) -> Self {
        let own = ffa::hvc(regs([ffa::function::ID_GET]));
        Self {
            random: Random::new(seed),
            scratch,
            own: own[2],
            handle: 0,
            counts: [0; KINDS.len()],
        }
    }

    /// Takes a step. Exceptions are caught: an abort is a permitted answer to a step.
    pub fn step(&mut self, machine: &Machine) {
        let kind = self.random.below(KINDS.len() as u64);
        self.counts[kind as usize] += 1;
        catch(|| match kind {
            0 => self.access_at(machine.gicd.start, 0x1_0000),
            1 => self.access_at(machine.gic_cpus.start, MAX_CPUS as u64 * FRAMES),
            2 => {
                let place = self.random.of(&PLACES);
                self.access_at(place, PAGE);
            }
            3 => self.sgis(machine),
            4 => self.call(),
            5 => self.interface(machine),
            6 => self.register(),
            7 => self.maintenance(),
            8 => self.walk(),
            _ => self.ffa(machine),
        });
    }

    /// A load or a store of any size, aligned. Accesses of 8 and of 64 bits are wrong for most
    /// registers, and must not reach a neighbour. Pairs are among them as the only form that never
    /// reaches a device.
    fn access_at(&mut self, base: u64, size: u64) {
        let address = base + self.random.below(size);
        let value = self.random.next();
        match self.random.below(7) {
            0 => write8(address, value as u8),
            1 | 2 => write32(address & !3, value as u32),
            3 => write64(address & !7, value),
            4 => drop(read32(address & !3)),
            5 => read_pair(address & !15),
            _ => drop((read8(address), read64(address & !7))),
        }
    }

    /// Sends SGIs by arbitrary values: targets that do not exist, and filters of all kinds.
    fn sgis(&mut self, machine: &Machine) {
        let value = self.random.next();
        match (machine.gic, self.random.below(3)) {
            (Version::V2, _) => write32(machine.gicd.start + gic::register::SGIR, value as u32),
            // To each affinity there may be, and to all but itself.
            (Version::V3, 0) => {
                write_sysreg!("icc_sgi1r_el1", value & 0xf00_ffff | value & 1 << 40)
            }
            (Version::V3, 1) => write_sysreg!("icc_sgi1r_el1", value),
            (Version::V3, _) => {
                write_sysreg!("icc_sgi0r_el1", value);
                write_sysreg!("icc_asgi1r_el1", value);
            }
        }
    }

    /// Makes a call with arbitrary arguments, by HVC or SMC. Small arguments are more likely to be
    /// valid than large ones, so one of them is shifted by a random number of bits. GEAR2_FAIL is
    /// left out: Gear2's restart would be another test's event.
    fn call(&mut self) {
        let function = self.random.of(&SERVICES) + self.random.below(0x20) as u32;
        if SPARED.contains(&function) || WAITS.contains(&function) || function == FAIL_GEAR2 {
            return;
        }
        let arguments = [
            self.random.next(),
            self.random.next() >> self.random.below(64),
            self.random.below(4),
        ];
        let _answer = match self.random.below(2) {
            0 => psci::hvc(function, arguments),
            _ => psci::smc(function, arguments),
        };
    }

    /// Attacks the CPU interface, mainly by ends of interrupts that were never taken, and the
    /// timers. An end without an acknowledge is counted by the hardware (EOIcount): Gear1 has to
    /// find that nothing of this vCPU's has ended.
    fn interface(&mut self, machine: &Machine) {
        let value = self.random.next();
        match (self.random.below(6), machine.gic) {
            (0, _) => write_sysreg!("cntv_ctl_el0", value & 3),
            (1, _) => write_sysreg!("cntp_tval_el0", value >> 44),
            (2, Version::V3) => write_sysreg!("icc_eoir1_el1", value & 0x1ff),
            (3, Version::V3) => write_sysreg!("icc_dir_el1", value & 0x1ff),
            (4, Version::V3) => write_sysreg!("icc_pmr_el1", value & 0xff),
            (5, Version::V3) => drop(read_sysreg!("icc_iar1_el1")),
            (_, Version::V3) => write_sysreg!("icc_ctlr_el1", value & 3),
            (_, Version::V2) => self.access_at(machine.gic_cpus.start, 0x2000),
        }
    }

    /// A system register: any is read; those are written that EL1 does not live by. A register that
    /// is the guest's own, as VBAR_EL1 or SCTLR_EL1, is not written, or the guest could not take
    /// its next step.
    fn register(&mut self) {
        let fields = self.random.next() as u32 & 0x7_ffe0;
        let (op1, crn, crm) = (fields >> 16 & 7, fields >> 12 & 15, fields >> 8 & 15);
        // Timers, counters, the interrupt controller, debug, implementation defined registers; and
        // all of EL2 and EL3.
        let may_write = op1 >= 4 || matches!(crn, 9 | 11 | 14 | 15) || crn == 12 && crm != 0;
        let op0 = 2 + self.random.below(2) as u32;
        let is_read =
            self.random.below(2) == 0 || op0 == 3 && (!may_write || fields >> 5 == ICC_BPR1_EL1);
        self.execute(0xd500_0000 | u32::from(is_read) << 21 | op0 << 19 | fields);
    }

    /// Caches, TLBs and address translation: by any encoding, of memory of its own and others'.
    /// Operations by set and way, of the guest's stage 1 and of EL2's are among them; the latter
    /// are undefined at EL1.
    fn maintenance(&mut self) {
        let fields = self.random.next() as u32 & 0x7_0fe0;
        let crn = self.random.of(&[7, 8, 7, 8, 11, 15]);
        let is_read = u32::from(self.random.below(8) == 0);
        self.execute(0xd508_0000 | is_read << 21 | fields | crn << 12);
    }

    /// A walk of translation tables that are a device's, another's, nowhere, or what stands in its
    /// own pages.
    fn walk(&mut self) {
        walk(self.address());
    }

    /// Executes one instruction, with an address in X0. Instructions are made at run time, as no
    /// assembler takes all encodings. The page is made executable for the CPU by cleaning the data
    /// cache and invalidating the instruction cache. The data side is cleaned by DC CVAU before IC
    /// IVAU, in the order that the Arm ARM gives for code that a CPU writes for itself.
    fn execute(&mut self, instruction: u32) {
        const RET: u32 = 0xd65f_03c0;
        let code = self.scratch;
        write32(code, instruction);
        write32(code + 4, RET);
        let address = self.address();
        // SAFETY: the page holds the instruction and a return; nothing of Rust's is there, nor at
        // the addresses of the VM's own that the instruction may be given.
        unsafe {
            asm!(
                "dc cvau, {code}",
                "dsb ish",
                "ic ivau, {code}",
                "dsb ish",
                "isb",
                "blr {code}",
                "dsb sy",
                "isb",
                code = in(reg) code, inout("x0") address => _, out("x30") _,
            );
        }
    }

    /// Returns an address: any, one of a device or of another VM, or one of the VM's own. A third
    /// each, as own addresses find other errors than foreign ones.
    fn address(&mut self) -> u64 {
        match self.random.below(3) {
            0 => self.random.next(),
            1 => self.random.of(&PLACES) + self.random.below(1 << 30),
            _ => self.given(),
        }
    }

    /// Returns the address of one of the pages that may be lost.
    fn given(&mut self) -> u64 {
        self.scratch + (3 + self.random.below(GIVEN)) * PAGE
    }

    /// A transaction: a sound descriptor, often with words of it changed, of its own pages or of
    /// any. Up to two words of the descriptor are spoiled, so that most checks of Gear1 are passed
    /// and one fails.
    fn ffa(&mut self, machine: &Machine) {
        use ffa::function as f;
        let tx = self.scratch + PAGE;
        let function = self.random.of(&FFA);
        let [a, b, c] = self.arguments(function, machine);
        for _ in 0..self.random.below(3) {
            let at = tx + self.random.below(20) * 8;
            write64(at, self.random.next() >> self.random.below(64));
        }
        let x = ffa::hvc(regs([function, a, b, c]));
        if x[0] == f::SUCCESS && matches!(function, f::SHARE | f::LEND | f::DONATE) {
            self.handle = x[2] & 0xffff_ffff | x[3] << 32;
        }
    }

    /// Returns the arguments of an FF-A function, after its descriptor is written to TX.
    fn arguments(&mut self, function: u64, machine: &Machine) -> [u64; 3] {
        use ffa::function as f;
        let (tx, rx) = (self.scratch + PAGE, self.scratch + 2 * PAGE);
        match function {
            f::RXTX_MAP => [tx, rx, 1],
            f::RECLAIM => [self.handle, self.handle >> 32, 0],
            f::RELINQUISH => {
                ffa::write_relinquish(tx, self.handle, self.random.below(2), self.own);
                [0; 3]
            }
            _ => {
                self.describe(tx, machine);
                let lengths = [(96, 96), (96, 96), (112, 96), (4096, 4096), (0, 0)];
                let (all, part) = self.random.of(&lengths);
                [all, part, 0]
            }
        }
    }

    /// Writes a descriptor with one range.
    fn describe(&mut self, tx: u64, machine: &Machine) {
        let receiver = self.random.below(VMS);
        let pages = 1 + self.random.below(4);
        let handle = self
            .random
            .of(&[0, self.handle, self.random.clone().next()]);
        let descriptor = Descriptor {
            permissions: self.random.below(16),
            attributes: self.random.of(&[0, ffa::WRITE_BACK]),
            handle,
            flags: self.random.below(8),
            pages,
            ranges: 1,
            ..Descriptor::new(self.own, receiver)
        };
        descriptor.write(tx);
        let outside = machine.ram.end + self.random.below(1 << 32);
        let address = match self.random.below(4) {
            0 => outside & !0xfff,
            _ => self.given(),
        };
        ffa::write_range(tx + ffa::HEADER, address, pages);
    }
}

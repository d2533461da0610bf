//! Calls from Gear2 to Gear1: `SVC #number` from EL0, or `HVC #number` from EL1, arguments in X0 to
//! X7.
//!
//! A call keeps X19 to X30, SP and the flags' owner conventions of a function call (AAPCS64); every
//! other register is lost. Results arrive in X0 to X7, of [`NEXT`](number::NEXT) also in X8 and X9.
//! All other calls return a [`Status`] in X0.
//!
//! Times are physical counter ticks (CNTPCT_EL0).
//!
//! Requirements: G1-RUN-005.

use crate::id::VcpuId;
use crate::regs::{NO_VCPU, Regs};

/// Immediates of `SVC`.
pub mod number {
    /// Takes a [`Decision`](super::Decision), returns an [`Event`](crate::event::Event), its time
    /// in X7, and in X8 when the decision took effect: its vCPU was entered, or the wait began. If
    /// an event was pending, X8 is the caller's. If the vCPU has waited inside Gear1
    /// ([`Waits::Stays`](super::Waits)), the ticks of that are added to X9, which holds
    /// [`WAITS_HERE`](super::WAITS_HERE) besides if the vCPU still waits; else X9 is the caller's.
    pub const NEXT: u16 = 0;
    /// `()`: returns [`ABI_VERSION`](crate::ABI_VERSION) in X1, the counter in X2, how often Gear2
    /// was restarted in X3; of the last restart the [`Failure`](super::Failure) in X4, Gear2's PC
    /// in X5 and the CPU whose loop failed in X6.
    pub const VERSION: u16 = 1;
    /// `(vcpu)`: returns in X1 its [`VcpuState`](super::VcpuState), in X2 and X3 the detail: for
    /// `AwaitsMmio` the IPA and the access word of [`Mmio`](crate::event::Mmio); in X4 the CPU it
    /// runs on; in X5 1 while it waits in power-down (PSCI), else 0.
    pub const VCPU_STATE: u16 = 2;
    /// `(vcpu, cpu)`: makes `cpu` the one whose loop gets the vCPU's wake-ups.
    pub const VCPU_ASSIGN: u16 = 3;
    /// `(vcpu, value, how)`: completes what the vCPU waits for ([`Reply`](super::Reply) in X2)
    /// without running it. `Reply::None` wakes a vCPU in WFI or in power-down.
    pub const VCPU_REPLY: u16 = 4;
    /// `(vcpu)`: returns in X1 the ticks stolen from the vCPU as its VM sees them, in X2 those and
    /// the ticks of a wait that lasts, in X3 how often the vCPU was preempted; all since the start
    /// of its VM. In X4 the ticks for which vCPUs have waited inside Gear1 on its owner CPU
    /// since the loop there began, in X5 1 if the vCPU waits there now.
    pub const VCPU_WAITS: u16 = 5;
    /// `(vcpu, first)`: returns in X1 to X6 six registers of a vCPU that does not run, from number
    /// `first` of [`vcpu_reg`](super::vcpu_reg) on, as they were when it left its guest; 0 stands
    /// for those that there are not. `NotFound` unless the manifest has `last-words` or `dump` for
    /// its VM, and of a vCPU that was off in all of the VM's last life; `WrongState` while the VM
    /// runs, unless it has `dump`; `Busy` while another CPU holds them: the loop of the owner CPU
    /// asks first. Of a real-time VM, those of the last life that has ended. FP registers are told
    /// with `dump` alone.
    pub const VCPU_REGS: u16 = 6;
    /// `(vm)`: returns in X1 the VM's [`VmState`](super::VmState), in X2 the number of its vCPUs
    /// that are not off, in X3 the number of starts, in X4 how the VM
    /// [`Ended`](crate::event::Ended) by itself, in X5 the ends of its last lives, in X6 the last
    /// life, by the number of starts, whose heartbeat stopped. `VM_STOP` and `VM_LOAD` reset X4 to
    /// `No`.
    pub const VM_STATE: u16 = 8;
    /// `(vm)`: asks all vCPUs of the VM to stop. `Busy` until the last has left; ask again after
    /// its event.
    pub const VM_STOP: u16 = 9;
    /// `(vm)`: wipes and loads a stopped VM, at most 32 KiB a call; X1 = bytes left, 0 when it is
    /// loaded.
    pub const VM_LOAD: u16 = 10;
    /// `(vm)`: makes the boot vCPU of a loaded VM runnable.
    pub const VM_START: u16 = 11;
    /// `(vm, intid, level)`: drives an emulated device's interrupt line (level 0 or 1) into a VM.
    pub const IRQ_SET: u16 = 16;
    /// `(intid)`: deactivates a physical interrupt that arrived as an event.
    pub const IRQ_DONE: u16 = 17;
    /// `(cpu)`: makes the loop on `cpu` return from `NEXT` with `Event::Poke`.
    pub const POKE: u16 = 18;
    /// `(pl061, line)`: raises a line of an emulated PL061 of the device VM.
    pub const PL061_RAISE: u16 = 19;
    /// `(doorbell)`: rings a doorbell between VMs that the manifest lets Gear2 ring.
    pub const CHANNEL_RING: u16 = 20;
    /// `()`: takes the oldest event of the SMMU: X1 = the VM whose device did it, or the largest
    /// number if nobody owns the device; X2 = the StreamID; X3 = the address that the device used
    /// (IPA); X4 = 1 for a write, 0 for a read; X5 = the number of the event (Arm IHI 0070, 7.3);
    /// X6 = 1 if later events were lost. `NotFound` when there is none.
    pub const DMA_EVENT: u16 = 21;
    /// `(vcpu, reason)`: returns in X1 the exit count, in X2 the ticks.
    pub const EXIT_STATS: u16 = 24;
    /// `(cursor)`: reads a log record; X1 = next cursor, X2.. = the record's words
    /// ([`Record`](crate::record::Record)). `NotFound` when there is none.
    pub const LOG_READ: u16 = 25;
    /// `(on)`: has this CPU write its ring of [`trace`](crate::trace) records (1), or no longer (0).
    /// `NotFound`: it has no ring.
    pub const TRACE: u16 = 26;
    /// `(op)`: powers the machine off (0) or resets it (1). Does not return.
    pub const SYSTEM: u16 = 32;
    /// `(pc, detail)`: Gear2 cannot go on (its panic) and is restarted. Does not return.
    pub const FATAL: u16 = 33;
}

/// Numbers of registers in [`VCPU_REGS`](number::VCPU_REGS). X0 to X30 are 0 to 30.
pub mod vcpu_reg {
    /// SP_EL0.
    pub const SP_EL0: usize = 31;
    /// Program counter.
    pub const PC: usize = 32;
    /// PSTATE, as in SPSR_EL2.
    pub const PSTATE: usize = 33;
    /// SP_EL1, and the registers of EL1 of these names.
    pub const SP_EL1: usize = 34;
    /// See [`SP_EL1`].
    pub const ELR: usize = 35;
    /// See [`SP_EL1`].
    pub const SPSR: usize = 36;
    /// See [`SP_EL1`].
    pub const ESR: usize = 37;
    /// See [`SP_EL1`].
    pub const FAR: usize = 38;
    /// See [`SP_EL1`].
    pub const VBAR: usize = 39;
    /// See [`SP_EL1`].
    pub const TTBR0: usize = 40;
    /// See [`SP_EL1`].
    pub const TTBR1: usize = 41;
    /// See [`SP_EL1`].
    pub const SCTLR: usize = 42;
    /// See [`SP_EL1`].
    pub const TCR: usize = 43;
    /// Number of registers.
    pub const COUNT: usize = 44;
    /// FP and SIMD registers: V0 to V31, the low half of each first, FPSR and FPCR.
    pub const FP: usize = 64;
    /// Number of registers from [`FP`] on.
    pub const FP_COUNT: usize = 66;
    /// Registers of an answer.
    pub const PER_CALL: usize = 6;
}

/// An enumeration in a register, of which no other values exist.
macro_rules! reg_enum {
    ($(#[$doc:meta])* $repr:ident $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($repr)]
        pub enum $name { $($(#[$vdoc])* $variant = $value),+ }

        impl $name {
            /// Returns what has this register value.
            pub const fn from_reg(reg: u64) -> Option<Self> {
                Some(match reg { $($value => Self::$variant,)+ _ => return None })
            }
        }
    };
}

pub(crate) use reg_enum;

reg_enum! {
    /// Outcome of a call, in X0.
    u64 Status {
        /// Done.
        Ok = 0,
        /// No such call.
        NoSuchCall = 1,
        /// An argument names nothing that exists.
        NotFound = 2,
        /// The state does not allow it.
        WrongState = 3,
        /// Not yet; ask again after the next event.
        Busy = 4,
        /// An argument is out of range.
        Invalid = 5,
    }
}

reg_enum! {
    /// Gear2's answer to a vCPU that waits.
    u64 Reply {
        /// Nothing to complete.
        None = 0,
        /// The value read, or the hypercall's result (X0 of the guest).
        Value = 1,
        /// The access ends in a synchronous external abort inside the guest.
        Abort = 2,
    }
}

reg_enum! {
    /// Behaviour of WFI and WFE of a vCPU that runs by a decision: bits of the decision's word.
    u64 Waits {
        /// WFI is the event `Wfi`.
        Leaves = 0,
        /// WFI is the event `Wfi`, WFE the event `Wfe`: somebody else wants the CPU.
        GivesWay = 0x100,
        /// At WFI the vCPU waits inside Gear1 until it is woken, and goes on; or until there is an
        /// event for Gear2, which comes with [`WAITS_HERE`].
        Stays = 0x200,
        /// WFI does not trap: the CPU waits inside the guest, and nobody counts for how long.
        Alone = 0x400,
    }
}

/// Bit of X9 of [`NEXT`](number::NEXT): the vCPU of the decision waits in WFI. It is in `Wfi`, or
/// was woken, of which a `Wake` tells.
pub const WAITS_HERE: u64 = 1 << 63;

/// Gear2's request for this CPU: the answer of a loop to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run a vCPU until the deadline.
    Run {
        /// The vCPU; must be runnable and not running elsewhere.
        vcpu: VcpuId,
        /// Counter value at which the CPU comes back at the latest.
        deadline: u64,
        /// Completes the access the vCPU waits for, if it waits.
        reply: Reply,
        /// The value with `Reply::Value`.
        value: u64,
        /// Behaviour of WFI and WFE.
        waits: Waits,
    },
    /// Wait for an event.
    Idle {
        /// Counter value at which the CPU comes back at the latest.
        deadline: u64,
    },
}

/// Bits of the word that tell the kind of a decision.
const KIND_MASK: u64 = 0xff;
const RUN: u64 = 0;
const IDLE: u64 = 1;
const REPLY_SHIFT: u32 = 16;
const REPLY_MASK: u64 = 0xff << REPLY_SHIFT;

impl Decision {
    /// Returns the argument registers of [`number::NEXT`].
    pub const fn encode(self) -> Regs {
        match self {
            Self::Run {
                vcpu,
                deadline,
                reply,
                value,
                waits,
            } => {
                let word = RUN | waits as u64 | (reply as u64) << REPLY_SHIFT;
                [word, vcpu.reg(), deadline, value, 0, 0, 0, 0]
            }
            Self::Idle { deadline } => [IDLE, NO_VCPU, deadline, 0, 0, 0, 0, 0],
        }
    }

    /// Returns the decision in the argument registers, or `None` when they hold none.
    #[inline]
    pub const fn decode(regs: &Regs) -> Option<Self> {
        let [word, vcpu, deadline, value, ..] = *regs;
        match word & KIND_MASK {
            RUN => match (
                VcpuId::from_reg(vcpu),
                reply_of(word),
                Waits::from_reg(word & !(REPLY_MASK | KIND_MASK)),
            ) {
                (Some(vcpu), Some(reply), Some(waits)) => Some(Self::Run {
                    vcpu,
                    deadline,
                    reply,
                    value,
                    waits,
                }),
                _ => None,
            },
            IDLE => Some(Self::Idle { deadline }),
            _ => None,
        }
    }

    /// Tells whether the decision in the argument registers runs another vCPU than `vcpu`. Nothing
    /// else of it is looked at: [`decode`](Self::decode) may refuse it.
    #[inline(always)]
    pub const fn runs_other_than(regs: &Regs, vcpu: VcpuId) -> bool {
        let [word, named, ..] = *regs;
        word & KIND_MASK == RUN && named != vcpu.reg()
    }

    /// Returns the deadline of the decision in the argument registers, and the value of its reply, if
    /// it runs `vcpu` with these `waits` and its reply is a value or none. A caller that compares
    /// with a vCPU anyway saves the look whether the register names one that can exist, and whether
    /// the word says of the waits what can be said.
    #[inline(always)]
    pub const fn decode_run_of(
        regs: &Regs,
        vcpu: VcpuId,
        waits: Waits,
    ) -> Option<(u64, Option<u64>)> {
        const VALUE: u64 = (Reply::Value as u64) << REPLY_SHIFT;
        let [word, named, deadline, value, ..] = *regs;
        let reply = word ^ (RUN | waits as u64);
        if reply & !VALUE != 0 || named != vcpu.reg() {
            return None;
        }
        let value = if reply == 0 { None } else { Some(value) };
        Some((deadline, value))
    }
}
const _: () = assert!(Reply::None as u64 == 0 && (Reply::Value as u64).is_power_of_two());

/// Returns the reply in the word of a decision.
const fn reply_of(word: u64) -> Option<Reply> {
    Reply::from_reg((word & REPLY_MASK) >> REPLY_SHIFT)
}

reg_enum! {
    /// What a device tried, in X4 of [`number::DMA_EVENT`].
    u64 DmaKind {
        /// A read.
        Read = 0,
        /// A write.
        Write = 1,
        /// The event does not tell, nor the address: X3 is 0.
        Unknown = 2,
    }
}

reg_enum! {
    /// Why Gear2 was restarted.
    u64 Failure {
        /// A loop did not come back in time.
        Hang = 1,
        /// A loop did what no page or register of Gear2's allows.
        Fault = 2,
        /// A loop said that it cannot go on.
        Fatal = 3,
    }
}

reg_enum! {
    /// State of a vCPU as Gear1 keeps it.
    u8 VcpuState {
        /// Off (PSCI), or the VM does not run.
        Off = 0,
        /// Can be run.
        Ready = 1,
        /// Runs on a CPU now.
        Running = 2,
        /// Waits in WFI; a wake-up event will come.
        Wfi = 3,
        /// Waits for the completion of an MMIO access.
        AwaitsMmio = 4,
        /// Waits for the result of a hypercall.
        AwaitsHypercall = 5,
    }
}

reg_enum! {
    /// State of a VM as Gear1 keeps it.
    u8 VmState {
        /// Holds no payload: memory is not loaded yet.
        Stopped = 0,
        /// Being wiped and loaded.
        Loading = 1,
        /// Loaded, never run since.
        Loaded = 2,
        /// At least one vCPU was started.
        Running = 3,
        /// Asked to stop; a vCPU is still inside.
        Stopping = 4,
    }
}

#[cfg(test)]
mod tests;

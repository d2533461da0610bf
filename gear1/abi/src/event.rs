//! Events that Gear1 returns from [`NEXT`](crate::call::number::NEXT).
//!
//! X0 holds the kind, X1 the vCPU (the one that ran, or the one it is about),
//! X2 to X6 the kind's values, X7 the counter at the time of the event.
//!
//! Requirements: G1-RUN-005.

use crate::call::reg_enum;
use crate::id::VcpuId;
use crate::regs::{NO_VCPU, Regs};

/// A data access of a guest that Gear1 decoded and does not emulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmio {
    /// Guest's physical address (IPA).
    pub ipa: u64,
    /// log2 of the access size in bytes, 0 to 3.
    pub size_log2: u8,
    /// The value stored, zero-extended; `None` for a load.
    pub store: Option<u64>,
}

impl Mmio {
    const WRITE: u64 = 1 << 2;

    /// Returns the access word: size in bits 1:0, write in bit 2.
    pub const fn access_word(self) -> u64 {
        let write = if self.store.is_some() { Self::WRITE } else { 0 };
        self.size_log2 as u64 & 3 | write
    }

    /// Returns the access with the given address, access word and stored value.
    pub const fn from_words(ipa: u64, access: u64, value: u64) -> Self {
        let store = if access & Self::WRITE != 0 {
            Some(value)
        } else {
            None
        };
        Self {
            ipa,
            size_log2: (access & 3) as u8,
            store,
        }
    }
}

/// Why a VM asks to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum VmEnd {
    /// PSCI SYSTEM_OFF.
    Off = 0,
    /// PSCI SYSTEM_RESET or SYSTEM_RESET2.
    Reset = 1,
}

reg_enum! {
    /// End of a VM by itself, as `VM_STATE` returns it.
    #[derive(Default)]
    u64 Ended {
        /// Still runs, or was stopped by Gear2.
        #[default]
        No = 0,
        /// By PSCI SYSTEM_OFF.
        Off = 1,
        /// By PSCI SYSTEM_RESET or SYSTEM_RESET2.
        Reset = 2,
        /// By a fault with which it could not go on.
        Fault = 3,
    }
}

/// Ends of a VM's last lives: two bits a life, the newest life lowest.
///
/// A caller that polls seldom learns the end of each life, even if later lives have begun since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends(pub u64);

impl Ends {
    /// Lives that are kept.
    pub const LIVES: u32 = u64::BITS / Self::BITS;
    const BITS: u32 = 2;
    const MASK: u64 = 3;

    /// Returns the history after the start of a new life; the oldest one is forgotten.
    #[must_use]
    pub const fn begin_life(self) -> Self {
        Self(self.0 << Self::BITS)
    }

    /// Returns the history after the newest life has ended so.
    #[must_use]
    pub const fn end_life(self, how: Ended) -> Self {
        Self(self.0 & !Self::MASK | how as u64)
    }

    /// Returns how a life ended by itself that `ago` others follow; `None` if it is forgotten.
    #[must_use]
    pub const fn of_life(self, ago: u32) -> Option<Ended> {
        if ago >= Self::LIVES {
            return None;
        }
        Ended::from_reg(self.0 >> (ago * Self::BITS) & Self::MASK)
    }
}

impl From<VmEnd> for Ended {
    fn from(end: VmEnd) -> Self {
        match end {
            VmEnd::Off => Self::Off,
            VmEnd::Reset => Self::Reset,
        }
    }
}

/// The exception with which a guest cannot go on, as EL2 took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// ESR_EL2.
    pub esr: u64,
    /// FAR_EL2.
    pub far: u64,
    /// The guest's physical address, if the exception has one, else zero.
    pub ipa: u64,
    /// ELR_EL2.
    pub pc: u64,
    /// SPSR_EL2.
    pub pstate: u64,
}

/// Event for a Gear2 loop: on this CPU, or for a vCPU whose wake-ups this CPU receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The deadline passed; the vCPU that ran, if one did, stays runnable.
    Deadline(Option<VcpuId>),
    /// An MMIO access waits for a reply.
    Mmio(VcpuId, Mmio),
    /// A hypercall waits for a reply: function and X1 to X4 of the guest.
    Hypercall(VcpuId, [u64; 5]),
    /// The vCPU waits in WFI. A `Wake` follows when an interrupt or its timer is due.
    Wfi(VcpuId),
    /// The vCPU executed WFE while [`Waits::GivesWay`](crate::call::Waits) was set; it stays runnable.
    Wfe(VcpuId),
    /// The vCPU is off: PSCI CPU_OFF, or its VM stops.
    Off(VcpuId),
    /// The vCPU's VM asks to end; all its vCPUs are being stopped.
    VmEnd(VcpuId, VmEnd),
    /// The vCPU cannot go on; its VM is being stopped.
    Fault(VcpuId, Fault),
    /// A vCPU that was not running became runnable (interrupt, timer, CPU_ON).
    Wake(VcpuId),
    /// A physical interrupt of Gear2's, acknowledged; `IRQ_DONE` ends it. The
    /// vCPU that ran, if one did, stays runnable.
    Irq(Option<VcpuId>, u32),
    /// Another loop poked this one. The vCPU that ran, if one did, stays runnable.
    Poke(Option<VcpuId>),
    /// A VM stored to a channel that leads to Gear2. The vCPU that ran, if one did, stays runnable.
    Doorbell(Option<VcpuId>),
    /// The decision was refused with the [`Status`](crate::call::Status) given.
    Refused(u64),
}

/// Kind numbers in X0.
mod kind {
    pub(super) const DEADLINE: u64 = 0;
    pub(super) const MMIO: u64 = 1;
    pub(super) const HYPERCALL: u64 = 2;
    pub(super) const WFI: u64 = 3;
    pub(super) const WFE: u64 = 4;
    pub(super) const OFF: u64 = 5;
    pub(super) const VM_END: u64 = 6;
    pub(super) const FAULT: u64 = 7;
    pub(super) const WAKE: u64 = 8;
    pub(super) const IRQ: u64 = 9;
    pub(super) const POKE: u64 = 10;
    pub(super) const REFUSED: u64 = 11;
    pub(super) const DOORBELL: u64 = 12;
}

const fn reg_of(vcpu: Option<VcpuId>) -> u64 {
    match vcpu {
        Some(vcpu) => vcpu.reg(),
        None => NO_VCPU,
    }
}

impl Event {
    /// Returns the event as X0 to X6 (X7, the time, is zero here).
    #[inline(always)]
    pub const fn encode(&self) -> Regs {
        let mut regs = [0; 8];
        [regs[0], regs[1]] = match *self {
            Self::Deadline(vcpu) => [kind::DEADLINE, reg_of(vcpu)],
            Self::Mmio(vcpu, mmio) => {
                regs[2] = mmio.ipa;
                regs[3] = mmio.access_word();
                regs[4] = match mmio.store {
                    Some(value) => value,
                    None => 0,
                };
                [kind::MMIO, vcpu.reg()]
            }
            Self::Hypercall(vcpu, args) => {
                [regs[2], regs[3], regs[4], regs[5], regs[6]] = args;
                [kind::HYPERCALL, vcpu.reg()]
            }
            Self::Wfi(vcpu) => [kind::WFI, vcpu.reg()],
            Self::Wfe(vcpu) => [kind::WFE, vcpu.reg()],
            Self::Off(vcpu) => [kind::OFF, vcpu.reg()],
            Self::VmEnd(vcpu, end) => {
                regs[2] = end as u64;
                [kind::VM_END, vcpu.reg()]
            }
            Self::Fault(vcpu, fault) => {
                [regs[2], regs[3], regs[4]] = [fault.esr, fault.far, fault.ipa];
                [regs[5], regs[6]] = [fault.pc, fault.pstate];
                [kind::FAULT, vcpu.reg()]
            }
            Self::Wake(vcpu) => [kind::WAKE, vcpu.reg()],
            Self::Irq(vcpu, intid) => {
                regs[2] = intid as u64;
                [kind::IRQ, reg_of(vcpu)]
            }
            Self::Poke(vcpu) => [kind::POKE, reg_of(vcpu)],
            Self::Doorbell(vcpu) => [kind::DOORBELL, reg_of(vcpu)],
            Self::Refused(status) => {
                regs[2] = status;
                [kind::REFUSED, NO_VCPU]
            }
        };
        regs
    }

    /// Returns the vCPU and its call if the registers hold the event [`Hypercall`](Self::Hypercall).
    #[inline]
    pub fn hypercall_of(regs: &Regs) -> Option<(VcpuId, [u64; 5])> {
        let [what, vcpu, a, b, c, d, e, _] = *regs;
        match what {
            kind::HYPERCALL => VcpuId::from_reg(vcpu).map(|vcpu| (vcpu, [a, b, c, d, e])),
            _ => None,
        }
    }

    /// Returns the vCPU if the registers hold the event [`Wfi`](Self::Wfi).
    #[inline]
    pub fn wfi_of(regs: &Regs) -> Option<VcpuId> {
        let [what, vcpu, ..] = *regs;
        match what {
            kind::WFI => VcpuId::from_reg(vcpu),
            _ => None,
        }
    }

    /// Returns the event in X0 to X6, or `None` when they hold none.
    pub fn decode(regs: &Regs) -> Option<Self> {
        let [what, vcpu, a, b, c, d, e, _] = *regs;
        let some = VcpuId::from_reg(vcpu);
        Some(match what {
            kind::DEADLINE => Self::Deadline(some),
            kind::MMIO => Self::Mmio(some?, Mmio::from_words(a, b, c)),
            kind::HYPERCALL => Self::Hypercall(some?, [a, b, c, d, e]),
            kind::WFI => Self::Wfi(some?),
            kind::WFE => Self::Wfe(some?),
            kind::OFF => Self::Off(some?),
            kind::VM_END => Self::VmEnd(some?, if a == 0 { VmEnd::Off } else { VmEnd::Reset }),
            kind::FAULT => Self::Fault(
                some?,
                Fault {
                    esr: a,
                    far: b,
                    ipa: c,
                    pc: d,
                    pstate: e,
                },
            ),
            kind::WAKE => Self::Wake(some?),
            kind::IRQ => Self::Irq(some, u32::try_from(a).ok()?),
            kind::POKE => Self::Poke(some),
            kind::REFUSED => Self::Refused(a),
            kind::DOORBELL => Self::Doorbell(some),
            _ => return None,
        })
    }
}

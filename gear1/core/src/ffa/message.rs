//! Direct messages between VMs (Arm DEN0077A 1.1: FFA_MSG_SEND_DIRECT_REQ and _RESP, FFA_MSG_WAIT,
//! FFA_RUN).
//!
//! Owns: the role of each vCPU (waits, asks or serves), and its undelivered message. A request goes
//! to a vCPU that waits in FFA_MSG_WAIT, or after its response to another request. Without such a
//! vCPU the request is refused, so requests never queue and cannot wait for each other in a circle.
//! Gear2 schedules: a sender is blocked like a vCPU that waits for an interrupt, and continues with
//! FFA_RUN when one came.
//!
//! | role | becomes | by |
//! |---|---|---|
//! | None | Waits | FFA_MSG_WAIT |
//! | Waits | Serves | a peer's request |
//! | Waits | None | an interrupt |
//! | None, Serves | Asks | a request of its own; the request that it serves is kept |
//! | Asks | None, Serves | the response, or the end of the receiver |
//! | Serves | Waits | its response |
//! | Serves | None | the end of the sender |
//!
//! Requirements: G1-MSG-001, G1-MSG-002, G1-MSG-003, G1-MSG-004.

use gear1_abi::id::{MAX_VCPUS, VcpuId, VmId};
use gear1_abi::regs::Regs;

use super::{endpoint, error, function, low};
use crate::ownership::Error;
use crate::vgic::VcpuIndex;

/// FFA_ERROR's status for who asked a VM that ended.
const ABORTED: i32 = -8;

/// Each vCPU's VM and its index there.
pub type Places = [(VmId, VcpuIndex); MAX_VCPUS];

/// Role of a vCPU in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Role {
    /// Whether the vCPU is in FFA_MSG_WAIT.
    waits: bool,
    /// Sender whose request the vCPU serves, one bit for each vCPU.
    serves: u32,
    /// Receiver of the vCPU's request, until the response is taken, one bit for each vCPU.
    asks: u32,
    /// Registers of the next message for this vCPU; X0 is 0 if there is none.
    mail: Regs,
}

impl Role {
    const NONE: Self = Self {
        waits: false,
        serves: 0,
        asks: 0,
        mail: [0; 8],
    };
}

/// All vCPUs' roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    roles: [Role; MAX_VCPUS],
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// X0 to X7.
    Return(Regs),
    /// The caller is blocked until it gets mail or an interrupt, and the other vCPU got mail.
    Block(Option<VcpuId>),
    /// The caller lets others run.
    Yield,
}

const fn bit(vcpu: usize) -> u32 {
    1_u32.wrapping_shl(vcpu as u32)
}

/// Returns how FF-A names the vCPU with this bit: its endpoint, and its index in it.
fn name(places: &Places, vcpu: u32) -> u64 {
    let place = places.get(vcpu.trailing_zeros() as usize);
    place.map_or(0, |(vm, index)| {
        u64::from(endpoint(*vm)) << 16 | index.index() as u64
    })
}

/// Returns what the other side gets.
const fn message(regs: &Regs) -> Regs {
    let [x0, x1, _, a, b, c, d, e] = *regs;
    let mask = if x0 as u32 & function::SMC64 == 0 {
        0xffff_ffff
    } else {
        u64::MAX
    };
    [
        low(x0),
        low(x1),
        0,
        a & mask,
        b & mask,
        c & mask,
        d & mask,
        e & mask,
    ]
}

impl Default for Messages {
    fn default() -> Self {
        Self::new()
    }
}

impl Messages {
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            roles: [Role::NONE; MAX_VCPUS],
        }
    }

    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "the remainder is in bounds")
    )]
    const fn slot(&mut self, vcpu: usize) -> &mut Role {
        // An index is always this small; the remainder says so to the compiler.
        &mut self.roles[vcpu % MAX_VCPUS]
    }

    /// Answers a call of `me`, whose VM runs and may send to `peers`, bit per VM.
    pub fn call(&mut self, places: &Places, peers: u16, me: VcpuId, regs: &Regs) -> Next {
        self.answer(places, peers, me, regs)
            .unwrap_or_else(|refused| Next::Return(error(refused.status())))
    }

    fn answer(
        &mut self,
        places: &Places,
        peers: u16,
        me: VcpuId,
        regs: &Regs,
    ) -> Result<Next, Error> {
        let [x0, x1, ..] = *regs;
        let own = self.slot(me.index());
        match x0 as u32 & !function::SMC64 {
            // planted: two VMs wait for each other
            function::DIRECT_REQ if own.asks != 0 => Err(Error::Busy),
            function::DIRECT_REQ => self.request(places, peers, me, regs),
            function::DIRECT_RESP if own.serves != 0 && own.asks == 0 => {
                self.respond(places, me, regs)
            }
            function::MSG_WAIT if own.serves | own.asks == 0 => {
                own.waits = true;
                Ok(Next::Block(None))
            }
            // Gear2 chooses the vCPU to run: the call only continues the wait for the receiver.
            function::RUN if own.asks != 0 && name(places, own.asks) == low(x1) => {
                if own.mail[0] != 0 {
                    return Ok(Next::Return(self.resume(places, me)));
                }
                Ok(Next::Block(None))
            }
            function::YIELD => Ok(Next::Yield),
            _ => Err(Error::Denied),
        }
    }

    /// Gives a request to a vCPU that waits, of the VM that it is for.
    fn request(
        &mut self,
        places: &Places,
        peers: u16,
        me: VcpuId,
        regs: &Regs,
    ) -> Result<Next, Error> {
        let [_, x1, x2, ..] = *regs;
        let receiver = x1 & 0xffff;
        // X2: a message of the framework's, or reserved bits.
        // planted: a message goes in another's name
        if low(x1) >> 16 != name(places, bit(me.index())) >> 16 || low(x2) != 0 {
            return Err(Error::Invalid);
        }
        let index = receiver.wrapping_sub(1);
        if index >= 16 || peers.wrapping_shr(index as u32) & 1 == 0 {
            return Err(Error::Denied);
        }
        let mut vcpus = (0..MAX_VCPUS).zip(&mut self.roles).zip(places);
        // Bound: MAX_VCPUS (32).
        let waiting = vcpus.find(|((_, role), (vm, _))| role.waits && vm.reg() == index);
        let ((number, role), _) = waiting.ok_or(Error::Busy)?;
        *role = Role {
            serves: bit(me.index()),
            mail: message(regs),
            ..Role::NONE
        };
        self.slot(me.index()).asks = bit(number);
        Ok(Next::Block(VcpuId::new(number)))
    }

    /// Gives the response of `me` to the sender; `me` waits from now on.
    fn respond(&mut self, places: &Places, me: VcpuId, regs: &Regs) -> Result<Next, Error> {
        let [_, x1, x2, ..] = *regs;
        let own = self.slot(me.index());
        let asker = own.serves;
        let from = name(places, bit(me.index())) >> 16 << 16;
        if low(x1) != from | name(places, asker) >> 16 || low(x2) != 0 {
            return Err(Error::Invalid);
        }
        own.serves = 0;
        own.waits = true;
        let asker = asker.trailing_zeros() as usize;
        // planted: a response has the request's registers
        self.slot(asker).mail = message(regs);
        Ok(Next::Block(VcpuId::new(asker)))
    }

    /// Returns X0 to X7 of a vCPU that was blocked and continues: its message, or FFA_INTERRUPT.
    pub fn resume(&mut self, places: &Places, me: VcpuId) -> Regs {
        let role = self.slot(me.index());
        let mail = core::mem::take(&mut role.mail);
        if mail[0] != 0 {
            role.asks = 0;
            return mail;
        }
        role.waits = false;
        let whom = if role.asks != 0 {
            role.asks
        } else {
            bit(me.index())
        };
        let interrupt = function::INTERRUPT.into();
        [interrupt, name(places, whom), 0, 0, 0, 0, 0, 0]
    }

    /// Forgets vCPUs that are off from now on. Returns those that got mail because of that: bit per
    /// vCPU.
    pub fn end(&mut self, gone: u32) -> u32 {
        let mut notified = 0;
        // Bound: MAX_VCPUS.
        for (number, role) in self.roles.iter_mut().enumerate() {
            if bit(number) & gone != 0 {
                *role = Role::NONE;
            }
            role.serves &= !gone;
            if role.asks & gone != 0 && role.mail[0] == 0 {
                // planted: who asked a VM that ends hears nothing
                role.mail = error(ABORTED);
                notified |= bit(number);
            }
        }
        notified
    }
}

#[cfg(test)]
mod tests;

//! The short ways of the events that come most often: calls, WFI, and writes that set a device up.

use gear1_abi::call::Decision;
use gear1_abi::event::Event;
use gear1_abi::id::VcpuId;
use gear1_abi::regs::Regs;

use super::{CpuLoop, hypercall, run};
use crate::gear1::{Gear1, Times};
use crate::machine::{Answer, Platform};

impl<P: Platform> CpuLoop<'_, P> {
    /// Takes in an event as its registers. A call and a WFI are looked for first: neither carries
    /// another event's words along.
    #[inline(always)]
    pub(super) fn on_registers(
        &mut self,
        gear1: &mut impl Gear1,
        regs: &Regs,
        times: Times,
    ) -> Decision {
        self.note_wait_of(times);
        if let Some((vcpu, call)) = Event::hypercall_of(regs)
            && let Some(decision) = self.call_at_once(vcpu, call, times.now)
        {
            return decision;
        }
        if let Some(vcpu) = Event::wfi_of(regs) {
            return self.on_wfi(gear1, vcpu, times);
        }
        // An event of a later minor version: look at everything again.
        let event = Event::decode(regs).unwrap_or(Event::Poke(None));
        self.on_other(gear1, event, times)
    }

    /// Does a write by which a driver sets a device up, if the vCPU runs again in any case, as long as
    /// before. `None`: the event is another one, and nothing has been done. A driver makes dozens
    /// of such writes, one after the other.
    #[inline(always)]
    pub(super) fn set_up(&self, event: Event, now: u64) -> Option<Decision> {
        let (Event::Mmio(vcpu, access), None, Some(last)) = (event, self.cause, self.last) else {
            return None;
        };
        let goes_on = vcpu == last.vcpu && now < last.until;
        let model = self.machine.device_model.as_ref().filter(|_| goes_on)?;
        (model.set_up_at_once(vcpu, access)).then(|| run(last, Answer::Value(0).words()))
    }

    /// Answers a call, if the vCPU runs again in any case, as long as before.
    #[inline(always)]
    fn call_at_once(&self, vcpu: VcpuId, call: [u64; 5], now: u64) -> Option<Decision> {
        let (None, Some(last)) = (self.cause, self.last) else {
            return None;
        };
        let goes_on = vcpu == last.vcpu && now < last.until;
        goes_on.then(|| run(last, hypercall::<P>(call).words()))
    }
}

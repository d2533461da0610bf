//! Charges: whose the time is that has passed since the last event.

use gear1_abi::event::Event;
use gear1_abi::id::VcpuId;

use super::CpuLoop;
use crate::gear1::Times;
use crate::machine::Platform;

impl<P: Platform> CpuLoop<'_, P> {
    /// Charges the vCPU for which the gears worked between two events. If it slept in between and
    /// wakes now, the work is charged with what follows, as the vCPU most often runs next.
    #[inline]
    pub(super) fn charge_work(&mut self, cause: VcpuId, event: Event, times: Times) {
        let ended = times.work_ended();
        if self.last.is_none() && event == Event::Wake(cause) {
            let idle = times.now.saturating_sub(ended);
            self.charged = self.charged.saturating_add(idle);
            return;
        }
        self.cause = None;
        // planted: the work of the gears is nobody's
        self.charge_to(cause, ended);
    }

    /// Charges the vCPU that ran for the time up to the event. Idle time is nobody's.
    #[inline]
    pub(super) fn charge(&mut self, now: u64) {
        match (self.last, self.cause) {
            (Some(last), _) => {
                if self.open_wait != 0 {
                    self.leave_out_wait(last.vcpu, now);
                }
                self.charge_to(last.vcpu, now);
            }
            // Open, as the vCPU wakes now.
            (None, Some(_)) => {}
            (None, None) => self.charged = now,
        }
    }

    /// Charges a vCPU for all that is not charged yet up to `until`.
    #[inline]
    pub(super) fn charge_to(&mut self, vcpu: VcpuId, until: u64) {
        let ticks = until.saturating_sub(self.charged);
        if ticks != 0 {
            self.charged = until;
            self.machine.account(vcpu, ticks);
            self.scheduler.ran(vcpu, ticks, until);
        }
    }
}

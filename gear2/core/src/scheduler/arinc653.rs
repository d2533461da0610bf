//! ARINC 653: windows of a major frame, and an inner policy in the windows left to it.
//!
//! A vCPU of a VM that has a window runs in its VM's windows only, in turns of one slice with its
//! siblings on this CPU. The CPU is idle in a window while its VM is, and in the gaps between
//! windows. All other vCPUs run by the inner policy, in windows without a VM. The first frame
//! begins at counter value 0, so that all CPUs and a restarted Gear2 have the same frames. Other
//! windows take effect when the current frame ends.
//!
//! Source: ARINC Specification 653 Part 1, partition scheduling.

use alloc::vec::Vec;

use gear1_abi::id::{MAX_VCPUS, MAX_VMS, VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;

use super::queue::Set;
use super::{Choice, Plan, Policy, Refused, Run, Share, Window};

#[cfg(test)]
mod tests;

/// The table of windows.
#[derive(Debug)]
struct Table {
    /// Beginning of a frame.
    origin: u64,
    /// Ticks of a frame.
    frame: u64,
    /// In the order of their beginnings, without overlaps, as [`Plan::windows`].
    windows: Vec<Window>,
}

impl Table {
    fn new(plan: &Plan, origin: u64) -> Self {
        Self {
            origin,
            // A frame of no ticks has no window, and cannot be divided by.
            frame: plan.frame.max(1),
            windows: plan.windows.clone(),
        }
    }

    fn has(&self, vm: VmId) -> bool {
        self.windows.iter().any(|window| window.vm == Some(vm))
    }

    /// Returns the beginning of the frame at `now`.
    const fn frame_start(&self, now: u64) -> u64 {
        now - now.saturating_sub(self.origin) % self.frame
    }

    /// Returns the window at `now`, if one is open, and the time at which that changes.
    fn at(&self, now: u64) -> (Option<Window>, u64) {
        let start = self.frame_start(now);
        let place = now - start;
        let next = self.windows.partition_point(|window| window.start <= place);
        let change = self.windows.get(next).map_or(self.frame, |w| w.start);
        let last = next.checked_sub(1).map(|last| self.windows[last]);
        match last.filter(|window| place - window.start < window.length) {
            Some(window) => (
                Some(window),
                start + (window.start + window.length).min(change),
            ),
            None => (None, start + change),
        }
    }
}

/// The ARINC 653 policy of one CPU, with `R` for vCPUs of VMs without a window.
#[derive(Debug)]
pub struct Arinc653<R> {
    table: Table,
    /// The next table, and the time at which it takes effect.
    next: Option<(Table, u64)>,
    /// Ticks of a turn among the vCPUs of one VM.
    slice: u64,
    /// VM of each vCPU.
    /// `None` for a vCPU of the inner policy.
    vms: [Option<VmId>; MAX_VCPUS],
    /// vCPUs of each VM, and those of them that are ready.
    of_vm: [Set; MAX_VMS],
    ready: Set,
    /// vCPU of each VM that has the turn, and the ticks of it that it used.
    turns: [(VcpuId, u64); MAX_VMS],
    /// Policy of the vCPUs whose VMs have no window.
    rest: R,
}

impl<R: Policy> Arinc653<R> {
    /// Makes the policy over the inner one.
    #[must_use]
    pub fn new(plan: &Plan, rest: R) -> Self {
        Self {
            table: Table::new(plan, 0),
            next: None,
            slice: plan.slice.max(1),
            vms: [None; MAX_VCPUS],
            of_vm: [Set::default(); MAX_VMS],
            ready: Set::default(),
            turns: [(VcpuId::FIRST, 0); MAX_VMS],
            rest,
        }
    }

    /// Changes the windows when the current frame ends. VMs keep having windows, or having none.
    pub fn change(&mut self, plan: &Plan, now: u64) {
        // planted: a change of windows drops the one before it
        self.settle(now);
        let end = self.table.frame_start(now).saturating_add(self.table.frame);
        self.next = Some((Table::new(plan, end), end));
    }

    /// Takes a vCPU out of its VM's windows. Returns whether it was in them.
    fn leave(&mut self, vcpu: VcpuId) -> bool {
        self.ready.remove(vcpu);
        let vm = self.vms[vcpu.index()].take();
        vm.is_some_and(|vm| self.of_vm[vm.index()].remove(vcpu))
    }

    /// Makes the next table the current one when its time has come.
    fn settle(&mut self, now: u64) {
        if let Some((table, _)) = self.next.take_if(|(_, from)| *from <= now) {
            self.table = table;
        }
    }

    /// Returns the VM of a vCPU, if it has windows.
    fn windowed(&self, vcpu: VcpuId) -> Option<VmId> {
        self.vms[vcpu.index()]
    }

    /// Returns the ready vCPU of a VM that has the turn, and whether others are ready.
    fn turn(&mut self, vm: VmId) -> Option<(VcpuId, bool)> {
        let ready = Set(self.of_vm[vm.index()].0 & self.ready.0);
        if ready.is_empty() {
            return None;
        }
        // Without its lowest bit, the set of one vCPU is empty.
        let several = ready.0 & (ready.0 - 1) != 0;
        let (vcpu, used) = self.turns[vm.index()];
        if !ready.contains(vcpu) || (several && used >= self.slice) {
            // The next one in the order of numbers, behind the one whose turn it was.
            // Bit 0 of the rotated set is the vCPU behind that one.
            let behind = ready.0.rotate_right(vcpu.reg() as u32 + 1);
            let next = (vcpu.index() + 1 + behind.trailing_zeros() as usize) % MAX_VCPUS;
            self.turns[vm.index()] = (VcpuId::from_low_bits(next), 0);
        }
        Some((self.turns[vm.index()].0, several))
    }
}

impl<R: Policy> Policy for Arinc653<R> {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        if !self.table.has(share.vm) {
            // First, as the inner policy may refuse: then the vCPU stays where it is.
            self.rest.add(vcpu, share, now)?;
            self.leave(vcpu);
            return Ok(());
        }
        self.remove(vcpu, now);
        self.vms[vcpu.index()] = Some(share.vm);
        self.of_vm[share.vm.index()].insert(vcpu);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        if !self.leave(vcpu) {
            self.rest.remove(vcpu, now);
        }
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        match self.windowed(vcpu) {
            // The time of the vCPU is the plan's: no parameter is about it.
            Some(_) => Ok(()),
            None => self.rest.set(vcpu, share, now),
        }
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        match self.windowed(vcpu) {
            Some(_) => {
                self.ready.insert(vcpu);
            }
            None => self.rest.wake(vcpu, now),
        }
    }

    fn block(&mut self, vcpu: VcpuId, now: u64) {
        match self.windowed(vcpu) {
            Some(_) => {
                self.ready.remove(vcpu);
            }
            None => self.rest.block(vcpu, now),
        }
    }

    fn give_way(&mut self, vcpu: VcpuId, now: u64) {
        match self.windowed(vcpu) {
            // The turn is used up: the next choice is the sibling behind, if one is ready.
            Some(vm) if self.turns[vm.index()].0 == vcpu => {
                self.turns[vm.index()].1 = self.slice;
            }
            Some(_) => {}
            None => self.rest.give_way(vcpu, now),
        }
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        let Some(vm) = self.windowed(vcpu) else {
            return self.rest.ran(vcpu, ticks, now);
        };
        let (turn, used) = &mut self.turns[vm.index()];
        // The gears' work for a sibling uses none of the turn.
        if *turn == vcpu {
            *used = used.saturating_add(ticks);
        }
    }

    fn pays_for_end(&self, vcpu: VcpuId) -> bool {
        self.windowed(vcpu).is_none() && self.rest.pays_for_end(vcpu)
    }

    fn pick(&mut self, now: u64) -> Choice {
        self.settle(now);
        let (window, mut end) = self.table.at(now);
        if let Some((_, from)) = self.next {
            // The current table says nothing about times behind its last frame.
            end = end.min(from);
        }
        let choice = match window {
            None => Choice::Idle { until: end },
            Some(Window { vm: None, .. }) => self.rest.pick(now),
            Some(Window { vm: Some(vm), .. }) => match self.turn(vm) {
                // The window is the VM's alone, also while none of its vCPUs is ready.
                None => Choice::Idle { until: end },
                Some((vcpu, contended)) => {
                    let rest = self.slice.saturating_sub(self.turns[vm.index()].1);
                    let ticks = if contended { rest } else { NO_DEADLINE };
                    Choice::Run(Run {
                        vcpu,
                        until: now.saturating_add(ticks),
                        contended,
                        // Other VMs wait for the end of the window.
                        alone: !contended,
                    })
                }
            },
        };
        choice.until_at_most(end)
    }
}

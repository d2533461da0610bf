//! A load whose CPU comes late: another CPU has loaded the VM meanwhile, and perhaps started it.
//!
//! Requirements: G1-MEM-017, G1-RUN-009.

use gear1_abi::regs::Regs;

use super::machine::Machine;
use crate::ffa::{self, End, function};
use crate::ownership::bit;
use crate::ownership::testing::vm;

const PAGES: u64 = 64;

impl Machine {
    fn ends(&mut self, who: usize) -> End {
        ffa::release(&mut self.ledger, &mut self.host, vm(who))
    }
}

/// A late load does not take what a VM shares in its next life, nor its buffers.
#[test]
fn a_vm_that_runs_keeps_what_it_shares() {
    let mut machine = Machine::new(24);
    let handle = machine.lend(0);
    machine.take(handle);
    let before = machine.everything();
    for who in 0..2 {
        assert_eq!(machine.ends(who), End::Runs);
        assert!(machine.everything() == before, "VM {who}");
    }
    // Neither is the VM marked as one that leaves: others may send to it.
    machine.lend(PAGES);
}

/// When the end of a VM is done, another release finds nothing to do before the VM has run,
/// whatever other VMs send to it: whoever starts the VM need not wait for a release that is late.
#[test]
fn a_vm_has_one_end() {
    for (id, steps) in [
        function::MEM_SHARE,
        function::MEM_LEND,
        function::MEM_DONATE,
    ]
    .into_iter()
    .flat_map(|id| (0..24).map(move |steps| (id, steps)))
    {
        let mut machine = Machine::new(24);
        let handle = machine.lend(0);
        machine.take(handle);
        machine.host.running &= !bit(vm(1));
        while !machine.step_of_end(1).unwrap() {}
        let regs: Regs = machine.sending(0, id, &[1], super::machine::own(0, PAGES));
        machine.makes_steps(0, &regs, steps);
        let before = machine.everything();
        assert_eq!(machine.ends(1), End::Done, "{steps}");
        assert!(machine.everything() == before, "{id:#x} {steps}");
    }
}

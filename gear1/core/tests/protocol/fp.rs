//! The registers of a vCPU that are read for a dump: another CPU reads FP registers in the context
//! only when the owner CPU has said, behind its save, that they are there.
//!
//! Requirements: G1-RUN-012.

use std::sync::Arc;

use gear1_abi::exit::ExitReason;
use shuttle::scheduler::DfsScheduler;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Runner, thread};

use crate::config;
use crate::vcpu::VcpuShared;

/// Value of the registers that the guest has used.
const USED: u64 = 7;

/// The guest's first use takes the registers out of the context. The owner CPU saves them when its
/// loop asks for registers, and notes that.
fn owner(vcpu: &VcpuShared, context: &AtomicU64) {
    vcpu.count(ExitReason::Fp);
    context.store(USED, Ordering::Relaxed);
    vcpu.note_saved_fp();
}

#[test]
fn fp_registers_are_read_behind_their_save() {
    Runner::new(DfsScheduler::new(None, false), config()).run(|| {
        let shared = Arc::new((VcpuShared::new(), AtomicU64::new(0)));
        assert!(!shared.0.has_saved_fp());
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            if other.0.has_saved_fp() {
                assert_eq!(other.1.load(Ordering::Relaxed), USED);
            }
        });
        owner(&shared.0, &shared.1);
        reader.join().unwrap();
        assert!(shared.0.has_saved_fp());
        // A later use takes them out again.
        shared.0.count(ExitReason::Fp);
        assert!(!shared.0.has_saved_fp());
    });
}

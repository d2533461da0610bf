//! Writes binary records to the CPU's ring.
//!
//! Requirements: G1-RUN-008.

use gear1_abi::id::CpuIndex;
use gear1_abi::record::{Record, RecordId};
use gear1_arch::cpu;

use crate::machine::LOG_RINGS;

/// Logs a record on behalf of `cpu`, the CPU that runs this.
pub(crate) fn log(cpu: CpuIndex, id: RecordId, values: [u64; 3]) {
    let record = Record {
        time: cpu::now(),
        id_and_cpu: cpu.reg() << 32 | id as u64,
        values,
    };
    cpu.select(&LOG_RINGS).push(&record);
}

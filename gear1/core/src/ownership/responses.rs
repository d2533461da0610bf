//! Answers that are written to a VM's RX buffer some ranges at a time.
//!
//! Requirements: G1-MEM-012.

use gear1_abi::id::VmId;

use super::{Error, Ledger};

/// Progress of an answer that lists ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The transaction's handle.
    pub handle: u64,
    /// The first range of the answer.
    pub first: u16,
    /// The range that is written next.
    pub next: u16,
}

impl Ledger {
    /// Returns the answer to write that begins with range `first` of a transaction: the one that
    /// is being written, or a new one, if the VM does not read its RX page still. From then on the
    /// page is the VM's.
    pub fn begin_response(&mut self, vm: VmId, handle: u64, first: u16) -> Result<Response, Error> {
        let begun = self.response(vm);
        if let Some(response) = begun.filter(|r| r.handle == handle && r.first == first) {
            return Ok(response);
        }
        self.rx(vm)?;
        self.give_rx(vm);
        let response = Response {
            handle,
            first,
            next: first,
        };
        self.set_response(vm, Some(response));
        Ok(response)
    }

    /// An answer is void: the call is refused.
    pub fn drop_response(&mut self, vm: VmId, handle: u64) {
        if self
            .response(vm)
            .is_some_and(|response| response.handle == handle)
        {
            self.set_response(vm, None);
            let _freed = self.release_rx(vm);
        }
    }
}

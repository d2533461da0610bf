//! FF-A 1.1 (Arm DEN0077A) as a caller sees it: calls, and descriptors in a TX buffer.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::exception::catch;
use crate::mmio::{read64, write64};
use crate::{cpu, gic, psci, timer};

/// Function identifiers.
pub mod function {
    /// FFA_ERROR.
    pub const ERROR: u64 = 0x8400_0060;
    /// FFA_SUCCESS.
    pub const SUCCESS: u64 = 0x8400_0061;
    /// FFA_INTERRUPT.
    pub const INTERRUPT: u64 = 0x8400_0062;
    /// FFA_VERSION.
    pub const VERSION: u64 = 0x8400_0063;
    /// FFA_FEATURES.
    pub const FEATURES: u64 = 0x8400_0064;
    /// FFA_RX_RELEASE.
    pub const RX_RELEASE: u64 = 0x8400_0065;
    /// FFA_RXTX_MAP, SMC64.
    pub const RXTX_MAP: u64 = 0xC400_0066;
    /// FFA_RXTX_UNMAP.
    pub const RXTX_UNMAP: u64 = 0x8400_0067;
    /// FFA_PARTITION_INFO_GET.
    pub const PARTITION_INFO_GET: u64 = 0x8400_0068;
    /// FFA_ID_GET.
    pub const ID_GET: u64 = 0x8400_0069;
    /// FFA_MSG_WAIT.
    pub const MSG_WAIT: u64 = 0x8400_006B;
    /// FFA_YIELD.
    pub const YIELD: u64 = 0x8400_006C;
    /// FFA_RUN.
    pub const RUN: u64 = 0x8400_006D;
    /// FFA_MSG_SEND_DIRECT_REQ.
    pub const DIRECT_REQ: u64 = 0x8400_006F;
    /// FFA_MSG_SEND_DIRECT_RESP.
    pub const DIRECT_RESP: u64 = 0x8400_0070;
    /// FFA_MEM_DONATE, SMC64.
    pub const DONATE: u64 = 0xC400_0071;
    /// FFA_MEM_LEND, SMC64.
    pub const LEND: u64 = 0xC400_0072;
    /// FFA_MEM_SHARE, SMC64.
    pub const SHARE: u64 = 0xC400_0073;
    /// FFA_MEM_RETRIEVE_REQ, SMC64.
    pub const RETRIEVE_REQ: u64 = 0xC400_0074;
    /// FFA_MEM_RETRIEVE_RESP.
    pub const RETRIEVE_RESP: u64 = 0x8400_0075;
    /// FFA_MEM_RELINQUISH.
    pub const RELINQUISH: u64 = 0x8400_0076;
    /// FFA_MEM_RECLAIM.
    pub const RECLAIM: u64 = 0x8400_0077;
    /// FFA_MEM_FRAG_RX.
    pub const FRAG_RX: u64 = 0x8400_007A;
    /// FFA_MEM_FRAG_TX.
    pub const FRAG_TX: u64 = 0x8400_007B;
}

/// Status codes.
pub mod status {
    /// The function is not there.
    pub const NOT_SUPPORTED: i32 = -1;
    /// An argument makes no sense.
    pub const INVALID: i32 = -2;
    /// Nothing is left to do it with.
    pub const NO_MEMORY: i32 = -3;
    /// A resource is still in use.
    pub const BUSY: i32 = -4;
    /// The caller may not.
    pub const DENIED: i32 = -6;
    /// The receiver has ended.
    pub const ABORTED: i32 = -8;
}

/// Bytes of a descriptor before its ranges.
pub const HEADER: u64 = 80;
/// Permissions: read only.
pub const READ_ONLY: u64 = 1;
/// Permissions: read and write.
pub const READ_WRITE: u64 = 2;
/// Permissions: execute.
pub const EXECUTE: u64 = 2 << 2;
/// Attributes of Normal write-back inner shareable memory.
pub const WRITE_BACK: u64 = 0x2f;
/// Flag: wipe the memory before the retrieval.
pub const ZERO: u64 = 1;
/// Flag of a retrieval: wipe it when it is relinquished.
pub const ZERO_AFTER: u64 = 1 << 2;

/// Registers of a call or an answer.
pub type Regs = [u64; 8];

macro_rules! conduit {
    ($(#[$doc:meta])* $name:ident, $instruction:literal) => {
        $(#[$doc])*
        pub fn $name(mut x: Regs) -> Regs {
            // SAFETY: by the calling convention, X0 to X17 may change; memory that the call takes
            // away is none that Rust knows of.
            unsafe {
                asm!(
                    $instruction,
                    inout("x0") x[0], inout("x1") x[1], inout("x2") x[2], inout("x3") x[3],
                    inout("x4") x[4], inout("x5") x[5], inout("x6") x[6], inout("x7") x[7],
                    out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _,
                    out("x13") _, out("x14") _, out("x15") _, out("x16") _, out("x17") _,
                );
            }
            x
        }
    };
}

conduit!(
    /// Calls by HVC.
    hvc, "hvc #0"
);
conduit!(
    /// Calls by SMC.
    smc, "smc #0"
);

/// Returns the registers of a call: those that are not given are 0.
pub fn regs<const N: usize>(given: [u64; N]) -> Regs {
    let mut regs = [0; 8];
    for (register, value) in regs.iter_mut().zip(given) {
        *register = value;
    }
    regs
}

/// Returns the registers of FFA_MEM_RECLAIM.
pub fn reclaim(handle: u64, flags: u64) -> Regs {
    regs([function::RECLAIM, handle & 0xffff_ffff, handle >> 32, flags])
}

/// Returns the handle that an answer holds in two registers, of which `first` is the low half.
pub fn handle_of(answer: &Regs, first: usize) -> u64 {
    answer[first + 1] << 32 | answer[first]
}

/// Returns the status of an answer: 0, or what FFA_ERROR says.
pub fn status_of(answer: &Regs) -> i32 {
    if answer[0] == function::ERROR {
        answer[2] as i32
    } else {
        0
    }
}

/// Returns the identifier of the calling VM.
pub fn own_endpoint() -> u64 {
    hvc(regs([function::ID_GET]))[2]
}

/// Requests to [`serve`], in X3 of a direct message. X3 and X4 of the response hold the result.
pub mod task {
    /// Nothing: X4 and on come back one larger.
    pub const ECHO: u64 = 0;
    /// Stops serving.
    pub const LEAVE: u64 = 1;
    /// Waits until the word at X4 is not 0.
    pub const AWAIT: u64 = 2;
    /// Sends a request back to the sender, and returns its status.
    pub const ASK_BACK: u64 = 3;
    /// PSCI SYSTEM_RESET.
    pub const RESET: u64 = 4;
    /// PSCI CPU_OFF.
    pub const OFF: u64 = 5;
    /// Retrieves the transaction X4 with the tag of [`Descriptor::new`](super::Descriptor::new),
    /// and the flags X5.
    pub const RETRIEVE: u64 = 6;
    /// Relinquishes the transaction X4, with the flags X5.
    pub const RELINQUISH: u64 = 7;
    /// Reads the word at X4, into X5.
    pub const READ: u64 = 8;
    /// Writes X5 to the word at X4.
    pub const WRITE: u64 = 9;
    /// Returns the number of these requests, this one included.
    pub const COUNT: u64 = 10;
    /// Uses up all tables of the VM, in transactions with pages of many blocks. X5 returns the
    /// number of pages.
    pub const EXHAUST: u64 = 11;
    /// Reclaims the memory of [`EXHAUST`].
    pub const RECOVER: u64 = 12;
}

static COUNT: AtomicU64 = AtomicU64::new(0);
/// Handles that [`task::EXHAUST`] sent.
static SENT: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Waits for direct messages as endpoint `own` and responds to them, until one says to stop. The
/// buffers are at `tx` and the page behind.
pub fn serve(own: u64, tx: u64) {
    let endpoint = Endpoint { own, tx };
    let mut x = hvc(regs([function::MSG_WAIT]));
    loop {
        if x[0] & 0xffff_ffff_bfff_ffff != function::DIRECT_REQ {
            // Interrupted.
            x = hvc(regs([function::MSG_WAIT]));
            continue;
        }
        let what = x[3];
        x = hvc(endpoint.answer(x));
        if what == task::LEAVE {
            timer::disarm();
            gic::end(gic::acknowledge());
            return;
        }
    }
}

/// The endpoint that serves, and its TX buffer.
struct Endpoint {
    own: u64,
    tx: u64,
}

impl Endpoint {
    /// Returns the response to a request.
    fn answer(&self, x: Regs) -> Regs {
        let mut answer = x.map(|value| value.wrapping_add(1));
        answer[1] = self.own << 16 | x[1] >> 16;
        answer[2] = 0;
        answer[3] = self.carry_out(x, &mut answer);
        answer
    }

    /// Carries out a request, and returns its result. Further results go to `answer`.
    fn carry_out(&self, x: Regs, answer: &mut Regs) -> u64 {
        let [_, ends, _, what, a, b, ..] = x;
        let asker = ends >> 16;
        match what {
            task::LEAVE => self.leave(),
            task::AWAIT => cpu::wait_until(|| read64(a) != 0),
            task::OFF => psci::cpu_off(),
            task::EXHAUST => answer[5] = self.exhaust(asker),
            task::ASK_BACK => {
                let request = regs([function::DIRECT_REQ, self.own << 16 | asker]);
                return status_of(&hvc(request)) as u64;
            }
            task::RESET => psci::system_reset(),
            task::RETRIEVE => return self.retrieve(asker, a, b),
            task::RELINQUISH => return self.relinquish(a, b),
            task::READ => return syndrome(|| answer[5] = read64(a)),
            task::WRITE => return syndrome(|| write64(a, b)),
            task::RECOVER => return recover(),
            task::COUNT => return COUNT.fetch_add(1, Ordering::Relaxed) + 1,
            _ => {}
        }
        0
    }

    /// Lets the wait that follows the response end: an interrupt ends it.
    fn leave(&self) {
        gic::enable(timer::INTID);
        timer::arm(timer::now() + timer::from_us(1_000));
    }

    fn retrieve(&self, sender: u64, handle: u64, flags: u64) -> u64 {
        let request = Descriptor {
            flags,
            ..Descriptor::of_retrieval(handle, sender, self.own)
        };
        request.retrieve(self.tx) as u64
    }

    fn relinquish(&self, handle: u64, flags: u64) -> u64 {
        write_relinquish(self.tx, handle, flags, self.own);
        status_of(&hvc(regs([function::RELINQUISH]))) as u64
    }

    /// Shares single pages of as many blocks as there are tables for: of many at first, then of
    /// fewer. Returns how many pages that is.
    fn exhaust(&self, receiver: u64) -> u64 {
        let mut pages = 0;
        let mut sent = SENT.iter();
        for count in (1..=40).rev() {
            let x = self.share_of_blocks(count, receiver);
            if status_of(&x) == 0
                && let Some(sent) = sent.next()
            {
                sent.store(handle_of(&x, 2), Ordering::Relaxed);
                pages += count;
            }
        }
        pages
    }

    /// Shares a page of each of `count` blocks, from 4 MiB behind the buffers on.
    fn share_of_blocks(&self, count: u64, receiver: u64) -> Regs {
        const BLOCK: u64 = 2 << 20;
        let base = (self.tx & !(BLOCK - 1)) + 2 * BLOCK;
        Descriptor {
            pages: count,
            ranges: count,
            ..Descriptor::of_call(function::SHARE, self.own, receiver)
        }
        .write(self.tx);
        for index in 0..count {
            let page = base + index * BLOCK + 4096 * count;
            write_range(self.tx + HEADER + 16 * index, page, 1);
        }
        let size = HEADER + 16 * count;
        hvc(regs([function::SHARE, size, size]))
    }
}

/// Returns the syndrome of an access that aborts, or 0.
fn syndrome(access: impl FnOnce()) -> u64 {
    catch(access).map_or(0, |caught| caught.esr)
}

/// Reclaims what [`task::EXHAUST`] sent. Returns how many transactions that is refused for.
fn recover() -> u64 {
    let handles = SENT.iter().map(|sent| sent.swap(0, Ordering::Relaxed));
    let mut refused = 0;
    for handle in handles.filter(|handle| *handle != 0) {
        let x = hvc(reclaim(handle, 0));
        refused += u64::from(status_of(&x) != 0);
    }
    refused
}

/// Writes FFA_MEM_RELINQUISH's descriptor to `buffer`.
pub fn write_relinquish(buffer: u64, handle: u64, flags: u64, endpoint: u64) {
    write64(buffer, handle);
    write64(buffer + 8, flags | 1 << 32);
    write64(buffer + 16, endpoint);
}

/// A memory transaction descriptor with one endpoint, or two, in the words that a test may want
/// wrong.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Endpoint that sends.
    pub sender: u64,
    /// Memory region attributes.
    pub attributes: u64,
    /// Flags.
    pub flags: u64,
    /// Handle.
    pub handle: u64,
    /// Tag that the sender chose.
    pub tag: u64,
    /// Bytes of an access descriptor.
    pub access_size: u64,
    /// Number of access descriptors.
    pub access_count: u64,
    /// Offset of the first access descriptor.
    pub access_offset: u64,
    /// Endpoint that receives.
    pub receiver: u64,
    /// Permissions of the receiver.
    pub permissions: u64,
    /// Another receiver and its permissions.
    pub second: Option<(u64, u64)>,
    /// Offset of the composite descriptor, or 0.
    pub composite: u64,
    /// Number of pages, as stated.
    pub pages: u64,
    /// Number of ranges, as stated.
    pub ranges: u64,
}

impl Descriptor {
    /// Returns a valid descriptor.
    pub const fn new(sender: u64, receiver: u64) -> Self {
        Self {
            sender,
            attributes: 0,
            flags: 0,
            handle: 0,
            tag: 0x1122_3344_5566_7788,
            access_size: 16,
            access_count: 1,
            access_offset: 48,
            receiver,
            permissions: 0,
            second: None,
            composite: 64,
            pages: 0,
            ranges: 0,
        }
    }

    /// Returns a valid descriptor of FFA_MEM_SHARE, FFA_MEM_LEND or FFA_MEM_DONATE, but for its
    /// pages. A donation states no permissions, and a share alone states attributes.
    pub const fn of_call(id: u64, sender: u64, receiver: u64) -> Self {
        let attributes = if id == function::SHARE { WRITE_BACK } else { 0 };
        let permissions = if id == function::DONATE {
            0
        } else {
            READ_WRITE
        };
        Self {
            attributes,
            permissions,
            ..Self::new(sender, receiver)
        }
    }

    /// Returns a valid descriptor of FFA_MEM_RETRIEVE_REQ.
    pub const fn of_retrieval(handle: u64, sender: u64, receiver: u64) -> Self {
        Self {
            handle,
            composite: 0,
            ..Self::new(sender, receiver)
        }
    }

    /// Retrieves by this descriptor, with the TX buffer at `tx`, and returns the status.
    pub fn retrieve(&self, tx: u64) -> i32 {
        self.write(tx);
        let x = hvc(regs([function::RETRIEVE_REQ, 64, 64]));
        hvc(regs([function::RX_RELEASE]));
        status_of(&x)
    }

    /// Writes the descriptor to `buffer`. Returns its size without ranges.
    pub fn write(&self, buffer: u64) -> u64 {
        let word = |offset: u64, value: u64| write64(buffer + offset, value);
        word(0, self.sender | self.attributes << 16 | self.flags << 32);
        word(8, self.handle);
        word(16, self.tag);
        word(24, self.access_size | self.access_count << 32);
        word(32, self.access_offset);
        word(40, 0);
        let access = |receiver, permissions| receiver | permissions << 16 | self.composite << 32;
        word(48, access(self.receiver, self.permissions));
        word(56, 0);
        let mut at = 64;
        if let Some((receiver, permissions)) = self.second {
            word(64, access(receiver, permissions));
            word(72, 0);
            at = 80;
        }
        word(at, self.pages | self.ranges << 32);
        word(at + 8, 0);
        at + 16
    }
}

/// Writes a range to `buffer`.
pub fn write_range(buffer: u64, address: u64, pages: u64) {
    write64(buffer, address);
    write64(buffer + 8, pages);
}

/// Reads a range from `buffer`.
pub fn read_range(buffer: u64) -> (u64, u64) {
    (read64(buffer), read64(buffer + 8) & 0xffff_ffff)
}

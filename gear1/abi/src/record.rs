//! Binary log records of Gear1's runtime: an identifier and integers. gearctl,
//! Gear2 and xtask turn them into text; Gear1 never formats.
//!
//! Requirements: G1-RUN-008.

/// Words of a record: counter; identifier and CPU; three values.
pub const RECORD_WORDS: usize = 5;

/// Lowest bit of the CPU in a cursor of [`LOG_READ`](crate::call::number::LOG_READ); the bits below
/// are the number of the next record of that CPU.
pub const CURSOR_CPU_SHIFT: u32 = 56;

/// A log record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Physical counter at the time.
    pub time: u64,
    /// [`RecordId`] in the low half, CPU index in the upper half.
    pub id_and_cpu: u64,
    /// Values whose meaning the identifier tells.
    pub values: [u64; 3],
}

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// Kind of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum RecordId { $($(#[$doc])* $name),+ }

        impl RecordId {
            const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the record identifier numbered `index`.
            pub fn from_index(index: u64) -> Option<Self> {
                Self::ALL.get(usize::try_from(index).ok()?).copied()
            }

            /// Returns the text for people; `{0}` to `{2}` stand for the values in hexadecimal.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

records! {
    /// A CPU entered its loop.
    CpuUp = "CPU up, MPIDR {0}",
    /// A CPU could not be turned on.
    CpuFailed = "CPU {0} did not start, PSCI error {1}",
    /// A VM's boot vCPU was made runnable.
    VmStart = "VM {0} started at {1}",
    /// A VM was asked to stop.
    VmStop = "VM {0} stops",
    /// A guest's access was reflected as an abort.
    GuestAbort = "vCPU {0}: abort reflected, ESR {1}, address {2}",
    /// A guest's access had no valid syndrome.
    NoSyndrome = "vCPU {0}: access without syndrome, ESR {1}, IPA {2}",
    /// A guest used a system register that is not virtualized.
    UnknownSysreg = "vCPU {0}: system register {1} undefined, PC {2}",
    /// A physical interrupt that nobody owns.
    SpuriousIrq = "interrupt {0} has no owner",
    /// A vCPU cannot go on.
    VcpuFault = "vCPU {0} cannot go on: ESR {1}, PC {2}",
    /// A CPU cannot use the stage-2 tables.
    CpuUnfit = "CPU {0} stays off: stage 2 needs PARange {2}, it has {1}",
    /// Gear2 was restarted; 1: a loop hung, 2: it faulted, 3: it gave up.
    Gear2Restart = "Gear2 restarted: failure {0}, PC {1}, ESR {2}",
    /// Loops did not take their probes, so that the board's watchdog was not fed.
    NotFed = "the board's watchdog was not fed: CPUs {0} (a bit each) did not come back",
    /// A real-time VM's heartbeat stopped.
    VmSilent = "VM {0} hangs: its heartbeat has stopped at {1}",
    /// A CPU has other lengths of vectors than the boot CPU.
    CpuVectors = "CPU {0} stays off: its lengths of SVE are {1}, the boot CPU's {2} (bit n: 128 (n + 1))",
}

//! The last words of a VM: why and when a life ended, the registers of its vCPUs, and the end of
//! its console output.
//!
//! The words are kept over the VM's restart, until its next end. A restart of Gear2 loses them.

use alloc::vec::Vec;

use gear1_abi::call::vcpu_reg;
use gear1_abi::event::Ended;
use gear2_protocol::cause;

/// Bytes of console output that are kept: two screens.
pub(crate) const CONSOLE_BYTES: u32 = 4096;

/// Registers of a vCPU, by the numbers of [`vcpu_reg`].
pub(crate) type Registers = [u64; vcpu_reg::COUNT];

/// Cause of a VM's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Somebody has stopped or restarted it.
    #[default]
    Stopped,
    /// The VM turned itself off.
    Off,
    /// The VM has reset itself.
    Reset,
    /// A vCPU could not go on, or too many accesses of its devices were aborted.
    Crash,
    /// The VM showed no sign of life.
    Hang,
}

impl Cause {
    /// Returns the cause of an end that Gear1 knows of.
    pub(crate) const fn of(end: Ended) -> Self {
        match end {
            Ended::No => Self::Stopped,
            Ended::Off => Self::Off,
            Ended::Reset => Self::Reset,
            Ended::Fault => Self::Crash,
        }
    }

    /// Returns the number for GDM.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Stopped => cause::STOPPED,
            Self::Off => cause::OFF,
            Self::Reset => cause::RESET,
            Self::Crash => cause::CRASH,
            Self::Hang => cause::HANG,
        }
    }

    /// Returns what the VM did, in words.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Stopped => "was stopped",
            Self::Off => "turned itself off",
            Self::Reset => "reset itself",
            Self::Crash => "could not go on",
            Self::Hang => "hung",
        }
    }
}

/// The last words of a VM. Their room is allocated at boot: an end may come when the heap is empty.
#[derive(Debug)]
pub(crate) struct LastWords {
    /// The life that ended, by the number of starts; 0: none has.
    pub(crate) life: u32,
    pub(crate) cause: Cause,
    /// Counter value at which they were collected.
    pub(crate) time: u64,
    /// Registers of each vCPU, as far as they are known.
    pub(crate) vcpus: Vec<Option<Registers>>,
    /// The end of the console output.
    pub(crate) console: Vec<u8>,
}

impl LastWords {
    /// Makes room for the words of a VM.
    pub(crate) fn new(vcpus: usize) -> Self {
        Self {
            life: 0,
            cause: Cause::default(),
            time: 0,
            vcpus: alloc::vec![None; vcpus],
            console: Vec::with_capacity(CONSOLE_BYTES as usize),
        }
    }

    /// Begins with the end of a life.
    pub(crate) fn begin(&mut self, life: u32, cause: Cause, time: u64) {
        (self.life, self.cause, self.time) = (life, cause, time);
        self.vcpus.fill(None);
        self.console.clear();
    }

    /// Returns the vCPUs whose registers are known, a bit each.
    pub(crate) fn known(&self) -> u64 {
        let vcpus = (0_u32..).zip(&self.vcpus);
        vcpus.fold(0, |known, (index, registers)| {
            known | u64::from(registers.is_some()) << index
        })
    }
}

//! A bug, and what is to find it.

use super::SAMPLE;
use crate::change::Change;
use crate::copy;

/// A bug: a change of the code at the comment `// planted:` of its name.
pub(crate) struct Bug {
    /// The name that the comment at its place has.
    pub(super) name: &'static str,
    pub(super) change: Change,
    /// The requirements that it breaks.
    pub(super) breaks: &'static [&'static str],
    /// The file that cites them, and whose test fails.
    pub(super) test: &'static str,
    pub(super) finder: Finder,
}

impl Bug {
    /// Tells whether every run of the tests plants the bug.
    pub(super) fn is_in_sample(&self) -> bool {
        SAMPLE.contains(&self.name)
    }

    /// Makes a bug that breaks no requirement on Gear1 by itself, and that the host tests in the
    /// module `test` find.
    pub(super) const fn on_host(test: &'static str, name: &'static str, change: Change) -> Bug {
        Bug {
            name,
            change,
            breaks: &[],
            test,
            finder: Finder::Host,
        }
    }
}

/// Test that finds a bug.
pub(super) enum Finder {
    /// The host tests in the module that the test's file is.
    Host,
    /// The host tests of the test's package whose names contain this.
    HostNamed(&'static str),
    /// A row of the table of guests, on a CPU model.
    Guest(&'static str, &'static str),
    /// The real-time VM that is stopped and started.
    Stops,
    /// Memory after the boot.
    Leaves,
    /// A machine that has to be refused.
    Refusal(&'static str),
    /// A machine without EL2.
    NeedsEl2,
    /// A debugger that looks at what Gear2 sees of guests' registers.
    Gear2Registers,
    /// Two VMs that attack everything.
    Chaos,
    /// A device that attacks all memory.
    Dma,
    /// Two VMs with a function each of one PCI bus.
    PciFunctions,
    /// A guest with devices of its own.
    OwnDevices,
    /// Firmware that counts how often Gear1 calls it.
    Firmware,
    /// Firmware that gives random numbers.
    FirmwareTrng,
    /// A device VM that traces a guest.
    Trace,
    /// A guest that a device VM dumps.
    Dump,
    /// A microcontroller that watches a line, beside a Gear1 that hangs.
    Microcontroller,
    /// The last words of a guest that fails in each way.
    LastWords,
    /// Rules of the linked runtime for GICv3.
    Rules,
}

impl Finder {
    /// Returns whether the test needs no image.
    pub(super) fn is_on_host(&self) -> bool {
        matches!(self, Finder::Host | Finder::HostNamed(_))
    }

    /// Returns the name of the copy that the bug is planted in.
    pub(super) fn copy(&self) -> &'static str {
        match self.is_on_host() {
            true => copy::FOR_HOST,
            false => copy::FOR_IMAGES,
        }
    }
}

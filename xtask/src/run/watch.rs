//! Detection of a machine's end on its console: Gear1's init refused its inputs, or Gear1 halted. A
//! board then shows the message until somebody comes; QEMU would continue as an empty machine.
//!
//! Guests print on the same console. Therefore init's words count only before Gear2's first
//! message, when no guest has run, and a halt needs both its first line and its last.

use workbench::build_images::{HALT, STOPPED};

/// Prefixes of init's and of Gear2's messages, and the last line of a halt.
const INIT: &str = "gearv: ";
const GEAR2: &str = "gear2: ";
const HALTED: &str = "gear1: machine stopped";
/// Longest line of Gear1 or Gear2; longer lines are a guest's.
const MAX_LINE: usize = 4096;

/// End of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Init started no guest.
    Refused,
    /// Gear1 cannot go on.
    Halted,
}

/// Reads along.
#[derive(Debug, Default)]
pub(super) struct Watch {
    line: Vec<u8>,
    gear2_runs: bool,
    halts: bool,
}

impl Watch {
    /// Takes output of the console. Returns the end of the machine, if it has ended.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<End> {
        bytes.iter().find_map(|&byte| match byte {
            b'\n' => {
                let line = std::mem::take(&mut self.line);
                self.judge(String::from_utf8_lossy(&line).trim_start_matches('\r'))
            }
            byte if self.line.len() < MAX_LINE => {
                self.line.push(byte);
                None
            }
            _ => None,
        })
    }

    fn judge(&mut self, line: &str) -> Option<End> {
        self.gear2_runs |= line.starts_with(GEAR2);
        self.halts |= line.starts_with(HALT);
        if !self.gear2_runs && line.starts_with(INIT) && line.contains(STOPPED) {
            return Some(End::Refused);
        }
        (self.halts && line.starts_with(HALTED)).then_some(End::Halted)
    }
}

#[cfg(test)]
mod tests;

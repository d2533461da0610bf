//! Detection of a machine's end on its console: Gear1's init refused its inputs, or Gear1 halted. A
//! board then shows the message until somebody comes; QEMU would continue as an empty machine.
//!
//! Guests print on the same console. Therefore init's words count only before Gear2's first
//! message, when no guest has run, and a halt needs both its first line and its last.

use workbench::build_images::{HALT, STOPPED};

/// Prefixes of init's and of Gear2's messages, and the last line of a halt.
const INIT: &str = "gearv: ";
/// Gear2's own lines begin with it: from then on a message of init's cannot come.
const GEAR2: &str = "gear2: ";
/// Last line of a halt's dump, which has more lines than one.
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
    /// Output comes in pieces, and a line may be split between two.
    line: Vec<u8>,
    /// A guest may print whatever init prints.
    gear2_runs: bool,
    /// A halt was announced, and its dump is under way.
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

    /// A line is judged as a whole: a guest's echo may hold part of one.
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

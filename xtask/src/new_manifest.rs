//! `cargo xtask new-manifest`: a commented manifest to start from, which passes `check` and boots.
//!
//! Options say which VMs it has; on a terminal, questions ask for them.

use std::fs;
use std::io::{self, BufRead, IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use workbench::board::Name;

mod text;

use text::has_device_vm;
pub use text::text;

/// The options of `new-manifest`. Without options and terminal, a plain guest is written: scripts
/// must not hang in a question.
#[derive(Args, Debug)]
pub struct Options {
    /// The board of the manifest
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Name::QemuVirt)]
    board: Name,
    /// A device VM, which owns the disk or card, the network and the boot UART
    #[arg(long)]
    device_vm: bool,
    /// A Linux guest whose disk, network and console the device VM serves, and that device VM
    #[arg(long)]
    guest: bool,
    /// A real-time VM with a CPU of its own
    #[arg(long)]
    real_time: bool,
    /// A Linux guest alone, without a question
    #[arg(long, conflicts_with_all = ["device_vm", "guest", "real_time"])]
    plain: bool,
    /// The file to write, or - for standard output; no file is overwritten [default: -]
    file: Option<PathBuf>,
}

/// VMs of a manifest. Without a device VM there is a Linux guest that needs no device. Every
/// combination that a board offers is built and booted by the tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// A device VM.
    pub device_vm: bool,
    /// A guest that the device VM serves.
    pub guest: bool,
    /// A real-time VM.
    pub real_time: bool,
}

impl Choice {
    /// Returns all choices that a board offers. The tests go through them, so that no combination is
    /// written that breaks a rule.
    pub fn all(board: Name) -> Vec<Choice> {
        let devices = match has_device_vm(board) {
            true => &[(false, false), (true, false), (true, true)][..],
            false => &[(false, false)],
        };
        let both = devices.iter().flat_map(|&(device_vm, guest)| {
            [false, true].map(|real_time| Choice {
                device_vm,
                guest,
                real_time,
            })
        });
        both.collect()
    }
}

impl Options {
    /// Writes the manifest. A file that exists is left: people edit these. The next command is
    /// named, because a manifest that nobody has checked is a draft.
    pub fn run(self) -> Result<()> {
        let file = self.file.as_ref().filter(|file| file.as_os_str() != "-");
        if let Some(file) = file {
            ensure!(
                !file.exists(),
                "{} is there already: name a file that is not, or remove it",
                file.display()
            );
        }
        let text = text(self.board, self.choice()?);
        let Some(file) = file else {
            print!("{text}");
            return Ok(());
        };
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!(
            "wrote {0}; next: cargo xtask check --board {1} {0}",
            file.display(),
            self.board.text()
        );
        Ok(())
    }

    /// Returns the VMs that the options name, or that a person on a terminal wants. A guest implies
    /// its device VM, which serves its disk.
    fn choice(&self) -> Result<Choice> {
        let named = Choice {
            device_vm: self.device_vm || self.guest,
            guest: self.guest,
            real_time: self.real_time,
        };
        ensure!(
            !named.device_vm || has_device_vm(self.board),
            "--device-vm, --guest: which devices of {} a device VM has is not known; write them into \
             the manifest (docs/manifest.md, devices)",
            self.board.text()
        );
        let is_asked = io::stdin().is_terminal() && io::stderr().is_terminal();
        if named != Choice::default() || self.plain || !is_asked {
            return Ok(named);
        }
        ask(self.board, &mut io::stdin().lock(), &mut io::stderr())
    }
}

/// Asks for the VMs. Questions go to standard error, for standard output may be the manifest. In
/// the order in which one answer leads to the next: no guest is served without a device VM.
fn ask(board: Name, input: &mut impl BufRead, output: &mut impl Write) -> Result<Choice> {
    let mut choice = Choice::default();
    if has_device_vm(board) {
        let device_vm = "A device VM, which owns the disk or card, the network and the boot UART?";
        choice.device_vm = yes(device_vm, false, input, output)?;
    }
    if choice.device_vm {
        let guest = "A Linux guest whose disk, network and console it serves?";
        choice.guest = yes(guest, true, input, output)?;
    }
    let real_time = "A real-time VM with a CPU of its own?";
    choice.real_time = yes(real_time, false, input, output)?;
    Ok(choice)
}

/// Asks until the answer is yes, no or none, which stands for `usual`. The end of input stands for
/// the usual answer, so that `< /dev/null` ends.
fn yes(
    question: &str,
    usual: bool,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<bool> {
    let answers = if usual { "Y/n" } else { "y/N" };
    loop {
        write!(output, "{question} [{answers}] ")?;
        output.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            writeln!(output)?;
            return Ok(usual);
        }
        match understood(&answer, usual) {
            Some(answer) => return Ok(answer),
            None => writeln!(output, "y or n")?,
        }
    }
}

/// Returns what an answer means, of which none stands for `usual`. Anything else is asked again: a
/// typo must not choose.
fn understood(answer: &str, usual: bool) -> Option<bool> {
    match answer.trim().to_lowercase().as_str() {
        "" => Some(usual),
        "y" | "yes" => Some(true),
        "n" | "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

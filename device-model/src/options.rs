//! Options of GDM.

use std::path::PathBuf;

use gear2_protocol::Region;

use crate::board::DeviceNode;
use crate::hardware::{Hardware, Kernel};

/// Directory in which GDM and gearctl meet.
pub const RUN_DIRECTORY: &str = "/run/gearv";

/// Help text.
pub const USAGE: &str = "\
usage: gdm [--poll] [--no-seccomp] [--run DIR] [--device-tree DIR]
       gdm --make-taps [--device-tree DIR]

  --poll             look all the time instead of waiting for interrupts
  --no-seccomp       do not restrict the threads' system calls; without this option gdm ends if it cannot
  --run DIR          directory of the sockets (/run/gearv)
  --device-tree DIR  device tree (/proc/device-tree)
  --make-taps        make the tap devices of the guests' network cards, print their names, and end
  --version          print the version";

/// Code that runs in a device's thread, with the region as the process has it.
pub type Inside = fn(&DeviceNode, &'static Region);

/// Options of GDM.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device tree.
    pub tree: PathBuf,
    /// Directory of the sockets.
    pub run_directory: String,
    /// Look all the time instead of waiting for interrupts.
    pub spin: bool,
    /// Restrict the threads' system calls.
    pub sandbox: bool,
    /// Make tap devices, and serve nothing.
    pub makes_taps: bool,
    /// The VM whose devices this process serves; `None`: this process is GDM itself.
    pub guest: Option<usize>,
    /// Sources of memory, registers and lines.
    pub hardware: &'static dyn Hardware,
    /// Runs in a device's thread once that has given up all rights. Tests put code of a guest's
    /// there that has subverted the thread.
    pub inside: Option<Inside>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tree: "/proc/device-tree".into(),
            run_directory: RUN_DIRECTORY.into(),
            spin: false,
            sandbox: true,
            makes_taps: false,
            guest: None,
            hardware: &Kernel,
            inside: None,
        }
    }
}

impl Options {
    /// Reads the options. An unknown one is an error: a misspelt `--no-seccomp` must not pass
    /// unnoticed.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            // Asked only by options that take a value.
            let mut value = || words.next().ok_or(format!("{word} takes a value"));
            match word.as_str() {
                "--poll" => options.spin = true,
                "--no-seccomp" => options.sandbox = false,
                "--make-taps" => options.makes_taps = true,
                "--run" => options.run_directory = value()?,
                "--device-tree" => options.tree = value()?.into(),
                // GDM's own, for the processes that it starts.
                "--guest" => {
                    let vm = value()?.parse();
                    options.guest = Some(vm.map_err(|_| "--guest takes a number")?);
                }
                _ => return Err(format!("there is no option `{word}`\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

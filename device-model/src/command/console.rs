//! Which consoles there are, and the way to one.

use std::io;
use std::os::unix::net::UnixStream;

use super::Console;
use crate::client::{Client, Vm};
use crate::error::Error;
use crate::serial::file_name;
use crate::{output, terminal};

/// A kind of console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The serial port that Gear2 emulates.
    Serial,
    /// The virtio console.
    Virtio,
    /// Gear2's messages about a VM, which come by the socket of its serial port, whether it has
    /// that port or not.
    Messages,
}

impl Kind {
    /// Returns the words for it.
    fn text(self) -> &'static str {
        match self {
            Self::Serial => "serial console",
            Self::Virtio => "virtio console",
            Self::Messages => "socket of messages",
        }
    }

    /// Returns the end of the socket's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::Serial | Self::Messages => "serial",
            Self::Virtio => "console",
        }
    }
}

impl Kind {
    /// Returns the kind that a command line asks for.
    pub(super) fn of(words: &Console) -> Self {
        match words {
            Console { virtio: true, .. } => Self::Virtio,
            Console { messages: true, .. } => Self::Messages,
            _ => Self::Serial,
        }
    }
}

/// Finds the VM whose console is asked for. One without such a console is refused with the reason,
/// and with those that have one.
pub(super) fn find(client: &mut Client, name: &str, kind: Kind) -> Result<Vm, Error> {
    let vm = client.find(name)?;
    let all = having(client, kind)?;
    // planted: gearctl enters a console that does not exist
    if all.contains(&vm.name) {
        return Ok(vm);
    }
    let name = &vm.name;
    let instead = instead(client, &vm, kind)?;
    // Who mistook the VM's name finds it here.
    let others = match all.as_slice() {
        [] => format!("no VM has a {}", kind.text()),
        names => format!("VMs with a {}: {}", kind.text(), names.join(", ")),
    };
    let (what, reason) = (kind.text(), reason(&vm, kind));
    Err(Error::not_found(format!(
        "VM {name} has no {what}: {reason}; {instead}; {others}"
    )))
}

/// Says how to reach a VM that lacks a console of this kind, so that the next try succeeds.
fn instead(client: &mut Client, vm: &Vm, kind: Kind) -> Result<String, Error> {
    let name = &vm.name;
    Ok(match kind {
        Kind::Serial if having(client, Kind::Virtio)?.contains(name) => {
            format!("`gearctl console --virtio {name}` is its virtio console")
        }
        Kind::Serial | Kind::Messages => {
            format!("`gearctl console --messages {name}` shows what Gear2 says of it")
        }
        Kind::Virtio if vm.console => format!("`gearctl console {name}` is its serial one"),
        Kind::Virtio => "it has no other".to_owned(),
    })
}

/// Returns the names of the VMs that have a console.
fn having(client: &mut Client, kind: Kind) -> Result<Vec<String>, Error> {
    let vms = client.vms()?.into_iter();
    Ok(match kind {
        Kind::Serial => vms.filter(|vm| vm.console).map(|vm| vm.name).collect(),
        Kind::Messages => vms.map(|vm| vm.name).collect(),
        Kind::Virtio => {
            let devices = client.devices()?.into_iter();
            // GDM names the devices by VM and type.
            let consoles = devices.filter(|device| device.r#type == "console");
            let names = consoles.map(|device| device.vm);
            names.collect()
        }
    })
}

/// Says why a VM lacks a console.
fn reason(vm: &Vm, kind: Kind) -> &'static str {
    match kind {
        Kind::Virtio => "its manifest gives it no virtio device of the type `console`",
        Kind::Serial | Kind::Messages if vm.real_time => {
            "it is real-time, and its serial port is the machine's"
        }
        Kind::Serial | Kind::Messages if vm.device_model => {
            "`gearctl` runs in it, and its serial port is the machine's"
        }
        Kind::Serial | Kind::Messages => {
            "its manifest gives it no emulated serial port (a node `console`)"
        }
    }
}

/// Connects the terminal with a console until Ctrl-] is typed or either side ends. Of what was
/// printed before, a person sees the last screen, and with `all` everything that GDM has kept. A
/// program that reads a pipe gets everything: it has no screen.
pub(super) fn connect(run_directory: &str, vm: &str, kind: Kind, all: bool) -> Result<(), Error> {
    // The console's bytes do not pass GDM's control socket: each console has a socket of its own.
    let path = format!("{run_directory}/{}.{}", file_name(vm), kind.suffix());
    let socket = UnixStream::connect(&path).map_err(|error| {
        Error::unreachable(format!("VM {vm} has no {} at {path}: {error}", kind.text()))
    })?;
    // One row stays free for what comes next.
    let rows = output::height(&io::stdout()).filter(|_| !all);
    match terminal::connect(socket, rows.map(|rows| rows.saturating_sub(1))) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::unreachable(format!(
            "the console of VM {vm} was closed"
        ))),
        Err(error) => Err(Error::failed(format!("the console of VM {vm}: {error}"))),
    }
}

//! `--port-forward`: ports of this machine that lead to VMs.
//!
//! A forward is judged twice: its form when the options are read, and its VM when the manifest is
//! there. Both come before the machine starts.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use workbench::manifest::{Compiled, VmSummary};
use workbench::qemu::{Forward, Protocol};

/// A port of this machine that leads to a VM, as a user writes it: `8080:80`, `udp:53:53`,
/// `8080:VM:80`. Kept as written until the manifest is there, which options are parsed before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// TCP unless the user says otherwise.
    protocol: Protocol,
    /// On the loopback address alone.
    host_port: u16,
    /// Name or address of the VM; `None` for the first one on the network.
    vm: Option<String>,
    /// In the VM.
    port: u16,
}

impl FromStr for Wanted {
    /// clap shows the text behind the option's name.
    type Err = String;

    /// The protocol comes first, as in QEMU's own `hostfwd`. TCP is meant where none stands, as
    /// most services that people try in a VM are of TCP.
    fn from_str(text: &str) -> Result<Wanted, String> {
        let (protocol, rest) = match text.split_once(':') {
            Some(("tcp", rest)) => (Protocol::Tcp, rest),
            Some(("udp", rest)) => (Protocol::Udp, rest),
            _ => (Protocol::Tcp, text),
        };
        let parts: Vec<&str> = rest.split(':').collect();
        let (host, vm, guest) = match parts[..] {
            [host, guest] => (host, None, guest),
            [host, vm, guest] => (host, Some(vm.to_owned()), guest),
            _ => {
                return Err(
                    "it is written as 8080:80, udp:8080:80 or 8080:VM:80: a port of this \
                            machine, the VM, and the VM's port"
                        .to_owned(),
                );
            }
        };
        Ok(Wanted {
            protocol,
            host_port: port(host)?,
            vm,
            port: port(guest)?,
        })
    }
}

/// Reads a port. Port 0 would let the host choose one that nobody is told.
fn port(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|port| *port != 0);
    number.ok_or_else(|| format!("{text:?} is no port: 1 to 65535"))
}

/// Refuses ports of this machine that are named twice or that another program has. QEMU's message
/// for a port that is taken comes after the build, and names no option. The port is free again when
/// this returns; a race with another program ends with QEMU's message.
pub(super) fn judge(wanted: &[Wanted]) -> Result<()> {
    for (index, one) in wanted.iter().enumerate() {
        let Wanted {
            protocol,
            host_port,
            ..
        } = one;
        let name = format!("--port-forward: {} port {host_port}", protocol.name());
        let same = |other: &Wanted| (other.protocol, other.host_port) == (*protocol, *host_port);
        let is_twice = wanted.iter().skip(index + 1).any(same);
        ensure!(!is_twice, "{name} of this machine is named twice");
        let here = (Ipv4Addr::LOCALHOST, *host_port);
        let free = match protocol {
            Protocol::Tcp => TcpListener::bind(here).map(drop),
            Protocol::Udp => UdpSocket::bind(here).map(drop),
        };
        free.with_context(|| format!("{name} of this machine is not to be had"))?;
    }
    Ok(())
}

impl Wanted {
    /// Returns the forward to a VM of the manifest. The name becomes an address: QEMU's network
    /// knows only those.
    pub(super) fn resolved(&self, manifest: &Compiled) -> Result<Forward> {
        let address = match &self.vm {
            Some(vm) if vm.parse::<Ipv4Addr>().is_ok() => vm.clone(),
            Some(vm) => address_of(named(manifest, vm)?, manifest)?,
            None => address_of(first(manifest)?, manifest)?,
        };
        Ok(Forward {
            protocol: self.protocol,
            host_port: self.host_port,
            address,
            port: self.port,
        })
    }
}

/// Returns the VM that is meant when none is named: the first guest with a network card, or else
/// the device VM. The first guest is what most people mean; a machine with a device VM alone has no
/// other.
fn first(manifest: &Compiled) -> Result<&VmSummary> {
    let mut guests = manifest.vms.iter().enumerate().filter(|(index, vm)| {
        let is_device_vm = manifest
            .device_vm()
            .is_some_and(|(device, _)| device == *index);
        !is_device_vm && vm.address.is_some()
    });
    let guest = guests.next().map(|(_, vm)| vm);
    let vm = guest.or(manifest.device_vm().map(|(_, vm)| vm));
    vm.context("--port-forward: no VM of the manifest has a network card")
}

/// Finds a VM by its name. The error has all names, since a typo is the usual cause.
fn named<'m>(manifest: &'m Compiled, name: &str) -> Result<&'m VmSummary> {
    let vm = manifest.vms.iter().find(|vm| vm.name == name);
    vm.with_context(|| {
        let names: Vec<&str> = manifest.vms.iter().map(|vm| vm.name.as_str()).collect();
        format!(
            "--port-forward: there is no VM {name}; there are {}",
            names.join(", ")
        )
    })
}

/// Returns the address of a VM, which no other VM may have. Two guests of one address answer each
/// other's packets by chance.
fn address_of(vm: &VmSummary, manifest: &Compiled) -> Result<String> {
    let name = &vm.name;
    let Some(address) = &vm.address else {
        bail!("--port-forward: {name} has no network card: a virtio device of type \"net\"");
    };
    let has_same =
        |other: &&VmSummary| other.name != *name && other.address.as_ref() == Some(address);
    if let Some(other) = manifest.vms.iter().find(has_same) {
        bail!(
            "--port-forward: {name} and {} both have the address {address}; another one is \
             gearv.ip=10.0.2.102/24 in a command line",
            other.name
        );
    }
    Ok(address.clone())
}

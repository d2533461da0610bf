//! KVM to compare with: a stock Debian host on QEMU that runs one guest under `tests/kvm-vmm`.
//!
//! A caller fills in a [`KvmHost`], builds it once and starts it as often as it likes:
//!
//! ```ignore
//! let host = KvmHost {
//!     kernel: payloads::debian_kernel()?,
//!     initrd: Some(initramfs),
//!     command_line: "console=ttyAMA0 quiet".to_owned(),
//!     isolate: true,
//!     ..KvmHost::default()
//! };
//! let built = host.build(&out_dir)?;
//! let mut session = built.start(&qemu, &Machine { icount: true, ..Machine::default() }, &log)?;
//! session.expect("what the guest prints", timeout)?;
//! ```
//!
//! The session's output is the host's console: the guest's console is a part of it, line by line (a
//! line shows when it is whole), between [`GUEST_STARTS`] and [`GUEST_ENDED`] with the VMM's exit
//! code. Then the host turns the machine off. The CPU model and the GIC are the machine's:
//! Cortex-A57 and A72 make KVM run without VHE, `neoverse-n1` and `max` with it. The guest's GIC is
//! of the machine's version.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use workbench::expect::Session;
use workbench::initramfs::with_busybox;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::tree::Tree;
use workbench::{apps_userland, kernel_modules, payloads, workspace};

/// Line that the host prints before the guest's first line.
pub const GUEST_STARTS: &str = "KVM host: guest starts";
/// Line that the host prints after the guest's last line, followed by a space and the VMM's exit
/// code.
pub const GUEST_ENDED: &str = "KVM host: guest ended";

/// The VMM is linked statically, as the host's initramfs has no libraries.
const PACKAGE: &str = "kvm-vmm";
const INIT: &str = include_str!("kvm_host/init.sh");
/// Paths of the payload in the host's initramfs.
const KERNEL: &str = "guest/kernel";
const INITRD: &str = "guest/initrd";
/// The host's disk, which the VMM serves.
const HOST_DISK: &str = "/dev/vda";
/// Memory that the host needs beside the guest's memory and two copies of the guest's images.
const HOST_MIB: u64 = 384;
const MIB: u64 = 1 << 20;

/// Payload of the host: a guest, and how to run it.
#[derive(Clone, Debug)]
pub struct KvmHost {
    /// The guest's kernel, an arm64 `Image`: Linux or one of `tests/guests`.
    pub kernel: PathBuf,
    /// The guest's initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// The guest's command line.
    pub command_line: String,
    /// The guest's memory.
    pub memory_mib: u32,
    /// The host's CPU of each vCPU, whose thread is pinned there.
    pub cpus: Vec<u32>,
    /// A second VM with the same kernel; the two have doorbells that interrupt each other.
    pub peer: Option<Peer>,
    /// Time for which a vCPU in WFI polls before its thread sleeps, in ns; `None` leaves the
    /// kernel's default.
    pub halt_poll_ns: Option<u32>,
    /// Whether the vCPUs' CPUs are kept free of everything else (`isolcpus`, `nohz_full`,
    /// `rcu_nocbs`) and their threads have SCHED_FIFO 1: what people set up for real-time guests.
    /// CPU 0 cannot be.
    pub isolate: bool,
    /// The host's kernel; `None` is Debian's stock 6.12.
    pub host_kernel: Option<PathBuf>,
    /// More shell commands that the host runs in the background beside the guest: load.
    pub background: String,
    /// The host's disk, /dev/vda.
    pub disk: Option<PathBuf>,
    /// Whether the VMM serves the host's disk to the guest.
    pub serves_disk: bool,
    /// Tap device behind the guest's network card, which the VMM makes. `None`: there is no card.
    pub tap: Option<String>,
    /// Whether the peer of the network's workloads runs beside the guest, with that tap device on
    /// its bridge.
    pub has_peer: bool,
    /// Shell script that runs the VMM in place of the one run that the other fields describe, for
    /// more VMs than two. The kernel is `/guest/kernel`, and `$1` the version of the guests' GIC.
    pub script: Option<String>,
}

/// The second VM.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The VM's command line.
    pub command_line: String,
    /// The host's CPU of each of the VM's vCPUs.
    pub cpus: Vec<u32>,
}

impl Default for KvmHost {
    fn default() -> KvmHost {
        KvmHost {
            kernel: PathBuf::new(),
            initrd: None,
            command_line: String::new(),
            memory_mib: 256,
            cpus: vec![1],
            peer: None,
            halt_poll_ns: None,
            isolate: false,
            host_kernel: None,
            background: String::new(),
            disk: None,
            serves_disk: false,
            tap: None,
            has_peer: false,
            script: None,
        }
    }
}

/// A host that can be started. A build is separate from a start, as one host is started under
/// several CPU models.
#[derive(Clone, Debug)]
pub struct BuiltHost {
    kernel: PathBuf,
    initramfs: PathBuf,
    command_line: String,
    memory_mib: u32,
    cpus: u32,
    disk: Option<PathBuf>,
}

impl KvmHost {
    /// Builds the VMM and, below `out_dir`, the host's initramfs with the payload.
    pub fn build(&self, out_dir: &Path) -> Result<BuiltHost> {
        ensure!(!self.cpus.is_empty(), "a KVM guest needs a vCPU");
        let takes_0 = self.isolate && self.cpus.contains(&0);
        ensure!(!takes_0, "the host's CPU 0 cannot be isolated");
        ensure!(
            !self.serves_disk || self.disk.is_some(),
            "the host has no disk to serve"
        );
        fs::create_dir_all(out_dir)?;
        let initramfs = out_dir.join("kvm-host-initramfs.cpio");
        let initramfs = self.tree()?.write_initramfs(initramfs)?;
        let kernel = match &self.host_kernel {
            Some(kernel) => kernel.clone(),
            None => payloads::debian_kernel()?,
        };
        Ok(BuiltHost {
            kernel,
            command_line: self.host_command_line(),
            memory_mib: self.host_memory_mib(&initramfs)?,
            initramfs,
            cpus: self.host_cpus(),
            disk: self.disk.clone(),
        })
    }

    /// Returns the number of CPUs up to the last that a vCPU has. Each vCPU is pinned, so a CPU
    /// beyond the last would only add the host's own work.
    fn host_cpus(&self) -> u32 {
        let peer = self.peer.iter().flat_map(|peer| &peer.cpus);
        1 + self.cpus.iter().chain(peer).copied().max().unwrap_or(0)
    }

    /// Returns the host's initramfs: the VMM, the guest, and how to run it.
    fn tree(&self) -> Result<Tree> {
        let mut tree = with_busybox()?;
        let vmm = workspace::build_static(PACKAGE, &[PACKAGE])?;
        tree.program("usr/bin/kvm-vmm", read(&vmm[0])?);
        tree.file(KERNEL, read(&self.kernel)?);
        if let Some(initrd) = &self.initrd {
            tree.file(INITRD, read(initrd)?);
        }
        tree.file("guest/arguments", self.arguments());
        let poll = self.halt_poll_ns.map(|ns| ns.to_string());
        tree.file("guest/halt-poll", poll.unwrap_or_default());
        let peer = self.tap.iter().filter(|_| self.has_peer);
        let peer: String = peer.map(|tap| format!("peer {tap} &\n")).collect();
        let background = format!("#!/bin/sh\n{peer}{}\n", self.background);
        tree.program("guest/background", background);
        if let Some(script) = &self.script {
            tree.program("guest/script", script.as_str());
        }
        if self.has_peer {
            apps_userland::add_peer(&mut tree)?;
        }
        let modules = self.modules();
        if !modules.is_empty() {
            kernel_modules::add(&mut tree, &modules)?;
        }
        tree.program("init", INIT);
        Ok(tree)
    }

    /// Returns the modules of the host's disk, of the guest's card and of the peer's network.
    fn modules(&self) -> Vec<&'static str> {
        let disk: &[&str] = match self.disk {
            Some(_) => &["virtio_mmio", "virtio_blk"],
            None => &[],
        };
        let card: &[&str] = match self.tap {
            Some(_) => &["tun", "vhost_net"],
            None => &[],
        };
        let peer: &[&str] = match self.has_peer {
            true => &apps_userland::PEER_MODULES,
            false => &[],
        };
        [disk, card, peer].concat()
    }

    fn host_memory_mib(&self, initramfs: &Path) -> Result<u32> {
        let initramfs_mib = fs::metadata(initramfs)?.len().div_ceil(MIB);
        let vms = 1 + u64::from(self.peer.is_some());
        let needed = HOST_MIB + 3 * initramfs_mib + vms * u64::from(self.memory_mib);
        Ok(u32::try_from(needed.next_multiple_of(256))?)
    }

    /// Returns the VMM's arguments, one a line; `gic=` is the machine's and not among them.
    fn arguments(&self) -> String {
        let own = self.vm_arguments(&self.command_line, &self.cpus);
        match &self.peer {
            Some(peer) => {
                let peer = self.vm_arguments(&peer.command_line, &peer.cpus);
                format!("{own}and\n{peer}")
            }
            None => own,
        }
    }

    fn vm_arguments(&self, command_line: &str, cpus: &[u32]) -> String {
        let mut text = format!("kernel=/{KERNEL}\n");
        if self.initrd.is_some() {
            text += &format!("initrd=/{INITRD}\n");
        }
        if self.serves_disk {
            text += &format!("disk={HOST_DISK}\n");
        }
        if let Some(tap) = &self.tap {
            text += &format!("net={tap}\n");
        }
        text += &format!("cmdline={command_line}\nmemory={}\n", self.memory_mib);
        text += &format!("cpus={}\nseed={}\ngic=GIC\n", list(cpus), "5a".repeat(32));
        if self.isolate {
            text += "fifo=1\n";
        }
        text
    }

    fn host_command_line(&self) -> String {
        let mut text = "console=ttyAMA0 quiet panic=-1".to_owned();
        if self.isolate {
            let cpus = list(&self.cpus);
            text += &format!(
                " isolcpus=managed_irq,domain,{cpus} nohz_full={cpus} rcu_nocbs={cpus} irqaffinity=0"
            );
        }
        text
    }
}

impl BuiltHost {
    /// Returns the host's initramfs, which holds the payload, uncompressed.
    pub fn initramfs(&self) -> &Path {
        &self.initramfs
    }

    /// Starts the host. Memory, number of CPUs and EL2 of the machine are set as the host needs
    /// them.
    pub fn start(&self, qemu: &Qemu, machine: &Machine, log: &Path) -> Result<Session> {
        let boot = Boot {
            kernel: &self.kernel,
            initrd: Some(&self.initramfs),
            command_line: Some(&self.command_line),
        };
        let machine = Machine {
            virtualization: true,
            cpus: self.cpus.max(machine.cpus),
            memory_mib: self.memory_mib,
            disk: self.disk.clone(),
            ..machine.clone()
        };
        let mut session = Session::start(qemu.command(&machine, &boot, Console::Pipes), log)?;
        session.give_up_on(&["Kernel panic", "kvm-vmm: "]);
        Ok(session)
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

fn list(cpus: &[u32]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    cpus.join(",")
}

#[cfg(test)]
mod tests;

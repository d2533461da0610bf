//! Text of `run` before the machine starts: the machine, the VMs, and the ways to their consoles.
//!
//! Everything here is known from the manifest and the options. A boot that hangs has then said what
//! it was to be, and which file or port to look at.

use gearv_manifest::VmKind;
use workbench::manifest::{Compiled, VmSummary};
use workbench::qemu::{Forward, Machine};
use workbench::workspace;

use super::MIB;

/// Returns what starts and which keys lead out of it. A user who cannot leave a terminal ends the
/// window; hence the keys come before the machine.
pub(super) fn text(machine: &Machine, manifest: &Compiled) -> String {
    let Machine {
        cpu,
        gic,
        cpus,
        memory_mib,
        ..
    } = machine;
    let mut text = format!("QEMU virt: {cpus} x {cpu}, GICv{gic}, {memory_mib} MiB\n");
    for (index, vm) in manifest.vms.iter().enumerate() {
        text += &of_vm(index, vm);
    }
    text += &disks(machine, manifest);
    text += &network(machine);
    if let Some(file) = &machine.second_serial {
        text += &format!("the second serial port writes to {}\n", file.display());
    }
    text += &consoles(manifest);
    if machine.gdb {
        let images = workspace::target_dir()
            .join(workspace::BARE_TARGET)
            .join("image");
        text += &format!(
            "waiting for: gdb-multiarch -ex 'target remote :1234' {}/gear1-init\n",
            images.display()
        );
    }
    text
}

/// One line a VM: the number is what keys of Gear2's console take. Memory and vCPUs stand there
/// because a VM that is slow or ends for want of memory has mostly got too little of them. The kind
/// tells who schedules the VM and who serves it.
fn of_vm(index: usize, vm: &VmSummary) -> String {
    let mib = vm.memory_bytes / MIB;
    let kind = match vm.kind {
        VmKind::Guest => "guest",
        VmKind::Device => "device VM",
        VmKind::RealTime => "real-time",
    };
    let cpus = match vm.vcpus {
        1 => "1 vCPU".to_owned(),
        count => format!("{count} vCPUs"),
    };
    format!("  VM {index}  {} ({kind}), {cpus}, {mib} MiB\n", vm.name)
}

/// Names the disks as their owner does, and what becomes of what is written. Letters follow QEMU's
/// order of devices, which is that of the guest's probing. `kept-disk.img` outlives the run; with
/// `--snapshot` nothing that is written does.
fn disks(machine: &Machine, manifest: &Compiled) -> String {
    let owner = manifest
        .virtio_owner
        .and_then(|owner| manifest.vms.get(owner));
    let owner = owner.map_or("", |owner| owner.name.as_str());
    let is_kept = |own: &std::path::Path| own.ends_with(super::disks::KEPT);
    let own = machine.disk.iter().map(|file| (file, is_kept(file)));
    let more = machine.more_disks.iter().map(|disk| (&disk.file, true));
    let mut text = String::new();
    for ((file, is_kept), letter) in own.chain(more).zip('a'..='z') {
        let fate = match (is_kept, machine.snapshot) {
            (true, false) => "",
            (true, true) => ", left as it is",
            (false, _) => ", this run's alone",
        };
        text += &format!("  /dev/vd{letter} of {owner}: {}{fate}\n", file.display());
    }
    text
}

/// Forwards are bound to the loopback address of the host, which the text says: who tries them from
/// another machine would look for the fault in the VM.
fn network(machine: &Machine) -> String {
    let mut text = String::new();
    if machine.network.outside {
        text += "  the network leads outside; this machine is 10.0.2.2\n";
    }
    for forward in &machine.network.forwards {
        let Forward {
            protocol,
            host_port,
            address,
            port,
        } = forward;
        let protocol = protocol.name();
        text += &format!("  localhost:{host_port} ({protocol}) leads to {address}:{port}\n");
    }
    text
}

/// Says what leads to the consoles that VMs have, and out. Either a VM or Gear2 has the terminal,
/// by the manifest's owner of the boot UART.
fn consoles(manifest: &Compiled) -> String {
    let owner = manifest.boot_uart_owner;
    match owner.and_then(|owner| Some((owner, manifest.vms.get(owner)?))) {
        Some((owner, vm)) => consoles_of_owner(manifest, owner, vm),
        None => consoles_of_gear2(manifest),
    }
}

/// The terminal is a VM's. A device VM has `gearctl`, which reaches all others; any other owner of
/// the UART has the terminal for itself. Ctrl-A is QEMU's own, and works whoever has the terminal.
fn consoles_of_owner(manifest: &Compiled, owner: usize, vm: &VmSummary) -> String {
    let mut text = format!("this terminal is the console of {}", vm.name);
    if vm.kind == VmKind::Device {
        text += "; type there\n";
        for (index, guest) in manifest.vms.iter().enumerate() {
            if index != owner && guest.console.is_some() {
                let command = guest.console_command();
                text += &format!(
                    "  {command:32} for the console of {}, Ctrl-] leaves it\n",
                    guest.name
                );
            }
        }
        text += "  gearctl help                     for what else there is";
    }
    text + "\nkeys: Ctrl-A, then x = end QEMU at once\n"
}

/// The terminal is Gear2's, which shows the consoles of VMs. Only VMs with a console can get the
/// focus. Gear2's own keys stand behind those, since a manifest without a VM that has a console is
/// still one whose VMs can be listed and stopped. Keys are shown as digits, since the VM's number
/// is the key.
fn consoles_of_gear2(manifest: &Compiled) -> String {
    let vms = manifest.vms.iter().enumerate();
    let shown = vms.filter(|(_, vm)| vm.console.is_some());
    let shown: Vec<String> = shown
        .map(|(index, vm)| format!("{index} = console of {}", vm.name))
        .collect();
    let shown = match shown.is_empty() {
        true => "no VM has a console here\n".to_owned(),
        false => String::new(),
    } + "keys: Ctrl-G, then "
        + &shown
            .iter()
            .map(|key| format!("{key}, "))
            .collect::<String>();
    shown
        + "l = list VMs, r = restart, s = stop, t = start,\n      \
           q = power off, h = all keys; Ctrl-A, then x = end QEMU at once\n"
}

//! The process of a guest's devices, as the kernel of the device VM shows it.

use anyhow::{Context as _, Result, ensure};
use workbench::expect::Session;

use super::session::{LONG, shell, shell_within};

/// Waits until one vCPU of the device VM alone runs the thread of a guest's disk: the one that takes
/// the interrupt of the disk in which that one lies. A thread that is busy is released, and comes
/// back when it has been quiet for a while.
const PLACED: &str = "virtio=$(basename $(readlink -f /sys/block/vda/device)); \
    irq=$(sed -n \"s/^ *\\([0-9]*\\):.* $virtio\\$/\\1/p\" /proc/interrupts); \
    vcpu=$(cat /proc/irq/$irq/effective_affinity_list); \
    thread=$(grep -lx '[^ /]*/bl.*' /proc/[0-9]*/task/*/comm | head -n 1); \
    [ -n \"$thread\" ] && \
    until grep -q \"^Cpus_allowed_list:[[:space:]]*$vcpu\\$\" ${thread%comm}status; \
    do sleep 0.2; done";

/// The thread of the guest's disk runs where no other vCPU has to wake it.
pub(super) fn placed(session: &mut Session) -> Result<()> {
    let placed = shell_within(session, PLACED, LONG);
    placed.map(drop).context("it may run elsewhere")
}

/// Each thread that serves a guest has, once it is set up, no capability and a filter, and the user
/// of its guest's process. The process sees no file, and has namespaces of its own. A device's
/// thread parses what a guest writes, so whoever takes it over must find nothing there
/// (docs/threat-model.md).
pub(super) fn rightless(session: &mut Session) -> Result<()> {
    // The process of the one guest that is served is the one whose root has no folder `proc`.
    let find = "for pid in $(pidof gdm); do [ -e /proc/$pid/root/proc ] || echo $pid; done";
    shell(
        session,
        &format!("until [ -n \"$({find})\" ]; do sleep 0.2; done; process=$({find})"),
    )?;
    let filtered = "[ \"$(grep -l '^Seccomp:.2' /proc/$process/task/*/status | wc -l)\" = \
         \"$(ls /proc/$process/task | wc -l)\" ]";
    shell(session, &format!("until {filtered}; do sleep 0.2; done"))?;
    shell(
        session,
        "for space in mnt net ipc uts; do \
         [ \"$(readlink /proc/$process/ns/$space)\" != \"$(readlink /proc/1/ns/$space)\" ] || exit; \
         done; [ -z \"$(ls /proc/$process/root)\" ]",
    )?;
    let names = "Uid|Gid|CapPrm|CapEff|CapBnd|NoNewPrivs";
    let status = format!("cat /proc/$process/task/*/status | grep -E '^({names}):' | sort -u");
    let status = shell(session, &status)?;
    let lines: Vec<String> = (status.lines())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect();
    let none = "0000000000000000";
    let user = lines.iter().find_map(|line| line.strip_prefix("Uid: 606"));
    let user = user.and_then(|rest| rest.split(' ').next()).unwrap_or("");
    let four = [format!("606{user}").as_str(); 4].join(" ");
    let expected = [
        format!("CapBnd: {none}"),
        format!("CapEff: {none}"),
        format!("CapPrm: {none}"),
        format!("Gid: {four}"),
        "NoNewPrivs: 1".to_owned(),
        format!("Uid: {four}"),
    ];
    ensure!(lines == expected, "{status}");
    Ok(())
}

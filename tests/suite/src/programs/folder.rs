//! A folder of the device VM in a Linux guest, by Debian's virtiofsd, which is killed while the
//! guest writes, as the device model is.
//!
//! Unlike a disk, virtiofs has state that ends with its program: files that the guest has open.
//! Requests cannot be repeated, so writes end by an error, and a new mount must work.

use anyhow::{Context as _, Result, ensure};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use xtask::smoke::device_vm::{KILL, enter, leave};
use xtask::smoke::{LONG, shell, shell_within};

/// Mounts the folder, at the guest's first boot and after each end of virtiofsd.
const MOUNT: &str = "mkdir -p /mnt && until mount -t virtiofs shared /mnt; do sleep 0.2; done";
/// Makes 8 MiB on the disk, copies them to the folder, and reads them back from there. The caches
/// are dropped in between, so that the copy is read through virtiofsd.
const WRITE: &str = "dd if=/dev/urandom of=/tmp/data bs=1M count=8 && cp /tmp/data /mnt/data && \
    sync && echo 3 > /proc/sys/vm/drop_caches && cmp /tmp/data /mnt/data && sha256sum /tmp/data";
/// Writes without end, until a write fails. `conv=fsync` makes an error of the program reach `dd`.
const WRITE_ON: &str = "rm -f /run/ended; (while dd if=/dev/zero of=/mnt/more bs=64k count=16 \
    conv=fsync; do :; done 2> /run/why; touch /run/ended) & sleep 2";
/// Waits until the writes have ended, which they do by an error; so does whatever else is tried.
const ENDS: &str = "until [ -e /run/ended ]; do sleep 0.2; done; cat /run/why; ! ls /mnt";
/// Mounts anew, and finds what was there.
const REMOUNT: &str = "umount /mnt && until mount -t virtiofs shared /mnt && \
    [ -e /mnt/data ]; do umount /mnt; sleep 0.2; done; sha256sum /mnt/data";
/// The user of the program that serves channel 2. Where `pidof` names several processes, the first
/// one counts.
const RIGHTS: &str = "grep -E '^(Uid|NoNewPrivs):' /proc/$(pidof virtiofsd | cut -d' ' -f1)/status";

/// Uses the folder from the guest, at whose console a person is before and after. Hashes are
/// compared on both sides, and a file goes each way.
pub(super) fn is_used(session: &mut Session, guest: &VmSummary) -> Result<()> {
    shell_within(session, MOUNT, LONG)?;
    shell(session, "ls -d /sys/bus/virtio/drivers/virtiofs/virtio*")?;
    let printed = shell_within(session, WRITE, LONG)?;
    let hash = hash_in(&printed)?;
    leave(session)?;
    let outside = shell(session, "sha256sum /srv/shared/data")?;
    ensure!(outside.contains(&hash), "{outside} outside, {hash} inside");
    let rights = shell(session, RIGHTS)?;
    for expected in ["Uid:\t60581\t60581\t60581\t60581", "NoNewPrivs:\t1"] {
        ensure!(rights.contains(expected), "{expected} is not in {rights}");
    }
    shell(session, "echo from the device VM > /srv/shared/note")?;
    enter(session, guest)?;
    let note = shell(session, "cat /mnt/note")?;
    ensure!(
        note.contains("from the device VM"),
        "the guest reads {note}"
    );
    for kill in ["kill -9 $(pidof virtiofsd)", KILL] {
        survive(session, guest, kill, &hash).with_context(|| kill.to_owned())?;
    }
    Ok(())
}

/// Has a program end while the guest writes: the writes end, and the folder is there again. The
/// file from before the end must be whole after the mount.
fn survive(session: &mut Session, guest: &VmSummary, kill: &str, hash: &str) -> Result<()> {
    shell(session, WRITE_ON)?;
    leave(session)?;
    shell_within(session, kill, LONG)?;
    enter(session, guest)?;
    let why = shell_within(session, ENDS, LONG)?;
    ensure!(
        why.contains("Input/output error"),
        "the guest's writes end by {why}"
    );
    let again = shell_within(session, REMOUNT, LONG)?;
    ensure!(again.contains(hash), "{again}, not {hash}");
    Ok(())
}

/// Finds a checksum in what `sha256sum` printed.
fn hash_in(printed: &str) -> Result<String> {
    let mut words = printed.split_whitespace();
    let hash =
        words.find(|word| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit()));
    Ok(hash.context("there is no checksum")?.to_owned())
}

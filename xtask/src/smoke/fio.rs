//! The work of a guest's disk: fio, which the smoke run and the tests of devices let write and
//! verify while something happens to the one who serves the disk.
//!
//! fio runs in the guest's background, because the console leads to the device VM meanwhile. Its
//! output and its status are files in the guest, which outlive the shell that started it.

use anyhow::{Result, ensure};
use workbench::expect::Session;

use super::session::shell;

/// File that fio writes, on the guest's disk: an image is looked at from outside afterwards.
pub(super) const FILE: &str = "/root/verify";

/// Waits in the guest for a program in the background, and prints its output.
pub const FINISH: &str = "until [ -s /run/status ]; do sleep 0.2; done; cat /run/fio; \
    read -r status < /run/status; rm /run/status; [ \"$status\" = 0 ]";

/// Starts fio in the guest's background; [`FINISH`] waits for the end.
pub(super) fn in_background(session: &mut Session, fio: &str) -> Result<()> {
    let command = format!("({fio} > /run/fio; echo $? > /run/status) & :");
    shell(session, &command).map(drop)
}

/// Returns an fio command that makes `count` I/Os, from the disk as it is. One request at a time,
/// without the page cache: so a request is an I/O of the device, which GDM counts.
pub(super) fn reads(count: u64) -> String {
    format!(
        "fio --name=reads --filename=/dev/vda --readonly --rw=randread --bs=4k --direct=1 \
         --ioengine=libaio --iodepth=1 --number_ios={count} --minimal"
    )
}

/// Returns an fio command that writes `mib` MiB and verifies them. A checksum in each block finds a
/// write that was lost, was torn or went elsewhere, which the count of bytes does not.
pub fn fio(mib: u32) -> String {
    format!(
        "fio --name=verify --filename={FILE} --size={mib}M --rw=randwrite --bs=4k --iodepth=16 \
         --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --minimal"
    )
}

/// Returns the command that runs [`fio`] again and again in the background, until it fails or
/// there is `/run/stop`. [`FINISH`] then waits for the end, and prints what the last run said.
#[must_use]
pub fn fio_until_stopped() -> String {
    format!(
        "rm -f /run/stop /run/status; (while :; do {} > /run/fio; status=$?; \
         [ $status = 0 ] && [ ! -e /run/stop ] || break; done; echo $status > /run/status) & :",
        fio(1)
    )
}

/// Reads fio's terse line: no error, and how fast it was.
pub fn fio_result(printed: &str) -> Result<String> {
    /// Fields of version 3 of the terse format, counted from 0 (fio's HOWTO, "Terse output").
    const ERROR: usize = 4;
    const READ_IOPS: usize = 7;
    const WRITE_IOPS: usize = 48;
    let line = printed.lines().find(|line| line.starts_with("3;"));
    let fields: Vec<&str> = line.unwrap_or_default().split(';').collect();
    ensure!(fields.len() > WRITE_IOPS, "fio says {printed:?}");
    ensure!(
        fields[ERROR] == "0",
        "fio ends with error {}",
        fields[ERROR]
    );
    let (writes, reads) = (fields[WRITE_IOPS], fields[READ_IOPS]);
    Ok(format!("{writes} writes/s, {reads} reads/s"))
}

#[cfg(test)]
mod tests;

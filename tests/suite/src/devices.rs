//! Devices that change while a guest uses them: a Linux guest sees its disk grow, chooses its
//! cache, is held to its limits, loses no request when GDM is killed, has the medium of its disk
//! taken out and exchanged, is paused with its devices, dumped and suspended, chooses how many
//! pairs of queues its network card uses, loses the card's link for a while, and is shut down by
//! its power button. Beside these, the guest owns the board's clock, which interrupts it.
//!
//! One boot has all of it, because the changes act on each other: a size that changed before a kill
//! has to be there after it.

use anyhow::{Context as _, Result, ensure};
use workbench::build_images::{self, last_words};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::Qemu;
use workbench::{ext4, workspace};
use xtask::smoke::device_vm::{KILL, answers, enter, is_up, json, leave, number};
use xtask::smoke::fio::{FINISH, fio_result, fio_until_stopped};
use xtask::smoke::{BOOT, LONG, ready, shell, shell_within};

use crate::part::{Part, Tally};

pub(crate) mod pauses;

/// Pauses in the normal run. A few in each run, to see that it works; leaks and races need many.
const PAUSES: u32 = 5;
/// Pauses in the slow part.
const OFTEN: u32 = 50;

/// Makes the file of the second disk, and starts the guest. The file is made by the device VM, as a
/// user would add a disk at run time.
const BEGIN: &str = "truncate -s 16M /run/data.img && gearctl start linux";
/// Facts that the guest has of its second disk and of its card. All of them are the manifest's or
/// the file's, by Linux's own drivers.
const FACTS: [(&str, &str); 4] = [
    ("/sys/block/vdb/serial", "data-0001"),
    ("/sys/block/vdb/size", "32768"),
    ("/sys/block/vdb/cache_type", "write back"),
    ("/sys/class/net/eth0/mtu", "2000"),
];
/// Reads 1.2 MB in requests of 4 KiB, past the guest's cache, and prints how long that took: at
/// least 2.9 s by the limit of bytes, less a tenth of a second's burst.
const READ: &str = "begin=$(cut -d' ' -f1 /proc/uptime); \
    dd if=/dev/vdb of=/dev/null bs=4k count=293 iflag=direct 2> /dev/null; \
    echo $begin $(cut -d' ' -f1 /proc/uptime)";
/// There is no upper limit, since the host may be slow.
const LEAST_SECONDS: f64 = 2.8;
/// The file grows, and the disk looks at once.
const GROW: &str = "truncate -s 32M /run/data.img && gearctl device resize linux data --json";
/// The file grows, and nobody says so. GDM looks at the size each second (docs/device-model.md).
const GROW_UNSAID: &str = "truncate -s 48M /run/data.img";

/// Another medium, with a mark in its first bytes. Smaller than the first: a driver that keeps the
/// old size would read behind the end.
const OTHER: &str = "truncate -s 8M /run/other.img && \
    echo another-medium | dd of=/run/other.img conv=notrunc 2> /dev/null";
const DETACH: &str = "gearctl device detach linux data";
const ATTACH_OTHER: &str = "gearctl device attach linux data /run/other.img --json";
const ATTACH_AGAIN: &str = "gearctl device attach linux data --json";
/// Ends at once while there is no medium. A read that waited would hang the guest's program with no
/// medium in sight.
const READS_NOTHING: &str =
    "[ $(dd if=/dev/vdb bs=4k count=1 iflag=direct 2> /dev/null | wc -c) = 0 ]";
const MARKED: &str = "dd if=/dev/vdb bs=512 count=1 iflag=direct 2> /dev/null | head -c 14";

/// Chooses this number of pairs, and prints how many there may be and are, and how many queues the
/// kernel shows. More pairs than the card has are refused, and the number stays.
const CHOOSE: &str = "ethtool -L eth0 combined PAIRS 2>&1 || :; \
    ethtool -l eth0 | sed -n 's/^Combined:[[:space:]]*//p' | xargs echo; \
    ls -d /sys/class/net/eth0/queues/rx-* | wc -l";
/// Sends from a CPU and waits for the answer, which comes by the pair that has sent. Linux sends by
/// the pair of the CPU that sends.
const ASK: &str = "taskset -c CPU ping -c 1 -W 20 10.0.2.100 > /dev/null";
/// Prints how often a pair's sending queue has notified. Kernels name the counter in two ways.
const KICKS: &str = "ethtool -S eth0 | sed -n 's/^ *tx_*\\(queue_\\)*PAIR_kicks: //p'";

/// Has the board's clock, which is the guest's own, interrupt in the next second, and waits until
/// it has. CPU 0's count is the first in the line.
const ALARM: &str = "echo +1 > /sys/class/rtc/rtc0/wakealarm && \
    until sed -n '/rtc-pl031/s/^[^:]*: *\\([0-9]*\\).*/\\1/p' /proc/interrupts | grep -q '[1-9]'; \
    do sleep 0.2; done";

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("devices that change at run time", |tally| {
            run(tally, "devices.log", use_devices)
        })
        .either(),
        Part::new("a guest that is paused with its devices, often", |tally| {
            run(tally, "pauses.log", is_paused_often)
        })
        .slow(true),
    ]
}

/// Does something with the machine, and looks at the guest's disk afterwards. The image is checked
/// at the end from outside: what the guest believes to have written must be there.
fn run(
    tally: &mut Tally,
    log: &str,
    act: impl FnOnce(&mut Session, &VmSummary) -> Result<()>,
) -> Result<()> {
    let manifest = workspace::root().join("tests/manifests/devices.dts");
    let images = build_images::build(&manifest)?;
    let machine = xtask::run::machine_for(&images)?;
    let image = machine.disk.clone().context("the machine has no disk")?;
    let log = workspace::output_dir().join(log);
    let vms = &images.manifest.vms;
    let guest = vms.iter().find(|vm| vm.may_power_off);
    let guest = guest.context("no guest may power the machine off")?;
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let outcome = act(&mut session, guest);
    outcome.with_context(|| last_words(&session))?;
    ext4::check(&image)?;
    tally.pass(12);
    Ok(())
}

/// Starts the guest, and leaves the terminal at its shell. The guest does not start by itself,
/// since its second disk's file must be made first.
fn begin(session: &mut Session, guest: &VmSummary) -> Result<()> {
    is_up(session)?;
    shell(session, BEGIN)?;
    session.send(&format!("{}\n", guest.console_command()))?;
    session.expect(&ready(&guest.name), BOOT)?;
    answers(session, &guest.name)
}

/// Pauses the guest many times while fio writes and verifies, several requests at a time.
/// Verification by fio covers each write over all pauses.
fn is_paused_often(session: &mut Session, guest: &VmSummary) -> Result<()> {
    begin(session, guest)?;
    shell(session, &fio_until_stopped())?;
    leave(session)?;
    pauses::rests(session, OFTEN)?;
    enter(session, guest)?;
    shell(session, "touch /run/stop")?;
    let printed = shell_within(session, FINISH, LONG)?;
    println!("with {OFTEN} pauses: {}", fio_result(&printed)?);
    session.send("poweroff\n")?;
    session.expect_end(LONG)?;
    Ok(())
}

/// The order ends with what ends the guest.
fn use_devices(session: &mut Session, guest: &VmSummary) -> Result<()> {
    begin(session, guest)?;
    for (file, expected) in FACTS {
        is(session, file, expected)?;
    }
    shell_within(session, ALARM, LONG).context("the clock's interrupt")?;
    is_limited(session)?;
    chooses_cache(session)?;
    chooses_pairs(session)?;
    loses_nothing(session, guest)?;
    pauses::suspends_itself(session, guest)?;
    // The driver does not choose again when GDM was killed.
    uses_pairs(session).context("after kills of GDM")?;
    leave(session)?;
    pauses::is_dumped(session)?;
    grows(session, guest)?;
    changes_medium(session, guest)?;
    loses_link(session, guest)?;
    leave(session)?;
    // The guest may power the machine off: nobody is left to say that gearctl has ended.
    session.send("gearctl shutdown linux\n")?;
    session.expect_end(LONG)?;
    Ok(())
}

/// Checks what a file of the guest's holds, or will soon. Changes reach the driver by an interrupt,
/// so the value may come late.
fn is(session: &mut Session, file: &str, expected: &str) -> Result<()> {
    let wait = format!("until [ \"$(cat {file})\" = '{expected}' ]; do sleep 0.2; done");
    let outcome = shell_within(session, &wait, LONG);
    outcome
        .map(drop)
        .with_context(|| format!("{file} is not {expected}"))
}

/// Checks that reads take as long as the limits say. The guest's own clock measures, because the
/// limit is a promise to it.
fn is_limited(session: &mut Session) -> Result<()> {
    let printed = shell_within(session, READ, LONG)?;
    let times = printed.split_whitespace().map(str::parse);
    let times: Vec<f64> = times.filter_map(Result::ok).collect();
    ensure!(times.len() == 2, "the guest says {printed:?}");
    let seconds = times[1] - times[0];
    ensure!(seconds >= LEAST_SECONDS, "it took {seconds} s");
    println!("1.2 MB at 400 kB/s took {seconds:.1} s");
    Ok(())
}

/// Has the guest turn its disk's cache off and on. A write in each state shows that the disk serves
/// both.
fn chooses_cache(session: &mut Session) -> Result<()> {
    for cache in ["write through", "write back"] {
        let choose = format!("echo '{cache}' > /sys/block/vdb/cache_type");
        shell(session, &choose)?;
        is(session, "/sys/block/vdb/cache_type", cache)?;
        let write = "dd if=/dev/zero of=/dev/vdb bs=4k count=4 oflag=direct 2> /dev/null";
        shell(session, write)?;
    }
    Ok(())
}

/// Has the guest choose how many pairs of queues its card uses: one for each vCPU at first.
fn chooses_pairs(session: &mut Session) -> Result<()> {
    uses_pairs(session)?;
    for (pairs, used) in [(1, 1), (3, 1), (2, 2)] {
        let printed = shell(session, &CHOOSE.replace("PAIRS", &pairs.to_string()))?;
        // The console may end lines either way.
        let shown = printed.trim_end().ends_with(&format!("2 {used}\r\n{used}"))
            || printed.trim_end().ends_with(&format!("2 {used}\n{used}"));
        ensure!(shown, "with {pairs} pairs the guest shows {printed:?}");
        shell(session, &ASK.replace("CPU", "1")).with_context(|| format!("{pairs} pairs"))?;
    }
    uses_pairs(session)
}

/// Checks that the guest's card sends by the pair of each vCPU, and that answers come. An answer
/// alone could come by another pair, so the pair's own counter has to grow.
fn uses_pairs(session: &mut Session) -> Result<()> {
    for pair in ["0", "1"] {
        let kicks = KICKS.replace("PAIR", pair);
        let before = number_in(&shell(session, &kicks)?)?;
        let ask = ASK.replace("CPU", pair);
        shell(session, &ask).with_context(|| format!("no answer by pair {pair}"))?;
        let after = number_in(&shell(session, &kicks)?)?;
        ensure!(after > before, "pair {pair} sends nothing");
    }
    Ok(())
}

/// Returns the number that is printed.
fn number_in(printed: &str) -> Result<u64> {
    let number = printed.trim().parse();
    number.with_context(|| format!("the guest prints {printed:?}"))
}

/// Kills GDM three times while fio writes and verifies, several requests at a time: each request is
/// done, and none is lost. fio runs over kills and pauses together: a request may meet both.
fn loses_nothing(session: &mut Session, guest: &VmSummary) -> Result<()> {
    shell(session, &fio_until_stopped())?;
    leave(session)?;
    for _ in 0..3 {
        shell_within(session, KILL, LONG)?;
        shell(session, "sleep 1")?;
    }
    pauses::rests(session, PAUSES)?;
    let said = shell(session, "cat /run/gdm.log")?;
    ensure!(!said.contains("bug in gdm"), "GDM says {said}");
    enter(session, guest)?;
    shell(session, "touch /run/stop")?;
    let printed = shell_within(session, FINISH, LONG)?;
    println!("with three kills and pauses: {}", fio_result(&printed)?);
    Ok(())
}

/// Has the disk grow, by order and without, and returns to the guest for what it sees. The guest
/// needs no reboot and no command for it.
fn grows(session: &mut Session, guest: &VmSummary) -> Result<()> {
    let size = json(session, GROW)?;
    ensure!(number(&size["bytes"])? == 32 << 20, "gearctl says {size}");
    enter(session, guest)?;
    is(session, "/sys/block/vdb/size", "65536")?;
    leave(session)?;
    shell(session, GROW_UNSAID)?;
    enter(session, guest)?;
    is(session, "/sys/block/vdb/size", "98304")?;
    leave(session)
}

/// Takes the medium of the second disk out, puts another one in, which a killed GDM keeps, and then
/// the first one again. A killed GDM must remember the exchanged medium, not the manifest's.
fn changes_medium(session: &mut Session, guest: &VmSummary) -> Result<()> {
    shell(session, OTHER)?;
    shell(session, DETACH)?;
    enter(session, guest)?;
    is(session, "/sys/block/vdb/size", "0")?;
    shell(session, READS_NOTHING).context("a disk without a medium")?;
    leave(session)?;
    let size = json(session, ATTACH_OTHER)?;
    ensure!(number(&size["bytes"])? == 8 << 20, "gearctl says {size}");
    shell_within(session, KILL, LONG)?;
    shell(session, "sleep 1")?;
    enter(session, guest)?;
    is(session, "/sys/block/vdb/size", "16384")?;
    let read = shell(session, MARKED)?;
    ensure!(read.contains("another-medium"), "the guest reads {read:?}");
    leave(session)?;
    let size = json(session, ATTACH_AGAIN)?;
    ensure!(number(&size["bytes"])? == 48 << 20, "gearctl says {size}");
    enter(session, guest)?;
    is(session, "/sys/block/vdb/size", "98304")?;
    leave(session)
}

/// Takes the card's link down and up, by order and by the tap device; the guest is left at its
/// shell. An order and a look at the tap device are different ways in GDM to one effect.
fn loses_link(session: &mut Session, guest: &VmSummary) -> Result<()> {
    for (command, carrier) in [
        ("gearctl device link linux net down", "0"),
        ("gearctl device link linux net up", "1"),
        ("ip link set tap0 down", "0"),
        ("ip link set tap0 up", "1"),
    ] {
        shell(session, command)?;
        enter(session, guest)?;
        is(session, "/sys/class/net/eth0/carrier", carrier)?;
        leave(session)?;
    }
    enter(session, guest)
}

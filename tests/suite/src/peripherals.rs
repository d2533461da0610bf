//! Peripherals of a Linux guest: sockets to the device VM, used by Debian's socat on both sides,
//! and a keyboard that is typed on by a socket, and the machine's own, heard by Debian's evtest.
//!
//! Both ends of each way are programs of Debian's that know nothing of GearV: an error that the
//! device model makes twice, in both directions, would pass between two programs of ours.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use workbench::build_images::{self, last_words};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::run;
use xtask::smoke::device_vm::{KILL, answers, enter, is_up, json, leave};
use xtask::smoke::{BOOT, LONG, ready, shell, shell_within};

use crate::part::{Part, Tally};

/// Bytes that go each way. Many times the credit of a connection (128 KiB), so that both sides have
/// to wait for each other.
const BYTES: u32 = 10 << 20;
/// Name of QEMU's keyboard. The kernel shows it as the input device's name.
const KEYBOARD: &str = "QEMU Virtio Keyboard";
/// Time for the machine to end once the device VM was told to stop.
const END: Duration = Duration::from_secs(60);
/// Path of the guest's socket in the device VM. Ports the guest connects to are `SOCKET_PORT`, as
/// Firecracker names them.
const SOCKET: &str = "/run/gearv/linux.vsock";
/// Prints the rights of the thread that connects the guest to programs, in whichever of GDM's
/// processes it is. The kernel's own view counts: a filter that was built and never loaded would
/// not be in it.
const BROKER: &str = "for p in $(pidof gdm); do for t in /proc/$p/task/*; do \
    [ \"$(cat $t/comm)\" = broker ] && grep -E '^(Uid|CapPrm|CapEff|NoNewPrivs|Seccomp):' \
    $t/status; done; done; :";
/// Root's files can be reached, and files of others; nothing else can. Capability 1 is
/// CAP_DAC_OVERRIDE. Seccomp 2 is a filter.
const RIGHTS: [&str; 5] = [
    "Uid:\t0\t0\t0\t0",
    "CapPrm:\t0000000000000002",
    "CapEff:\t0000000000000002",
    "NoNewPrivs:\t1",
    "Seccomp:\t2",
];

/// Unbinds the driver of the device in whose folder the shell is; GDM says so. A real unplug ends
/// with the same ENODEV for who has the device open.
const UNPLUG: &str = "plug=$(basename $(pwd -P)) && cd /sys/bus/virtio/drivers/virtio_input && \
    echo $plug > unbind && \
    until grep -q 'keyboard: No such device' /run/gdm.log; do sleep 0.2; done";
/// Binds it again. The new device may have another number of its events file, so the name is
/// awaited.
const PLUG: &str = "echo $plug > bind && cd /root && \
    until grep -qsx 'QEMU Virtio Keyboard' /sys/class/input/event*/device/name; do sleep 0.2; done";
/// Waits until GDM has the device. Only lines behind the unplug count; the log has the same line
/// from the guest's start.
const BACK: &str = "until grep -A99 'keyboard: No such device' /run/gdm.log | \
    grep -q 'its backend is there'; do sleep 0.2; done";

pub(super) fn parts() -> Vec<Part> {
    let part = Part::new(
        "sockets between a guest and the device VM, and keys",
        sockets,
    );
    vec![part.either()]
}

/// One boot serves all checks: a check that fails leaves the others a system that still runs.
fn sockets(tally: &mut Tally) -> Result<()> {
    let manifest = workspace::root().join("tests/manifests/peripherals.dts");
    let images = build_images::build(&manifest)?;
    let machine = run::machine_for(&images)?;
    let log = workspace::output_dir().join("peripherals.log");
    let mut vms = images.manifest.vms.iter();
    let guest = vms.find(|vm| vm.name == "linux").context("no guest")?;
    let monitor = workspace::output_dir().join("peripherals.monitor");
    // The keyboard is the machine's, and so the device VM's, until GDM takes it for the guest.
    let machine = with_keyboard(machine, &monitor);
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let outcome = use_peripherals(&mut session, guest, &monitor, tally);
    outcome.with_context(|| last_words(&session))?;
    // To the machine as if the device VM had turned itself off. `--force`, since nobody could start
    // the device VM again.
    session.send("gearctl stop device --force\n")?;
    session.expect_end(END)?;
    Ok(())
}

/// Returns the machine with a keyboard, whose keys are typed by commands to QEMU's monitor. A key
/// through the monitor takes the way of a pressed key: QEMU's device, the device VM's driver, GDM.
fn with_keyboard(mut machine: Machine, monitor: &Path) -> Machine {
    let monitor = format!("unix:{},server=on,wait=off", monitor.display());
    let options = ["-device", "virtio-keyboard-device", "-monitor", &monitor];
    machine.options.extend(options.map(Into::into));
    machine
}

/// The ends come last, since they stop the guest.
fn use_peripherals(
    session: &mut Session,
    guest: &VmSummary,
    monitor: &Path,
    tally: &mut Tally,
) -> Result<()> {
    reach(session, guest)?;
    use_port(session, guest, tally);
    tally.check("typed keys", keys(session, guest));
    let keyboard = board_keys(session, guest, monitor);
    tally.check("the machine's keyboard", keyboard);
    let unplugged = unplugged(session, guest, monitor);
    tally.check("the keyboard unplugged", unplugged);
    tally.check("the power button", power_button(session, guest));
    tally.check("ends that are waited for", ends(session, &guest.name));
    Ok(())
}

/// Starts the guest, and waits for its shell. The device VM names the keyboard first: GDM opens
/// what the manifest names when the guest starts.
fn reach(session: &mut Session, guest: &VmSummary) -> Result<()> {
    is_up(session)?;
    let keyboard = event_of(KEYBOARD);
    let start = format!("ln -s {keyboard} /dev/input/keyboard; gearctl start linux");
    shell(session, &start)?;
    session.send(&format!("{}\n", guest.console_command()))?;
    session.expect(&ready(&guest.name), BOOT)?;
    answers(session, &guest.name)
}

/// Checks the console's port both ways, and that a kill of the device model does not end it.
fn use_port(session: &mut Session, guest: &VmSummary, tally: &mut Tally) {
    tally.check("Debian's driver", driver(session));
    tally.check("a port without a program", refusals(session));
    tally.check("from the guest", from_guest(session, guest));
    tally.check("to the guest", to_guest(session, guest));
    tally.check("the broker's rights", rights(session));
    tally.check("a kill of GDM", killed(session, guest));
}

/// A guest whose system listens to the power button shuts down by `gearctl shutdown`. Debian's
/// busybox has no program that listens: a loop of the shell's stands for systemd's. The first try
/// has no listener, and must end as not done: a command that reports success because the key was
/// sent would be wrong. The status for that is 6.
fn power_button(session: &mut Session, guest: &VmSummary) -> Result<()> {
    hear(session, guest, "GearV keyboard and tablet")?;
    enter(session, guest)?;
    let listens = "(until grep -q 'KEY_POWER), value 1' /tmp/heard; do sleep 0.2; done; \
        poweroff -f) & :";
    let name = &guest.name;
    leave(session)?;
    // Nobody listens yet.
    let vain = format!("gearctl shutdown {name} --wait --timeout 1 2>&1; [ $? = 6 ]");
    let said = shell(session, &vain)?;
    ensure!(said.contains("and was to be stopped"), "{said}");
    enter(session, guest)?;
    // The key that came in vain must not end the guest later.
    shell(session, "killall evtest; wait; rm /tmp/heard")?;
    leave(session)?;
    hear(session, guest, "GearV keyboard and tablet")?;
    enter(session, guest)?;
    shell(session, listens)?;
    leave(session)?;
    let wait = "--wait --timeout 120";
    let shut = json(session, &format!("gearctl shutdown {name} {wait} --json"))?;
    ensure!(shut["outcome"] == "done", "{shut}");
    shell(
        session,
        &format!("gearctl wait {name} stopped --timeout 60"),
    )?;
    let said = shell(session, &format!("! gearctl shutdown {name} 2>&1"))?;
    ensure!(said.contains("it does not run, it is stopped"), "{said}");
    Ok(())
}

/// Starts, restarts and stops of the guest end before the command that waits for them, and what is
/// not done has its exit status. Scripts branch on the status, and people read the reason: both are
/// part of what `docs/gearctl.md` promises. Status 3 is a VM that does not exist, 4 a refusal, 6 a
/// time that is over.
fn ends(session: &mut Session, name: &str) -> Result<()> {
    let wait = "--wait --timeout 120 --json";
    for command in ["start", "restart", "stop"] {
        let done = json(session, &format!("gearctl {command} {name} {wait}"))?;
        ensure!(done["outcome"] == "done", "{command}: {done}");
    }
    let vm = json(
        session,
        &format!("gearctl wait {name} stopped --timeout 1 --json"),
    )?;
    ensure!(vm["state"] == "stopped", "{vm}");
    // Each refusal by its own reason: a status alone would not tell them apart.
    for (command, status, reason) in [
        (format!("stop {name}"), 4, "is stopped already"),
        (
            "stop device".into(),
            4,
            "nobody could start it again from here",
        ),
        (
            format!("wait {name} running --timeout 0.2"),
            6,
            "was to be running",
        ),
        (format!("pause {name}"), 4, "it does not run, it is stopped"),
        (
            format!("resume {name}"),
            4,
            "it does not run, it is stopped",
        ),
        (
            format!("dump {name} /run/core"),
            4,
            "its manifest does not allow it",
        ),
        ("dump nobody /run/core".into(), 3, "there is no VM"),
    ] {
        let said = shell(
            session,
            &format!("gearctl {command} 2>&1; [ $? = {status} ]"),
        );
        let said = said.with_context(|| format!("{command} ends otherwise than by {status}"))?;
        ensure!(said.contains(reason), "{command}: {said:?}");
    }
    Ok(())
}

/// The guest has the identifier of the manifest, by the kernel's own driver. A driver that refused
/// the device's features would leave no device in its folder.
fn driver(session: &mut Session) -> Result<()> {
    let driver = "ls -d /sys/bus/virtio/drivers/vmw_vsock_virtio_transport/virtio*";
    shell(session, driver)?;
    shell(session, "[ -c /dev/vsock ]").map(drop)
}

/// Nobody listens: the guest's program is told at once. A device model that says nothing would
/// leave the program waiting for ever, and the shell with it.
fn refusals(session: &mut Session) -> Result<()> {
    let refused = "! socat -u VSOCK-CONNECT:2:9 - 2> /tmp/said; cat /tmp/said";
    let said = shell(session, refused)?;
    ensure!(
        said.contains("Connection reset by peer"),
        "socat says {said:?}"
    );
    Ok(())
}

/// Returns a command that makes a file of random bytes, and prints its hash. Random bytes: with a
/// pattern, data that repeat or change places could hash as before.
fn make(path: &str) -> String {
    format!("head -c {BYTES} /dev/urandom > {path}; sha256sum < {path}")
}

/// The guest connects to a program that listens in the device VM. CID 2 is the host's in vsock;
/// here the device VM has it.
fn from_guest(session: &mut Session, guest: &VmSummary) -> Result<()> {
    leave(session)?;
    let listen = format!("socat -u UNIX-LISTEN:{SOCKET}_7 CREATE:/run/got & :");
    shell(session, &listen)?;
    shell(
        session,
        &format!("until [ -S {SOCKET}_7 ]; do sleep 0.1; done"),
    )?;
    enter(session, guest)?;
    // The listener exists by now: a connection before would be refused.
    let sent = shell_within(session, &make("/tmp/data"), LONG)?;
    shell_within(session, "socat -u FILE:/tmp/data VSOCK-CONNECT:2:7", LONG)?;
    leave(session)?;
    shell_within(session, "wait", LONG)?;
    let got = shell(session, "sha256sum < /run/got; rm /run/got")?;
    ensure!(hash(&got)? == hash(&sent)?, "{got:?}, not {sent:?}");
    enter(session, guest)
}

/// A program of the device VM connects to one that listens in the guest. The answer `OK` and a port
/// come before the data, in the same stream: GDM gives its own ports from 2^30 on.
fn to_guest(session: &mut Session, guest: &VmSummary) -> Result<()> {
    let listen = "socat -u VSOCK-LISTEN:52 CREATE:/tmp/got & :";
    shell(session, listen)?;
    leave(session)?;
    let sent = shell_within(session, &make("/run/data"), LONG)?;
    let send = format!(
        "(echo CONNECT 52; cat /run/data) | socat -t 60 - UNIX-CONNECT:{SOCKET} > /run/said; \
         rm /run/data; cat /run/said"
    );
    let said = shell_within(session, &send, LONG)?;
    ensure!(
        said.contains("OK 10737418"),
        "the device model says {said:?}"
    );
    enter(session, guest)?;
    let got = shell_within(session, "wait; sha256sum < /tmp/got; rm /tmp/got", LONG)?;
    ensure!(hash(&got)? == hash(&sent)?, "{got:?}, not {sent:?}");
    Ok(())
}

/// Returns the hash that `sha256sum` printed.
fn hash(printed: &str) -> Result<&str> {
    let mut words = printed.split_whitespace();
    let hash = words.find(|word| word.len() == 64);
    hash.with_context(|| format!("no hash in {printed:?}"))
}

/// The broker alone of GDM's threads for a guest may connect sockets. The guest's bytes never reach
/// it.
fn rights(session: &mut Session) -> Result<()> {
    leave(session)?;
    let rights = shell(session, BROKER)?;
    for expected in RIGHTS {
        ensure!(rights.contains(expected), "{expected} is not in {rights}");
    }
    Ok(())
}

/// A connection ends with GDM, both programs are told, and the next connection works. A stream
/// cannot go on over a kill, because bytes in GDM's buffers are lost. A program that is not told
/// would wait for them for ever.
fn killed(session: &mut Session, guest: &VmSummary) -> Result<()> {
    let talk =
        format!("(socat -u UNIX-LISTEN:{SOCKET}_8 CREATE:/run/none; echo over > /run/over) & :");
    shell(session, &talk)?;
    shell(
        session,
        &format!("until [ -S {SOCKET}_8 ]; do sleep 0.1; done"),
    )?;
    enter(session, guest)?;
    let talk =
        "(socat -u VSOCK-CONNECT:2:8 CREATE:/tmp/none 2> /tmp/said; echo over > /tmp/over) & :";
    // Both ends note when the stream is over.
    shell(session, talk)?;
    // The connection must be there before the kill, or its end would show nothing.
    shell(session, "sleep 2; [ ! -e /tmp/over ]")?;
    leave(session)?;
    shell_within(session, KILL, LONG)?;
    shell(session, "until [ -e /run/over ]; do sleep 0.1; done")?;
    enter(session, guest)?;
    let said = shell(
        session,
        "until [ -e /tmp/over ]; do sleep 0.1; done; cat /tmp/said",
    )?;
    ensure!(
        said.contains("Transport endpoint is not connected"),
        "socat says {said:?}"
    );
    refusals(session)?;
    leave(session)?;
    let listen = format!("socat -u UNIX-LISTEN:{SOCKET}_10 CREATE:/run/got & :");
    shell(session, &listen)?;
    enter(session, guest)?;
    shell(session, "echo again | socat -u - VSOCK-CONNECT:2:10")?;
    leave(session)?;
    let got = shell(session, "wait; cat /run/got")?;
    ensure!(got.contains("again"), "it says {got:?}");
    Ok(())
}

/// Events that are typed in the device VM reach a program of the guest, by the kernel's own driver.
/// One event of each kind that the text form knows, and a line that it does not know. That line is
/// answered with the form that lines have.
fn keys(session: &mut Session, guest: &VmSummary) -> Result<()> {
    const TYPED: &str =
        "tap KEY_A\\nkey BTN_LEFT 1\\nabs ABS_X 1000\\nsyn\\nrel REL_WHEEL -1\\nsyn\\n";
    hear(session, guest, "GearV keyboard and tablet")?;
    let send =
        format!("printf '{TYPED}hello\\n' | socat -t 2 - UNIX-CONNECT:/run/gearv/linux.input");
    let said = shell(session, &send)?;
    ensure!(
        said.contains("error: a line is: key|rel|abs"),
        "it says {said:?}"
    );
    let expected = [
        "(KEY_A), value 1",
        "(KEY_A), value 0",
        "(BTN_LEFT), value 1",
        "(ABS_X), value 1000",
        "(REL_WHEEL), value -1",
    ];
    heard(session, guest, &expected)
}

/// Keys of the machine's keyboard, which is the device VM's, reach the guest alone. A key that two
/// owners hear would type into the device VM's shell what a person meant for the guest.
fn board_keys(session: &mut Session, guest: &VmSummary, monitor: &Path) -> Result<()> {
    hear(session, guest, KEYBOARD)?;
    let events = event_of(KEYBOARD);
    // The kernel ends a read of a grabbed device with its time, without a byte.
    let other = format!("(timeout 5 cat /dev/input/{events} > /run/other; :) & :");
    shell(session, &other)?;
    let mut monitor = UnixStream::connect(monitor).context("QEMU's monitor")?;
    monitor.write_all(b"sendkey b\n")?;
    heard(session, guest, &["(KEY_B), value 1", "(KEY_B), value 0"])?;
    shell(session, "wait; [ ! -s /run/other ]").map(drop)
}

/// The keyboard is taken from the device VM's kernel and given back, as by a plug: the guest's
/// program goes on with the device that it has. QEMU unplugs no device of virtio-mmio. Unbinding
/// the driver has the effect that pulling the plug has.
fn unplugged(session: &mut Session, guest: &VmSummary, monitor: &Path) -> Result<()> {
    hear(session, guest, KEYBOARD)?;
    let events = event_of(KEYBOARD);
    shell(
        session,
        &format!("cd /sys/class/input/{events}/device/device && {UNPLUG}"),
    )?;
    shell(
        session,
        &format!("{PLUG}; ln -sf {events} /dev/input/keyboard; {BACK}"),
    )?;
    let mut monitor = UnixStream::connect(monitor).context("QEMU's monitor")?;
    monitor.write_all(b"sendkey c\n")?;
    heard(session, guest, &["(KEY_C), value 1", "(KEY_C), value 0"])
}

/// Returns the words by which a shell finds the events of an input device. Numbers of events files
/// depend on the order of probing.
fn event_of(name: &str) -> String {
    format!("$(cd /sys/class/input; grep -lx '{name}' event*/device/name | cut -d / -f 1)")
}

/// Begins to write down what the guest hears of an input device. evtest says `Testing` when the
/// device is open. Events before that would be lost.
fn hear(session: &mut Session, guest: &VmSummary, name: &str) -> Result<()> {
    enter(session, guest)?;
    let events = event_of(name);
    let hear = format!("evtest /dev/input/{events} > /tmp/heard 2>&1 < /dev/null & :");
    shell(session, &hear)?;
    shell(
        session,
        "until grep -q Testing /tmp/heard; do sleep 0.2; done; sleep 0.5",
    )?;
    leave(session)
}

/// Checks what the guest has heard; the last of `expected` is waited for. evtest stops after that,
/// so that the next check finds the device free.
fn heard(session: &mut Session, guest: &VmSummary, expected: &[&str]) -> Result<()> {
    enter(session, guest)?;
    let last = expected.last().context("nothing to hear")?;
    let heard = shell(
        session,
        &format!(
            "until grep -q '{last}' /tmp/heard; do sleep 0.2; done; cat /tmp/heard; killall evtest; wait"
        ),
    )?;
    for line in expected {
        ensure!(heard.contains(line), "{line} is not in {heard}");
    }
    leave(session)
}

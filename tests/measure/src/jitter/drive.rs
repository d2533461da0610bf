//! Starts a configuration, waits for its figures, and reads Gear1's counters around the
//! measurement.
//!
//! The measuring guest prints a line and sleeps before and after its measurement. In these pauses
//! Gear2 is asked for the counts of exits, by keys on its console as a person would, so that
//! nothing is in the guest for the count.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Boot, Console, Machine};
use workbench::{jitter_userland, payloads, workspace};
use xtask::run;
use xtask::smoke::ESCAPE;

use super::configuration::{CPUS, Configuration, Load, Serial};
use super::exits::Exits;
use super::log::{BEGINS, END, MEASURED, OF_GEAR2, READY, samples};
use super::setup::{Measured, ROW, Setup};
use crate::kvm_host::{GUEST_ENDED, KvmHost};
use crate::report;

/// Words of a kernel that says nothing more.
const PANIC: &str = "Kernel panic";
/// Lines after which neither the machine nor the kernel that measures recovers. A wait for such a
/// machine would last until the time limit.
const FATAL: &[&str] = &[PANIC, build_images::HALT, build_images::STOPPED];

/// Reason for a measurement that is not used: some exits of the first look would be missing from
/// the difference.
const TOO_SLOW: &str =
    "it began to measure before Gear2 had said its counters: this machine is too slow now";
/// Longest time of an answer of Gear2. The wait is long because the machine may run a loaded guest
/// beside Gear2, all on one thread of the host.
const ANSWER: Duration = Duration::from_secs(60);
/// Seconds for which a guest under GearV sleeps before and after a measurement: virtual time passes
/// while Gear2 is asked for its counters. The virtual time of an idle machine runs several hundred
/// times as fast as the host's, that of a busy one slower.
const SETTLE_IDLE: u64 = 1800;
const SETTLE_BUSY: u64 = 2;
/// Size of the disk that the load writes to. The file is sparse until the load writes, so that its
/// size costs the host nothing.
const DISK_BYTES: u64 = 64 << 20;
/// Time between two looks at both lines of a machine.
const LOOK: Duration = Duration::from_millis(200);
/// Longest delay of one line after the other. The delay is of threads of this program and not of
/// the machine, so seconds are plenty.
const LINGER: Duration = Duration::from_secs(2);

impl Setup {
    /// Measures one configuration. Each configuration boots a machine of its own. The order of the
    /// configurations thus does not matter to their figures.
    pub fn measure(&self, configuration: Configuration) -> Result<Measured> {
        match configuration {
            Configuration::Native => self.natively(),
            Configuration::Kvm => self.under_kvm(),
            Configuration::Guest | Configuration::Emulated | Configuration::PassThrough => {
                self.under_gearv(configuration)
            }
        }
    }

    /// Measures without a hypervisor. With load the kernel has both CPUs, one of which is the
    /// load's; without load the kernel has one CPU, as a VM has. EL2 is taken off the machine, as a
    /// kernel that finds it would start at EL2 and become a host of KVM.
    fn natively(&self) -> Result<Measured> {
        let kernel = payloads::debian_rt_kernel()?;
        let initramfs = jitter_userland::initramfs(&workspace::output_dir())?;
        let command_line = self.native_command_line();
        let boot = Boot {
            kernel: &kernel,
            initrd: Some(&initramfs),
            command_line: Some(&command_line),
        };
        let machine = Machine {
            cpus: CPUS,
            disk: self.disk("native")?,
            ..self.machine.clone().without_el2()
        };
        let command = self.qemu.command(&machine, &boot, Console::Pipes);
        let mut session = Session::start(command, &log("native")?)?;
        session.give_up_on(&[PANIC]);
        // QEMU ends with the kernel, which the session notices.
        self.without_exits(session, None)
    }

    /// Returns the native kernel's command line. The settle time is that of GearV's guests, so that
    /// the kernel is as long up when it begins to measure.
    fn native_command_line(&self) -> String {
        let more = match self.load {
            Load::Off => format!("nr_cpus=1 jitter.settle={SETTLE_IDLE}"),
            load @ (Load::Cpu | Load::Disk | Load::All) => {
                format!("jitter.cpu=1 jitter.load={}", load.text())
            }
        };
        Configuration::Native.command_line("ttyAMA0", self.loops, self.load, &more)
    }

    /// Measures where no Gear1 counts exits. `ended` is printed when the guest has ended. Figures
    /// come with no exits, which is a dash in the tables and not a zero.
    fn without_exits(&self, mut session: Session, ended: Option<&str>) -> Result<Measured> {
        let figures = self.figures(&mut session, ended);
        Ok(Measured {
            figures: figures.map_err(|error| explain(&error, &session))?,
            exits: None,
        })
    }

    /// Measures in a guest of KVM's. The vCPU's CPU is isolated and its thread has a real-time
    /// priority: the set-up that KVM's users have for such guests. The load is the host's.
    fn under_kvm(&self) -> Result<Measured> {
        let background = match self.load {
            Load::Off => String::new(),
            load @ (Load::Cpu | Load::Disk | Load::All) => jitter_userland::load(load.text()),
        };
        let host = KvmHost {
            kernel: payloads::debian_rt_kernel()?,
            initrd: Some(jitter_userland::initramfs(&workspace::output_dir())?),
            command_line: Configuration::Kvm.command_line("ttyAMA0", self.loops, self.load, ""),
            isolate: true,
            background,
            disk: self.disk("kvm")?,
            ..KvmHost::default()
        };
        let host = host.build(&workspace::output_dir().join("jitter-kvm"))?;
        let session = host.start(&self.qemu, &self.machine, &log("kvm")?)?;
        self.without_exits(session, Some(GUEST_ENDED))
    }

    /// Measures in a VM of GearV's. A real-time VM has its own serial line and a guest shares
    /// Gear2's, so that both are waited for differently.
    fn under_gearv(&self, configuration: Configuration) -> Result<Measured> {
        let images = build_images::build(&self.write_manifest(configuration)?)?;
        let machine = Machine {
            cpus: CPUS,
            memory_mib: run::memory_for(&images)?,
            disk: self.disk(configuration.word())?,
            ..self.machine.clone()
        };
        if configuration.is_real_time() {
            return self.real_time(configuration, &images, &machine);
        }
        let mut session = images.start(&self.qemu, &machine, &log("guest")?)?;
        session.give_up_on(FATAL);
        let measured = self.guest(configuration, &mut session);
        measured.map_err(|error| explain(&error, &session))
    }

    /// Writes the manifest of a configuration. Each configuration has a directory of its own, so
    /// that what was measured can be built again from it.
    fn write_manifest(&self, configuration: Configuration) -> Result<PathBuf> {
        let name = format!("jitter-{}", configuration.vm());
        let directory = workspace::output_dir().join(&name);
        fs::create_dir_all(&directory)?;
        let source = directory.join(format!("{name}.dts"));
        let settle = match self.load {
            Load::Off => SETTLE_IDLE,
            Load::Cpu | Load::Disk | Load::All => SETTLE_BUSY,
        };
        let serial = Serial::SECOND_OF_VIRT;
        let manifest =
            configuration.manifest(serial, self.loops, self.load, settle, self.scheduler);
        fs::write(&source, manifest)?;
        Ok(source)
    }

    /// Measures the guest, whose console and Gear2's are one line. The guest must not have begun to
    /// measure when the first counts have arrived. The kernel's own count of SGIs is read from the
    /// same two lines between which Gear1's are taken, and both differences are thus of one stretch
    /// of time.
    fn guest(&self, configuration: Configuration, session: &mut Session) -> Result<Measured> {
        session.expect("gear2: ", ANSWER)?;
        // Nothing but this VM is shown from now on.
        session.send(&format!("{ESCAPE}0"))?;
        let ended = ended(configuration);
        let limit = self.timeout();
        before_end(session, READY, &ended, limit)?;
        let own_before = number(session, 2)?;
        let before = Exits::read(session, configuration.vm())?;
        ensure!(!session.has(BEGINS), TOO_SLOW);
        before_end(session, MEASURED, &ended, limit)?;
        let own_after = number(session, 0)?;
        let after = Exits::read(session, configuration.vm())?;
        let printed = before_end(session, END, &ended, limit)?;
        Ok(Measured {
            figures: self.parse(&printed)?,
            exits: Some(after.since(&before, own_after.saturating_sub(own_before))),
        })
    }

    /// Measures a real-time VM, whose console is the machine's second UART. Gear2's is the first.
    /// An error shows the end of both lines, as either may hold the reason.
    fn real_time(
        &self,
        configuration: Configuration,
        images: &Images,
        machine: &Machine,
    ) -> Result<Measured> {
        let word = configuration.word();
        let (mut gear2, line) = self.start_with_second_line(word, images, machine)?;
        let mut guest = gear2.attach(line, &log(word)?)?;
        guest.give_up_on(&[PANIC]);
        let measured = self.on_two_lines(configuration, &mut guest, &mut gear2);
        measured.map_err(|error| {
            let last_words = build_images::last_words(&gear2);
            anyhow!("{error:#}\n{}\n{last_words}", guest.tail(30))
        })
    }

    /// Starts the machine with a socket behind its second UART. The end of QEMU ends the socket,
    /// which the reader notices. A socket instead of a pipe, since QEMU has only one standard
    /// output, and Gear2's console is on that.
    fn start_with_second_line(
        &self,
        word: &str,
        images: &Images,
        machine: &Machine,
    ) -> Result<(Session, UnixStream)> {
        let directory = tempdir()?;
        let socket = directory.join("serial");
        let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
        let mut command = self.qemu.command(machine, &images.boot(), Console::Pipes);
        command.args(["-serial", &format!("unix:{}", socket.display())]);
        let gear2 = images.start_by(command, &log(&format!("{word}{OF_GEAR2}"))?)?;
        // QEMU connects before the machine starts, or ends.
        let (line, _) = listener.accept()?;
        fs::remove_dir_all(&directory)?;
        Ok((gear2, line))
    }

    /// Measures a VM with a line of its own, and reads its exits on Gear2's. The order of the steps
    /// is that of [`Setup::guest`].
    fn on_two_lines(
        &self,
        configuration: Configuration,
        guest: &mut Session,
        gear2: &mut Session,
    ) -> Result<Measured> {
        let ended = ended(configuration);
        self.expect(READY, &ended, guest, gear2)?;
        let own_before = number(guest, 2)?;
        let before = Exits::read(gear2, configuration.vm())?;
        guest.receive_all()?;
        ensure!(!guest.has(BEGINS), TOO_SLOW);
        self.expect(MEASURED, &ended, guest, gear2)?;
        let own_after = number(guest, 0)?;
        let after = Exits::read(gear2, configuration.vm())?;
        let printed = self.expect(END, &ended, guest, gear2)?;
        Ok(Measured {
            figures: self.parse(&printed)?,
            exits: Some(after.since(&before, own_after.saturating_sub(own_before))),
        })
    }

    /// Waits for what a real-time VM says on its own line, for as long as Gear2 does not say that
    /// it has `ended`. Both lines are looked at in turns: a VM that has stopped is reported on
    /// Gear2's line alone, and a wait on the VM's own would last until the limit.
    fn expect(
        &self,
        text: &str,
        ended: &str,
        guest: &mut Session,
        gear2: &mut Session,
    ) -> Result<String> {
        let end = Instant::now() + self.timeout();
        loop {
            listen(guest, gear2, Duration::ZERO)?;
            gear2.listen(Duration::ZERO)?;
            let has_ended = gear2.has(ended);
            if has_ended {
                // The two lines are read by two threads: what the guest said last may come after.
                guest.listen(LINGER)?;
            }
            if guest.has(text) {
                return guest.expect(text, Duration::ZERO);
            }
            ensure!(!has_ended, "the VM stopped without {text:?}");
            ensure!(
                Instant::now() < end,
                "no {text:?} within {} s",
                self.timeout().as_secs()
            );
            listen(guest, gear2, LOOK)?;
        }
    }

    /// Waits for the end of a guest that needs no input, and reads its figures.
    fn figures(&self, session: &mut Session, ended: Option<&str>) -> Result<report::Figures> {
        // What no console prints: the session itself notices the end.
        let ended = ended.unwrap_or("\0");
        before_end(session, MEASURED, ended, self.timeout())?;
        let printed = before_end(session, END, ended, self.timeout())?;
        self.parse(&printed)
    }

    /// Reads the samples. A run with fewer periods than asked for is an error: its maximum would
    /// look better for it.
    fn parse(&self, printed: &str) -> Result<report::Figures> {
        let figures = samples(printed)?;
        let count = figures.get(ROW).map_or(0, report::Figure::count);
        ensure!(
            count == self.loops,
            "{count} of {} periods were measured",
            self.loops
        );
        Ok(figures)
    }

    /// Returns an empty disk, if the load wants one. The disk is empty, as what it holds does not
    /// matter to a load that writes.
    fn disk(&self, name: &str) -> Result<Option<PathBuf>> {
        if !self.load.needs_disk() {
            return Ok(None);
        }
        let path = log(name)?.with_extension("img");
        fs::File::create(&path)?.set_len(DISK_BYTES)?;
        Ok(Some(path))
    }
}

/// Takes in what the guest prints on its own line. The line of a machine that has ended ends; how
/// the machine ended is said by Gear2's session, which has the process.
fn listen(guest: &mut Session, gear2: &mut Session, time: Duration) -> Result<()> {
    guest.listen(time).or_else(|error| {
        gear2.listen(LINGER)?;
        Err(error)
    })
}

/// Waits until the guest prints `text`, and returns what came before it. A guest that has `ended`
/// says nothing more.
fn before_end(session: &mut Session, text: &str, ended: &str, limit: Duration) -> Result<String> {
    let (printed, which) = session.expect_any(&[text, ended], limit)?;
    ensure!(which == 0, "the guest stopped without {text:?}");
    Ok(printed)
}

/// Returns the number at this place of the rest of a line. The words of a message are those of the
/// init in the initramfs, in a fixed order. A word that is no number is an error with the whole
/// line, as a torn line would give a wrong count of SGIs.
fn number(session: &mut Session, place: usize) -> Result<u64> {
    let line = session.expect("\n", ANSWER)?;
    let word = line.split_whitespace().nth(place);
    let number = word.and_then(|word| word.parse().ok());
    number.with_context(|| format!("it says {line:?}"))
}

/// Returns Gear2's message about the end of the measuring VM.
fn ended(configuration: Configuration) -> String {
    format!("gear2: {} stopped", configuration.vm())
}

/// Adds the console's last words to an error, since they say why a guest stopped.
fn explain(error: &anyhow::Error, session: &Session) -> anyhow::Error {
    anyhow!("{error:#}\n{}", build_images::last_words(session))
}

/// Returns where the log of a console goes. The name is that of the configuration, and the next run
/// of it writes over the file.
fn log(what: &str) -> Result<PathBuf> {
    let directory = workspace::output_dir().join("jitter");
    fs::create_dir_all(&directory)?;
    Ok(directory.join(format!("{what}.log")))
}

/// Returns a directory of this process, with a path as short as sockets want it.
fn tempdir() -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("gearv-{}", std::process::id()));
    if Path::new(&path).exists() {
        fs::remove_dir_all(&path)?;
    }
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests;

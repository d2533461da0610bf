//! Loads in text: one `VM = LOAD` in each line of a file, or `VM=LOAD` on the command line.
//!
//! Owns the format and its errors, which name the place.
//!
//! A load is one of these; times have a unit, and a VM without a load is idle:
//!
//! ```text
//! periodic:period=10ms,work=2ms[,phase=1ms][,jitter=100us]
//! burst:work=2ms,sleep=8ms[,phase=1ms]
//! random:work=2ms,sleep=8ms[,phase=1ms]
//! spin
//! idle
//! trace:FILE
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use gear2_core::config::VcpuSchedule;
use gear2_core::scheduler::virtual_cpu::{
    Bursts, Idle, Job, Load, Periodic, Random, Recorded, Spin,
};

use super::recorded;
use super::time::time;

/// Work of a vCPU. Times are in ticks. The vocabulary is that of `docs/schedulers.md`: enough to
/// pose the papers' examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A job in each period, due at its end.
    Periodic {
        /// Length of a period.
        period: u64,
        /// Work of a job.
        work: u64,
        /// Beginning of the first period.
        phase: u64,
        /// Most by which a wake-up is late.
        jitter: u64,
    },
    /// Work, then sleep.
    Burst {
        /// Length of the work.
        work: u64,
        /// Length of the sleep.
        sleep: u64,
        /// Beginning of the first burst.
        phase: u64,
        /// Whether the lengths are random ones up to these.
        random: bool,
    },
    /// Work without an end. The greediest guest there is.
    Spin,
    /// Nothing. A VM without a load in the file.
    Idle,
    /// Jobs from a file. Recorded from a machine or written by hand.
    Trace(Vec<Job>),
}

impl Kind {
    /// Returns the load for a CPU in virtual time. Each vCPU gets a seed of its own, so that random
    /// loads do not move in step.
    pub fn load(&self, seed: u64) -> Box<dyn Load> {
        let random = Random::new(seed);
        match *self {
            Self::Periodic {
                period,
                work,
                phase,
                jitter,
            } => Box::new(Periodic {
                period,
                work,
                start: phase,
                jitter,
                random,
            }),
            Self::Burst {
                work,
                sleep,
                phase,
                random: is_random,
            } => Box::new(Bursts {
                work,
                sleep,
                start: phase,
                random: is_random.then_some(random),
            }),
            Self::Spin => Box::new(Spin),
            Self::Idle => Box::new(Idle),
            Self::Trace(ref jobs) => Box::new(Recorded::new(jobs.clone())),
        }
    }
}

/// A load, and where it was written. The place is kept to the end: a name can be judged only with
/// the manifest at hand.
#[derive(Clone, Debug)]
struct Entry {
    /// Name of the VM or vCPU.
    target: String,
    /// The load as written, for the report.
    text: String,
    /// The load itself.
    kind: Kind,
    /// File, line and column of the name.
    place: String,
}

/// The loads of all VMs that have one; the others are idle. In the order of writing; a VM's and a
/// vCPU's own entry may both be there.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// In the order of writing.
    entries: Vec<Entry>,
}

/// A line of text, and where it is. One shape for files and options, so that both have the same
/// errors.
struct Line<'t> {
    /// "--load" for the command line.
    file: &'t str,
    /// From 1.
    number: usize,
    /// Without the line's end; comments are still there.
    text: &'t str,
    /// Folder that paths in the line are relative to.
    folder: PathBuf,
}

impl Line<'_> {
    /// Returns the place of a part of the line. The part is a slice of the line: its distance from
    /// the start is the column.
    fn place(&self, part: &str) -> String {
        let offset = part.as_ptr() as usize - self.text.as_ptr() as usize;
        let column = self.text[..offset].chars().count() + 1;
        format!("{}:{}:{column}", self.file, self.number)
    }
}

/// Returns the name of a vCPU: its VM's, with a number if the VM has several. As `gearctl` writes
/// vCPUs.
pub(super) fn name(vcpu: &VcpuSchedule) -> String {
    match vcpu.siblings {
        1 => vcpu.vm.clone(),
        _ => format!("{}.{}", vcpu.vm, vcpu.index),
    }
}

impl Loads {
    /// Reads the values of `--load`: `VM=LOAD`, or the name of a file. A value with `=` is a load,
    /// and no file has one in its name by accident.
    pub fn read(values: &[String]) -> Result<Self> {
        let mut loads = Self::default();
        for value in values {
            if value.contains('=') {
                loads.take_line(&Line {
                    file: "--load",
                    number: 1,
                    text: value,
                    folder: PathBuf::new(),
                })?;
            } else {
                loads.take_file(Path::new(value))?;
            }
        }
        Ok(loads)
    }

    /// Paths inside are relative to the file, as in a manifest.
    fn take_file(&mut self, path: &Path) -> Result<()> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("--load {}: a file, or VM=LOAD", path.display()))?;
        let file = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new(""));
        for (number, text) in text.lines().enumerate() {
            self.take_line(&Line {
                file: &file,
                number: number + 1,
                text,
                folder: folder.to_owned(),
            })?;
        }
        Ok(())
    }

    /// `#` begins a comment, as in shells. A line has one load, so that its number is the place of
    /// every error in it.
    fn take_line(&mut self, line: &Line<'_>) -> Result<()> {
        let text = line.text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            return Ok(());
        }
        let Some((target, load)) = text.split_once('=') else {
            bail!(
                "{}: VM = LOAD is expected, there is no `=`",
                line.place(text)
            );
        };
        let (target, load) = (target.trim(), load.trim());
        self.ensure_without_load(target, &line.place(text))?;
        self.entries.push(Entry {
            target: target.to_owned(),
            text: load.to_owned(),
            kind: parse(line, load)?,
            place: line.place(text),
        });
        Ok(())
    }

    /// Two loads for one name contradict each other, whichever would win.
    fn ensure_without_load(&self, target: &str, place: &str) -> Result<()> {
        let before = self.entries.iter().find(|entry| entry.target == target);
        match before {
            Some(entry) => bail!("{place}: {target} has a load at {}", entry.place),
            None => Ok(()),
        }
    }

    /// Refuses loads of vCPUs that no CPU of Gear2's schedules. A misspelled name would else be an
    /// idle VM.
    pub(super) fn check(&self, vcpus: &[&VcpuSchedule]) -> Result<()> {
        for entry in &self.entries {
            let is_of =
                |vcpu: &&&VcpuSchedule| entry.target == vcpu.vm || entry.target == name(vcpu);
            if !vcpus.iter().any(|vcpu| is_of(&vcpu)) {
                // Each VM once: the vCPUs stand in the order of their CPUs.
                let mut names: Vec<&str> = Vec::new();
                for name in vcpus.iter().map(|vcpu| vcpu.vm.as_str()) {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                let (place, target) = (&entry.place, &entry.target);
                bail!(
                    "{place}: Gear2 schedules no {target}, but {}",
                    names.join(", ")
                );
            }
        }
        Ok(())
    }

    /// Returns the load of a vCPU: its own, else its VM's. The more exact name wins.
    pub(super) fn of(&self, vcpu: &VcpuSchedule) -> (&str, &Kind) {
        let named = |name: &str| self.entries.iter().find(|entry| entry.target == name);
        let entry = named(&name(vcpu)).or_else(|| named(&vcpu.vm));
        entry.map_or(("idle", &Kind::Idle), |entry| (&entry.text, &entry.kind))
    }
}

/// Reads a load: a word, then options behind a colon. Errors name the column of the word that is
/// wrong.
fn parse(line: &Line<'_>, text: &str) -> Result<Kind> {
    let (word, options) = text.split_once(':').unwrap_or((text, ""));
    match word {
        "spin" | "idle" if text != word => {
            bail!("{}: {word} has no options", line.place(options))
        }
        "spin" => Ok(Kind::Spin),
        "idle" => Ok(Kind::Idle),
        "trace" if options.is_empty() => bail!("{}: trace:FILE is expected", line.place(text)),
        "trace" => Ok(Kind::Trace(recorded::read(&line.folder.join(options))?)),
        "periodic" => {
            let known = ["period", "work", "phase", "jitter"];
            periodic(&Options::read(line, text, options, &known)?)
        }
        "burst" | "random" => {
            let options = Options::read(line, text, options, &["work", "sleep", "phase"])?;
            burst(&options, word == "random")
        }
        _ => bail!(
            "{}: there is no load {word:?}, there are periodic, burst, random, spin, idle, trace",
            line.place(text)
        ),
    }
}

/// Phase and jitter are optional.
fn periodic(options: &Options<'_, '_>) -> Result<Kind> {
    Ok(Kind::Periodic {
        period: options.time("period")?,
        work: options.time("work")?,
        phase: options.time_or_zero("phase")?,
        jitter: options.time_or_zero("jitter")?,
    })
}

/// Both loads have these options: exact, or at most.
fn burst(options: &Options<'_, '_>, random: bool) -> Result<Kind> {
    Ok(Kind::Burst {
        work: options.time("work")?,
        sleep: options.time("sleep")?,
        phase: options.time_or_zero("phase")?,
        random,
    })
}

/// The options of a load: `name=TIME`, with commas between them. Unknown and double names are
/// errors: an option that is passed over changes the result.
struct Options<'l, 't> {
    /// For the places of errors.
    line: &'l Line<'t>,
    /// The whole load.
    text: &'l str,
    /// Name and value, in the order of writing.
    pairs: Vec<(&'l str, &'l str)>,
}

impl<'l, 't> Options<'l, 't> {
    /// Names are compared with those that this load has.
    fn read(line: &'l Line<'t>, text: &'l str, options: &'l str, known: &[&str]) -> Result<Self> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for option in options
            .split(',')
            .filter(|option| !option.trim().is_empty())
        {
            let option = option.trim();
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let name = name.trim();
            if !known.contains(&name) {
                let known = known.join(", ");
                bail!(
                    "{}: there is no option {name:?}, there are {known}",
                    line.place(option)
                );
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                bail!("{}: {name} is there twice", line.place(option));
            }
            pairs.push((name, value.trim()));
        }
        Ok(Self { line, text, pairs })
    }

    /// Returns a time that may not be zero. A unit is needed: bare numbers would be ticks of an
    /// unknown length.
    fn time(&self, name: &str) -> Result<u64> {
        let Some((_, value)) = self.pairs.iter().find(|(other, _)| *other == name) else {
            bail!("{}: {name}=TIME is missing", self.line.place(self.text));
        };
        match time(value) {
            Some(0) => bail!("{}: {name} is zero", self.line.place(value)),
            Some(ticks) => Ok(ticks),
            None => bail!(
                "{}: {name}={value} is no time; write 200us, 1.5ms or 2s",
                self.line.place(value)
            ),
        }
    }

    /// Zero is allowed where it means none.
    fn time_or_zero(&self, name: &str) -> Result<u64> {
        let value = self.pairs.iter().find(|(other, _)| *other == name);
        match value {
            None => Ok(0),
            Some((_, value)) if time(value) == Some(0) => Ok(0),
            Some(_) => self.time(name),
        }
    }
}

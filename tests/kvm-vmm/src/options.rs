//! The command line: `kvm-vmm OPTION=VALUE ... [and OPTION=VALUE ...]`, one group a VM.

use std::path::PathBuf;

#[cfg(test)]
mod tests;

/// Message for a wrong command line. Printed with the error that is found first.
pub const USAGE: &str = "\
usage: kvm-vmm OPTION=VALUE ... [and OPTION=VALUE ...]
Each group is a VM; two VMs have a doorbell each that interrupts the other one. Options:
  kernel=FILE       an arm64 Image
  initrd=FILE       its initial RAM disk [none]
  disk=FILE         its virtio disk, a file or a block device [none]
  net=NAME          the tap device behind its virtio network card [none]
  cmdline=TEXT      its command line [empty]
  memory=MIB        its RAM [512]
  cpus=N,N,...      a vCPU each, pinned to that CPU of the host [0]
  gic=2|3           its interrupt controller [3]
  seed=HEX          the rng-seed in its device tree, 32 bytes [0]
  nice=VALUE        its vCPUs' threads have this nice value [0]
  fifo=PRIORITY     its vCPUs' threads run with SCHED_FIFO [no]
  deadline=RUNTIME,DEADLINE,PERIOD
                    its vCPUs' threads run with SCHED_DEADLINE; microseconds [no]
  free=MS           all CPUs are allowed to its vCPUs' threads when the physical
                    counter has reached this value, in milliseconds [no]";

/// Word between the groups of two VMs.
const SEPARATOR: &str = "and";
/// Most VMs of a process: a doorbell leads to the other one.
const MAX_VMS: usize = 2;
/// Most vCPUs of a VM, the limit of a GICv2.
const MAX_VCPUS: usize = 8;

/// The interrupt controller of a VM. KVM has a GICv2 only where the host's CPU interface can be a
/// guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gic {
    /// GICv2.
    V2,
    /// GICv3.
    V3,
}

/// How the host schedules a vCPU's thread. The measurements compare classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// SCHED_OTHER with a nice value.
    Other(i32),
    /// SCHED_FIFO with a priority.
    Fifo(i32),
    /// SCHED_DEADLINE with runtime, relative deadline and period, in microseconds.
    Deadline([u64; 3]),
}

/// Options of a VM. Everything that a measurement varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// An arm64 Image.
    pub kernel: PathBuf,
    /// The initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// The file or block device behind its virtio disk.
    pub disk: Option<PathBuf>,
    /// The tap device behind its network card, which is made if there is none.
    pub net: Option<String>,
    /// The kernel's command line.
    pub cmdline: String,
    /// RAM in MiB.
    pub memory_mib: u64,
    /// The host's CPU of each vCPU.
    pub cpus: Vec<usize>,
    /// The interrupt controller.
    pub gic: Gic,
    /// Seed of the guest kernel's random numbers.
    pub seed: [u8; 32],
    /// How the vCPUs' threads are scheduled.
    pub class: Class,
    /// Value of the physical counter, in milliseconds, from which on the vCPUs' threads may run on
    /// all CPUs.
    pub free_ms: Option<u64>,
}

impl Options {
    /// Parses the words behind the program's name, a group a VM.
    ///
    /// # Errors
    ///
    /// Says which option is wrong, and why.
    pub fn parse(words: &[String]) -> Result<Vec<Options>, String> {
        let groups = words.split(|word| word == SEPARATOR);
        let vms: Vec<Options> = groups.map(Options::parse_one).collect::<Result<_, _>>()?;
        if vms.len() > MAX_VMS {
            return Err(format!("{} VMs: at most {MAX_VMS}", vms.len()));
        }
        Ok(vms)
    }

    /// Defaults are those of [`USAGE`].
    fn parse_one(words: &[String]) -> Result<Options, String> {
        let mut options = Options {
            kernel: PathBuf::new(),
            initrd: None,
            disk: None,
            net: None,
            cmdline: String::new(),
            memory_mib: 512,
            cpus: vec![0],
            gic: Gic::V3,
            seed: [0; 32],
            class: Class::Other(0),
            free_ms: None,
        };
        for word in words {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word:?} is not OPTION=VALUE"))?;
            options
                .set(name, value)
                .map_err(|why| format!("{name}={value}: {why}"))?;
        }
        if options.kernel.as_os_str().is_empty() {
            return Err("a VM has no kernel=".to_owned());
        }
        Ok(options)
    }

    /// A later word of the same option wins.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "kernel" => self.kernel = value.into(),
            "initrd" => self.initrd = Some(value.into()),
            "disk" => self.disk = Some(value.into()),
            "net" => self.net = Some(tap(value)?),
            "cmdline" => value.clone_into(&mut self.cmdline),
            "memory" => self.memory_mib = between(value, 16, 1 << 20)?,
            "cpus" => self.cpus = cpus(value)?,
            "gic" => {
                self.gic = match value {
                    "2" => Gic::V2,
                    "3" => Gic::V3,
                    _ => return Err("2 or 3".to_owned()),
                }
            }
            "seed" => self.seed = seed(value)?,
            "nice" => self.class = Class::Other(nice(value)?),
            "fifo" => self.class = Class::Fifo(between(value, 1, 99)? as i32),
            "free" => self.free_ms = Some(between(value, 1, 1_000_000_000)?),
            "deadline" => self.class = Class::Deadline(deadline(value)?),
            _ => return Err("there is no such option".to_owned()),
        }
        Ok(())
    }
}

/// The message is the range.
fn between(value: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = value.parse().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("a number from {least} to {most}"))
}

/// Linux cuts a longer name of a network device (`IFNAMSIZ`), and another device would be used.
fn tap(value: &str) -> Result<String, String> {
    match value.len() {
        1..=15 => Ok(value.to_owned()),
        _ => Err("a name of 1 to 15 characters".to_owned()),
    }
}

/// Negative values need CAP_SYS_NICE, which the kernel checks.
fn nice(value: &str) -> Result<i32, String> {
    let number = value.parse().ok();
    number
        .filter(|number| (-20..=19).contains(number))
        .ok_or_else(|| "a number from -20 to 19".to_owned())
}

/// Reads runtime, deadline and period: at most a second, each no shorter than the one before.
fn deadline(value: &str) -> Result<[u64; 3], String> {
    let times: Vec<u64> = value
        .split(',')
        .map(|time| between(time, 1, 1_000_000))
        .collect::<Result<_, String>>()?;
    match <[u64; 3]>::try_from(times) {
        Ok(times) if times.is_sorted() => Ok(times),
        _ => Err("RUNTIME,DEADLINE,PERIOD, in this order".to_owned()),
    }
}

/// The number of CPUs is the number of vCPUs.
fn cpus(value: &str) -> Result<Vec<usize>, String> {
    let cpus: Vec<usize> = value
        .split(',')
        .map(|cpu| Ok(between(cpu, 0, 1023)? as usize))
        .collect::<Result<_, String>>()?;
    if cpus.len() > MAX_VCPUS {
        return Err(format!("at most {MAX_VCPUS} vCPUs"));
    }
    Ok(cpus)
}

/// Linux takes up to 512 bits; 256 are enough for its generator.
fn seed(value: &str) -> Result<[u8; 32], String> {
    let wrong = || "64 hexadecimal digits".to_owned();
    if value.len() != 64 || !value.is_ascii() {
        return Err(wrong());
    }
    let mut seed = [0; 32];
    for (at, byte) in seed.iter_mut().enumerate() {
        let digits = &value[2 * at..2 * at + 2];
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(seed)
}

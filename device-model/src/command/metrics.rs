//! `gearctl metrics`: the figures of VMs, vCPUs and devices for Prometheus.
//!
//! Owns: names and labels of all metrics. Figures are counters since the start of the machine, or of
//! a VM's life: Prometheus takes a figure that falls for one that began anew. Real-time VMs have no
//! times, as nobody counts these.

use std::io::{self, ErrorKind as Io};
use std::thread::sleep;
use std::time::Duration;

use gear1_abi::exit::ExitReason;
use gear2_protocol::PROTOCOL_VERSION;

use super::answer::State;
use super::vm_state;
use crate::client::{Client, Vm};
use crate::error::Error;
use crate::json::Json;
use crate::wire::{About, Figures};
use crate::{socket, sys};

mod http;
#[cfg(test)]
mod tests;
mod text;

use text::{Kind, Text, sample};

/// Time from a failed accept to the next try: what the system lacks may come back.
const PAUSE: Duration = Duration::from_millis(100);

/// Figures of one moment. They are read one by one while the VMs run.
struct Scrape {
    about: About,
    /// Gear2's answer about its version.
    version: [u64; 6],
    vms: Vec<Vm>,
    vcpus: Vec<Vcpu>,
    devices: Vec<Figures>,
}

/// Figures of a vCPU.
struct Vcpu {
    vm: String,
    /// Number over all VMs, as in all answers of `gearctl`.
    number: u64,
    /// Whether nobody counts the time of the vCPU.
    real_time: bool,
    /// Ticks run, CPU, state, ticks waited, ticks stolen, preemptions.
    info: [u64; 6],
    /// Exits, and ticks of them in Gear2, by reason.
    exits: Vec<(ExitReason, [u64; 2])>,
}

/// Returns all metrics.
pub(super) fn collect(client: &mut Client) -> Result<String, Error> {
    Scrape::take(client).map(|scrape| scrape.text())
}

/// Serves the metrics at a socket until a signal ends this program. Each scrape connects to GDM
/// anew: GDM may end and come again, and serves few clients at once.
pub(super) fn serve(run_directory: &str, path: &str) -> Result<(), Error> {
    let at = |error: std::io::Error| Error::failed(format!("{path}: {error}"));
    if is_served(path) {
        return Err(Error::refused(format!(
            "{path} is not replaced: a program serves it"
        )));
    }
    let listener = socket::listen(path).map_err(at)?;
    // Nothing else is to be done while nobody asks.
    listener.set_nonblocking(false).map_err(at)?;
    let mut scrape = || Client::connect(run_directory).and_then(|mut client| collect(&mut client));
    let mut failures = 0_u64;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if failures > 0 {
                    eprintln!(
                        "gearctl: {path}: clients are accepted again; {failures} tries failed"
                    );
                    failures = 0;
                }
                // A client that leaves early, or is slow, is its own affair.
                drop(http::answer(stream, http::PATIENCE, &mut scrape));
            }
            Err(error) if matches!(error.kind(), Io::Interrupted | Io::ConnectionAborted) => {}
            Err(error) if is_shortage(&error) => {
                if failures == 0 {
                    eprintln!("gearctl: {path}: no client is accepted for now: {error}");
                }
                failures += 1;
                sleep(PAUSE);
            }
            Err(error) => return Err(at(error)),
        }
    }
}

/// Tells whether the system lacked descriptors or memory. The client is waiting still.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error
        .raw_os_error()
        // planted: a shortage of descriptors ends the server of metrics
        .is_some_and(|number| shortages.contains(&number))
}

/// Tells whether a program may listen at a socket. Only a socket whose program has ended refuses: a
/// program may be too busy to accept, or let only another user connect.
fn is_served(path: &str) -> bool {
    match sys::connect_at_once(path) {
        Ok(_) => true,
        // planted: the socket of a busy program is taken
        Err(error) => !matches!(error.kind(), Io::NotFound | Io::ConnectionRefused),
    }
}

impl Scrape {
    fn take(client: &mut Client) -> Result<Self, Error> {
        let about = client.about()?;
        let version = client.version()?;
        let vms = client.vms()?;
        let mut vcpus = Vec::new();
        for vm in &vms {
            for number in vm.numbers() {
                vcpus.push(Vcpu::take(client, vm, number)?);
            }
        }
        let devices = client.figures()?;
        Ok(Self {
            about,
            version,
            vms,
            vcpus,
            devices,
        })
    }

    fn text(&self) -> String {
        let mut text = Text::default();
        self.of_machine(&mut text);
        self.of_vms(&mut text);
        self.of_times(&mut text);
        self.of_exits(&mut text);
        self.of_devices(&mut text);
        text.end()
    }

    fn of_machine(&self, text: &mut Text) {
        let pair = |version: u64| format!("{}.{}", version >> 16, version & 0xffff);
        let [abi, gear2, counter, cpus, mmio_events, restarts] = self.version;
        let versions = [
            ("gearctl", env!("CARGO_PKG_VERSION").to_owned()),
            ("gear1_abi", pair(abi)),
            ("protocol", pair(u64::from(PROTOCOL_VERSION))),
            ("gear2_protocol", pair(gear2)),
        ];
        let alone = |value: u64| vec![sample([], value.to_string())];
        let family = |text: &mut Text, name, kind, help, value| {
            text.family(name, kind, help, alone(value));
        };
        let versions = vec![sample(versions, "1".into())];
        text.family("info", Kind::Gauge, "Versions of all parts.", versions);
        family(
            text,
            "cpus",
            Kind::Gauge,
            "CPUs with a loop of Gear2.",
            cpus,
        );
        let time = vec![sample([], self.seconds(counter))];
        let help = "Time of the counter of all CPUs.";
        text.family("counter_seconds_total", Kind::Counter, help, time);
        let help = "Restarts of Gear2 by Gear1.";
        family(text, "gear2_restarts_total", Kind::Counter, help, restarts);
        let help = "Starts of GDM.";
        family(
            text,
            "gdm_starts_total",
            Kind::Counter,
            help,
            self.about.starts,
        );
        let help = "MMIO accesses that Gear2 forwarded.";
        family(text, "mmio_events_total", Kind::Counter, help, mmio_events);
    }

    fn of_vms(&self, text: &mut Text) {
        let states = self.vms.iter().map(|vm| {
            let state = state_word(vm_state(vm.state));
            sample([("vm", vm.name.clone()), ("state", state)], "1".into())
        });
        let help = "1, with the state of the VM as a label.";
        text.family("vm_state", Kind::Gauge, help, states.collect());
        let mut family = |name, kind, help, of: &dyn Fn(&Vm) -> Option<u64>| {
            let samples = self.vms.iter().filter_map(|vm| {
                let value = of(vm)?.to_string();
                Some(sample([("vm", vm.name.clone())], value))
            });
            text.family(name, kind, help, samples.collect());
        };
        let (gauge, counter) = (Kind::Gauge, Kind::Counter);
        let health = |vm: &Vm, index: usize| vm.health?.get(index).copied();
        family("vm_vcpus", gauge, "vCPUs of the VM.", &|vm| Some(vm.vcpus));
        family("vm_paused", gauge, "1 for a VM that is paused.", &|vm| {
            Some(vm.paused.into())
        });
        let help = "1 for a VM that has suspended itself.";
        family("vm_suspended", gauge, help, &|vm| Some(vm.suspended.into()));
        let help = "1 for a VM that is not restarted any longer.";
        family("vm_given_up", gauge, help, &|vm| Some(vm.given_up.into()));
        let help = "1 for a VM whose standby runs in its place.";
        family("vm_failed_over", gauge, help, &|vm| {
            Some(vm.failed_over.into())
        });
        let help = "Restarts of the VM.";
        family("vm_restarts_total", counter, help, &|vm| Some(vm.restarts));
        let help = "Faults that a vCPU of the VM could not continue from.";
        family("vm_faults_total", counter, help, &|vm| Some(vm.faults));
        let help = "Hangs, by the watchdog or the heartbeat of the VM.";
        family("vm_hangs_total", counter, help, &|vm| health(vm, 0));
        let help = "Late refreshes of the watchdog of the VM.";
        family("vm_late_refreshes_total", counter, help, &|vm| {
            health(vm, 1)
        });
        let help = "Times for which the VM got more time, as it waited for a CPU.";
        family("vm_starvations_total", counter, help, &|vm| health(vm, 2));
        let help = "Accesses of the VM's devices that the SMMU aborted.";
        family("vm_aborted_accesses_total", counter, help, &|vm| {
            vm.aborted_accesses()
        });
    }

    fn of_times(&self, text: &mut Text) {
        let mut family = |name, kind, help, of: &dyn Fn([u64; 6]) -> String| {
            let counted = self.vcpus.iter().filter(|vcpu| !vcpu.real_time);
            let samples = counted.map(|vcpu| sample(vcpu.labels(), of(vcpu.info)));
            text.family(name, kind, help, samples.collect());
        };
        let counter = Kind::Counter;
        let help = "CPU on which Gear2 runs the vCPU.";
        family("vcpu_cpu", Kind::Gauge, help, &|info| info[1].to_string());
        let help = "Time for which the vCPU ran.";
        family("vcpu_run_seconds_total", counter, help, &|info| {
            self.seconds(info[0])
        });
        let help = "Time for which the vCPU was ready and did not run, in this life of its VM.";
        family("vcpu_wait_seconds_total", counter, help, &|info| {
            self.seconds(info[3])
        });
        let help = "Part of the wait that the guest is told of as stolen time.";
        family("vcpu_stolen_seconds_total", counter, help, &|info| {
            self.seconds(info[4])
        });
        let help = "Preemptions of the vCPU, in this life of its VM.";
        family("vcpu_preemptions_total", counter, help, &|info| {
            info[5].to_string()
        });
    }

    fn of_exits(&self, text: &mut Text) {
        let mut family = |name, help, of: &dyn Fn([u64; 2]) -> String| {
            let samples = self.vcpus.iter().flat_map(|vcpu| {
                let reasons = vcpu.exits.iter();
                reasons.map(|(reason, figures)| {
                    let [vm, number] = vcpu.labels();
                    let reason = ("reason", reason.label().to_owned());
                    sample([vm, number, reason], of(*figures))
                })
            });
            text.family(name, Kind::Counter, help, samples.collect());
        };
        let help = "Exits of the vCPU to Gear1, by reason.";
        family("vcpu_exits_total", help, &|[exits, _]| exits.to_string());
        let help = "Time of these exits in Gear2.";
        family("vcpu_exit_gear2_seconds_total", help, &|[_, ticks]| {
            self.seconds(ticks)
        });
    }

    fn of_devices(&self, text: &mut Text) {
        let mut family = |name, help, of: fn(&Figures) -> u64| {
            let samples = self.devices.iter().map(|device| {
                let labels = [
                    ("vm", device.vm.clone()),
                    ("type", device.r#type.clone()),
                    ("channel", device.channel.to_string()),
                ];
                sample(labels, of(device).to_string())
            });
            text.family(name, Kind::Counter, help, samples.collect());
        };
        let help = "Requests that the device has completed.";
        family("device_requests_total", help, |device| device.requests);
        let help = "Requests that the device has completed with an error.";
        family("device_errors_total", help, |device| device.errors);
        let help = "Bytes from the guest to the device.";
        family("device_out_bytes_total", help, |device| device.bytes_out);
        let help = "Bytes from the device to the guest.";
        family("device_in_bytes_total", help, |device| device.bytes_in);
        let help = "Times for which the guest woke the thread of the device.";
        family("device_wakeups_total", help, |device| device.wakeups);
        let help = "Interrupts that the device has sent to the guest.";
        family("device_interrupts_total", help, |device| device.interrupts);
    }

    /// Returns ticks as seconds, to the nanosecond and without a loss of digits.
    fn seconds(&self, ticks: u64) -> String {
        text::seconds(ticks, self.about.hz)
    }
}

impl Vcpu {
    fn take(client: &mut Client, vm: &Vm, number: u64) -> Result<Self, Error> {
        let info = client.vcpu(number)?;
        let mut exits = Vec::new();
        for reason in ExitReason::ALL {
            exits.push((*reason, client.exits(number, *reason as u64)?));
        }
        Ok(Self {
            vm: vm.name.clone(),
            number,
            real_time: vm.real_time,
            info,
            exits,
        })
    }

    fn labels(&self) -> [(&'static str, String); 2] {
        [("vm", self.vm.clone()), ("vcpu", self.number.to_string())]
    }
}

/// Returns the word of a state, as in the JSON of `list`.
fn state_word(state: State) -> String {
    match Json::of(&state) {
        Json::Text(word) => word,
        _ => String::new(),
    }
}

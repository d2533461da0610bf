//! The jitter suite in short: real-time VMs against a native run of the same length.

use anyhow::{Result, anyhow};
use tests_measure::jitter::{self, Configuration, Load, Setup};

use crate::part::{Part, Tally};

/// Periods of a millisecond.
const LOOPS: u64 = 2000;
/// The most that a figure of the real-time VM with pass-through may be, native being 1.
const RATIO: f64 = 1.05;
const CONFIGURATIONS: [Configuration; 3] = [
    Configuration::Native,
    Configuration::Emulated,
    Configuration::PassThrough,
];

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("jitter in short, GICv3", |tally| short(3, tally)),
        Part::new("jitter in short, GICv2", |tally| short(2, tally)).slow(true),
        Part::new("jitter in a guest", in_guest).slow(true),
    ]
}

fn short(gic: u32, tally: &mut Tally) -> Result<()> {
    let setup = Setup::new(10, "cortex-a57", gic, Load::Off, LOOPS)?;
    let faults = measure(&setup)?;
    tally.pass(CONFIGURATIONS.len());
    let ratios = if faults.is_empty() {
        Ok(())
    } else {
        Err(anyhow!(faults.join("; ")))
    };
    tally.check("ratios, exits", ratios);
    Ok(())
}

/// Measures in a guest that Gear2 schedules: its figures leave by an emulated serial port, which
/// still transmits when the guest powers off.
fn in_guest(tally: &mut Tally) -> Result<()> {
    let setup = Setup::new(10, "cortex-a57", 3, Load::Off, LOOPS)?;
    setup.measure(Configuration::Guest)?;
    tally.pass(1);
    Ok(())
}

/// Measures all configurations. Returns violations in the figures.
fn measure(setup: &Setup) -> Result<Vec<String>> {
    let mut measured = Vec::new();
    for configuration in CONFIGURATIONS {
        measured.push((configuration, setup.measure(configuration)?));
    }
    Ok(jitter::judge(&setup.results(measured)?, RATIO))
}

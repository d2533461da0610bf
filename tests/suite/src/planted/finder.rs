//! Tests that must find the planted bugs, run on the copy of the workspace.
//!
//! A find is worth something only if the test passes without the bug, and if the failure is a
//! verdict: a build that fails, a test that is not there and a host that is too slow are errors of
//! the search, and no finds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};
use workbench::{build_images, workspace};

use super::bug::{Bug, Finder};
use super::list::bugs;
use crate::part::Tally;
use crate::{
    architecture, board_watchdogs, boot, change, chaos, dma, firmware, gear2_registers, guests,
    hostile, own_devices, pci_functions, realtime, refusals, supervision, tracing,
};

#[cfg(test)]
mod tests;

/// Directory of Gear1 builds with a bug. No other part takes an image from there.
const PLANTED: &str = "planted";
/// Text of every complaint about time. A busy host may be the reason: the code without the bug must
/// then pass in time.
const LATE: &str = " within ";
/// Sources of init whose change leaves the runtime as it is. For a bug anywhere else the runtime
/// alone is built and put into the usual image: init takes longer to build.
const INITS: [&str; 4] = [
    "gear1/init/",
    "gear1/abi/",
    "gear1/arch/src/boot",
    "manifests/",
];
/// Cargo option that builds the crate with most of the bugs without optimization: few of its tests
/// run long, and tests that find a bug end early.
const QUICKLY_BUILT: &str = "profile.dev.package.gear1-core.opt-level=0";
/// Bytes of a test thread's stack, 64 MiB: code without optimization moves whole machines of the
/// model about.
const STACK_BYTES: &str = "67108864";
/// Longest CPU time of tests on the host, in seconds. A bug may have a loop go on for ever. A busy
/// machine does not add to CPU time.
const HOST_CPU_SECONDS: &str = "400";
/// Longest time of tests on the host, in seconds: ends tests that wait for ever and use no CPU
/// time.
const HOST_SECONDS: &str = "3600";

impl Finder {
    /// Makes sure that tests on the host pass without the bug, those of all bugs of the package at
    /// once; the parts that run on QEMU are parts of every run. For a bug of the sample the tests
    /// of the sample are enough: without optimization those of all bugs take a minute.
    pub(super) fn passes_without(&self, bug: &Bug, copy: &Path) -> Result<()> {
        // By program and extent: a whole run asks once for each, and not once a bug.
        static PASSED: Mutex<BTreeSet<(Program, bool)>> = Mutex::new(BTreeSet::new());
        let Some((program, _)) = self.host_tests(bug)? else {
            return Ok(());
        };
        let mut passed = PASSED.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        let key = (program.clone(), bug.is_in_sample());
        if passed.contains(&key) {
            return Ok(());
        }
        let mut tests = BTreeSet::new();
        for other in bugs().filter(|other| other.is_in_sample() || !bug.is_in_sample()) {
            tests.extend(
                (other.finder.host_tests(other)?)
                    .filter(|(of, _)| *of == program)
                    .map(|(_, tests)| tests),
            );
        }
        let tests: Vec<String> = tests.into_iter().collect();
        // One run of all these tests, as each start of cargo looks at all sources.
        let failure = program.run(&tests, copy)?;
        ensure!(failure.is_none(), "without a bug: {failure:?}");
        passed.insert(key);
        Ok(())
    }

    /// Runs the test, and returns its finding. A complaint about time counts only if the Gear1
    /// without the bug is in time on the same host, right after.
    pub(super) fn look(&self, bug: &Bug, copy: &Path) -> Result<Option<String>> {
        if let Some((program, tests)) = self.host_tests(bug)? {
            return program.run(&[tests], copy);
        }
        let file = change::file(bug.name)?;
        let gear1 = match INITS.iter().any(|of_init| file.starts_with(of_init)) {
            true => build_images::build_gear1_of(copy, PLANTED, "image")?,
            false => build_images::build_runtime_of(copy, PLANTED, "image")?,
        };
        let found = self.boot(gear1, &workspace::bare_elf_in(PLANTED, "gear1-init"));
        if found.as_ref().is_some_and(|found| found.contains(LATE)) {
            let usual = build_images::gears()?.0;
            let late = self.boot(usual, &workspace::bare_elf("gear1-init"));
            ensure!(late.is_none(), "without the bug too: {late:?}");
        }
        Ok(found)
    }

    /// Boots a Gear1, and returns the first thing that fails, be it a check or the end of the whole
    /// test: a bug may halt Gear1 before any guest has said a word.
    fn boot(&self, gear1: PathBuf, init: &Path) -> Option<String> {
        let mut tally = Tally::default();
        let end = match self {
            Finder::Guest(manifest, model) => {
                guests::boot_other(&gear1, manifest, model, &mut tally)
            }
            Finder::Stops => realtime::stop_other(gear1, &mut tally),
            Finder::Leaves => boot::leaves_nothing_of(gear1, &mut tally),
            Finder::Refusal(name) => refusals::refuse_other(gear1, name, &mut tally),
            Finder::NeedsEl2 => boot::stops_without_el2_of(gear1, init, &mut tally),
            Finder::Gear2Registers => gear2_registers::registers_under(Some(gear1), &mut tally),
            Finder::Chaos => chaos::attack_other(gear1, None, chaos::FEW / 4, &mut tally),
            Finder::Dma => dma::attacks_other(gear1, &mut tally),
            Finder::PciFunctions => pci_functions::of_two_vms_other(gear1, &mut tally),
            Finder::OwnDevices => own_devices::owns_other(gear1, &mut tally),
            Finder::Firmware => firmware::counts_other(&gear1, &mut tally),
            Finder::FirmwareTrng => firmware::random_other(&gear1, &mut tally),
            Finder::Trace => tracing::run_other(gear1, &mut tally),
            Finder::Dump => hostile::dumps_other(gear1, &mut tally),
            Finder::Microcontroller => {
                board_watchdogs::see_resets_of(Some((gear1, PLANTED)), &mut tally)
            }
            Finder::LastWords => supervision::last_words_of(Some(gear1), &mut tally),
            Finder::Rules => {
                let runtime = workspace::bare_elf_in(PLANTED, "gear1-runtime");
                architecture::check(&runtime, 3, &mut tally)
            }
            Finder::Host | Finder::HostNamed(_) => Ok(()),
        };
        let end = end.err().map(|error| format!("{error:#}"));
        let found = end.or_else(|| tally.failures.first().cloned());
        found.map(|found| found.lines().next().unwrap_or_default().to_owned())
    }

    /// Returns the program and the names of the tests, if they run on the host. A module's path is
    /// the prefix of its tests' names, which cargo takes for a filter.
    fn host_tests(&self, bug: &Bug) -> Result<Option<(Program, String)>> {
        let names = match self {
            Finder::Host => None,
            Finder::HostNamed(names) => Some((*names).to_owned()),
            _ => return Ok(None),
        };
        let (program, module) =
            Program::of(bug.test).context("a test on the host is in a crate")?;
        Ok(Some((program, names.unwrap_or(module))))
    }
}

/// Tests on the host that are one program: a package's own, or one below its `tests` folder. Tests
/// of other programs of the package are neither built nor run for a bug.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    package: String,
    /// The program below `tests`; `None`: the package's own tests.
    below_tests: Option<String>,
}

impl Program {
    /// Returns the program that a source of tests belongs to, and the source's module there.
    fn of(source: &str) -> Option<(Program, String)> {
        let module = |file: &str| file.trim_end_matches(".rs").replace('/', "::");
        if let Some((directory, file)) = source.split_once("/src/") {
            let program = Program {
                package: package(directory)?,
                below_tests: None,
            };
            return Some((program, module(file)));
        }
        let (directory, file) = source.split_once("/tests/")?;
        // A program of one file has no modules: all of its tests are meant.
        let (program, file) =
            (file.split_once('/')).or(file.strip_suffix(".rs").map(|name| (name, "")))?;
        let program = Program {
            package: package(directory)?,
            below_tests: Some(program.to_owned()),
        };
        Some((program, module(file)))
    }

    /// Runs tests of the program in a copy of the workspace; returns what fails.
    fn run(&self, tests: &[String], copy: &Path) -> Result<Option<String>> {
        // Apart from the tests: rustc's CPU time must not count, and a bug that does not compile
        // finds nothing.
        let mut build = self.cargo(Command::new("cargo"), copy);
        let output = (build.arg("--no-run").output()).context("cargo cannot be run")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "\n{complaint}");
        // A bug may have a test run for ever.
        let mut command = Command::new("prlimit");
        command.arg(format!("--cpu={HOST_CPU_SECONDS}"));
        command.args(["timeout", "-k", "5", HOST_SECONDS, "cargo"]);
        let mut command = self.cargo(command, copy);
        command.env("RUST_MIN_STACK", STACK_BYTES);
        let output = (command.arg("--").args(tests).output()).context("cargo cannot be run")?;
        self.verdict(tests, &output)
    }

    /// Returns the test that failed, if one did. A program that ended by itself without a failed
    /// test was stopped at a limit, or a bug ended its process: neither says which test would have
    /// found it.
    fn verdict(&self, tests: &[String], output: &Output) -> Result<Option<String>> {
        let printed = String::from_utf8_lossy(&output.stdout);
        if let Some(failed) = printed.lines().find(|line| line.ends_with("... FAILED")) {
            return Ok(Some(failed.to_owned()));
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{tests:?}: {}\n{complaint}",
            output.status
        );
        // A filter that no test's name has would pass with any bug.
        ensure!(
            printed.contains("test result: ok.") && !printed.contains(" 0 passed"),
            "{} has no test {tests:?}",
            self.package
        );
        Ok(None)
    }

    /// Adds what has cargo test the program. The copy has the workspace's lock file, which stays as
    /// it is: cargo downloads what a first run on this machine lacks, and nothing else. The build
    /// is most of the time: what comes from crates.io is built for the unit tests already.
    fn cargo(&self, mut command: Command, copy: &Path) -> Command {
        command.current_dir(copy);
        command.args(["test", "--locked", "--package", &self.package]);
        match &self.below_tests {
            None => command.arg("--lib"),
            Some(program) => command.args(["--test", program]),
        };
        if has_host_feature(&self.package) {
            command.args(["--features", "host"]);
        }
        command.args(["--config", QUICKLY_BUILT, "--target-dir"]);
        command.arg(workspace::target_dir());
        // Cargo takes a package of the copy for the same one of the workspace. With another profile
        // the copy's packages have files of their own: no later build takes a bug for the sources.
        for package in packages() {
            let apart = format!("profile.dev.package.{package}.codegen-units=200");
            command.args(["--config", &apart]);
        }
        command
    }
}

/// Returns the packages of the workspace, by the text of its manifest: nothing else of cargo's is
/// needed.
fn packages() -> Vec<String> {
    directories()
        .filter_map(|directory| package(&directory))
        .collect()
}

/// Returns the directories of the workspace's packages.
fn directories() -> impl Iterator<Item = String> {
    let manifest = fs::read_to_string(workspace::root().join("Cargo.toml")).unwrap_or_default();
    let members = manifest.split_once("members = [").unwrap_or_default().1;
    let members = members.split_once(']').unwrap_or_default().0;
    let directories: Vec<String> = members
        .split(',')
        .map(|member| member.trim().trim_matches('"').to_owned())
        .collect();
    directories.into_iter()
}

/// Tells whether a package has parts for hosts alone, which its tests need. The whole workspace's
/// tests have them by other packages.
fn has_host_feature(package_name: &str) -> bool {
    let has_it = |directory: &String| {
        let text = fs::read_to_string(workspace::root().join(directory).join("Cargo.toml"));
        text.is_ok_and(|text| text.lines().any(|line| line.starts_with("host = [")))
    };
    let mut directories = directories();
    directories
        .any(|directory| package(&directory).as_deref() == Some(package_name) && has_it(&directory))
}

/// Returns the package in a directory, as its `Cargo.toml` names it: a package need not have the
/// name of its directory, as that of `manifests` has not.
fn package(directory: &str) -> Option<String> {
    let path = workspace::root().join(directory).join("Cargo.toml");
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let name = lines.find_map(|line| line.strip_prefix("name = \""))?;
    Some(name.trim_end_matches('"').to_owned())
}

//! Parts that run on the host: unit tests, formatting, lints.
//!
//! All of them compile, and no busy host disturbs them, so they run in the second lane, beside the
//! machines of the first.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use workbench::tools::{self, Program};
use workbench::{build_images, workspace};

use crate::part::{Part, Tally};
use crate::record;

/// The packages that only build for the bare target. The lints of the host code choose the default
/// members of the workspace, of which init is one, but without the feature that makes it a program.
pub(crate) const BARE_PACKAGES: [&str; 5] = [
    "gear1-arch",
    "gear1-init",
    "gear1-runtime",
    "gear2",
    "test-guests",
];

/// Lines of a failed command that are shown: the last ones, where cargo sums up.
const SHOWN_LINES: usize = 40;

pub(super) fn parts() -> Vec<Part> {
    let parts = vec![
        // First of all: the quickest part, whose complaint costs a person the least.
        Part::new("format", |tally| {
            tally.check(
                "cargo fmt",
                run(workspace::cargo().args(["fmt", "--all", "--", "--check", "-l"])),
            );
            Ok(())
        }),
        Part::new("lints of the host code", |tally| {
            // Tests, benches and examples as well: half of the code is tests.
            let mut clippy = workspace::cargo();
            clippy.args(["clippy", "--quiet", "--all-targets"]);
            clippy.args(DENIED);
            tally.check("clippy", run(&mut clippy));
            Ok(())
        }),
        Part::new("unit tests", unit_tests),
        Part::new("a disk by qemu-storage-daemon on the host", storage_daemon),
        Part::new("a file system by virtiofsd on the host", file_daemon),
        Part::new("a graphics card by vhost-user-gpu on the host", graphics),
        Part::new(
            "ownership, a million calls and all receivers",
            long_ownership,
        )
        .slow(true),
        Part::new("lints of the target code", bare_lints),
        // Parts that run these images are few, and some of them slow. A change that keeps the
        // images from compiling is told of here.
        Part::new("checking images build", |tally| {
            for variant in [crate::realtime::CHECKING, crate::ghost::CHECKING] {
                tally.check(variant, build_images::build_runtime_with(variant));
            }
            Ok(())
        }),
    ];
    parts.into_iter().map(Part::beside).collect()
}

/// Runs the host tests and counts what cargo reports. All programs run although one has failed: a
/// single run tells of all failures. Output of tests that passed has their figures for the
/// evidence.
fn unit_tests(tally: &mut Tally) -> Result<()> {
    let output = workspace::cargo()
        .args(["test", "--no-fail-fast", "--", "--show-output"])
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let counted = count(&printed);
    tally.add(counted);
    tally.figures.extend(figures(&printed));
    // No test has failed, but cargo has: the tests do not compile, or one ended its process.
    if !output.status.success() && tally.failures.is_empty() {
        tally.fail(format!(
            "cargo test:\n{}",
            tail(&String::from_utf8_lossy(&output.stderr))
        ));
    }
    if !tally.failures.is_empty() {
        println!("{}", tail(&details(&printed)));
    }
    Ok(())
}

/// Runs the device model's tests beside Debian's qemu-storage-daemon, which is killed in the middle
/// of writes. Tests with a backend of ours cannot show that the two agree on vhost-user: one author
/// would read the protocol twice in one way.
fn storage_daemon(tally: &mut Tally) -> Result<()> {
    let program = tools::storage("qemu-storage-daemon")?;
    beside(tally, &program, "daemon", "GEARV_STORAGE_DAEMON")
}

/// Runs the device model's tests beside Debian's virtiofsd. Requests of a file system pass through
/// the device model unread, so only a program that reads them shows that they arrive whole.
fn file_daemon(tally: &mut Tally) -> Result<()> {
    let program = tools::storage("virtiofsd")?;
    beside(tally, &program, "filesystem", "GEARV_FILE_DAEMON")
}

/// Runs the device model's tests beside Debian's vhost-user-gpu. The protocol of screens is
/// QEMU's own, and this program of QEMU's is what says how it is meant.
fn graphics(tally: &mut Tally) -> Result<()> {
    beside(tally, &tools::graphics()?, "graphics", "GEARV_GRAPHICS")
}

/// Runs the tests in a module of the device model's that are ignored without a program, which they
/// find by a variable. All packages are chosen, as by [`unit_tests`]: with one package alone crates
/// have other features, and cargo would compile the tests a second time.
fn beside(tally: &mut Tally, program: &Program, module: &str, variable: &str) -> Result<()> {
    let program = program.command();
    // The program's libraries are its own; the tests themselves run with the host's.
    let libraries = program.get_envs().find_map(|(_, value)| value);
    let output = workspace::cargo()
        .args(["test", "--lib"])
        .arg(format!("vhost_user::tests::{module}"))
        .args(["--", "--ignored"])
        .env(variable, program.get_program())
        .env("GEARV_LIBRARIES", libraries.unwrap_or_default())
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let counted = count(&printed);
    // A module that was renamed has no tests, and cargo is content with none.
    ensure!(
        counted.passed > 0 || !counted.failures.is_empty(),
        "no test was run:\n{}",
        tail(&String::from_utf8_lossy(&output.stderr))
    );
    if !counted.failures.is_empty() {
        println!("{}", tail(&details(&printed)));
    }
    tally.add(counted);
    Ok(())
}

/// Runs the ghost specification beside a million random calls and a million histories, and the
/// model checker over all states of three VMs with two pages and all sets of receivers, with three
/// pages, and with the halves of a block while tables run out.
fn long_ownership(tally: &mut Tally) -> Result<()> {
    // Each of these has a short form among the unit tests; the environment makes it long.
    for (test, variable, value) in [
        ("--lib ffa::tests::ghost", "GEARV_CALLS", "1000000"),
        ("--lib ffa::tests::histories", "GEARV_HISTORIES", "1000000"),
        ("--lib ownership::tests::model", "GEARV_PAGES", "2"),
        ("--lib ownership::tests::model", "GEARV_PAGES", "3"),
        ("--lib ownership::tests::model", "GEARV_PAGES", "halves"),
        ("--test protocol", "GEARV_ORDERS", "20000"),
    ] {
        let begin = Instant::now();
        let arguments = format!("test -p gear1-core {test} -- --nocapture");
        let output = workspace::cargo()
            .args(arguments.split(' '))
            .env(variable, value)
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        // A failure ends the part: its seed or state is in the last lines, and a later search would
        // take minutes to say no more.
        ensure!(output.status.success(), "{test}:\n{}", tail(&printed));
        tally.add(count(&printed));
        let figures = figures(&printed).join("; ");
        let figure = format!("{figures}; {} s", begin.elapsed().as_secs());
        let command = format!("{variable}={value} cargo {arguments}");
        record::note(&format!("ownership {variable} {value}"), &figure, &command)?;
    }
    Ok(())
}

/// Returns what tests tell of themselves for `cargo xtask evidence`: numbers of states and orders
/// that were searched, which show that a search that passed was one.
fn figures(printed: &str) -> Vec<String> {
    let figures = printed
        .lines()
        .filter_map(|line| line.split_once("figure: "));
    figures.map(|(_, figure)| figure.to_owned()).collect()
}

/// Counts the tests in what `cargo test` prints. Failures go by name; the sums of the result lines
/// have all others. The output for machines is not stable.
fn count(printed: &str) -> Tally {
    let mut tally = Tally::default();
    for line in printed.lines() {
        if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|l| l.strip_suffix(" ... FAILED"))
        {
            tally.fail(name);
        } else if let Some(result) = line.strip_prefix("test result: ") {
            tally.pass(number_before(result, " passed"));
            tally.skip(number_before(result, " ignored"));
        }
    }
    tally
}

/// Returns what the failed tests printed. With `--show-output` cargo prints that of all tests,
/// under one heading for successes and one for failures, and each test's under its name.
fn details(printed: &str) -> String {
    let (mut are_failures, mut inside) = (false, false);
    let lines = printed.lines().filter(|line| {
        if line.starts_with("---- ") {
            inside = are_failures;
        } else if matches!(*line, "failures:" | "successes:") {
            are_failures = *line == "failures:";
            inside = false;
        }
        inside
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the number that stands before a word, 0 if there is none: a failed program may have no
/// sums.
fn number_before(text: &str, word: &str) -> usize {
    let number = text
        .split(word)
        .next()
        .and_then(|before| before.rsplit(' ').next());
    number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Lints of what runs without an operating system. Init includes the two runtimes as files, which
/// have to be there before init is compiled. The feature `image` is what makes the packages
/// programs.
fn bare_lints(tally: &mut Tally) -> Result<()> {
    workspace::ensure_targets(&[workspace::BARE_TARGET])?;
    let runtime = build_images::build_runtime()?;
    let runtime_gicv2 = build_images::build_runtime_gicv2()?;
    let packages = BARE_PACKAGES.iter();
    let packages = packages.flat_map(|package| ["--package", package]);
    let mut clippy = clippy(workspace::BARE_TARGET);
    clippy.args(packages).args(["--features", "image"]);
    clippy.args(DENIED);
    clippy.env("GEAR1_RUNTIME_BIN", runtime);
    clippy.env("GEAR1_RUNTIME_GICV2_BIN", runtime_gicv2);
    tally.check("clippy", run(&mut clippy));
    variant_lints(tally)
}

/// Lints of the other runtimes, and of the VMM that runs on KVM. Code behind a feature is not
/// compiled without it, so each combination that is built anywhere is looked at by itself, and the
/// one without traces, which are a default feature. The VMM is a program of Linux on Arm: on
/// another host the lints of the host code pass over what is for Arm alone.
fn variant_lints(tally: &mut Tally) -> Result<()> {
    for features in ["image,gicv2", "image,check-locks", "image,check-ghost"] {
        let mut runtime = clippy(workspace::BARE_TARGET);
        runtime.args(["--package", "gear1-runtime", "--features", features]);
        runtime.args(["--package", "gear1-arch"]).args(DENIED);
        let name = format!("clippy of the runtime, {features}");
        tally.check(&name, run(&mut runtime));
    }
    let mut untraced = clippy(workspace::BARE_TARGET);
    untraced.args(["--package", "gear1-runtime", "--no-default-features"]);
    untraced.args(["--features", "image"]).args(DENIED);
    tally.check("clippy of the runtime without traces", run(&mut untraced));
    workspace::ensure_targets(&[workspace::STATIC_TARGET])?;
    let mut vmm = clippy(workspace::STATIC_TARGET);
    vmm.args(["--release", "--package", "kvm-vmm"]);
    vmm.args(["--package", "tests-apps"]).args(DENIED);
    tally.check("clippy of the VMM on KVM and of workloads", run(&mut vmm));
    Ok(())
}

/// Arguments behind which every warning is an error. On a developer's own command line a warning
/// stays one.
const DENIED: [&str; 3] = ["--", "-D", "warnings"];

/// Returns clippy for a target, which prints nothing but complaints.
fn clippy(target: &str) -> Command {
    let mut clippy = workspace::cargo();
    clippy.args(["clippy", "--quiet", "--target", target]);
    clippy
}

/// Runs a command quietly; its complaint is the error. Formatters complain on standard output, and
/// compilers on the other one.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("cargo cannot be run")?;
    let printed = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "\n{}",
        tail(&String::from_utf8_lossy(&printed))
    );
    Ok(())
}

/// Returns the last lines of what a command printed.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests;

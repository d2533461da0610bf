//! `workload count COMMAND...` runs a program between two marks; `workload TIMES KERNEL` runs a
//! kernel; `workload peer` and `workload with` are the ends of a connection; `workload sources`
//! writes C files.
//!
//! The marks are hints that execute as NOP, between which a plugin of QEMU counts instructions
//! (`tests/exit-counter`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, ExitCode};

use tests_apps::kernels::Kernel;
use tests_apps::network::{self, Traffic};
use tests_apps::sources;

const USAGE: &str = "usage: workload count COMMAND ARGUMENT...
       workload TIMES dhrystone | stream ELEMENTS | copy KIB | modify KIB
       workload peer
       workload with ADDRESS rr | stream | maerts | web | memcached COUNT
       workload sources DIRECTORY";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["count", command, ref arguments @ ..] => count(command, arguments),
        ["peer"] => serve(),
        ["with", address, traffic, count] => with(address, traffic, count),
        ["sources", directory] => write_sources(directory),
        [times, ref kernel @ ..] => run(times, kernel),
        [] => Err("no words".to_owned()),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("workload: {error}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a program between the marks. Fails as it does. The marks are as near to the program as they
/// can be: a fork and an exec are inside, and this program's own start is not.
fn count(command: &str, arguments: &[&str]) -> Result<ExitCode, String> {
    let mut command_line = Command::new(command);
    command_line.args(arguments);
    marks::begin();
    let status = command_line.status();
    marks::end();
    match status {
        Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
        Err(error) => Err(format!("{command}: {error}")),
    }
}

/// Is the peer of connections, until it is killed.
fn serve() -> Result<ExitCode, String> {
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), network::PORT);
    let listener = TcpListener::bind(any).map_err(|error| format!("{any}: {error}"))?;
    match network::serve(&listener) {
        Ok(never) => match never {},
        Err(error) => Err(error.to_string()),
    }
}

/// Has traffic with a peer.
fn with(address: &str, traffic: &str, count: &str) -> Result<ExitCode, String> {
    let ip: IpAddr = address
        .parse()
        .map_err(|_| format!("{address:?} is no address"))?;
    let count = count
        .parse()
        .map_err(|_| format!("{count:?} is no number"))?;
    let peer = SocketAddr::new(ip, network::PORT);
    network::run(peer, Traffic::parse(traffic)?, count)
        .map_err(|error| format!("{peer}: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the tree of sources, and prints how many are to be compiled.
fn write_sources(directory: &str) -> Result<ExitCode, String> {
    sources::write(directory.as_ref()).map_err(|error| format!("{directory}: {error}"))?;
    println!("{}", sources::FILES);
    Ok(ExitCode::SUCCESS)
}

/// Runs a kernel, and prints its sum.
fn run(times: &str, kernel: &[&str]) -> Result<ExitCode, String> {
    let times = times
        .parse()
        .map_err(|_| format!("{times:?} is no number"))?;
    println!("{}", Kernel::parse(kernel)?.run(times));
    Ok(ExitCode::SUCCESS)
}

/// Hints that the architecture has not allocated (Arm DDI 0487, C6.2, HINT).
#[cfg(target_arch = "aarch64")]
mod marks {
    use std::arch::asm;

    pub(super) fn begin() {
        // SAFETY: executes as NOP.
        unsafe { asm!("hint #0x70") };
    }

    pub(super) fn end() {
        // SAFETY: executes as NOP.
        unsafe { asm!("hint #0x71") };
    }
}

/// Other machines have no plugin that counts.
#[cfg(not(target_arch = "aarch64"))]
mod marks {
    pub(super) fn begin() {}

    pub(super) fn end() {}
}

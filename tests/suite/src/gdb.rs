//! A client of the GDB remote protocol, as far as QEMU's stub needs it.
//!
//! A packet is `$data#checksum`, answered by `+` and a packet; a resumed machine answers when it
//! stops. Register values are hexadecimal, lowest byte first.
//!
//! The tests own this client: a debugger as a program would be one more tool to install, and its
//! output is made for people. QEMU's extensions used here are physical memory (`Qqemu.PhyMemMode`)
//! and descriptions of system registers.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use workbench::expect::Session;

/// The stub is there as soon as QEMU has started.
const CONNECT: Duration = Duration::from_secs(20);
/// No breakpoint is so far from the last one. A breakpoint that is never met must not hang a run.
const ANSWER: Duration = Duration::from_secs(30);
/// The bytes of a description that are asked for at once, in the protocol's hexadecimal. One packet
/// of the stub has no room for all of it.
const CHUNK: &str = "800";
/// The bytes of memory that are asked for at once.
const MEMORY_CHUNK: usize = 2048;
/// Number of the PC among the stub's registers. X0 to X30 and SP come before.
const PC: u32 = 32;
/// Stops the machine, outside of any packet.
const INTERRUPT: u8 = 3;

/// A stub that is connected. The mode of addresses is kept, since it costs a packet to change.
pub(super) struct Gdb {
    stub: BufReader<UnixStream>,
    /// Addresses of memory are physical.
    is_physical: bool,
}

/// The registers of `g`. In the stub's order.
#[derive(Clone, Copy, Debug)]
pub(super) struct General {
    /// X0 to X30.
    pub(super) x: [u64; 31],
    pub(super) sp: u64,
    pub(super) pc: u64,
    pub(super) cpsr: u32,
}

impl Gdb {
    /// Starts a machine that waits for the debugger. `-S`: not an instruction runs before the
    /// debugger says so.
    pub(super) fn start(mut command: Command, log: &Path) -> Result<(Session, Gdb)> {
        // The path of a socket must be short.
        let socket = std::env::temp_dir().join(format!("gearv-gdb-{}", std::process::id()));
        let stub = format!("unix:{},server=on,wait=off", socket.display());
        command.args(["-S", "-gdb", &stub]);
        let session = Session::start(command, log)?;
        let gdb = Gdb::connect(&socket);
        // QEMU may have removed it, or never made it.
        let _ = fs::remove_file(&socket);
        Ok((session, gdb?))
    }

    /// Connects to a socket that is about to appear. QEMU makes the socket some time after its
    /// start.
    fn connect(socket: &Path) -> Result<Gdb> {
        let deadline = Instant::now() + CONNECT;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).with_context(|| socket.display().to_string());
                }
                Err(_) => sleep(Duration::from_millis(20)),
            }
        };
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Gdb {
            stub: BufReader::new(stream),
            is_physical: false,
        })
    }

    /// Stops the machine whenever it comes to `address`, in whatever address space. The caller
    /// therefore sees from the registers what has stopped.
    pub(super) fn set_breakpoint(&mut self, address: u64) -> Result<()> {
        self.accept(&format!("Z0,{address:x},4"))
    }

    /// Undoes [`Gdb::set_breakpoint`].
    pub(super) fn clear_breakpoint(&mut self, address: u64) -> Result<()> {
        self.accept(&format!("z0,{address:x},4"))
    }

    /// Lets the machine run until it comes to a breakpoint.
    pub(super) fn resume(&mut self) -> Result<()> {
        // A single step leaves the breakpoint that the machine may stand at.
        for command in ["s", "c"] {
            let stop = self.ask(command)?;
            ensure!(stop.starts_with("T05"), "the machine stopped with {stop:?}");
        }
        Ok(())
    }

    /// Lets the machine run until [`Gdb::interrupt`]. No answer is awaited: it comes when the
    /// machine stops.
    pub(super) fn let_run(&mut self) -> Result<()> {
        let packet = format!("$c#{:02x}", checksum(b"c"));
        Ok(self.stub.get_mut().write_all(packet.as_bytes())?)
    }

    /// Stops the machine that runs.
    pub(super) fn interrupt(&mut self) -> Result<()> {
        self.stub.get_mut().write_all(&[INTERRUPT])?;
        let stop = self.receive()?;
        ensure!(stop.starts_with('T'), "the machine answered {stop:?}");
        Ok(())
    }

    /// Reads physical memory. In pieces, for the packet's limit.
    pub(super) fn physical(&mut self, address: u64, size: usize) -> Result<Vec<u8>> {
        self.take_physical()?;
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let at = address + bytes.len() as u64;
            let count = (size - bytes.len()).min(MEMORY_CHUNK);
            let digits = self.ask(&format!("m{at:x},{count:x}"))?;
            ensure!(digits.len() == 2 * count, "{at:#x}: {digits:?}");
            for byte in digits.as_bytes().chunks(2) {
                bytes.push(u8::from_str_radix(str::from_utf8(byte)?, 16)?);
            }
        }
        Ok(bytes)
    }

    /// Lets the machine run for good.
    pub(super) fn detach(mut self) -> Result<()> {
        self.accept("D")
    }

    /// Writes a word to physical memory or to a device's register. Tests set up with it what
    /// firmware would have left.
    pub(super) fn write_physical(&mut self, address: u64, word: u32) -> Result<()> {
        self.take_physical()?;
        let digits = word
            .to_le_bytes()
            .map(|byte| format!("{byte:02x}"))
            .concat();
        self.accept(&format!("M{address:x},4:{digits}"))
    }

    /// Has commands concern this CPU from now on, the boot CPU being 0. The protocol's threads are
    /// CPUs here, and 0 means any.
    pub(super) fn select_cpu(&mut self, cpu: usize) -> Result<()> {
        self.accept(&format!("Hg{:x}", cpu + 1))
    }

    /// Has the selected CPU go on at `pc`. Bytes go in memory order, hence the swap.
    pub(super) fn set_pc(&mut self, pc: u64) -> Result<()> {
        self.accept(&format!("P{PC:x}={:016x}", pc.swap_bytes()))
    }

    /// Writes an instruction where the selected CPU sees `address` now. The address is virtual
    /// there, since the place of the runtime in memory is not known.
    pub(super) fn write_instruction(&mut self, address: u64, word: u32) -> Result<()> {
        if self.is_physical {
            self.accept("Qqemu.PhyMemMode:0")?;
            self.is_physical = false;
        }
        self.accept(&format!("M{address:x},4:{:08x}", word.swap_bytes()))
    }

    /// Has addresses be physical from now on.
    fn take_physical(&mut self) -> Result<()> {
        if !self.is_physical {
            self.accept("Qqemu.PhyMemMode:1")?;
            self.is_physical = true;
        }
        Ok(())
    }

    /// Returns the general registers.
    pub(super) fn general(&mut self) -> Result<General> {
        let words = self.ask("g")?;
        let word = |index: usize| value(words.get(index * 16..index * 16 + 16).unwrap_or(""));
        let mut x = [0; 31];
        for (index, register) in x.iter_mut().enumerate() {
            *register = word(index)?;
        }
        Ok(General {
            x,
            sp: word(31)?,
            pc: word(32)?,
            cpsr: u32::try_from(value(words.get(33 * 16..33 * 16 + 8).unwrap_or(""))?)?,
        })
    }

    /// Returns a register by its number in the stub's description.
    pub(super) fn register(&mut self, number: u32) -> Result<u64> {
        value(&self.ask(&format!("p{number:x}"))?)
    }

    /// Returns the numbers of system registers. Their numbers depend on the CPU model and on QEMU,
    /// so the names are looked up.
    pub(super) fn system_registers<const N: usize>(
        &mut self,
        names: [&str; N],
    ) -> Result<[u32; N]> {
        self.describe("target.xml")?;
        let description = self.describe("system-registers.xml")?;
        let mut numbers = [0; N];
        for (number, name) in numbers.iter_mut().zip(names) {
            *number = number_of(name, &description)
                .with_context(|| format!("the stub does not show {name}"))?;
        }
        Ok(numbers)
    }

    /// Returns one file of the stub's description.
    fn describe(&mut self, file: &str) -> Result<String> {
        let mut description = String::new();
        loop {
            let start = description.len();
            let chunk = self.ask(&format!("qXfer:features:read:{file}:{start:x},{CHUNK}"))?;
            match chunk.split_at_checked(1) {
                Some(("m", more)) => description += more,
                Some(("l", last)) => return Ok(description + last),
                _ => bail!("the stub has no {file}: {chunk:?}"),
            }
        }
    }

    fn accept(&mut self, command: &str) -> Result<()> {
        let answer = self.ask(command)?;
        ensure!(answer == "OK", "{command:?} is answered by {answer:?}");
        Ok(())
    }

    /// Sends a command and returns the answer. One question at a time: the stub answers in order.
    fn ask(&mut self, command: &str) -> Result<String> {
        let packet = format!("${command}#{:02x}", checksum(command.as_bytes()));
        self.stub.get_mut().write_all(packet.as_bytes())?;
        let answer = self.receive();
        answer.with_context(|| format!("{command:?} is not answered"))
    }

    /// Acknowledgements, which come as `+` before a packet, are skipped.
    fn receive(&mut self) -> Result<String> {
        self.stub.skip_until(b'$')?;
        let mut data = Vec::new();
        self.stub.read_until(b'#', &mut data)?;
        ensure!(data.pop() == Some(b'#'), "the stub has gone");
        let mut sum = [0; 2];
        self.stub.read_exact(&mut sum)?;
        let expected = format!("{:02x}", checksum(&data));
        ensure!(sum == expected.as_bytes(), "a packet is damaged");
        self.stub.get_mut().write_all(b"+")?;
        Ok(String::from_utf8(data)?)
    }
}

fn checksum(data: &[u8]) -> u8 {
    data.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Returns the value of a register of at most eight bytes.
fn value(hexadecimal: &str) -> Result<u64> {
    let bytes = u64::from_str_radix(hexadecimal, 16)
        .with_context(|| format!("{hexadecimal:?} is no register"))?;
    let unused = 64 - 4 * u32::try_from(hexadecimal.len())?;
    Ok(bytes.swap_bytes() >> unused)
}

/// Finds `<reg name="..." ... regnum="..."` in a description. The description is XML of a fixed
/// form, for which a parser would be a dependency more.
fn number_of(name: &str, description: &str) -> Option<u32> {
    let (_, register) = description.split_once(&format!("<reg name=\"{name}\""))?;
    let (register, _) = register.split_once('>')?;
    let (_, number) = register.split_once("regnum=\"")?;
    number.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests;

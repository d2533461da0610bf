//! Boot of a Raspberry Pi 4's card, as `flash` writes it, on QEMU's `raspi4b`.
//!
//! QEMU replaces the firmware. The test therefore does by `config.txt` what the firmware would: it
//! takes the files that are named there from the card, and applies the overlays.
//!
//! The firmware is closed and runs on the VideoCore, so it cannot run here. What it does with our
//! files is documented, and small enough to be done by the test.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use gear1_abi::info::uart;
use gear1_init::fdt;
use workbench::board::BoardTree;
use workbench::build_images;
use workbench::expect::Session;
use workbench::manifest::Aligned;
use workbench::manifest::diagnostic::error_count;
use workbench::qemu::Qemu;
use workbench::tools::{self, Tools};
use workbench::{device_userland, payloads, workspace};
use xtask::smoke::{self, ESCAPE};
use xtask::{check, flash};

use super::{BOOT, ending, see_it_end, served};
use crate::halt;
use crate::part::Tally;

/// Registers of PL011, which has the header's pins by the documents, and of the mini-UART. QEMU's
/// `raspi4b` and the board have the same addresses.
const PL011: u64 = 0xfe20_1000;
const MINI_UART: u64 = 0xfe21_5040;
/// The SD host controllers of the board's slot, and of QEMU's.
const EMMC2: &str = "/emmc2bus/mmc@7e340000";
const EMMC: &str = "/soc/mmc@7e300000";
/// Memory below that of the VideoCore. The firmware enters the size into the tree; nobody does
/// here.
const MEMORY_MIB: u32 = 948;
/// A system without a device VM, in which Gear2 has the UART.
const MANIFEST: &str = "tests/manifests/rpi4-console.dts";
/// Lines of `config.txt` that make PL011 the console (docs/boards/rpi4.md).
const FOR_PL011: [&str; 2] = ["dtoverlay=gearv", "gpio=14,15=a0"];

/// The command line of `flash`. Parsed from words, so that names of options are tested as well.
#[derive(Parser)]
struct Flash {
    #[command(flatten)]
    options: flash::Options,
}

/// A folder with what the firmware would start.
struct Loaded {
    folder: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
    /// The device tree, with the overlays applied.
    tree: PathBuf,
}

/// Boots a card until its guest has hashed its input, with PL011 as the console. The overlay and
/// the pins must both be there: PL011 has Bluetooth otherwise.
pub(super) fn pl011(tally: &mut Tally) -> Result<()> {
    let folder = workspace::output_dir().join("raspi4b");
    let card = write_card(&ending(MANIFEST, &[])?, &folder, &[])?;
    let config = read_text(&card, "config.txt")?;
    for line in FOR_PL011 {
        ensure!(
            config.lines().any(|other| other == line),
            "no {line} in\n{config}"
        );
    }
    let loaded = load(&card, &config, folder)?;
    ensure!(
        console(&loaded.tree)? == (uart::PL011, PL011),
        "another console"
    );
    takes_manifest(MANIFEST, &loaded.tree)?;
    refuses_memory_of_archive(&loaded.folder)?;
    let mut session = start(&loaded, false, None)?;
    let reached = smoke::reach_guest(&mut session, "linux");
    let ended = reached.and_then(|()| see_it_end(&mut session));
    ended.with_context(|| session.tail(60))?;
    tally.pass(6);
    Ok(())
}

/// Boots a card until its device VM serves the second partition to a guest, which writes there. The
/// board has the card at EMMC2, and QEMU's model has it at the other SD host controller.
pub(super) fn served_card(tally: &mut Tally) -> Result<()> {
    let folder = workspace::output_dir().join("raspi4b-served");
    let manifest = ending("manifests/rpi4.dts", &[(EMMC2, EMMC)])?;
    let card = write_card(&manifest, &folder, &["--disk", "artifact:guest-disk"])?;
    let config = read_text(&card, "config.txt")?;
    let loaded = load(&card, &config, folder)?;
    takes_manifest("manifests/rpi4.dts", &loaded.tree)?;
    let card = served::write_card("raspi4b", &card)?;
    let mut session = start(&loaded, false, Some(&card))?;
    let checks = served::use_card(&mut session);
    let checks = checks.with_context(|| build_images::last_words(&session))?;
    drop(session);
    served::holds_mark(&card)?;
    tally.pass(checks + 2);
    Ok(())
}

/// Boots with the mini-UART as the device VM's console, by the tree of the kernel's package as it
/// is: without the overlay, this UART is the tree's `stdout-path`. Its clock is the auxiliary
/// devices', which are no VM's.
pub(super) fn mini_uart_of_device_vm(tally: &mut Tally) -> Result<()> {
    let manifest = ending(
        "manifests/rpi4.dts",
        &[
            (EMMC2, EMMC),
            ("/soc/serial@7e201000", "/soc/serial@7e215040"),
            ("<48000000 500000000>", "<500000000>"),
            ("\"console=ttyAMA0\"", "\"console=ttyS1\""),
        ],
    )?;
    let images = build_images::build(&manifest)?;
    let tree = payloads::rpi4_device_tree()?;
    let files = [&*images.gear1, &images.archive, &tree];
    let command = Qemu::prepare(10)?.raspi4b(files, true, None);
    let log = workspace::output_dir().join("raspi4b-mini-device.log");
    let mut session = Session::start(command, &log)?;
    session.give_up_on(build_images::FATAL);
    let used = use_mini_uart(&mut session);
    used.with_context(|| build_images::last_words(&session))?;
    tally.pass(2);
    Ok(())
}

fn use_mini_uart(session: &mut Session) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    smoke::check_input(session)?;
    let console = smoke::shell(session, "cat /sys/class/tty/console/active")?;
    ensure!(console.contains("ttyS1"), "the console is {console}");
    Ok(())
}

/// Checks that the manifest, judged by `flash` for the short tree of ours, is good for the card's
/// tree too, once there is memory. Two trees of one board may differ in what a rule asks for.
fn takes_manifest(manifest: &str, tree: &Path) -> Result<()> {
    let tools = Tools::prepare()?;
    let board = BoardTree::from_file(tree, &tools)?;
    ensure!(board.lacks_memory(), "the card's tree has memory");
    let board = board.with_memory(MEMORY_MIB, &tools)?;
    let findings = check::check(&ending(manifest, &[])?, &board, &tools)?;
    let said = findings.sources.draw(&findings.list, false);
    ensure!(error_count(&findings.list) == 0, "{said}");
    Ok(())
}

/// Boots with the mini-UART as the console, as without the lines for PL011: Gear1's and Gear2's
/// messages, and typed input. A user who forgets the two lines has this console, and must see
/// Gear1's messages.
pub(super) fn mini_uart(tally: &mut Tally) -> Result<()> {
    let folder = workspace::output_dir().join("raspi4b-mini");
    let card = write_card(&ending(MANIFEST, &[])?, &folder, &[])?;
    let config = read_text(&card, "config.txt")?;
    // Both lines are left out: either alone leaves PL011 without its pins or without its part in
    // the tree.
    let others = config.lines().filter(|line| !FOR_PL011.contains(line));
    let loaded = load(&card, &others.collect::<Vec<_>>().join("\n"), folder)?;
    ensure!(console(&loaded.tree)?.1 == MINI_UART, "another console");
    let mut session = start(&loaded, true, None)?;
    list_by_key(&mut session).with_context(|| session.tail(60))?;
    drop(session);
    tally.pass(4);
    halt_on_mini_uart(&loaded)?;
    tally.pass(1);
    Ok(())
}

/// Waits for Gear1's and Gear2's messages, types the key that lists VMs, and waits for the list.
/// The mini-UART has other registers for input, so a key is typed.
fn list_by_key(session: &mut Session) -> Result<()> {
    session.expect(concat!("gearv: Gear1 ", env!("CARGO_PKG_VERSION")), BOOT)?;
    session.expect("gear2: linux started", BOOT)?;
    session.send(&format!("{ESCAPE}l"))?;
    session.expect("gear2: 0 linux running", BOOT).map(drop)
}

/// Starts a spoilt Gear1. Gear1 halts at the first exit, and reports the halt on the mini-UART. The
/// halt prints by the driver in `gear1/arch/src/uart.rs`, and not by Gear2's.
fn halt_on_mini_uart(loaded: &Loaded) -> Result<()> {
    let spoilt = loaded.folder.join("spoilt.img");
    halt::spoil(2, &loaded.kernel, &spoilt)?;
    let files = [&*spoilt, &loaded.initramfs, &loaded.tree];
    let command = Qemu::prepare(10)?.raspi4b(files, true, None);
    let mut session = Session::start(command, &loaded.folder.join("halt.log"))?;
    let halted = session.expect("gear1: HALT: exception inside EL2", BOOT);
    let halted = halted.and_then(|_| session.expect("gear1: machine stopped", BOOT));
    halted.with_context(|| session.tail(60)).map(drop)
}

/// Runs `flash` with a folder of firmware, of which the files hold their names, and returns the
/// card. The firmware's files are not ours to copy; their place on the card is tested with any
/// bytes.
fn write_card(manifest: &Path, folder: &Path, more: &[&str]) -> Result<Vec<u8>> {
    let firmware = folder.join("firmware");
    fs::create_dir_all(&firmware)?;
    for name in ["start4.elf", "fixup4.dat"] {
        fs::write(firmware.join(name), name)?;
    }
    let out = folder.join("card.img");
    run_flash(manifest, &firmware, &out, more)?;
    let card = fs::read(&out)?;
    fs::remove_file(out)?;
    ensure!(
        flash::read_card(&card, "start4.elf")? == b"start4.elf",
        "another start4.elf"
    );
    Ok(card)
}

/// Runs `flash` for the board, with more options.
fn run_flash(manifest: &Path, firmware: &Path, out: &Path, more: &[&str]) -> Result<()> {
    let mut words: Vec<&OsStr> = ["flash", "--board", "rpi4"].map(OsStr::new).to_vec();
    for (option, path) in [
        ("--manifest", manifest),
        ("--firmware", firmware),
        ("--out", out),
    ] {
        words.extend([OsStr::new(option), path.as_os_str()]);
    }
    words.extend(more.iter().map(OsStr::new));
    Flash::try_parse_from(words)?.options.run()
}

/// Checks that a VM which lies where the firmware loads the archive is refused. The archive's size
/// is known only once the archive is built. `check` cannot know, and the firmware would load the
/// archive over the VM's memory without a word.
fn refuses_memory_of_archive(folder: &Path) -> Result<()> {
    let text = fs::read_to_string(ending(MANIFEST, &[])?)?;
    let linux = "\t\tlinux {\n";
    ensure!(text.contains(linux), "no VM linux in\n{text}");
    let address = format!("{linux}\t\t\tmemory-address = <0x08400000>;\n");
    let manifest = folder.join("over-archive.dts");
    fs::write(&manifest, text.replace(linux, &address))?;
    let out = folder.join("none.img");
    let refusal = run_flash(&manifest, &folder.join("firmware"), &out, &[]);
    let said = format!(
        "{:#}",
        refusal.err().context("the VM lies over the archive")?
    );
    for words in ["nothing was written", "M-MEM-006", "memory-address", "rpi4"] {
        ensure!(said.contains(words), "no {words} in {said}");
    }
    // A card that is refused must not be found by whoever flashes what lies there.
    ensure!(!out.exists(), "there is an image");
    Ok(())
}

fn read_text(card: &[u8], name: &str) -> Result<String> {
    Ok(String::from_utf8(flash::read_card(card, name)?)?)
}

/// Takes the files that a configuration names from the card, and applies its overlays in their
/// order. Only what the configuration names is taken: a file that is on the card and not named
/// there stays out, as with the firmware.
fn load(card: &[u8], config: &str, folder: PathBuf) -> Result<Loaded> {
    let take = |name: &str| -> Result<PathBuf> {
        let bytes = flash::read_card(card, name).with_context(|| format!("no {name}"))?;
        let path = folder.join(name.replace('/', "-"));
        fs::write(&path, bytes)?;
        Ok(path)
    };
    let value = |key: &str| -> Result<&str> {
        let mut lines = config.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
        value.with_context(|| format!("no {key} in\n{config}"))
    };
    let names = config
        .lines()
        .filter_map(|line| line.strip_prefix("dtoverlay="));
    let overlays = names.map(|name| take(&format!("overlays/{name}.dtbo")));
    let overlays: Vec<PathBuf> = overlays.collect::<Result<_>>()?;
    Ok(Loaded {
        kernel: take(value("kernel=")?)?,
        initramfs: take(value("initramfs ")?)?,
        tree: apply(&take(value("device_tree=")?)?, &overlays)?,
        folder,
    })
}

/// Applies overlays to a tree by the reference implementation. The firmware's own code is closed.
fn apply(tree: &Path, overlays: &[PathBuf]) -> Result<PathBuf> {
    if overlays.is_empty() {
        return Ok(tree.to_owned());
    }
    let merged = tree.with_file_name("merged.dtb");
    let mut command = tools::fdtoverlay()?.command();
    command
        .arg("-i")
        .arg(tree)
        .arg("-o")
        .arg(&merged)
        .args(overlays);
    let output = command.output().context("cannot run fdtoverlay")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the overlays do not apply: {said}");
    Ok(merged)
}

/// Returns kind and address of the UART that Gear1 takes by a tree: the one of `stdout-path`.
/// Gear1's reader is asked, since its choice counts.
fn console(tree: &Path) -> Result<(u32, u64)> {
    let bytes = Aligned::new(&fs::read(tree)?);
    let console = fdt::read(bytes.as_slice()).console;
    let console = console.context("Gear1 finds no console in the tree")?;
    Ok((console.kind, console.base))
}

/// Starts the machine with the console on the first or, for the mini-UART, the second serial port.
/// QEMU connects each serial port to a backend of its own.
fn start(loaded: &Loaded, mini_uart: bool, card: Option<&Path>) -> Result<Session> {
    let files = [&*loaded.kernel, &loaded.initramfs, &loaded.tree];
    let command = Qemu::prepare(10)?.raspi4b(files, mini_uart, card);
    let mut session = Session::start(command, &loaded.folder.join("boot.log"))?;
    session.give_up_on(build_images::FATAL);
    Ok(session)
}

//! The tour and the recipes, played: every command of a `console` block is typed, on this machine
//! or in a VM, and each line below it must be printed, in this order. `...` stands for any text. A
//! block below a line that is a bold name and a colon is the file of that name.
//!
//! The commands run in a folder of their own below the target directory, from which `target` leads
//! back, so that paths are those of the project's folder.
//!
//! Pages of commands grow wrong faster than code, because no compiler reads them. A newcomer
//! follows these literally, so they are typed literally, and the answers that they promise are
//! awaited.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use workbench::expect::Session;
use workbench::workspace;

use crate::part::{Part, Tally};
use crate::running::free_port;

/// Longest time of a boot, with a build before it, and of a command in a VM. The page's reader
/// waits as well, but a test must end.
const LONG: Duration = Duration::from_secs(300);
const ANSWER: Duration = Duration::from_secs(60);
/// Longest time until a shell's prompt, and until Enter is pressed once more. A boot prints over a
/// prompt, and a console that was just entered shows none until Enter is pressed.
const PROMPT: Duration = Duration::from_secs(300);
const ENTER: Duration = Duration::from_secs(5);
/// Key that leaves a guest's console. Ctrl-].
const LEAVE: &str = "\x1d";
/// Port of this machine in the tour, in whose place the test takes a free one. Two runs on one
/// machine would meet at the page's own.
const PORT: &str = "8080";

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("the tour", |tally| play("tour", tally)),
        Part::new("the recipes", |tally| play("recipes", tally)),
    ]
}

/// Where a command is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The user's machine.
    Host,
    /// The shell with this prompt.
    Shell(String),
}

/// A command and what follows. The text of the page is the specification: nothing is listed here a
/// second time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    place: Place,
    command: String,
    /// Lines that are printed.
    lines: Vec<String>,
}

/// Reads the files of a page: name and text. Files are written before the first command, whichever
/// comes first on the page.
fn files(page: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut named = None;
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        let is_fence = line.starts_with("```");
        open = match (open, is_fence) {
            (Some(file), true) => {
                files.push(file);
                None
            }
            (Some((name, text)), false) => Some((name, format!("{text}{line}\n"))),
            (None, true) => named.take().map(|name| (name, String::new())),
            (None, false) => None,
        };
        let name = line
            .strip_prefix("**")
            .and_then(|rest| rest.strip_suffix("**:"));
        if !line.is_empty() {
            named = name.map(str::to_owned);
        }
    }
    files
}

/// Reads the steps of a page. Blocks with another word behind the fence are for reading.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            is_console = info == "console";
            continue;
        }
        if !is_console {
            continue;
        }
        if let Some(step) = steps.last_mut()
            && let Some(start) = step.command.strip_suffix('\\')
        {
            step.command = format!("{start}{}", line.trim_start());
            continue;
        }
        match typed(line) {
            Some((place, command)) => steps.push(Step {
                place,
                command: command.to_owned(),
                lines: Vec::new(),
            }),
            None => {
                if let Some(step) = steps.last_mut() {
                    step.lines.push(line.to_owned());
                }
            }
        }
    }
    steps
}

/// Splits a line with a prompt. The prompt tells the machine: `$` is the reader's, and a name with
/// `:/root#` that of a VM.
fn typed(line: &str) -> Option<(Place, &str)> {
    if let Some(command) = line.strip_prefix("$ ") {
        return Some((Place::Host, command));
    }
    let (prompt, command) = line.split_once("# ")?;
    let name = prompt.strip_suffix(":/root")?;
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_name.then(|| (Place::Shell(format!("{prompt}# ")), command))
}

/// Plays a page. A step that fails ends the page, since later steps build on it.
fn play(name: &str, tally: &mut Tally) -> Result<()> {
    let file = format!("docs/{name}.md");
    let page = fs::read_to_string(workspace::root().join(&file)).context(file.clone())?;
    let port = free_port()?.to_string();
    let mut player = Player {
        folder: folder(name)?,
        session: None,
    };
    // The page has the reader make these files by hand.
    for (name, text) in files(&page) {
        fs::write(player.folder.join(name), text)?;
    }
    for step in steps(&page.replace(PORT, &port)) {
        let played = player.step(&step);
        played.with_context(|| format!("{file}: {}", step.command))?;
        tally.pass(1);
    }
    ensure!(
        player.session.is_none(),
        "the page leaves a machine running"
    );
    Ok(())
}

/// Makes an empty folder, in which `target` is the project's. Empty, because the page begins with
/// nothing: a file of an earlier run would hide a missing step.
fn folder(name: &str) -> Result<PathBuf> {
    let folder = workspace::output_dir().join(format!("play-{name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    // Commands of the page name files below `target`, as in the project's folder.
    symlink(workspace::target_dir(), folder.join("target"))?;
    Ok(folder)
}

/// One machine at a time, as a reader has one terminal.
struct Player {
    folder: PathBuf,
    /// The machine that runs.
    session: Option<Session>,
}

impl Player {
    /// `(end)` in the page says that the machine ends by itself there.
    fn step(&mut self, step: &Step) -> Result<()> {
        match &step.place {
            Place::Host if step.command.starts_with("cargo xtask run ") => self.start(step),
            Place::Host => self.host(step),
            Place::Shell(prompt) => {
                let session = self.session.as_mut().context("no machine runs")?;
                let typed = type_in(session, prompt, step);
                typed.with_context(|| session.tail(40))?;
                if step.lines.last().is_some_and(|line| line == "(end)") {
                    // The machine's end is part of the page's promise, and so is its status.
                    let status = session.expect_end(LONG)?;
                    ensure!(status.success(), "it ended with {status}");
                    self.session = None;
                }
                Ok(())
            }
        }
    }

    /// A shell, as the reader has: commands have pipes and redirections.
    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&self.folder);
        shell
    }

    /// Starts a machine, which runs on. `exec` makes the shell the machine's process, so that the
    /// end of the session ends the machine.
    fn start(&mut self, step: &Step) -> Result<()> {
        ensure!(self.session.is_none(), "another machine runs");
        let command = self.shell(&format!("exec {} 2>&1", step.command));
        let mut session = Session::start(command, &self.folder.join("session.log"))?;
        let started = expect_all(&mut session, &step.lines, LONG);
        started.with_context(|| session.tail(40))?;
        self.session = Some(session);
        Ok(())
    }

    /// Runs a command to its end. A command that fails and prints the right lines is still wrong.
    fn host(&self, step: &Step) -> Result<()> {
        let output = self
            .shell(&format!("{{ {} ; }} 2>&1", step.command))
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{}:\n{said}", output.status);
        let mut rest: &str = &said;
        for fragment in step.lines.iter().flat_map(|line| fragments(line)) {
            let Some(at) = rest.find(fragment) else {
                bail!("{fragment:?} is not said, or not in this order:\n{said}");
            };
            rest = rest.get(at + fragment.len()..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Types a command at a prompt, for which Enter is pressed as often as it takes. The prompt is
/// awaited before each command: keys that come before a shell reads are lost.
fn type_in(session: &mut Session, prompt: &str, step: &Step) -> Result<()> {
    // The page writes the key in words, as nothing is printed for it.
    if step.command == "(Ctrl-])" {
        return session.send(LEAVE);
    }
    let attempts = PROMPT.as_secs() / ENTER.as_secs();
    // No Enter at the first attempt: a prompt that is there already would be printed twice.
    let at_prompt = (0..attempts).any(|attempt| {
        let is_typed = attempt == 0 || session.send("\n").is_ok();
        is_typed && session.expect(prompt, ENTER).is_ok()
    });
    ensure!(at_prompt, "there is no prompt {prompt:?}");
    session.send(&format!("{}\n", step.command))?;
    let lines = step.lines.iter().filter(|line| *line != "(end)");
    let lines: Vec<String> = lines.cloned().collect();
    expect_all(session, &lines, ANSWER)
}

/// Waits for all lines, in this order.
fn expect_all(session: &mut Session, lines: &[String], longest: Duration) -> Result<()> {
    for fragment in lines.iter().flat_map(|line| fragments(line)) {
        session.expect(fragment, longest)?;
    }
    Ok(())
}

/// Returns the parts of a line that do not differ from run to run. Figures, times and addresses are
/// `...` in the pages.
fn fragments(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split("...").map(str::trim);
    parts.filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Place, files, fragments, steps};

    #[test]
    fn steps_are_read_from_console_blocks_alone() {
        let page = "text $ no\n```console\n$ ls \\\n  a\nb ... c\nlinux:/root# nproc\n2\n```\n```sh\n$ no\n```\n";
        let read = steps(page);
        assert_eq!(read.len(), 2);
        assert_eq!(
            (&read[0].place, read[0].command.as_str()),
            (&Place::Host, "ls a")
        );
        assert_eq!(read[1].place, Place::Shell("linux:/root# ".to_owned()));
        assert_eq!(read[1].lines, ["2"]);
        let page = "**a.rs**:\n\n```rust\nfn a() {}\n```\n\n**b**: no\n\n```\nno\n```\n";
        assert_eq!(files(page), [("a.rs".to_owned(), "fn a() {}\n".to_owned())]);
        let parts: Vec<&str> = fragments(&read[0].lines[0]).collect();
        assert_eq!(parts, ["b", "c"]);
    }
}

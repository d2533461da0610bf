//! `gearctl top` on the machine's serial console, as a person sees it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use workbench::expect::Session;

use super::session::shell;
use crate::terminal::Terminal;

/// Longest wait for the first frame.
const FIRST: Duration = Duration::from_secs(60);
/// The program leaves the other screen at its end.
const LEAVES: &str = "\x1b[?1049l";
/// A frame is printed at once: a pause of this length is its end. The next one comes a second after
/// it began.
const QUIET: Duration = Duration::from_millis(300);
/// Looks for the end of a frame that shows what is awaited: a busy host needs some.
const LOOKS: usize = 200;

/// Runs `gearctl top` in the device VM on a terminal of this size, types keys, each after a time, and
/// returns what the terminal shows once `is_awaited` holds for it, or at the last look. The key `q`
/// ends it.
pub fn top(
    session: &mut Session,
    (columns, lines): (usize, usize),
    keys: &[(Duration, &str)],
    is_awaited: impl Fn(&Terminal) -> bool,
) -> Result<Terminal> {
    shell(session, &format!("stty cols {columns} rows {lines}"))?;
    let begin = session.transcript().len();
    session.send("gearctl top\n")?;
    session.expect("gearctl top  ", FIRST)?;
    for (time, key) in keys {
        session.listen(*time)?;
        session.send(key)?;
    }
    let mut known = begin;
    let mut terminal = Terminal::new(columns, lines);
    for _ in 0..LOOKS {
        session.listen(QUIET)?;
        let shown = session.transcript().get(begin..);
        let shown = shown.context("top prints nothing")?;
        terminal = Terminal::new(columns, lines);
        terminal.show(shown);
        let all = begin + shown.len();
        if all == known && is_awaited(&terminal) {
            break;
        }
        known = all;
    }
    session.send("q")?;
    // What is typed before belongs to the program.
    session.expect(LEAVES, FIRST)?;
    session.listen(QUIET)?;
    // The shell has its terminal back, as it was.
    shell(session, "stty cols 1000 rows 24")?;
    Ok(terminal)
}

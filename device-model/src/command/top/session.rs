//! `gearctl top` on a terminal: the terminal's mode, the seconds and the keys.

use std::io;
use std::time::Instant;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::screen::{Effect, Screen};
use super::{INTERVAL, Passed, Sample};
use crate::client::{Client, Vm};
use crate::error::Error;
use crate::output::{self, Output};

/// The terminal, in raw mode and on its other screen as long as this lives.
struct Raw;

impl Raw {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        // From here on the mode is taken back, whatever fails.
        let raw = Self;
        execute!(Output, EnterAlternateScreen, Hide)?;
        Ok(raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone has no mode either.
        let _ = execute!(Output, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Returns the terminal's size. A serial port knows none: COLUMNS and LINES count then, or 80 by 24.
fn area() -> Rect {
    let stdout = io::stdout();
    let of = |length: Option<usize>| u16::try_from(length.unwrap_or(1)).unwrap_or(u16::MAX);
    Rect::new(
        0,
        0,
        of(output::width(&stdout)),
        of(output::height(&stdout)),
    )
}

/// Where figures come from. GDM may end and come again meanwhile.
struct Source<'a> {
    run_directory: &'a str,
    client: Client,
    vms: Vec<Vm>,
    old: Sample,
}

impl<'a> Source<'a> {
    fn connect(run_directory: &'a str) -> Result<Self, Error> {
        let mut client = Client::connect(run_directory)?;
        let vms = client.vms()?;
        let old = Sample::take(&mut client, &vms)?;
        Ok(Self {
            run_directory,
            client,
            vms,
            old,
        })
    }

    /// Gives the screen the figures of another second.
    fn show(&mut self, screen: &mut Screen) -> Result<(), Error> {
        let new = Sample::take(&mut self.client, &self.vms)?;
        let passed = Passed {
            old: &self.old,
            new: &new,
        };
        screen.take(passed.rows(&self.vms, false), passed.rows(&self.vms, true));
        self.old = new;
        Ok(())
    }

    /// Gives the screen figures, or the reason why there are none. Figures of another GDM begin
    /// anew.
    fn look(&mut self, screen: &mut Screen) {
        if let Err(error) = self.show(screen) {
            screen.complain(&error.sentence);
            if let Ok(another) = Self::connect(self.run_directory) {
                *self = another;
            }
        }
    }
}

/// Shows VMs until a key ends it.
pub(super) fn run(run_directory: &str, by_vcpu: bool) -> Result<(), Error> {
    // Before the terminal changes: a sentence about a missing GDM stays on it.
    let mut source = Source::connect(run_directory)?;
    let mut screen = Screen::new(by_vcpu);
    let failed = |error: io::Error| Error::failed(format!("the terminal: {error}"));
    let raw = Raw::enter().map_err(failed)?;
    let shown = serve(&mut source, &mut screen).map_err(failed);
    drop(raw);
    shown
}

fn serve(source: &mut Source<'_>, screen: &mut Screen) -> io::Result<()> {
    let viewport = Viewport::Fixed(area());
    let backend = CrosstermBackend::new(Output);
    let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
    loop {
        let next = Instant::now() + INTERVAL;
        loop {
            let area = area();
            if terminal.get_frame().area() != area {
                terminal.resize(area)?;
                terminal.clear()?;
            }
            terminal.draw(|frame| screen.draw(frame))?;
            if wait(screen, next)? == Effect::Quits {
                return Ok(());
            }
            if Instant::now() >= next {
                break;
            }
        }
        source.look(screen);
    }
}

/// Waits for a key until a time.
fn wait(screen: &mut Screen, until: Instant) -> io::Result<Effect> {
    if !event::poll(until.saturating_duration_since(Instant::now()))? {
        return Ok(Effect::Stays);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => screen.press(key),
        _ => Effect::Stays,
    })
}

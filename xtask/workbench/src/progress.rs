//! Progress on the terminal: one live line a step, one closing line when it is done.
//!
//! Without a terminal (CI, a pipe), on a dumb one, or with NO_COLOR the live line is replaced by
//! one line at the start.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// A step in progress.
pub struct Step {
    bar: ProgressBar,
    start: Instant,
}

impl Step {
    /// Starts a step of unknown length.
    pub fn start(what: &str) -> Step {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        Step::shown(ProgressBar::new_spinner(), style, what)
    }

    /// Starts a step that moves `total` bytes.
    pub fn bytes(what: &str, total: u64) -> Step {
        let style = ProgressStyle::with_template(
            "{spinner} {msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        );
        Step::shown(ProgressBar::new(total), style, what)
    }

    /// Starts a step that consists of others, which have live lines of their own.
    pub fn over(what: &str) -> Step {
        if !is_live() {
            eprintln!("{what} ...");
        }
        Step {
            bar: ProgressBar::hidden(),
            start: Instant::now(),
        }
    }

    /// A style that does not parse is a fault of ours, and costs the bar alone.
    fn shown(
        bar: ProgressBar,
        style: Result<ProgressStyle, indicatif::style::TemplateError>,
        what: &str,
    ) -> Step {
        if !is_live() {
            return Step::over(what);
        }
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Step {
            bar,
            start: Instant::now(),
        }
    }

    /// Moves the bar.
    pub fn set_position(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Changes the live line.
    pub fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Ends the step with a closing line that carries the time it took.
    pub fn done(self, closing: &str) {
        self.bar.finish_and_clear();
        eprintln!("{closing} ({:.1} s)", self.start.elapsed().as_secs_f32());
    }

    /// Ends the step without a line. For steps whose result is told by the caller.
    pub fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// Tells whether a line of the terminal may change.
fn is_live() -> bool {
    output::styles_errors()
}

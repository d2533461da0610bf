//! Init's messages, on the boot UART.
//!
//! There is one CPU and no interrupt, so a message waits until the UART has taken each byte.
//!
//! Requirements: G1-BOOT-008.

use core::fmt::{self, Write};

use gear1_arch::sync::Once;
use gear1_arch::uart::BootUart;
use log::{Level, LevelFilter, Log, Metadata, Record};

/// The logger, which lives as long as init.
static CONSOLE: Console = Console(Once::new());

/// Logger of init. Without a UART it says nothing.
struct Console(Once<BootUart>);

/// UART as the target of formatting.
struct Uart(BootUart);

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.text(text);
        Ok(())
    }
}

impl Log for Console {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let Some(uart) = self.0.get() else { return };
        let level = match record.level() {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            Level::Info | Level::Debug | Level::Trace => "",
        };
        // Writing to the UART cannot fail.
        let _ = writeln!(Uart(*uart), "gearv: {level}{}", record.args());
    }

    fn flush(&self) {}
}

/// Sends messages to this UART from now on.
pub(crate) fn set(uart: BootUart) {
    CONSOLE.0.init(uart);
    if log::set_logger(&CONSOLE).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

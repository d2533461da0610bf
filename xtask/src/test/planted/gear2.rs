//! Bugs in Gear2: what it takes over, tells, and lets run. Its own tests find them.

use super::Bug;
use super::finder::Finder;

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "an answer to another access is taken over",
        file: "gear2/core/src/device_model/slots.rs",
        from: "_ if awaited == Some(held) => Use::Asked,",
        to: "_ if awaited.is_some() => Use::Asked,",
        breaks: &[],
        test: "gear2/core/src/device_model/slots/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "an end that a restart follows is not told",
        file: "gear2/core/src/lives.rs",
        from: "let how = history.ends.of_life(later_lives);",
        to: "let how = history.ends.of_life(0).filter(|_| later_lives == 0);",
        breaks: &[],
        test: "gear2/core/src/lives/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "console input has no pace",
        file: "gear2/core/src/pl011.rs",
        from: "        while self.portion_left > 0\n",
        to: "        while self.received.len() < FIFO_DEPTH\n",
        breaks: &[],
        test: "gear2/core/src/pl011/tests.rs",
        finder: Finder::Host,
    },
];

//! Bugs in Gear2 and in how it is asked: what it takes over, tells, and lets run. Tests on the host
//! find them.

use super::Bug;
use super::finder::Finder;

const DEVICE_MODEL: &str = "gear2/core/src/cpu_loop/tests/device_model.rs";

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
    Bug {
        name: "a guest is loaded while the device model uses its memory",
        file: "gear2/core/src/machine.rs",
        from: " && model.has_reset(page.channels())",
        to: "",
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "the device model is not believed to have ended with its VM",
        file: "gear2/core/src/machine.rs",
        from: "!= history.starts {",
        to: "> history.starts {",
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "the only way to Gear2 may be stopped",
        file: "gear2/core/src/machine.rs",
        from: "must_run = true;",
        to: "must_run = false;",
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "a VM waits at boot without a word",
        file: "gear2/core/src/cpu_loop.rs",
        from: "let patience = self.machine.config.ticks(BOOT_PATIENCE_US);",
        to: "let patience = u64::MAX - BOOT_PATIENCE_US;",
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "a guest that crashes at once is loaded for ever",
        file: "gear2/core/src/restarts.rs",
        from: "if policy.limit != 0 && recent >= policy.limit && !must_run {",
        to: "if policy.limit != 0 && recent > policy.limit && must_run {",
        breaks: &[],
        test: "gear2/core/src/restarts/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "loading is nobody's time",
        file: "gear2/core/src/machine.rs",
        from: "shared.loading.fetch_add(ticks, Relaxed);",
        to: "let _ = ticks;",
        breaks: &[],
        test: DEVICE_MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "an operation is written over before it was answered",
        file: "device-model/src/control.rs",
        from: "            self.wait_for_answer()?;\n        }\n",
        to: "        }\n",
        breaks: &[],
        test: "device-model/src/control/tests.rs",
        finder: Finder::Host,
    },
];

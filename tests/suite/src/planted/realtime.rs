//! Bugs in the life of a real-time VM; those that let others reach it, or it others, are in
//! `crate::test::realtime::planted`, which looks for a particular failure of each.

use super::Bug;
use super::finder::Finder;

const RUN: &str = "tests/guests/src/realtime.rs";
const STOP: &str = "tests/guests/src/bin/realtime_stop.rs";

const PASSTHROUGH: Finder = Finder::Guest("rt-passthrough", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "Gear1 keeps its timer on a real-time VM's CPU",
        file: "gear1/runtime/src/realtime.rs",
        from: "        CNTHCTL_EL2.set(EL1_PHYSICAL_TIMER);\n",
        to: "",
        breaks: &["G1-RT-002"],
        test: RUN,
        finder: PASSTHROUGH,
    },
    Bug {
        name: "a VM with pass-through that spins is not stopped",
        file: "gear1/runtime/src/vm_state.rs",
        from: "    root::freeze(machine.boot, boot.root);\n",
        to: "",
        breaks: &["G1-RT-005"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "a real-time VM that resets itself stays off",
        file: "gear1/runtime/src/vm_state.rs",
        from: "            Ended::Reset => true,\n",
        to: "            Ended::Reset => false,\n",
        breaks: &["G1-RT-006"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "Gear2 powers off although a real-time VM runs",
        file: "gear1/runtime/src/lifecycle.rs",
        from: "    if is_needed && !is_asked {\n",
        to: "    if is_needed && !is_asked && reset {\n",
        breaks: &["G1-RT-009"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "a guest's interface stays as it left it",
        file: "gear1/runtime/src/realtime.rs",
        from: "        Gic::take_interface_back(cpu.index());\n",
        to: "",
        breaks: &["G1-RT-005"],
        test: STOP,
        finder: Finder::Stops,
    },
    Bug {
        name: "a guest finds its kick pending",
        file: "gear1/runtime/src/realtime.rs",
        from: "        Gic::give_interface(cpu.index());\n",
        to: "        Gic::give_interface(cpu.index());\n        Gic::disturb(cpu.index(), 0);\n",
        breaks: &["G1-RT-007"],
        test: RUN,
        finder: PASSTHROUGH,
    },
];

//! Kinds of exits, by the request that causes the exit, so that the longest path of each kind can
//! be kept.

use std::fmt::Write as _;

/// VMID of Gear2.
const GEAR2: u64 = 1;
/// Functions whose call tells the kind of an interrupt, the most telling first.
const INTERRUPTS: &[&str] = &[
    "leave_and_rejoin",
    "rejoin",
    "failed",
    "expired",
    "kicked",
    "virtual_timer",
    "external",
    "inject_external",
];

/// State at the start of a stretch of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// An exception from a lower level.
    Trap {
        /// 0 to 3 from AArch64 (synchronous, IRQ, FIQ, SError), 4 to 7 from AArch32.
        vector: u64,
        /// ESR_EL2.
        esr: u64,
        /// FAR_EL2.
        far: u64,
        /// HPFAR_EL2.
        hpfar: u64,
        /// VTTBR_EL2.
        vttbr: u64,
        /// X0 to X7.
        x: [u64; 8],
    },
    /// A CPU that waits at EL2 looked for interrupts.
    Look,
}

impl Exit {
    /// Returns the kind's name, without spaces. `path`: the functions that were executed.
    pub(crate) fn kind(&self, path: &[&str]) -> String {
        let Exit::Trap {
            vector,
            esr,
            far,
            hpfar,
            vttbr,
            x,
        } = *self
        else {
            return format!("look{}", interrupt(path));
        };
        let who = if vttbr >> 48 == GEAR2 {
            "gear2"
        } else {
            "guest"
        };
        let mut kind = String::from(who);
        let [x0, ..] = x;
        let class = esr >> 26 & 0x3f;
        let iss = esr & 0x1ff_ffff;
        let _ = match (vector & 3, class) {
            (1 | 2, _) => write!(kind, ":irq{}", interrupt(path)),
            (3, _) => write!(kind, ":serror"),
            (_, 0x15) => write!(kind, ":svc:{}", iss & 0xffff),
            (_, 0x16) if who == "gear2" => write!(kind, ":svc:{}", iss & 0xffff),
            (_, 0x16) => write!(kind, ":hvc:{:#x}", x0 as u32),
            (_, 0x17) => write!(kind, ":smc:{:#x}", x0 as u32),
            (_, 0x18) => write!(kind, ":sysreg:{}", register(iss)),
            (_, 0x24) => {
                let how = if iss >> 6 & 1 != 0 { "store" } else { "load" };
                let page = (hpfar & 0xfff_ffff_fff0) << 8;
                write!(kind, ":{how}:{:#x}", page | far & 0xfff)
            }
            (_, 0x20) => write!(kind, ":fetch"),
            (_, 0x01) => write!(kind, ":wait:{}", if iss & 1 != 0 { "wfe" } else { "wfi" }),
            (_, 0x07) => write!(kind, ":fp"),
            (_, other) => write!(kind, ":other:{other:#x}"),
        };
        kind
    }

    /// Returns the registers as text.
    pub(crate) fn registers(&self) -> String {
        let Exit::Trap { far, x, .. } = *self else {
            return "x= far=0".to_owned();
        };
        let x: Vec<String> = x.iter().map(|value| format!("{value:#x}")).collect();
        format!("x={} far={far:#x}", x.join(","))
    }
}

/// Names what an interrupt was by the functions that were executed.
fn interrupt(path: &[&str]) -> String {
    let known = INTERRUPTS.iter().find(|name| path.contains(name));
    known.map_or(String::new(), |name| format!(":{name}"))
}

/// Names the system register that a trapped access is of, and its direction.
fn register(iss: u64) -> String {
    let (op0, op2, op1) = (iss >> 20 & 3, iss >> 17 & 7, iss >> 14 & 7);
    let (crn, crm) = (iss >> 10 & 0xf, iss >> 1 & 0xf);
    let how = if iss & 1 != 0 { "read" } else { "write" };
    format!("s{op0}_{op1}_c{crn}_c{crm}_{op2}:{how}")
}

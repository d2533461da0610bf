//! Kinds of exits, by the request that causes the exit, so that the longest path of each kind can
//! be kept.

/// VMID of Gear2.
const GEAR2: u64 = 1;
/// Functions whose call tells the kind of an interrupt, the most telling first.
const INTERRUPTS: &[&str] = &[
    "leave_and_rejoin",
    "stop_waiting_and_rejoin",
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
            x: [x0, ..],
        } = *self
        else {
            return format!("look{}", interrupt(path));
        };
        // VTTBR_EL2 is of the interrupted world, since Gear1 switches it only later on the path.
        let is_gear2 = vttbr >> 48 == GEAR2;
        let who = if is_gear2 { "gear2" } else { "guest" };
        // HPFAR_EL2 holds the page's number from bit 4 on, and FAR_EL2 the place in the page.
        // HPFAR_EL2 is valid for stage-2 aborts alone: of other kinds nobody reads the address.
        let address = (hpfar & 0xfff_ffff_fff0) << 8 | far & 0xfff;
        match vector & 3 {
            1 | 2 => format!("{who}:irq{}", interrupt(path)),
            3 => format!("{who}:serror"),
            _ => format!("{who}:{}", synchronous(is_gear2, esr, address, x0)),
        }
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

/// Names a synchronous exception, with the address of an abort and X0 of a call.
fn synchronous(is_gear2: bool, esr: u64, address: u64, x0: u64) -> String {
    let iss = esr & 0x1ff_ffff;
    match esr >> 26 & 0x3f {
        0x15 => format!("svc:{}", iss & 0xffff),
        0x16 if is_gear2 => format!("svc:{}", iss & 0xffff),
        0x16 => format!("hvc:{:#x}", x0 as u32),
        0x17 => format!("smc:{:#x}", x0 as u32),
        0x18 => format!("sysreg:{}", register(iss)),
        0x24 if iss >> 6 & 1 != 0 => format!("store:{address:#x}"),
        0x24 => format!("load:{address:#x}"),
        0x20 => "fetch".to_owned(),
        0x01 if iss & 1 != 0 => "wait:wfe".to_owned(),
        0x01 => "wait:wfi".to_owned(),
        0x07 => "fp".to_owned(),
        0x19 => "sve".to_owned(),
        other => format!("other:{other:#x}"),
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

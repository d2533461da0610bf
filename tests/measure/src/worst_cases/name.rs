//! Names for the kinds of exits that the plugin tells apart.
//!
//! The plugin writes numbers: a call, an encoding, an address. The table has the names of the
//! specifications for what guests do and those of the ABI for what Gear2 does. Exits that take one
//! way through Gear1 share a name, since their longest is one figure.

use gear1_abi::call::number;

/// Gear2's calls by their number, which is the immediate of the SVC or HVC instruction. The numbers
/// come from the ABI's crate, so that a renumbered call cannot get another one's name.
const GEAR2: [(u16, &str); 20] = [
    (number::NEXT, "NEXT"),
    (number::VERSION, "VERSION"),
    (number::VCPU_STATE, "VCPU_STATE"),
    (number::VCPU_ASSIGN, "VCPU_ASSIGN"),
    (number::VCPU_REPLY, "VCPU_REPLY"),
    (number::VCPU_WAITS, "VCPU_WAITS"),
    (number::VCPU_REGS, "VCPU_REGS"),
    (number::VM_STATE, "VM_STATE"),
    (number::VM_STOP, "VM_STOP"),
    (number::VM_LOAD, "VM_LOAD"),
    (number::VM_START, "VM_START"),
    (number::IRQ_SET, "IRQ_SET"),
    (number::IRQ_DONE, "IRQ_DONE"),
    (number::POKE, "POKE"),
    (number::PL061_RAISE, "PL061_RAISE"),
    (number::CHANNEL_RING, "CHANNEL_RING"),
    (number::EXIT_STATS, "EXIT_STATS"),
    (number::LOG_READ, "LOG_READ"),
    (number::SYSTEM, "SYSTEM"),
    (number::FATAL, "FATAL"),
];

/// Guests' calls: the function without the bit that says SMC64. The numbers are written out, as the
/// standards fix them (SMCCC, Arm DEN 0028; PSCI, Arm DEN 0022; FF-A, Arm DEN 0077; paravirtualized
/// time, Arm DEN 0057). A call that is not in the table shares its figure with all others that are
/// unknown.
const CALLS: [(u32, &str); 34] = [
    (0x8000_0000, "SMCCC_VERSION"),
    (0x8000_0001, "SMCCC_ARCH_FEATURES"),
    (0x8000_0002, "SMCCC_ARCH_SOC_ID"),
    (0x8000_3fff, "SMCCC_ARCH_WORKAROUND_3"),
    (0x8000_8000, "SMCCC_ARCH_WORKAROUND_1"),
    (0x8400_0000, "PSCI_VERSION"),
    (0x8400_0001, "CPU_SUSPEND"),
    (0x8400_0002, "CPU_OFF"),
    (0x8400_0003, "CPU_ON"),
    (0x8400_0004, "AFFINITY_INFO"),
    (0x8400_0008, "SYSTEM_OFF"),
    (0x8400_0009, "SYSTEM_RESET"),
    (0x8400_000a, "PSCI_FEATURES"),
    (0x8400_000c, "CPU_DEFAULT_SUSPEND"),
    (0x8400_000d, "NODE_HW_STATE"),
    (0x8400_000e, "SYSTEM_SUSPEND"),
    (0x8400_0012, "SYSTEM_RESET2"),
    (0x8400_0063, "FFA_VERSION"),
    (0x8400_0066, "FFA_RXTX_MAP"),
    (0x8400_0067, "FFA_RXTX_UNMAP"),
    (0x8400_0068, "FFA_PARTITION_INFO_GET"),
    (0x8400_006b, "FFA_MSG_WAIT"),
    (0x8400_006f, "FFA_MSG_SEND_DIRECT_REQ"),
    (0x8400_0070, "FFA_MSG_SEND_DIRECT_RESP"),
    (0x8400_0071, "FFA_MEM_DONATE"),
    (0x8400_0072, "FFA_MEM_LEND"),
    (0x8400_0073, "FFA_MEM_SHARE"),
    (0x8400_0074, "FFA_MEM_RETRIEVE_REQ"),
    (0x8400_0076, "FFA_MEM_RELINQUISH"),
    (0x8400_0077, "FFA_MEM_RECLAIM"),
    (0x8400_007a, "FFA_MEM_FRAG_RX"),
    (0x8400_007b, "FFA_MEM_FRAG_TX"),
    (0x8500_0020, "PV_TIME_FEATURES"),
    (0x8500_0021, "PV_TIME_ST"),
];
/// Bit that tells the SMC64 form of a function from the SMC32 form (SMCCC, Arm DEN 0028). Both
/// forms take one way and have one name.
const SMC64: u32 = 1 << 30;

/// Registers of a distributor, and of a redistributor's second frame, from these offsets on (GICv3,
/// Arm IHI 0069, chapter 12). Sorted by offset, as [`per_interrupt`] takes the last one that begins
/// at or before an access.
const PER_INTERRUPT: [(u64, &str); 13] = [
    (0x000, "CTLR"),
    (0x004, "TYPER and others"),
    (0x080, "IGROUPR"),
    (0x100, "ISENABLER"),
    (0x180, "ICENABLER"),
    (0x200, "ISPENDR"),
    (0x280, "ICPENDR"),
    (0x300, "ISACTIVER"),
    (0x380, "ICACTIVER"),
    (0x400, "IPRIORITYR"),
    (0x800, "ITARGETSR"),
    (0xc00, "ICFGR"),
    (0xf00, "SGIR and others"),
];
/// Offset from which the distributor's routes lie: `GICD_IROUTER<n>`, 64 bits each, of a GICv3
/// only. The registers below are named by [`PER_INTERRUPT`], and those from here on share one name.
const IROUTER: u64 = 0x6000;
/// Addresses of the interrupt controller of QEMU's `virt`, which the guests see where the machine
/// has it. Each constant is the end of the frame before it as well.
const DISTRIBUTOR: u64 = 0x0800_0000;
const CPU_INTERFACE: u64 = 0x0801_0000;
const REDISTRIBUTORS: u64 = 0x080a_0000;
const END: u64 = 0x0900_0000;

/// Trapped system registers that have a way of their own: encodings as the plugin writes them, with
/// the direction of the access. The three set/way instructions share a name. All other registers
/// share one name, and so one figure.
const REGISTERS: [(&str, &str); 11] = [
    ("s3_0_c12_c11_5:write", "ICC_SGI1R_EL1 written"),
    ("s3_0_c12_c11_6:write", "ICC_ASGI1R_EL1 written"),
    ("s3_0_c12_c11_7:write", "ICC_SGI0R_EL1 written"),
    ("s3_0_c12_c11_1:write", "ICC_DIR_EL1 written"),
    ("s3_3_c14_c2_0:write", "CNTP_TVAL_EL0 written"),
    ("s3_3_c14_c2_1:write", "CNTP_CTL_EL0 written"),
    ("s3_3_c14_c2_2:write", "CNTP_CVAL_EL0 written"),
    ("s1_0_c7_c6_2:write", "set/way maintenance"),
    ("s1_0_c7_c10_2:write", "set/way maintenance"),
    ("s1_0_c7_c14_2:write", "set/way maintenance"),
    ("s1_0_c7_c1_0:write", "IC IALLUIS"),
];

/// Names a kind, as the plugin writes it, of a machine with this GIC. The GIC's version decides on
/// the meaning of addresses: a GICv2 has CPU interfaces where a GICv3 has nothing. The line is read
/// in three parts at most: who was interrupted, what happened, and a detail. Each name is a line of
/// the baseline, so that a changed name looks like a kind that was never seen.
pub(super) fn of(kind: &str, gic: u32) -> String {
    let (who, what) = kind.split_once(':').unwrap_or((kind, ""));
    let (what, detail) = what.split_once(':').unwrap_or((what, ""));
    match (who, what) {
        ("gear2", "svc") => format!("Gear2: {}", gear2_call(detail)),
        ("gear2", "irq") => format!("interrupt of Gear2{}", of_what(detail)),
        ("gear2", _) => "Gear2: a fault".to_owned(),
        ("guest", _) => guest_exit(what, detail, gic),
        // Of a CPU that waits at EL2, from one look for interrupts to the next.
        (_, "") => "waiting at EL2".to_owned(),
        (_, what) => format!("interrupt while waiting at EL2{}", of_what(what)),
    }
}

/// Names an exit of a guest. All classes of exceptions without a name here are called undefined
/// instructions. A kind that falls to that last name by mistake can only raise the figure of it.
fn guest_exit(what: &str, detail: &str, gic: u32) -> String {
    match what {
        "hvc" | "smc" => call(detail),
        "sysreg" => register(detail),
        "load" | "store" => access(what, detail, gic),
        "irq" => format!("interrupt of a guest{}", of_what(detail)),
        "wait" => detail.to_uppercase(),
        "fp" => "first use of FP".to_owned(),
        "sve" => "use of SVE".to_owned(),
        "fetch" => "fetch from nowhere".to_owned(),
        "serror" => "SError".to_owned(),
        _ => "undefined instruction".to_owned(),
    }
}

/// Names a call of Gear2's by the number in the instruction. An unknown number is a call too: Gear1
/// has to refuse it, and the refusal has its own length.
fn gear2_call(number: &str) -> &'static str {
    let found = GEAR2.iter().find(|(known, _)| known.to_string() == number);
    found.map_or("no such call", |(_, name)| name)
}

/// Names an interrupt by the function that handled it; without one it is nothing that the plugin
/// knows. The plugin writes names of functions of the runtime (`tests/exit-counter/src/kinds.rs`),
/// with which this list must agree. A name that is missing here is shown as it is.
fn of_what(detail: &str) -> String {
    let what = match detail {
        "" => return String::new(),
        "expired" => "EL2 timer",
        "kicked" => "kick",
        "virtual_timer" => "virtual timer",
        "external" | "inject_external" => "a device's",
        "rejoin" | "leave_and_rejoin" | "stop_waiting_and_rejoin" => "Gear2 is restarted",
        "failed" => "Gear2 hangs",
        other => other,
    };
    format!(": {what}")
}

/// Names a guest's call. Functions in the range of a hypervisor's own services (SMCCC, owner 6)
/// have one name, and so have all that Gear1 does not know. A number that cannot be read counts as
/// function 0, which no table has.
fn call(number: &str) -> String {
    let number = number.strip_prefix("0x").unwrap_or(number);
    let number = u32::from_str_radix(number, 16).unwrap_or(0);
    let found = CALLS
        .iter()
        .find(|(function, _)| *function == number & !SMC64);
    match found {
        Some((_, name)) => format!("call: {name}"),
        None if number & 0x3f00_0000 == 0x0600_0000 => "call: the hypervisor's own".to_owned(),
        None => "call: others".to_owned(),
    }
}

/// Names a trapped register, or says that it has none of the ways of its own. The direction is a
/// part of the encoding: reads and writes of one register are different ways.
fn register(encoding: &str) -> String {
    let found = REGISTERS.iter().find(|(register, _)| *register == encoding);
    let name = found.map_or("other system register", |(_, name)| name);
    name.to_owned()
}

/// Names an access to a device. Of a GICv2's CPU interface only the page with GICC_DIR traps. Loads
/// and stores have names of their own, as the two take different ways through the virtual GIC.
fn access(how: &str, address: &str, gic: u32) -> String {
    let address = address.strip_prefix("0x").unwrap_or(address);
    let address = u64::from_str_radix(address, 16).unwrap_or(0);
    let how = if how == "load" { "read" } else { "written" };
    match address {
        DISTRIBUTOR..CPU_INTERFACE if address - DISTRIBUTOR >= IROUTER => {
            format!("GICD_IROUTER and others {how}")
        }
        DISTRIBUTOR..CPU_INTERFACE => {
            let register = per_interrupt(address - DISTRIBUTOR);
            format!("GICD_{register} {how}")
        }
        CPU_INTERFACE..REDISTRIBUTORS if gic == 2 => format!("GICC_DIR {how}"),
        REDISTRIBUTORS..END if gic == 3 => {
            let offset = (address - REDISTRIBUTORS) & 0x1_ffff;
            let register = offset.checked_sub(0x1_0000).map(per_interrupt);
            format!("GICR_{} {how}", register.unwrap_or("CTLR and others"))
        }
        _ => format!("device {how}"),
    }
}

/// Names the register of a frame with registers of interrupts. The distributor and the second frame
/// of a redistributor have the same layout, so one table serves both.
fn per_interrupt(offset: u64) -> &'static str {
    let mut from = PER_INTERRUPT.iter().rev();
    let found = from.find(|(from, _)| offset >= *from);
    found.map_or("", |(_, name)| *name)
}

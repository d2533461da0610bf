//! The board's CPUs: their affinities and clusters, and how they are turned on.
//!
//! Requirements: G1-BOOT-001.

use alloc::vec::Vec;

use gear1_abi::boot::EnableMethod;
use gearv_manifest::blob::Node;

use super::bus::{cell_counts, number};
use super::clusters::{self, phandle_in};
use super::{Cpu, is_of_type, text};
use crate::refusal::{Refusal, refusal};

/// Bits of MPIDR_EL1 that are affinity, which `reg` of a CPU node has: Aff3 in bits 39:32, Aff2 to
/// Aff0 in bits 23:0 (Arm ARM, MPIDR_EL1). A bit beside them would name a CPU that PSCI and the GIC
/// do not find.
const AFFINITY: u64 = 0x0000_00ff_00ff_ffff;

/// Models of CPUs without SVE, as `compatible` of a CPU node names them (Linux,
/// Documentation/devicetree/bindings/arm/cpus.yaml).
const WITHOUT_SVE: &[&str] = &[
    "arm,cortex-a34",
    "arm,cortex-a35",
    "arm,cortex-a53",
    "arm,cortex-a55",
    "arm,cortex-a57",
    "arm,cortex-a65",
    "arm,cortex-a72",
    "arm,cortex-a73",
    "arm,cortex-a75",
    "arm,cortex-a76",
    "arm,cortex-a77",
    "arm,cortex-a78",
    "arm,cortex-a78ae",
    "arm,cortex-x1",
    "arm,neoverse-e1",
    "arm,neoverse-n1",
];

/// Reads the CPUs, and how they are turned on: all of one board by one method, as a mixture would
/// need two in the runtime.
pub(super) fn read_cpus(
    cpus: &Node<'_>,
    psci: Option<EnableMethod>,
) -> Result<(Vec<Cpu>, EnableMethod), Refusal> {
    let (address_cells, _) = cell_counts(cpus, "/cpus")?;
    let (mut list, mut phandles) = (Vec::new(), Vec::new());
    let mut method = psci.unwrap_or_default();
    let is_cpu = |node: &Node<'_>| is_of_type(node, "cpu");
    for node in cpus.children().filter(is_cpu) {
        let path = alloc::format!("/cpus/{}", node.name());
        let mpidr = affinity(&node, &path, address_cells)?;
        let spin_table = release_addr(&node, &path, psci)?;
        if spin_table.is_some() {
            method = EnableMethod::SpinTable;
        }
        list.push(Cpu {
            mpidr,
            release_addr: spin_table.unwrap_or(0),
            cluster: 0,
            lacks_sve: text(&node, "compatible").is_some_and(|name| WITHOUT_SVE.contains(&name)),
        });
        phandles.push(phandle_in(&node, "phandle"));
    }
    if list.is_empty() {
        return Err(refusal!(Board, "/cpus: no CPU"));
    }
    clusters::assign(cpus, &phandles, &mut list);
    Ok((list, method))
}

/// Returns a CPU's affinity, by which PSCI starts the CPU and the GIC sends it SGIs.
fn affinity(cpu: &Node<'_>, path: &str, address_cells: u32) -> Result<u64, Refusal> {
    let mut reg = cpu.property("reg").and_then(|reg| reg.cells());
    let mpidr = reg.as_mut().and_then(|cells| number(cells, address_cells));
    // planted: a CPU has an affinity that no CPU has
    mpidr
        .filter(|mpidr| mpidr & !AFFINITY == 0)
        .ok_or_else(|| refusal!(Board, "{path}: reg: no affinity of a CPU"))
}

/// Returns the address at which a CPU of a spin table waits; `None` for a CPU that PSCI turns on,
/// as the whole board's method is if a node names none.
fn release_addr(
    node: &Node<'_>,
    path: &str,
    psci: Option<EnableMethod>,
) -> Result<Option<u64>, Refusal> {
    match text(node, "enable-method") {
        None => Ok(None),
        Some("psci") if psci.is_some() => Ok(None),
        Some("psci") => Err(refusal!(
            Board,
            "{path}: enable-method: \"psci\" without a PSCI node"
        )),
        Some("spin-table") => polled_address(node, path).map(Some),
        Some(other) => Err(refusal!(
            Board,
            "{path}: enable-method: \"{other}\" is not known"
        )),
    }
}

/// Returns `cpu-release-addr`, which has two cells whatever its parent says (Devicetree
/// Specification 0.4, 3.8.1).
fn polled_address(cpu: &Node<'_>, path: &str) -> Result<u64, Refusal> {
    let cells = cpu.property("cpu-release-addr").and_then(|p| p.cells());
    let address = cells.and_then(|mut cells| number(&mut cells, 2));
    address.ok_or_else(|| refusal!(Board, "{path}: cpu-release-addr: missing"))
}

/// Returns how firmware is called. HVC reaches a hypervisor below Gear1, as nested virtualization
/// has one.
pub(super) fn psci_method(node: &Node<'_>, path: &str) -> Result<EnableMethod, Refusal> {
    match text(node, "method") {
        Some("smc") => Ok(EnableMethod::PsciSmc),
        Some("hvc") => Ok(EnableMethod::PsciHvc),
        _ => Err(refusal!(Board, "{path}: method: not \"smc\" or \"hvc\"")),
    }
}

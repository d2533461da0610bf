//! What a guest's kernel says of attacks on speculation, by the CPU model. Nobody without a CPU of
//! that model can measure whether the CPU is vulnerable; the kernel's verdict follows from
//! identification registers and from calls of firmware, which GearV shows.

/// Files below `/sys/devices/system/cpu/vulnerabilities`, each with what its line begins with. A
/// kernel says of branch history in the line of `spectre_v2`.
pub(super) type Truth = [(&'static str, &'static str); 3];

const NOT_AFFECTED: &str = "Not affected";
/// A core that executes in order, whatever its registers say.
const IN_ORDER: Truth = [
    ("meltdown", NOT_AFFECTED),
    ("spectre_v2", NOT_AFFECTED),
    ("spec_store_bypass", NOT_AFFECTED),
];
/// Cortex-A57 and A72 behind the firmware of QEMU, which has no mitigation. A kernel that said
/// anything else would leave out what it can do itself.
const WITHOUT_FIRMWARE: Truth = [
    ("meltdown", NOT_AFFECTED),
    ("spectre_v2", "Vulnerable"),
    ("spec_store_bypass", "Vulnerable"),
];
/// FEAT_CSV2, FEAT_CSV3 and FEAT_SSBS.
const BY_FEATURES: Truth = [
    ("meltdown", NOT_AFFECTED),
    ("spectre_v2", "Mitigation: CSV2"),
    (
        "spec_store_bypass",
        "Mitigation: Speculative Store Bypass disabled",
    ),
];

/// Returns what is true of a CPU model of QEMU's, if that is known.
pub(super) fn truth(cpu: &str) -> Option<Truth> {
    let model = cpu.split(',').next()?;
    match model {
        "cortex-a53" => Some(IN_ORDER),
        "cortex-a57" | "cortex-a72" => Some(WITHOUT_FIRMWARE),
        "neoverse-n1" => Some(BY_FEATURES),
        _ => None,
    }
}

//! CPU models of QEMU.

/// Least number of a Cortex-A with the 64-bit state of execution and EL2, but for the Cortex-A32.
const FIRST_CORTEX_A: u32 = 34;

/// Returns the models with 64 bits in what QEMU prints for `-cpu help`: all models of Arm's, among
/// them those for which `virt` has no use.
pub(super) fn with_64_bits(help: &str) -> Vec<String> {
    let lines = help.lines().filter(|line| line.starts_with(' '));
    let models = lines.filter_map(|line| line.split_whitespace().next());
    let models = models.filter(|model| has_64_bits(model));
    models.map(str::to_owned).collect()
}

/// QEMU lists models of 32-bit Arm as well, and none that tells.
fn has_64_bits(model: &str) -> bool {
    let number = model.strip_prefix("cortex-a");
    let number = number.and_then(|number| number.parse::<u32>().ok());
    let is_cortex = number.is_some_and(|number| number >= FIRST_CORTEX_A);
    is_cortex || matches!(model, "a64fx" | "max") || model.starts_with("neoverse-")
}

#[cfg(test)]
mod tests {
    use super::with_64_bits;

    #[test]
    fn only_models_with_64_bits_are_named() {
        let help = "Available CPUs:\n  a64fx\n  arm926\n  cortex-a15\n  cortex-a53\n  \
                    cortex-a710\n  cortex-a9\n  cortex-m3\n  cortex-r52\n  max\n  neoverse-n1\n  \
                    pxa250 (deprecated)\n";
        let expected = ["a64fx", "cortex-a53", "cortex-a710", "max", "neoverse-n1"];
        assert_eq!(with_64_bits(help), expected);
    }
}

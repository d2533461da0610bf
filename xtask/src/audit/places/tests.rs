//! Names of functions.

use super::short;

#[test]
fn names_are_cut_to_the_function() {
    for (name, expected) in [
        (
            "gear1_core::vgic::lists::<impl gear1_core::vgic::VmGic>::fill",
            "fill",
        ),
        (
            "<gear1_arch::gicv3::GicV3 as gear1_arch::gic::HostGic>::init_cpu",
            "init_cpu",
        ),
        ("gear1_runtime::run::idle::{{closure}}", "idle"),
        ("gear1_core::log::Ring::push::h0123456789abcdef", "push"),
        ("memcpy", "memcpy"),
    ] {
        assert_eq!(short(name), expected);
    }
}

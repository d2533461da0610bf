//! Arrows between modules that no path names: calls of methods, from the linked images.
//!
//! The debug information tells of each instruction the functions that were inlined into each other,
//! and of each call the function that is entered. A method of a trait of the crate counts for the
//! module of the trait, for the caller names no more. A closure counts for nobody: who calls it got
//! it as an argument.

use anyhow::Result;

use super::super::code::Program;
use super::super::places::{Frame, frames};

/// A call between functions of one crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::audit) struct Call {
    /// The crate and the path of the caller, with the function's name.
    pub(super) from: Vec<String>,
    /// Of the function that is called.
    pub(super) to: Vec<String>,
    /// File and line of the call.
    pub(super) place: String,
}

/// Returns the calls between functions of one crate of Gear1.
pub(in crate::audit) fn calls(program: &Program) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for function in program.functions.0.values() {
        for address in function.instructions.keys() {
            let frames = frames(program, *address)?;
            let callee = function.enters(*address);
            let callee = callee.and_then(|to| program.functions.0.get(&to));
            let callee = callee.map(|function| &*function.name);
            let inner = frames.iter().skip(1).map(|frame| &*frame.name);
            let pairs = frames.iter().zip(inner.chain(callee));
            calls.extend(pairs.filter_map(|(frame, to)| call(frame, to)));
        }
    }
    calls.sort();
    calls.dedup_by(|a, b| (&a.from, &a.to) == (&b.from, &b.to));
    Ok(calls)
}

/// Returns the call from a frame to a function of this name, if both are of one crate of Gear1.
fn call(frame: &Frame, to: &str) -> Option<Call> {
    let place = frame.place.as_ref()?;
    let (from, to) = (path(&frame.name)?, called(to)?);
    (from.first() == to.first()).then(|| Call {
        from,
        to,
        place: format!("{}:{}", place.file, place.line),
    })
}

/// Returns crate, modules and type of a function by its name, `None` if it is not of Gear1.
fn path(name: &str) -> Option<Vec<String>> {
    let path = match name.strip_prefix('<') {
        // `<module::Type as Trait>::method`
        Some(of_type) => of_type.split([' ', '<', '>']).next()?,
        // `module::<impl Type>::method`
        None => name.split("::<").next()?,
    };
    let path = path.trim_start_matches(['&', '*']);
    let segments: Vec<String> = path.split("::").map(str::to_owned).collect();
    segments.first()?.starts_with("gear1_").then_some(segments)
}

/// Returns the path of a function that is called: of a method of a crate's trait, the trait's.
fn called(name: &str) -> Option<Vec<String>> {
    if name.contains("{{closure}}") {
        return None;
    }
    let of_trait = name.split_once(" as ");
    let of_trait = of_trait.and_then(|(_, rest)| path(rest.split(['<', '>']).next()?));
    of_trait.or_else(|| path(name))
}

#[cfg(test)]
mod tests {
    use super::{called, path};

    fn text(path: Option<Vec<String>>) -> String {
        path.unwrap_or_default().join("::")
    }

    #[test]
    fn a_function_belongs_to_the_module_of_its_text() {
        for (name, expected) in [
            ("gear1_runtime::exit::sgi", "gear1_runtime::exit::sgi"),
            (
                "gear1_core::vgic::list_registers::<impl gear1_core::vgic::VmGic>::flush",
                "gear1_core::vgic::list_registers",
            ),
            (
                "<gear1_arch::window::Window as core::ops::drop::Drop>::drop",
                "gear1_arch::window::Window",
            ),
            ("core::iter::Iterator::next", ""),
        ] {
            assert_eq!(text(path(name)), expected);
        }
    }

    #[test]
    fn a_method_of_a_trait_is_the_traits_and_a_closure_is_nobodys() {
        for (name, expected) in [
            (
                "<gear1_arch::gicv3::GicV3 as gear1_arch::gic::HostGic>::init_cpu",
                "gear1_arch::gic::HostGic",
            ),
            (
                "<gear1_arch::window::Window as core::ops::drop::Drop>::drop",
                "gear1_arch::window::Window",
            ),
            ("gear1_runtime::run::idle::{{closure}}", ""),
        ] {
            assert_eq!(text(called(name)), expected);
        }
    }
}

//! Mappings of each VM and of Gear2, as text: the list that Gear1's init builds every stage 2 from.
//!
//! The text is a reviewer's: whether two VMs share a page is seen without a machine. Golden files
//! of the examples (manifests/partitions) show what a change of init does to each.

use std::fmt::Write as _;

use gear1_core::stage2::{Attributes, Memory, PageState};
use gear1_init::partition::{Mapping, Partition, Space};
use gearv_manifest::Manifest;

#[cfg(test)]
mod golden;

/// Writes the list: a section for each stage 2, a line for each range of addresses. What is mapped
/// has its physical address, rights, kind of memory and sharing state; what is emulated has none.
/// Sections come in the order of identifiers, Gear2 first, so that golden files compare by line.
pub(super) fn text(partition: &Partition, manifest: &Manifest<'_>) -> String {
    let vms = manifest.vms.iter().map(|vm| Space::Vm(vm.id));
    let spaces = [Space::Gear2].into_iter().chain(vms);
    let sections = spaces.map(|space| section(space, partition, manifest));
    sections.collect::<Vec<_>>().join("\n")
}

/// Mapped and emulated ranges stand in one list, because a guest sees one address space.
fn section(space: Space, partition: &Partition, manifest: &Manifest<'_>) -> String {
    let mapped = partition.mappings.iter();
    let mapped = mapped.filter(|mapping| mapping.space == space);
    let mapped = mapped.map(|mapping| (mapping.input(), mapped_row(mapping, manifest)));
    let emulated = partition.emulated.iter();
    let emulated = emulated.filter(|emulated| Space::Vm(emulated.vm) == space);
    let emulated = emulated.map(|emulated| {
        let what = format!("{:12}  {:29}  {}", "-", "emulated", emulated.what);
        (emulated.region, what)
    });
    let mut lines: Vec<_> = mapped.chain(emulated).collect();
    lines.sort_by_key(|(region, _)| region.start);
    let mut text = format!("{}\n", space.path(manifest));
    for (region, what) in lines {
        let (start, end) = (region.start, region.end);
        writeln!(text, "  {start:#012x}  {end:#012x}  {what}").expect("a String takes all");
    }
    text
}

/// Returns where input addresses lead, with which attributes and why. `why` is the reason that init
/// notes with each mapping; the check of the partition uses the same list.
fn mapped_row(mapping: &Mapping, manifest: &Manifest<'_>) -> String {
    format!(
        "{:#012x}  {}  {}",
        mapping.pa,
        attributes(mapping.attributes),
        mapping.why.text(manifest)
    )
}

/// Reading is always allowed, hence the constant `r`.
fn attributes(attributes: Attributes) -> String {
    let write = if attributes.write { 'w' } else { '-' };
    let execute = if attributes.execute { 'x' } else { '-' };
    let memory = match attributes.memory {
        Memory::Normal => "normal",
        Memory::Uncached => "uncached",
        Memory::Device => "device",
    };
    let state = state_text(attributes.state);
    format!("r{write}{execute}  {memory:8}  {state:16}")
}

/// The states are those of ownership.rs; a page without one is shared from boot on, or a device.
const fn state_text(state: Option<PageState>) -> &'static str {
    match state {
        None => "no owner",
        Some(PageState::Owned) => "owned",
        Some(PageState::SharedOwned) => "shared, owned",
        Some(PageState::SharedBorrowed) => "shared, borrowed",
        Some(PageState::Lent) => "lent",
        Some(PageState::Donated) => "donated",
        Some(PageState::Received) => "received",
        Some(PageState::Buffer) => "buffer",
        Some(PageState::Claimed) => "claimed",
    }
}

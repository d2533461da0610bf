//! Devices that the VM uses as firmware has left them: clocks of stated rates, and nothing that
//! another owner would have to give.
//!
//! A driver waits for each supplier that its node names. Firmware's suppliers are no VM's, and a
//! disabled one never comes. What a driver gets instead is what holds without it: fixed clocks
//! (fixed-clock.yaml), and no reset, power domain, regulator or pin to ask for.
//!
//! Requirements: G1-BOOT-014.

use alloc::vec::Vec;

use gearv_manifest::AsBooted;
use gearv_manifest::blob::{Node, Property};

use super::{Maker, OWNED_DROPPED};
use crate::fdt::path_below;

/// Properties that name what sets a device up, and those that belong to them: the bindings of
/// Linux's clocks, resets, power domains, pins, PHYs of a SoC, operating points, interconnects, DMA
/// engines and mailboxes.
/// `phy-handle` is none of them: an Ethernet PHY is a device on the controller's own bus.
const SUPPLIES: &[&str] = &[
    "assigned-clocks",
    "assigned-clock-parents",
    "assigned-clock-rates",
    "assigned-clock-rates-u64",
    "resets",
    "reset-names",
    "power-domains",
    "power-domain-names",
    "pinctrl-names",
    "pinctrl-0",
    "pinctrl-1",
    "pinctrl-2",
    "pinctrl-3",
    "gpio-ranges",
    "phys",
    "phy-names",
    "operating-points-v2",
    "required-opps",
    "interconnects",
    "interconnect-names",
    "mmc-pwrseq",
    "dmas",
    "dma-names",
    "mboxes",
    "mbox-names",
];
/// Ends of properties that name a regulator or a line of a GPIO controller.
const SUPPLY_ENDS: &[&str] = &["-supply", "-gpio", "-gpios"];

impl Maker<'_, '_> {
    /// Writes the clocks, whose phandles follow that of the emulated devices' clock.
    pub(super) fn clocks_as_booted(&mut self) {
        let facts = self.facts;
        let mut phandle = self.first_clock();
        for kept in &facts.owned.as_booted {
            for (number, rate) in kept.rates().enumerate() {
                let name = alloc::format!("as-booted-{}-{number}", kept.name);
                self.out.begin(&name);
                self.out.text("compatible", "fixed-clock");
                self.out.cells("#clock-cells", &[0]);
                self.out.cells("clock-frequency", &[rate]);
                self.out.cells("phandle", &[phandle]);
                self.out.end();
                phandle = phandle.saturating_add(1);
            }
        }
    }

    /// Copies the inside of a node of the VM's, with all below it. What is below a device that
    /// stays as firmware has left it, such as its PHY, stays so too.
    pub(super) fn own(&mut self, node: &Node<'_>, path: &str, is_below: bool) {
        let all = &self.facts.owned.as_booted;
        let place = all.iter().position(|kept| kept.device == path);
        let is_kept = is_below || place.is_some();
        let is_dropped = |property: &Property<'_>| {
            OWNED_DROPPED.iter().any(|name| property.is_called(name))
                || is_kept && (is_supply(property) || property.is_called("clocks"))
                || is_below && property.is_called("clock-names")
        };
        // planted: a device asks for what firmware has set up
        self.out
            .properties_that(node, |property| !is_dropped(property));
        if let Some((place, kept)) = place.and_then(|place| Some((place, all.get(place)?))) {
            self.fixed_clocks(place, kept);
        }
        for child in node.children() {
            self.out.begin(child.name());
            let path = path_below(path, child.name());
            self.own(&child, &path, is_kept);
            self.out.end();
        }
    }

    /// Writes the clocks of the device at `place` among those that stay as they are.
    fn fixed_clocks(&mut self, place: usize, kept: &AsBooted<'_>) {
        let before = self.facts.owned.as_booted.iter().take(place);
        let before: usize = before.map(|kept| kept.rates().count()).sum();
        let first = self.first_clock().saturating_add(before as u32);
        let clocks: Vec<u32> = (first..)
            .zip(kept.rates())
            .map(|(clock, _)| clock)
            .collect();
        if !clocks.is_empty() {
            self.out.cells("clocks", &clocks);
        }
    }

    /// Returns the phandle of the first clock, behind that of the emulated devices' clock.
    const fn first_clock(&self) -> u32 {
        self.next_phandle.saturating_add(1)
    }
}

/// Tells whether a property names what sets the device up.
fn is_supply(property: &Property<'_>) -> bool {
    let name = property.name();
    SUPPLIES.contains(&name) || SUPPLY_ENDS.iter().any(|end| name.ends_with(end))
}

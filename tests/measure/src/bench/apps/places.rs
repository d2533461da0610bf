//! Where the workloads run.

use anyhow::Result;
use workbench::qemu::Qemu;

use super::size::{Part, Work};
use super::{natively, under_gearv, under_kvm};

/// The place by which the others are divided.
pub(super) const NATIVE: &str = "native";
/// The guest under GearV as shipped.
pub(super) const GUEST: &str = "GearV guest";

/// A place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// What `--only` filters.
    pub(super) name: &'static str,
    /// Runs the workloads, and returns what was printed.
    pub(super) run: fn(&Qemu, Work<'_>, &Place) -> Result<String>,
    /// The workloads.
    pub(super) part: Part,
    /// Settings in the manifest's node of Gear2.
    pub(super) gear2: &'static str,
    /// Begin of the names of the place's files.
    files: &'static str,
}

/// The places. Native comes first, because the tables divide by it. Under `null` each vCPU has its
/// CPU for itself and Gear2 does not schedule: the difference is Gear2's cost.
pub(super) const PLACES: [Place; 7] = [
    place(NATIVE, natively, Part::All),
    place("KVM", under_kvm, Part::All),
    place("GearV", under_gearv, Part::All),
    Place {
        gear2: "scheduler = \"null\";",
        ..place("GearV null", under_gearv, Part::Gear2)
    },
    place("native, one CPU", natively, Part::OneCpu),
    place("KVM, one CPU", under_kvm, Part::OneCpu),
    place("GearV, one CPU", under_gearv, Part::OneCpu),
];

/// The places of the slice that each run of the suite has.
pub(super) const SLICE: [Place; 2] = [
    for_suite(PLACES[0], "slice-", Part::Slice),
    for_suite(PLACES[2], "slice-", Part::Slice),
];
/// The places of its short form.
pub(super) const SHORT: [Place; 3] = [
    for_suite(PLACES[0], "short-", Part::Short),
    for_suite(PLACES[1], "short-", Part::Short),
    for_suite(PLACES[2], "short-", Part::Short),
];

/// Returns a place with files of its own: the suite must not overwrite what somebody has measured.
const fn for_suite(place: Place, files: &'static str, part: Part) -> Place {
    Place {
        files,
        part,
        ..place
    }
}

const fn place(
    name: &'static str,
    run: fn(&Qemu, Work<'_>, &Place) -> Result<String>,
    part: Part,
) -> Place {
    Place {
        name,
        run,
        part,
        gear2: "",
        files: "",
    }
}

impl Place {
    /// Returns how many CPUs the two vCPUs have.
    pub(super) fn cpus(&self) -> u32 {
        match self.part {
            Part::OneCpu => 1,
            Part::All | Part::Gear2 | Part::Slice | Part::Short => 2,
        }
    }

    /// Returns the name as a part of file names.
    pub(super) fn file_name(&self) -> String {
        let words = self.name.split([' ', ',']);
        let words = words.filter(|word| !word.is_empty()).collect::<Vec<_>>();
        format!("{}{}", self.files, words.join("-").to_lowercase())
    }
}

//! Which workloads run, and how much they do.

use std::time::Duration;

use anyhow::{Result, ensure};

/// Workloads of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All.
    All,
    /// Those that show what Gear2 costs.
    Gear2,
    /// Those that the papers have with two vCPUs on one CPU.
    OneCpu,
    /// Those of the suite. fio is not among them, whose start alone has 200 million instructions.
    Slice,
    /// Those of the suite's short form.
    Short,
}

/// Amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// MiB that fio reads and writes, that sysbench writes to memory, and that streams move.
    mib: u32,
    /// Number of sysbench's prime searches.
    events: u32,
    /// Number of messages of each hackbench pair.
    loops: u32,
    /// Number of requests to a peer, and to servers.
    requests: u32,
    /// Number of times that the tree of sources is unpacked and compiled.
    trees: u32,
    /// Number of passes of our kernels; Dhrystone's rounds in ten thousands.
    times: u32,
    /// Elements of each array of `stream`.
    elements: u32,
    /// Buffer of `copy` and `modify` in KiB.
    kib: u32,
}

/// Workloads that a run measures, and their sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) size: Size,
    /// Texts of `--workloads`, one of which a workload's name contains. Without any, all run.
    texts: &'a [String],
}

impl<'a> Work<'a> {
    /// Returns all workloads in a size.
    pub(super) const fn all(size: Size) -> Self {
        Work { size, texts: &[] }
    }

    /// Returns the workloads of these parts whose names contain one of the texts. A text that no
    /// name contains is an error with all names: a row that is missing would look like one that
    /// was not asked for. An empty text is an error as well: each name contains it, and one behind
    /// the last comma would add all workloads to those that are asked for.
    pub(super) fn only(size: Size, texts: &'a [String], parts: &[Part]) -> Result<Self> {
        let mut names: Vec<&str> = Vec::new();
        for name in parts.iter().flat_map(|part| size.names(*part)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for text in texts {
            ensure!(
                !text.is_empty(),
                "--workloads has an empty text, which is in each name: without --workloads, all run"
            );
            ensure!(
                names.iter().any(|name| name.contains(text.as_str())),
                "no workload of these places is named {text:?}; the names: {}",
                names.join(", ")
            );
        }
        Ok(Work { size, texts })
    }

    /// Returns the words of the kernel's command line from which the script reads names and sizes.
    pub(super) fn words(self, part: Part) -> String {
        let Size {
            mib,
            events,
            loops,
            requests,
            trees,
            times,
            elements,
            kib,
        } = self.size;
        let names = self.names(part).into_iter();
        let names = names.flat_map(|name| self.size.repetitions(part, name));
        let names = names.collect::<Vec<_>>().join(",");
        format!(
            "apps.names={names} apps.mib={mib} apps.events={events} apps.loops={loops} \
             apps.requests={requests} apps.trees={trees} apps.times={times} \
             apps.elements={elements} apps.kib={kib}"
        )
    }

    /// Returns the workloads of a place that are asked for, as the script calls them.
    pub(super) fn names(self, part: Part) -> Vec<&'static str> {
        let mut names = self.size.names(part);
        names.retain(|name| {
            self.texts.is_empty() || self.texts.iter().any(|text| name.contains(text.as_str()))
        });
        names
    }
}

impl Size {
    /// What the suite runs.
    pub(super) const SHORTEST: Size = Size {
        mib: 8,
        events: 20,
        loops: 2,
        requests: 50,
        trees: 2,
        times: 10,
        elements: 10_000,
        kib: 64,
    };
    /// A few minutes for each place.
    const SHORT: Size = Size {
        mib: 16,
        events: 500,
        loops: 40,
        requests: 2000,
        trees: 2,
        times: 25,
        elements: 100_000,
        kib: 1536,
    };
    /// The papers' 100 MB, 2,000,000 elements and 16 MB.
    const FULL: Size = Size {
        mib: 100,
        events: 10_000,
        loops: 100,
        requests: 10_000,
        trees: 20,
        times: 20,
        elements: 2_000_000,
        kib: 16 << 10,
    };

    pub(crate) const fn of(full: bool) -> Size {
        if full { Size::FULL } else { Size::SHORT }
    }

    /// Returns the limit for a whole boot with all workloads. Under KVM the host and its guest boot
    /// before the first of them.
    pub(super) fn limit(self) -> Duration {
        match self == Size::SHORTEST {
            true => Duration::from_secs(300),
            false => Duration::from_secs(3600),
        }
    }

    /// Returns the names under which the script runs a workload: its own, and with a number behind
    /// `+` those of its repetitions. The workloads repeat whose figures differ most from run to
    /// run, as they depend on which CPU Linux wakes a thread on or on where it puts pages. With one
    /// CPU all repeat, since a vCPU that spins while another one does not run may execute a whole
    /// slice. hackbench repeats less often there, as its messages take ten times as long. The
    /// workloads of the suite do not repeat: they have limits for one run.
    fn repetitions(self, part: Part, name: &str) -> Vec<String> {
        let runs = match name {
            _ if self == Size::SHORTEST => 1,
            "hackbench" if part == Part::OneCpu => 3,
            _ if part == Part::OneCpu => 5,
            "hackbench" => 15,
            "nginx" => 5,
            "fio" | "sysbench-memory" | "memcached" => 3,
            name if NETWORK.contains(&name) => 3,
            _ => 1,
        };
        let again = (2..=runs).map(|run| format!("{name}{REPETITION}{run}"));
        [name.to_owned()].into_iter().chain(again).collect()
    }

    /// Returns the workloads, as the script calls them.
    fn names(self, part: Part) -> Vec<&'static str> {
        let disk = ["fio", "fio-depth-1-cpu0", "fio-depth-1-cpu1"];
        let sysbench = ["sysbench-cpu", "sysbench-memory"];
        let mut names = match part {
            Part::All => [
                &disk[..],
                &sysbench,
                &KERNELS,
                &["hackbench"],
                &NETWORK,
                &SERVERS,
                &SOURCES,
            ]
            .concat(),
            Part::Slice => return vec!["dhrystone"],
            Part::Short => {
                return vec![
                    "fio",
                    "sysbench-cpu",
                    "dhrystone",
                    "tcp-rr",
                    "tcp-maerts",
                    "nginx",
                    "memcached",
                    "compile",
                ];
            }
            Part::Gear2 => return vec!["fio", "fio-depth-1-cpu0", "sysbench-cpu", "tcp-rr"],
            Part::OneCpu => [&KERNELS[..], &["hackbench"]].concat(),
        };
        if self == Size::FULL {
            names.extend(GROUPS);
            // Where Linux places fio, which differs from run to run.
            names.extend((part == Part::All).then_some("fio-depth-1"));
        }
        names
    }
}

/// Separator between a workload's name and the number of its repetition.
pub(super) const REPETITION: char = '+';
/// Our own workloads.
const KERNELS: [&str; 4] = ["dhrystone", "stream", "copy", "modify"];
/// What netperf does.
const NETWORK: [&str; 3] = ["tcp-rr", "tcp-stream", "tcp-maerts"];
/// Servers that the peer loads.
const SERVERS: [&str; 2] = ["nginx", "memcached"];
/// Files in memory. `compile` makes the tree that `unpack` unpacks.
const SOURCES: [&str; 2] = ["unpack", "compile"];
/// Hackbench with the papers' numbers of groups.
const GROUPS: [&str; 5] = [
    "hackbench-2",
    "hackbench-4",
    "hackbench-6",
    "hackbench-8",
    "hackbench-10",
];

#[cfg(test)]
mod tests {
    use super::{Part, Size, Work};

    #[test]
    fn the_script_is_told_names_and_sizes() {
        let words = Work::all(Size::of(false)).words(Part::Gear2);
        let names = "apps.names=fio,fio+2,fio+3,fio-depth-1-cpu0,sysbench-cpu,tcp-rr,tcp-rr+2,\
                     tcp-rr+3 apps.mib=16 ";
        assert!(words.starts_with(names), "{words}");
        assert!(words.ends_with(" apps.elements=100000 apps.kib=1536"));
    }

    #[test]
    fn a_place_repeats_what_scatters() {
        let words = |size, text: &str| {
            let texts = [text.to_owned()];
            let work = Work::only(size, &texts, &[Part::All]).unwrap();
            work.words(Part::All)
        };
        let repeats = words(Size::of(false), "nginx");
        let names = "apps.names=nginx,nginx+2,nginx+3,nginx+4,nginx+5 ";
        assert!(repeats.starts_with(names), "{repeats}");
        assert!(words(Size::of(false), "copy").starts_with("apps.names=copy "));
        let one_cpu = Work::all(Size::of(false)).words(Part::OneCpu);
        assert!(
            one_cpu.contains(",copy,copy+2,copy+3,copy+4,copy+5,"),
            "{one_cpu}"
        );
        assert!(
            one_cpu.contains(",hackbench,hackbench+2,hackbench+3 "),
            "{one_cpu}"
        );
        assert!(words(Size::SHORTEST, "tcp-rr").starts_with("apps.names=tcp-rr "));
    }

    #[test]
    fn ten_groups_are_of_the_full_size() {
        let words = |full| Work::all(Size::of(full)).words(Part::OneCpu);
        let has_groups = |full| words(full).contains("hackbench-10");
        assert!(has_groups(true) && !has_groups(false));
    }

    #[test]
    fn texts_choose_workloads() {
        let parts = [Part::All, Part::Gear2, Part::OneCpu];
        let texts = ["rr", "memory"].map(str::to_owned);
        let work = Work::only(Size::of(false), &texts, &parts).unwrap();
        assert_eq!(work.names(Part::All), ["sysbench-memory", "tcp-rr"]);
        assert_eq!(work.names(Part::Gear2), ["tcp-rr"]);
        // A place without any of them is left out of the run.
        assert!(work.names(Part::OneCpu).is_empty());
    }

    #[test]
    fn an_empty_text_is_an_error() {
        for texts in [&["tcp-", ""][..], &["", "tcp-"], &[""]] {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let error = Work::only(Size::of(false), &texts, &[Part::All]).unwrap_err();
            assert!(error.to_string().contains("empty text"), "{error}");
        }
    }

    #[test]
    fn a_text_in_no_name_is_an_error_with_the_names() {
        let texts = ["tcp-rr", "tcp-crr"].map(str::to_owned);
        let error = Work::only(Size::of(false), &texts, &[Part::OneCpu, Part::All]).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("\"tcp-crr\"") && error.contains("tcp-stream"));
        // The workloads are those of the places that are asked for.
        let error = Work::only(Size::of(false), &texts, &[Part::OneCpu]).unwrap_err();
        assert!(error.to_string().contains("\"tcp-rr\""));
    }
}

//! The papers' figures of the same kinds of workloads (xvisor, tables IV to XIII, averages): a
//! Cortex-A7 at 1 GHz, Linux 3.16, two vCPUs.
//!
//! The workloads are not the same programs, and the unit is another one. What both sides have in
//! common is the ratio to the host without a hypervisor.

/// A workload of the papers.
struct Row {
    /// The workload here.
    name: &'static str,
    /// Whether the figures are times. Others are rates.
    is_time: bool,
    /// Host, Xvisor and KVM, with two vCPUs on one CPU, then on two.
    figures: [[f64; 3]; 2],
}

const ROWS: [Row; 5] = [
    Row {
        name: "dhrystone",
        is_time: false,
        figures: [
            [2_558_851.0, 2_550_336.0, 2_543_442.0],
            [2_558_976.0, 2_558_615.0, 2_555_135.0],
        ],
    },
    Row {
        name: "stream",
        is_time: false,
        figures: [[288.96, 287.54, 279.82], [289.02, 287.84, 284.34]],
    },
    Row {
        name: "copy",
        is_time: false,
        figures: [[1746.25, 1719.86, 1491.55], [1760.50, 1743.49, 1371.02]],
    },
    Row {
        name: "modify",
        is_time: false,
        figures: [[564.58, 556.13, 544.30], [564.26, 561.12, 552.08]],
    },
    Row {
        name: "hackbench",
        is_time: true,
        figures: [[0.2928, 0.341, 0.449], [0.1652, 0.180, 0.1976]],
    },
];

/// Returns how many times as long as on the host a workload takes in a guest of Xvisor's, or of
/// KVM's, in the papers.
pub(super) fn ratio(name: &str, is_one_cpu: bool, is_kvm: bool) -> Option<f64> {
    let row = ROWS.iter().find(|row| row.name == name)?;
    let [host, xvisor, kvm] = row.figures[usize::from(!is_one_cpu)];
    let guest = if is_kvm { kvm } else { xvisor };
    Some(match row.is_time {
        true => guest / host,
        false => host / guest,
    })
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[test]
    fn rates_and_times_become_one_ratio() {
        let text = |name, is_one_cpu, is_kvm| {
            ratio(name, is_one_cpu, is_kvm).map(|ratio| format!("{ratio:.3}"))
        };
        // The papers: 18 % and more over KVM, with a host that is faster than both.
        assert_eq!(text("copy", true, true).as_deref(), Some("1.171"));
        assert_eq!(text("copy", true, false).as_deref(), Some("1.015"));
        assert_eq!(text("hackbench", false, true).as_deref(), Some("1.196"));
        assert_eq!(text("fio", false, true), None);
    }
}

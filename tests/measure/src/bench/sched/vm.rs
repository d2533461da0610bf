//! VMs of a run, and how each system is told to treat them.

/// VMs that run at the same time. The VMs start together, at one instant of the counter that all of
/// them share.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The VMs; the index is the `id` in their reports.
    pub(super) vms: Vec<Vm>,
    /// Length of the measurement.
    pub(super) ms: u64,
}

/// A VM with the guest `sched`. One description serves both systems, so that they get the same
/// guests. An empty text stands for a setting that a system does not know.
#[derive(Clone, Debug)]
pub(super) struct Vm {
    /// Words of the command line: the role and its parameters.
    pub(super) words: String,
    /// Number of vCPUs.
    pub(super) vcpus: usize,
    /// Properties in the manifest.
    pub(super) gearv: String,
    /// Options of `kvm-vmm`.
    pub(super) kvm: String,
    /// The only CPU, under GearV, of a VM that may not run on all of the machine's.
    pub(super) cpu: Option<u32>,
    /// File and value of the cgroup that the VMM's process is in.
    pub(super) group: Option<(&'static str, String)>,
}

impl Vm {
    /// Returns a VM with one vCPU that nobody treats in a special way.
    pub(super) fn new(words: impl Into<String>) -> Vm {
        Vm {
            words: words.into(),
            vcpus: 1,
            gearv: String::new(),
            kvm: String::new(),
            cpu: None,
            group: None,
        }
    }

    /// Gives the VM more vCPUs.
    pub(super) fn with_vcpus(self, vcpus: usize) -> Vm {
        Vm { vcpus, ..self }
    }

    /// Keeps the VM on one CPU. Only cases of balancing and of moves need that; elsewhere a policy
    /// has all CPUs to choose from.
    pub(super) fn only_on(self, cpu: u32) -> Vm {
        let cpu = Some(cpu);
        Vm { cpu, ..self }
    }

    /// Gives the VM properties in the manifest, and options of `kvm-vmm`.
    pub(super) fn treated(self, gearv: impl Into<String>, kvm: impl Into<String>) -> Vm {
        let (gearv, kvm) = (gearv.into(), kvm.into());
        Vm { gearv, kvm, ..self }
    }

    /// Puts the VMM's process into a cgroup of its own, with this value in this file. Linux has
    /// `cpu.weight` and `cpu.max` for cgroups only.
    pub(super) fn grouped(self, file: &'static str, value: impl Into<String>) -> Vm {
        let group = Some((file, value.into()));
        Vm { group, ..self }
    }

    /// Returns the command line. The start is text because under KVM the host's shell computes it
    /// when the VMs are started.
    pub(super) fn command_line(&self, id: usize, start_ms: &str, ms: u64) -> String {
        let words = &self.words;
        format!("{words} id={id} start-ms={start_ms} ms={ms}")
    }
}

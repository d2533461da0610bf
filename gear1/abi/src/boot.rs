//! The hand-over from init to the runtime: one plain-data structure, mapped read-only at
//! [`layout::el2::BOOT_INFO`](crate::layout::el2::BOOT_INFO).
//!
//! All addresses are physical (PA) unless a field says otherwise.
//!
//! Requirements: G1-BOOT-009.

use crate::id::{MAX_CPUS, MAX_VCPUS, MAX_VMS};

/// `magic` of [`BootInfo`].
pub const BOOT_MAGIC: u64 = u64::from_le_bytes(*b"G1BOOT\0\0");

/// The PPI of the performance monitors, of machines and of guests (Arm DEN 0094).
pub const PMU_INTID: u32 = 23;
/// INTIDs below this one can be owned: SGIs, PPIs and SPIs.
pub const MAX_INTIDS: usize = 1020;
/// Most memory regions of one VM.
pub const MAX_REGIONS: usize = 4;
/// Most pieces that are copied when a VM is loaded.
pub const MAX_LOADS: usize = 6;

/// Most channels of the machine.
pub const MAX_CHANNELS: usize = 160;
/// Most emulated PL061 blocks.
pub const MAX_PL061: usize = 5;

/// Stage-2 tables, and lists of ranges, that a VM which may share memory can take after boot.
pub const SHARING_TABLES: u64 = 32;

/// Effect of a store to a channel's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum ChannelKind {
    /// Unused entry.
    #[default]
    None = 0,
    /// Raises line `number` of the emulated PL061 numbered `target`.
    Pl061 = 1,
    /// Pulses the edge-triggered interrupt `number` of the VM `target`.
    Interrupt = 2,
    /// Nothing, if the value stored is 1 (virtio InterruptACK); any other store goes to Gear2.
    Acknowledge = 3,
    /// `Event::Doorbell` for the loop of the CPU that the store comes from.
    Gear2 = 4,
    /// Arms lines of the emulated PL061 numbered `target`: those whose bits both the value stored
    /// and `number` have.
    Arm = 5,
    /// Rings the doorbell numbered `target`.
    Doorbell = 6,
}

/// A store that Gear1 turns into an interrupt by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootChannel {
    /// Address in the storing VM (IPA), a multiple of 4.
    pub ipa: u64,
    /// Effect of the store.
    pub kind: ChannelKind,
    /// PL061 index, `VmId` or doorbell index.
    pub target: u32,
    /// Line or INTID.
    pub number: u32,
}

/// Most doorbells between VMs.
pub const MAX_DOORBELLS: usize = 16;

/// A doorbell: the interrupt that another VM's store makes pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootDoorbell {
    /// Least counter ticks between two interrupts; 0: each ring is delivered at once.
    pub interval: u64,
    /// VM that is interrupted (`VmId`).
    pub vm: u32,
    /// INTID of its edge-triggered interrupt: of the machine's GIC if the VM has that, else of the
    /// VM's virtual GIC; 0: unused entry.
    pub intid: u32,
    /// 1: Gear2 may ring it (`CHANNEL_RING`), when the VM that rings it has ended, or as a power
    /// button; 0: it may not.
    pub gear2: u32,
}

/// An emulated PL061 of the device VM: how a channel reaches its userspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootPl061 {
    /// Address of the register page in that VM (IPA).
    pub ipa: u64,
    /// INTID of the level-sensitive interrupt in that VM.
    pub intid: u32,
    /// VM that has the PL061 (`VmId`).
    pub vm: u32,
}

/// Most bus masters that VMs own.
pub const MAX_MASTERS: usize = 64;

/// A device that reads and writes memory by itself, and how Gear1 ends that when its VM has
/// stopped: it stores `value`, and the device has stopped when all bits of `busy` read as zero.
///
/// With `functions` it is a bus of PCI functions: Gear1 clears Bus Master Enable of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootMaster {
    /// The 32-bit register that is stored to and read, a multiple of 4, or configuration space of
    /// the bus (ECAM), a multiple of 4 KiB (PA); 0: unused entry.
    pub register: u64,
    /// Value that Gear1 stores to stop the device.
    pub value: u32,
    /// Bits that read as zero when the device has stopped.
    pub busy: u32,
    /// The VM that owns the device (`VmId`).
    pub vm: u32,
    /// Functions that configuration space has room for, at most [`MAX_FUNCTIONS`]; 0: a register.
    pub functions: u32,
}

/// Functions of a PCI bus: 32 devices with 8 each.
pub const MAX_FUNCTIONS: u32 = 256;

/// Most PCI functions that VMs own apart from their bridges.
pub const MAX_PCI_FUNCTIONS: usize = 16;

/// Base address registers (BARs) of a PCI function.
pub const BARS: usize = 6;

/// A PCI function that a VM owns apart from its bridge. The VM's accesses to configuration space
/// exit to Gear1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootFunction {
    /// Configuration space (PA), 4 KiB, which the VM sees at the same address (IPA); 0: unused
    /// entry.
    pub space: u64,
    /// The VM that owns the function (`VmId`).
    pub vm: u32,
    /// BARs, as init has placed them (PCI addresses). One in I/O space, which no VM has, is 0.
    pub bars: [u32; BARS],
    /// Value of each BAR when all ones were written; 0: the function has no such BAR.
    pub sizes: [u32; BARS],
}

/// Most ranges of StreamIDs that VMs own.
pub const MAX_STREAM_RANGES: usize = 16;

/// Most tables of the second level of the SMMU's stream table. A VM's stop goes through all
/// entries.
pub const MAX_STREAM_TABLES: usize = 8;

/// StreamIDs of devices whose accesses go through a VM's stage 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootStreams {
    /// First StreamID.
    pub first: u32,
    /// Number of StreamIDs; 0: unused entry.
    pub count: u32,
    /// The VM that owns the devices (`VmId`).
    pub vm: u32,
}

/// The SMMU that init has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootSmmu {
    /// Registers, mapped at [`layout::el2::SMMU`](crate::layout::el2::SMMU); 0: the runtime drives
    /// none.
    pub registers: u64,
    /// Ticks of the counter after which an SMMU that has not invalidated is taken as stuck.
    pub patience: u64,
    /// Bytes of registers that are mapped.
    pub size: u64,
    /// INTID of its events, owned by Gear2; 0: none.
    pub intid: u32,
    /// Tables of the second level of an SMMUv3's stream table, at most [`MAX_STREAM_TABLES`],
    /// mapped at [`layout::el2::SMMU_STREAMS`](crate::layout::el2::SMMU_STREAMS). Streams of a VM
    /// that init has not loaded are shut.
    pub stream_tables: u32,
    /// Context banks of an SMMUv2 in use: the first ones. Contexts of an IPMMU that VMs have.
    pub banks: u32,
    /// Units of an IPMMU, the main one first, a page each; 0: the SMMU is none.
    pub units: u32,
    /// Bits of a StreamID that an SMMUv2 does not tell streams apart by.
    pub ignored: u32,
    /// Streams with an owner. All others abort. Micro-TLB *n* of an IPMMU's unit *u* is stream
    /// 64 *u* + *n*; the numbers of unit 0 are those of contexts, one for each VM.
    pub streams: [BootStreams; MAX_STREAM_RANGES],
}

/// Kinds of [`BootWatchdog`].
pub mod board_watchdog {
    /// No device.
    pub const NONE: u32 = 0;
    /// i.MX's WDOG; the parameter is 1 if the timeout asserts its pin.
    pub const IMX2: u32 = 1;
    /// R-Car's RWDT.
    pub const RWDT: u32 = 2;
    /// The watchdog in the BCM2835's power manager.
    pub const BCM2835: u32 = 3;
    /// A line of a PL061, whose number is the parameter.
    pub const PL061: u32 = 4;
}

/// Most devices that Gear1 feeds: the board's watchdog, and a line for a microcontroller.
pub const MAX_WATCHDOGS: usize = 2;

/// A device that Gear1 feeds while all layers below are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootWatchdog {
    /// A constant of [`board_watchdog`].
    pub kind: u32,
    /// A parameter of the kind's.
    pub parameter: u32,
    /// Time from the last feeding to the reset, in milliseconds; 0: not the device's to count.
    pub timeout_ms: u32,
}

/// Method of turning secondary CPUs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum EnableMethod {
    /// PSCI by SMC.
    #[default]
    PsciSmc = 0,
    /// PSCI by HVC (firmware below EL2 does not exist; kept for completeness of the FDT binding).
    PsciHvc = 1,
    /// A release address is polled (Linux arm64 `spin-table`).
    SpinTable = 2,
}

/// Whether a VM is real-time: Gear1 alone runs it, each vCPU on a CPU of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum RealTime {
    /// Scheduled by Gear2.
    #[default]
    No = 0,
    /// Real-time, with the virtual interrupt controller.
    Emulated = 1,
    /// Real-time, with the physical CPU interface and the physical timers of the VM's CPUs.
    PassThrough = 2,
}

/// A physical CPU.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BootCpu {
    /// Affinity fields of MPIDR_EL1.
    pub mpidr: u64,
    /// Release address with [`EnableMethod::SpinTable`].
    pub release_addr: u64,
    /// Is one of Gear2's CPUs.
    pub gear2: bool,
    /// Is a real-time VM's.
    pub real_time: bool,
    /// Length of the longest vectors of SVE that a VM of this CPU has, in bits; 0: none has SVE.
    pub sve_bits: u32,
}

/// The interrupt controller.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BootGic {
    /// 2 or 3.
    pub version: u32,
    /// Distributor.
    pub gicd: u64,
    /// GICv3: lowest redistributor frame. GICv2: GICC.
    pub gicr: u64,
    /// Distance between two CPUs' redistributors in bytes (GICv3).
    pub gicr_stride: u64,
    /// GICv2 only: hypervisor interface.
    pub gich: u64,
    /// GICv2 only: virtual CPU interface.
    pub gicv: u64,
}

/// A range of a VM's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootRegion {
    /// Guest's address (IPA).
    pub ipa: u64,
    /// Physical address.
    pub pa: u64,
    /// Bytes.
    pub size: u64,
}

/// A piece of the archive, a finished device tree, or a part of the start's seed, that loading
/// copies into a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BootLoad {
    /// Source; of a part of the seed, its offset there.
    pub source: u64,
    /// Destination, inside one of the VM's regions.
    pub destination: u64,
    /// Bytes.
    pub size: u64,
    /// Whether the bytes are a part of the start's seed.
    pub is_seed: bool,
}

/// A VM.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BootVm {
    /// First vCPU (`VcpuId`).
    pub first_vcpu: u16,
    /// Number of vCPUs.
    pub vcpu_count: u16,
    /// Stage-2 root table.
    pub root: u64,
    /// Starting level of the stage-2 walk is fixed by VTCR; VMID for VTTBR_EL2.
    pub vmid: u16,
    /// Entry point of the boot vCPU (IPA).
    pub entry: u64,
    /// X0 of the boot vCPU: the device tree (IPA).
    pub argument: u64,
    /// Memory; unused entries have size 0.
    pub regions: [BootRegion; MAX_REGIONS],
    /// Pieces of the archive that a start copies into the VM; unused entries have size 0.
    pub loads: [BootLoad; MAX_LOADS],
    /// Guest address of the GIC distributor (IPA).
    pub gicd_ipa: u64,
    /// Guest address of the GIC redistributors (IPA), 128 KiB a vCPU (GICv3).
    pub gicr_ipa: u64,
    /// Index of the VM's first channel in `BootInfo::channels`.
    pub first_channel: u16,
    /// Number of channels.
    pub channel_count: u16,
    /// VMs that may share memory with this one by FF-A calls: one bit for each `VmId`.
    pub peers: u16,
    /// Address of the first vCPU's stolen-time record (IPA), followed by the other vCPUs' records;
    /// 0: the VM has no stolen time.
    pub stolen_time_ipa: u64,
    /// Already loaded by init.
    pub loaded: bool,
    /// Whether SYSTEM_OFF of this real-time VM powers the machine off.
    pub powers_machine: bool,
    /// Whether Gear1 reloads and restarts this real-time VM after a fault.
    pub restarts_after_fault: bool,
    /// Whether Gear1 reloads and restarts this real-time VM after SYSTEM_OFF.
    pub restarts_after_off: bool,
    /// Whether the VM is real-time.
    pub real_time: RealTime,
    /// Longest time between two changes of this real-time VM's heartbeat, in counter ticks; 0: it
    /// has none.
    pub heartbeat: u64,
    /// Configuration space of the first bus of the bridge whose functions the VM owns (IPA, and the
    /// same PA), 1 MiB; 0: the VM owns no function apart from its bridge.
    pub pci_space: u64,
    /// Whether the VM has the self-hosted debug registers.
    pub debug: bool,
    /// Whether the VM has the performance monitors.
    pub pmu: bool,
    /// Whether the VM has pointer authentication, on CPUs that have it.
    pub pointer_auth: bool,
    /// Length of the VM's longest vectors of SVE in bits; 0: it has no SVE.
    pub sve_bits: u32,
    /// Whether the VM's calls of the TRNG service go to firmware where the CPU has no source.
    pub firmware_trng: bool,
    /// Whether Gear2 may read the registers of the VM's vCPUs when it has ended.
    pub last_words: bool,
    /// Whether Gear2 may read the registers of the VM's vCPUs that do not run.
    pub dump: bool,
}

/// Gear2 in memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BootGear2 {
    /// Stage-2 root table.
    pub root: u64,
    /// VMID for VTTBR_EL2.
    pub vmid: u16,
    /// First instruction (IPA); X0 = loop's CPU index, SP = its stack.
    pub entry: u64,
    /// Memory of the image, bss included; a restart of Gear2 renews all of it.
    pub image: BootRegion,
    /// Source in the archive and destination of the image file.
    pub load: BootLoad,
    /// Heap. Init leaves image and heap as the memory was: real-time VMs do not wait for Gear2.
    pub heap: BootRegion,
    /// Deadline of a Gear2 loop from an event to the next decision, in counter ticks; 0: Gear1 does
    /// not supervise Gear2.
    pub period: u64,
    /// Whether Gear2 runs at EL1 instead of EL0.
    pub el1: bool,
    /// Restarts of Gear2 within `window`; the next failure halts the machine. 0: no limit.
    pub restarts: u32,
    /// Counter ticks within which restarts are counted.
    pub window: u64,
}

/// Everything the runtime knows when it starts.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BootInfo {
    /// [`BOOT_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`] of init.
    pub abi_version: u32,
    /// Physical CPUs; entry 0 is the one that booted.
    pub cpu_count: u32,
    /// Physical CPUs.
    pub cpus: [BootCpu; MAX_CPUS],
    /// Method of turning the CPUs on.
    pub enable_method: EnableMethod,
    /// TTBR0_EL2 of the runtime.
    pub ttbr0_el2: u64,
    /// MAIR_EL2 of the runtime.
    pub mair_el2: u64,
    /// TCR_EL2 of the runtime.
    pub tcr_el2: u64,
    /// VTCR_EL2 for all VMs and Gear2.
    pub vtcr_el2: u64,
    /// Bytes of a stage-2 root table.
    pub root_size: u64,
    /// An empty stage-2 table with a VMID of its own, for VTTBR_EL2 between two VMs
    /// (errata 1319367 and 1319537 of Cortex-A57 and A72).
    pub null_root: u64,
    /// VMID of the empty table.
    pub null_vmid: u16,
    /// PA of the boot page (see [`ImageHeader::boot_page`](crate::image::ImageHeader)).
    pub boot_page: u64,
    /// PA of the runtime's link address [`layout::el2::RUNTIME`](crate::layout::el2::RUNTIME).
    pub image: u64,
    /// Lowest PA of the stage-2 table pool.
    pub pool: u64,
    /// Bytes of the pool.
    pub pool_size: u64,
    /// Bytes of the pool that hold tables, from its start; the rest is free and not cleared.
    pub pool_used: u64,
    /// PA of init. The runtime wipes this memory, of which nothing is used any longer.
    pub init: u64,
    /// Bytes of init, its stack and heap included.
    pub init_size: u64,
    /// The interrupt controller.
    pub gic: BootGic,
    /// Kind of UART: a constant of [`info::uart`](crate::info::uart).
    pub uart_kind: u32,
    /// INTID of the boot UART, owned by Gear2.
    pub uart_intid: u32,
    /// VMs in use.
    pub vm_count: u32,
    /// vCPUs in use.
    pub vcpu_count: u32,
    /// VMs.
    pub vms: [BootVm; MAX_VMS],
    /// For each vCPU the CPU whose loop first gets its wake-ups.
    pub owner_cpu: [u16; MAX_VCPUS],
    /// Gear2.
    pub gear2: BootGear2,
    /// For each physical INTID its owner.
    pub irq_owner: [IrqOwner; MAX_INTIDS],
    /// For each physical INTID whether it is edge-triggered: bit `n % 32` of word `n / 32`.
    pub irq_edge: [u32; 32],
    /// Channels, with those of each VM in sequence.
    pub channels: [BootChannel; MAX_CHANNELS],
    /// Doorbells between VMs; unused entries have `intid` 0.
    pub doorbells: [BootDoorbell; MAX_DOORBELLS],
    /// Emulated PL061 blocks; unused entries have `ipa` 0.
    pub pl061: [BootPl061; MAX_PL061],
    /// Bus masters; unused entries have `register` 0.
    pub masters: [BootMaster; MAX_MASTERS],
    /// PCI functions apart from their bridges; unused entries have `space` 0.
    pub functions: [BootFunction; MAX_PCI_FUNCTIONS],
    /// The SMMU.
    pub smmu: BootSmmu,
    /// Devices that Gear1 feeds; unused entries have `kind` 0.
    pub watchdogs: [BootWatchdog; MAX_WATCHDOGS],
    /// Counter ticks from one feeding to the next.
    pub feed_period: u64,
    /// Counter ticks in two cycles of a clock of 32 kHz, for which some devices have to wait.
    pub settle_ticks: u64,
    /// Bytes of each CPU's ring of [`trace`](crate::trace) records, a power of two; 0: there are
    /// none.
    pub trace_size: u64,
    /// Whether each CPU writes its ring from its start on.
    pub trace_from_boot: bool,
    /// Lengths of vectors that the boot CPU has, a bit each: bit *n* stands for 128 (*n* + 1) bits; 0:
    /// no VM has SVE.
    pub vector_lengths: u16,
    /// Key of the seeds of guests (`gear1_core::seed`).
    pub seed_key: [u32; 8],
}

/// Entries of [`BootInfo::irq_owner`] that are looked at together, a divisor of their number.
const OWNER_GROUP: usize = 6;
const _: () = assert!(MAX_INTIDS.is_multiple_of(OWNER_GROUP));

impl BootInfo {
    /// Calls `each` with the INTID of each interrupt that has an owner, and with the owner. Few have
    /// one, so a group of entries is passed over at once.
    #[inline]
    pub fn for_each_owned(&self, mut each: impl FnMut(u32, IrqOwner)) {
        let mut first = 0_u32;
        // Bound: MAX_INTIDS (1020) / 6.
        for group in self.irq_owner.as_chunks::<OWNER_GROUP>().0 {
            // The compiler, which saves bytes in the runtime, would loop over them.
            let [a, b, c, d, e, f] = group;
            if a.0 | b.0 | c.0 | d.0 | e.0 | f.0 != IrqOwner::NONE.0 {
                // Bound: 6.
                for (intid, owner) in (0..OWNER_GROUP as u32).zip(group) {
                    if *owner != IrqOwner::NONE {
                        each(first.wrapping_add(intid), *owner);
                    }
                }
            }
            first = first.wrapping_add(OWNER_GROUP as u32);
        }
    }
}

/// Receiver of a physical interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct IrqOwner(u8);

impl IrqOwner {
    /// Nobody: stays disabled.
    pub const NONE: Self = Self(0);
    /// Gear2, as an event.
    pub const GEAR2: Self = Self(1);
    const FIRST_VM: u8 = 2;

    /// Returns the owner that is the VM numbered `index`, if there can be one.
    pub fn vm(index: usize) -> Option<Self> {
        (index < MAX_VMS).then(|| Self(Self::FIRST_VM + index as u8))
    }

    /// Returns the index of the VM that owns the interrupt.
    pub fn vm_index(self) -> Option<usize> {
        self.0.checked_sub(Self::FIRST_VM).map(usize::from)
    }
}

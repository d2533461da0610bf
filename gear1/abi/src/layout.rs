//! Address-space layouts: Gear1's runtime in EL2 VA, Gear2 in IPA.
//!
//! EL2's virtual address space ([`el2`]). The boot page is mapped at its physical address, for CPUs
//! that turn their MMU on; init's image has 0x7000_0000_0000 while it runs.
//!
//! | address | contents | rights |
//! |---|---|---|
//! | 0x8000_0000_0000 | runtime: text RX, constants R, data RW | W^X |
//! | 0x8001_0000_0000 | stacks, 8 KiB per CPU, unmapped below | RW |
//! | 0x8002_0000_0000 | pool of stage-2 tables | RW |
//! | 0x8003_0000_0000 | GIC distributor | device |
//! | 0x8003_1000_0000 | redistributors, or GICC and GICH | device |
//! | 0x8003_2000_0000 | boot UART | device |
//! | 0x8003_3000_0000 | what Gear1 feeds: the board's watchdog, a line's controller; a page each | device |
//! | 0x8003_4000_0000 | SMMU, if a VM owns a device behind it | device |
//! | 0x8004_0000_0000 | two windows of 64 KiB per CPU, empty between two uses | |
//! | 0x8005_0000_0000 | `BootInfo` | R |
//! | 0x8006_0000_0000 | tables of the windows, one page per CPU | RW |
//! | 0x8007_0000_0000 | stolen time or heartbeat, one page per VM, which that VM reads or writes | RW |
//! | 0x8008_0000_0000 | the SMMU's command and event queues, a page each | RW |
//! | 0x8008_1000_0000 | second level of the SMMU's stream table | RW |
//! | 0x8009_0000_0000 | rings of trace records, 16 MiB apart | RW |
//! | 0x800a_0000_0000 | SVE registers, 16 KiB apart, of each vCPU whose VM has SVE | RW |
//!
//! Gear2's intermediate physical address space ([`gear2`]).
//!
//! | address | contents | rights |
//! |---|---|---|
//! | 0x1000_0000 | image: text RX, constants R, data RW | W^X |
//! | 0x2000_0000 | `Gear2Info` | R |
//! | 0x2100_0000 | manifest | R |
//! | 0x3000_0000 | stacks, 48 KiB per loop, unmapped below | RW |
//! | 0x4000_0000 | boot UART, unless the device VM owns it | device |
//! | 0x5000_0000 | memory shared with the device model, if there is a device VM | RW |
//! | 0x5100_0000 | register pages of the virtio devices of served VMs, a page for each VM | RW |
//! | 0x5200_0000 | rings of trace records, 16 MiB apart, if the manifest has them | R |
//! | 0x6000_0000 | one page that outlives restarts, then the heap | RW |
//!
//! A guest's memory, interrupt controller and PL011 are at the addresses in its device tree. The
//! distributor, the redistributors and the PL011 are not mapped: each access exits. A GICv2 guest's
//! CPU interface is the mapped GICV, except for the page of GICC_DIR. A served guest maps the
//! register page of its virtio devices read-only. Every VM but a real-time one maps its page of
//! stolen time read-only; a real-time VM with a heartbeat maps the page read-write. The device VM
//! maps its devices at the board's addresses, the memory of
//! the guests that it serves at physical addresses, and its window: the PL061 blocks and the
//! doorbell page are not mapped, the register pages are writable.
//!
//! Requirements: G1-MEM-003.

/// Size of a page and of the translation granule, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// Layout of the EL2 virtual address space of Gear1's runtime (48-bit VA).
/// The low half holds only the boot page, mapped where it lies physically.
pub mod el2 {
    /// Link address of the runtime image.
    pub const RUNTIME: u64 = 0x8000_0000_0000;
    /// Stacks: CPU *i*'s slot is `STACKS + i * STACK_STRIDE`; the stack is the
    /// upper [`STACK_SIZE`] bytes of the slot, the rest is unmapped.
    pub const STACKS: u64 = 0x8001_0000_0000;
    /// Distance between two stack slots, in bytes.
    pub const STACK_STRIDE: u64 = 0x1_0000;
    /// Size of one CPU's stack in bytes.
    pub const STACK_SIZE: u64 = 0x2000;
    /// The pool of stage-2 tables, linear from its lowest PA.
    pub const POOL: u64 = 0x8002_0000_0000;
    /// GIC distributor.
    pub const GICD: u64 = 0x8003_0000_0000;
    /// GIC redistributors: CPU *i*'s RD and SGI frames at `GICR + i * 0x2_0000`;
    /// or the GICv2 CPU interface (GICC) and then, at +0x2_0000, GICH.
    pub const GICR: u64 = 0x8003_1000_0000;
    /// Boot UART registers, one page.
    pub const UART: u64 = 0x8003_2000_0000;
    /// Registers of [`crate::boot::BootInfo::watchdogs`], one page each.
    pub const WATCHDOGS: u64 = 0x8003_3000_0000;
    /// Registers of the SMMU: an SMMUv3's two pages of 64 KiB, or as many bytes of an SMMUv2's as
    /// [`BootSmmu::size`](crate::boot::BootSmmu::size) says, or those of an IPMMU's units, a page
    /// each.
    pub const SMMU: u64 = 0x8003_4000_0000;
    /// CPU *i*'s windows for guest memory: `WINDOWS + i * WINDOW_STRIDE`, two
    /// windows of [`WINDOW_SIZE`] each (source, then destination).
    pub const WINDOWS: u64 = 0x8004_0000_0000;
    /// Distance between the windows of two CPUs, in bytes.
    pub const WINDOW_STRIDE: u64 = 0x20_0000;
    /// Size of one window in bytes.
    pub const WINDOW_SIZE: u64 = 0x1_0000;
    /// Most bytes of a VM's memory that Gear1 wipes, copies or cleans before it takes interrupts
    /// and deadlines again. The copy of one piece takes half of the instructions allowed from an
    /// exit to an entry (`docs/worst-cases.md`).
    pub const PIECE: u64 = 0x8000;
    /// [`crate::boot::BootInfo`], read-only.
    pub const BOOT_INFO: u64 = 0x8005_0000_0000;
    /// The level-3 table that maps the windows of CPU *i*, one page a CPU, at
    /// `WINDOW_TABLES + i * 4096`, read-write.
    pub const WINDOW_TABLES: u64 = 0x8006_0000_0000;
    /// Stolen time of VM *i* ([`crate::guest::StolenTime`] of each vCPU): one page a VM at
    /// `STOLEN_TIME + i * 4096`, read-write; its VM reads it. A real-time VM's page holds the word
    /// of its heartbeat, which that VM writes.
    pub const STOLEN_TIME: u64 = 0x8007_0000_0000;
    /// The SMMU's command queue, a page, and behind it the event queue, a page.
    pub const SMMU_QUEUES: u64 = 0x8008_0000_0000;
    /// The SMMU's stream table entries: tables of the second level, 16 KiB each, one after the
    /// other.
    pub const SMMU_STREAMS: u64 = 0x8008_1000_0000;
    /// CPU *i*'s piece for its ring of trace records: `TRACE + i * TRACE_STRIDE`. A page, with the
    /// ring's [`Header`](crate::trace::Header) at its end, and the records behind it.
    pub const TRACE: u64 = 0x8009_0000_0000;
    /// Distance between the pieces of two CPUs, in bytes.
    pub const TRACE_STRIDE: u64 = 0x100_0000;
    /// SVE registers of vCPU *i*, whose VM has SVE: `SVE + i * SVE_STRIDE`.
    pub const SVE: u64 = 0x800a_0000_0000;
    /// Distance between the SVE registers of two vCPUs, in bytes.
    pub const SVE_STRIDE: u64 = 0x4000;
}

/// Layout of Gear2's intermediate physical address space (flat: its addresses are IPAs).
pub mod gear2 {
    /// Link address of the Gear2 image.
    pub const IMAGE: u64 = 0x1000_0000;
    /// Exception vectors of an image for EL1.
    pub const VECTORS: u64 = IMAGE + 0x800;
    /// [`crate::info::Gear2Info`], read-only.
    pub const INFO: u64 = 0x2000_0000;
    /// The manifest blob, read-only.
    pub const MANIFEST: u64 = 0x2100_0000;
    /// Stacks: loop *i*'s slot is `STACKS + i * STACK_STRIDE`; the stack is the
    /// upper [`STACK_SIZE`] bytes of the slot, the rest is unmapped.
    pub const STACKS: u64 = 0x3000_0000;
    /// Distance between two stack slots, in bytes.
    pub const STACK_STRIDE: u64 = 0x1_0000;
    /// Size of one loop's stack in bytes.
    pub const STACK_SIZE: u64 = 0xc000;
    /// Boot UART registers (Device-nGnRE), one page, while Gear2 owns it.
    pub const UART: u64 = 0x4000_0000;
    /// The region shared with the device model (`gear2-protocol`), if there is a device VM.
    pub const SHARED: u64 = 0x5000_0000;
    /// Register pages of served VMs (`gear2-protocol`), one after the other, uncached as for all who
    /// see them.
    pub const REGISTERS: u64 = 0x5100_0000;
    /// Rings of trace records, as at [`el2::TRACE`](super::el2::TRACE), and with the same stride.
    pub const TRACE: u64 = 0x5200_0000;
    /// Heap, read-write, as large as the manifest says.
    pub const HEAP: u64 = 0x6000_0000;
}

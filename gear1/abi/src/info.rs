//! The hand-over from init to Gear2, mapped at [`layout::gear2::INFO`](crate::layout::gear2::INFO).
//!
//! Requirements: G1-RUN-005.

use crate::id::{MAX_CPUS, MAX_VMS};

/// `magic` of [`Gear2Info`].
pub const INFO_MAGIC: u64 = u64::from_le_bytes(*b"G2INFO\0\0");

/// Kinds of UART that Gear1 and Gear2 drive.
pub mod uart {
    /// No UART.
    pub const NONE: u32 = 0;
    /// Arm PL011.
    pub const PL011: u32 = 1;
    /// Renesas SCIF.
    pub const SCIF: u32 = 2;
    /// The mini-UART of Broadcom's BCM2835 and later: a 16550's registers, four bytes apart.
    pub const MINI: u32 = 3;
    /// Offset of the mini-UART's registers in their page.
    pub const MINI_OFFSET: u64 = 0x40;
    /// The UART of Cadence in Zynq SoCs.
    pub const CADENCE: u32 = 4;
    /// The UART of NXP's i.MX SoCs.
    pub const IMX: u32 = 5;
}

/// The machine and its VMs as Gear2 sees them. Written once by Gear1's init.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Gear2Info {
    /// [`INFO_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`] of Gear1.
    pub abi_version: u32,
    /// Physical CPUs of the machine.
    pub cpu_count: u32,
    /// VMs in the manifest.
    pub vm_count: u32,
    /// Physical counter frequency in Hz.
    pub counter_hz: u32,
    /// Bytes of the manifest blob at [`layout::gear2::MANIFEST`](crate::layout::gear2::MANIFEST).
    pub manifest_size: u64,
    /// Bytes of the heap at [`layout::gear2::HEAP`](crate::layout::gear2::HEAP).
    pub heap_size: u64,
    /// Kind of UART: a constant of [`uart`].
    pub uart_kind: u32,
    /// INTID of the boot UART.
    pub uart_intid: u32,
    /// Bytes of the region shared with the device model at
    /// [`layout::gear2::SHARED`](crate::layout::gear2::SHARED); 0 without a device VM.
    pub shared_size: u64,
    /// Physical CPUs that have a Gear2 loop: bit *i* for CPU *i*.
    pub cpu_mask: u64,
    /// MPIDR_EL1 affinity of each CPU.
    pub mpidr: [u64; MAX_CPUS],
    /// Cluster of each CPU, counted from 0. CPUs of one cluster share a cache and are of one kind.
    pub cluster: [u8; MAX_CPUS],
    /// Each VM's first vCPU (`VcpuId`).
    pub first_vcpu: [u16; MAX_VMS],
    /// Each VM's number of vCPUs.
    pub vcpu_count: [u16; MAX_VMS],
    /// Register pages at [`layout::gear2::REGISTERS`](crate::layout::gear2::REGISTERS), in the
    /// manifest's order of the VMs that have virtio devices.
    pub register_pages: u64,
    /// INTID of the SMMU's event queue, which is Gear2's; 0: there is none.
    pub smmu_intid: u32,
    /// Bytes of each CPU's ring of [`trace`](crate::trace) records at
    /// [`layout::gear2::TRACE`](crate::layout::gear2::TRACE); 0: there are none.
    pub trace_size: u64,
}

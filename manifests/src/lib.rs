//! The manifest, which names the VMs of a machine, and the archive that carries them.
//!
//! Owns binding v1 (`docs/manifest.md`), the only reader of compiled manifests, the rules a
//! manifest must keep, and the only reader of the boot archive. Gear1's init, Gear2 and xtask use
//! this crate, so a manifest that one of them accepts is accepted by all.
//!
//! Invariants: no heap; no input causes a panic; nothing is repaired silently: each error is
//! reported with the node, the property, the rule and the repair. The crate has no knowledge of
//! particular VMs: only the manifest describes them.

#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod archive;
pub mod blob;
mod digest;
mod error;
mod found;
mod judge;
pub mod limits;
mod list;
mod model;
mod nearest;
mod node_path;
mod read;
mod rules;
mod words;

#[cfg(test)]
mod testing;

pub use archive::{Archive, ArchiveError, Member};
pub use blob::{Blob, BlobError, Node, Property};
pub use digest::check_digests;
pub use error::{Found, ManifestError, NodePath, Refused, Rule, Severity};
pub use found::Load;
pub use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, MAX_VCPUS_PER_VM, MAX_VMS, VmId};
#[cfg(test)]
pub(crate) use judge::validate;
#[cfg(any(test, feature = "host"))]
pub use judge::warn;
pub use judge::{Judged, judge, judge_scheduling, validate_into};
pub use list::List;
pub use model::{
    AsBooted, Balancer, BoardWatchdog, Budget, BusMaster, Channel, ChannelEnd, Console, CpuList,
    CpuSet, DevicePatterns, Fed, Gear2Config, GicMode, GpioHeartbeat, Manifest, Memory, NamedFile,
    Names, OnGiveUp, Parameters, Payload, Policy, Pool, Privilege, Region, Restart, RestartLimit,
    Rtc, Scheduler, Service, SharedMemory, VhostFunction, VhostUser, VirtioDevice, VirtioKind, Vm,
    VmKind, WatchdogDevice, Window,
};
pub use nearest::nearest;
pub use read::{binding, read, read_into};
#[cfg(any(test, feature = "host"))]
pub use rules::Exposed;
pub use rules::{Board, Demand, Supply, load_on, server_of, supply_of};

/// The version of the binding that this crate reads.
pub const BINDING_VERSION: u32 = 1;
/// The value of the root's `compatible` property.
pub const COMPATIBLE: &str = "gearv,manifest";

/// VM memory starts and ends on multiples of this, the largest block of a level 2 table.
pub const MEMORY_ALIGN: u64 = 2 << 20;
/// No memory lies at or above this address.
pub const ADDRESS_LIMIT: u64 = 1 << 48;

/// The most virtio devices of one VM: their registers share a page.
pub const MAX_VIRTIO_PER_VM: usize = 8;
/// The most virtio devices of all VMs.
pub const MAX_VIRTIO: usize = 32;
/// The most queues of a virtio device that another program serves.
pub const MAX_VHOST_QUEUES: u32 = 4;
/// The most bytes of a virtio device's configuration: a device has 512 bytes of registers.
pub const MAX_VHOST_CONFIG: u32 = 256;
/// The most pools of CPUs.
pub const MAX_POOLS: usize = gear1_abi::id::MAX_CPUS;
/// The most windows of all pools.
pub const MAX_WINDOWS: usize = 32;
/// The most nodes below `/channels`.
pub const MAX_CHANNELS: usize = gear1_abi::boot::MAX_DOORBELLS;
/// The most nodes below `/shared-memory`.
pub const MAX_SHARED: usize = 8;
/// The most nodes below `/bus-masters`.
pub const MAX_BUS_MASTERS: usize = 8;
/// The most nodes below `/as-booted`.
pub const MAX_AS_BOOTED: usize = 16;

/// Name of the compiled manifest in the boot archive.
pub const MANIFEST_MEMBER: &str = "manifest.dtb";
/// Name of Gear2's image in the boot archive.
pub const GEAR2_MEMBER: &str = "gear2.bin";
/// Prefix of the name of a guest's device tree in the boot archive; the VM's name follows.
pub const GUEST_DTB_PREFIX: &str = "dtb/";

//! Memory layout of a guest: guest-physical addresses and INTIDs, those of QEMU's `virt`.

/// Start of RAM.
pub const RAM: u64 = 0x4000_0000;
/// GIC distributor.
pub const GICD: u64 = 0x0800_0000;
/// GICv2's CPU interface.
pub const GICC: u64 = 0x0801_0000;
/// The first redistributor.
pub const GICR: u64 = 0x080a_0000;
/// PL011.
pub const UART: u64 = 0x0900_0000;
/// The device that the VMM answers.
pub const DEVICE: u64 = 0x0a00_0000;
/// The doorbell: a store of 32 bits to its first word is an interrupt in the other VM.
pub const DOORBELL: u64 = 0x0a00_1000;
/// Registers of the disk.
pub const DISK: u64 = 0x0a00_2000;
/// Registers of the network card.
pub const CARD: u64 = 0x0a00_3000;
/// A page of memory that two VMs of a process share.
pub const SHARED: u64 = 0x0a01_0000;
/// Size of a device's registers, in bytes.
pub const PAGE: u64 = 0x1000;
/// Size of a redistributor's frames, in bytes.
pub const GICR_STRIDE: u64 = 0x2_0000;

/// INTID of the PL011.
pub const UART_INTID: u32 = 33;
/// INTID of the interrupt that the other VM's doorbell causes.
pub const DOORBELL_INTID: u32 = 40;
/// INTID of the disk.
pub const DISK_INTID: u32 = 41;
/// INTID of the network card.
pub const CARD_INTID: u32 = 42;
/// Interrupts of the GIC, private ones included.
pub const INTIDS: u32 = 64;

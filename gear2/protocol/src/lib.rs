//! The interface of Gear2 and the device model (GDM): one shared region of memory, mapped
//! write-back on both sides, and two doorbells.
//!
//! Owns: the layout of that region and the states of its parts. Plain data: either side may change
//! any word at any time, so every word is an atomic. A reader copies a word once, checks the copy,
//! and trusts nothing else.
//!
//! Doorbells: Gear2 raises line [`LINE_REQUEST`] of the first emulated PL061 of the device VM, or
//! for an access of a guest the line of its device ([`line_of_channel`]); GDM stores to
//! [`DOORBELL_GEAR2`] in its doorbell page. Both signal a level that stands in memory (a posted
//! slot, a ring's index). A doorbell that rings twice or early therefore costs nothing, and the
//! next look at memory makes up for one that a restart lost.
#![no_std]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

mod region;
pub mod virtio;

pub use region::{ConsoleBlock, DeviceRegisters, Page, Region, RegisterPage};

/// Version of this contract: major in the upper half, minor in the lower one. GDM refuses another
/// major version. Either side serves another minor one: a minor version may add what the other side
/// does without, and changes no number and no layout.
///
/// | version | adds |
/// |---|---|
/// | 2.1 | [`doorbell_arm`], which a Gear1 of 2.0 takes for an access to nothing; [`offset::INPUT_LOW`], without which pasted input gets on once a second |
/// | 2.2 | [`vm_flag::REAL_TIME`], [`vm_flag::DEVICE_MODEL`] and [`vm_flag::NO_CONSOLE`], without which `gearctl` gives fewer reasons |
/// | 2.3 | [`op::SCHED_CPU`] and the operations behind it, without which there is no `gearctl sched` |
/// | 2.4 | waits and preemptions in [`op::VCPU_INFO`], without which `gearctl top` has dashes for them |
/// | 2.5 | [`RTC_DEVICE`], which an older gdm refuses: the guest that looks at its clock gets an abort |
/// | 2.6 | [`op::SCHED_POOL`], without which `gearctl sched` shows no pools |
/// | 2.7 | [`cpu_flag::CLUSTER`], without which `gearctl sched` shows all CPUs in cluster 0, and [`stays::STARVES`], of which an older `gearctl` shows the number |
/// | 2.8 | [`device_word::SET_UP`], without which GDM does each write of a register |
/// | 3.0 | a page of slots ([`offset::MMIO`]) and a page of doorbells ([`doorbell_page`]) for each VM, in other places than before |
/// | 3.1 | nine queues of a device in place of four ([`device_word::SET_UP_HERE`] is 2), without which GDM does each write of a register |
/// | 3.2 | [`op::SCHED_SET_POOL`], without which `gearctl sched pool` changes nothing, and [`stays::WINDOW`] and [`stays::NO_WINDOW`] |
/// | 3.3 | [`vm_flag::FAILED_OVER`], which an older `gearctl` does not show |
/// | 3.4 | [`op::VM_HEALTH`], without which `gearctl list` has dashes, and [`op::LAST_WORDS`] and the operations behind it, without which there is no `gearctl last-words` |
/// | 3.5 | [`op::VCPU_REGISTERS`], without which there is no `gearctl dump`, and [`device_word::HOLD_ASKED`], without which devices of a VM that is paused go on, and [`vm_flag::SUSPENDED`] |
/// | 3.6 | [`op::VM_POWER_BUTTON`], without which `gearctl shutdown` presses buttons of input devices only |
/// | 3.7 | [`op::TRACE`] and the operations behind it, without which there is no `gearctl trace` |
/// | 3.8 | [`op::VCPU_UNSEEN`], without which `gearctl` takes the idle time of a vCPU that has its CPU to itself for time that the vCPU ran |
/// | 3.9 | `devices` of [`op::VM_PAUSE`], without which `gearctl dump` does not wait for the devices of a VM that has stopped, and FP registers in [`op::VCPU_REGISTERS`], without which a core file has none |
/// | 3.10 | aborted accesses in [`op::VM_HEALTH`], without which `gearctl events` tells none |
pub const PROTOCOL_VERSION: u32 = 0x0003_000a;
/// `Header::magic`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GEARSHM\0");
/// Bytes of the region.
pub const REGION_SIZE: usize = 0x20_0000;

/// Line of the first PL061 that Gear2 raises for resets, control answers and console input.
pub const LINE_REQUEST: u32 = 0;
/// Offset in each doorbell page of the store that reaches Gear2.
///
/// The first doorbell page is GDM's own and has this doorbell alone. A page follows for each VM
/// that is served, in the order of their register pages ([`doorbell_page`]), with the doorbells of
/// that VM's devices: a process that serves one VM maps one page, and rings at no other VM.
pub const DOORBELL_GEAR2: usize = 0x800;
/// Number of the doorbell page of the VM whose register page is number `registers`.
pub const fn doorbell_page(registers: u32) -> u32 {
    registers + 1
}
/// Offset in the doorbell page of the store that interrupts the guest of virtio device `channel`.
pub const fn doorbell_device(channel: usize) -> usize {
    channel * 8
}
/// Offset in the doorbell page of the store that arms lines of an emulated PL061, a bit each, from
/// line 0 on; bits of other VMs' lines have no effect. A line that was armed is shown once for each
/// arming, until its interrupt is disabled:
/// a guest that notifies its device all the time wakes GDM once until GDM has looked. An edge that
/// came meanwhile is shown as soon as the line is armed, so that none is lost.
pub const fn doorbell_arm(pl061: usize) -> usize {
    0x900 + pl061 * 8
}
/// PL061 and line that a guest's queue notification of virtio device `channel` raises, and Gear2
/// when it has posted an access to that device: the first PL061 is Gear2's, the devices follow,
/// eight a PL061.
pub const fn line_of_channel(channel: usize) -> (usize, u32) {
    (1 + channel / 8, (channel % 8) as u32)
}

/// Most virtio devices of all guests.
pub const MAX_DEVICES: usize = 32;
/// Device of an [`MmioSlot`] whose access is to a guest's real-time clock, a PL031, instead of a
/// virtio device. [`LINE_REQUEST`] announces it, and [`DOORBELL_GEAR2`] its answer.
pub const RTC_DEVICE: u32 = MAX_DEVICES as u32;
/// Most VMs with a console ring, in the order of `VmId`.
pub const MAX_CONSOLES: usize = 16;
/// Offset of the virtio-mmio QueueNotify register, which is a channel and never forwarded.
pub const VIRTIO_QUEUE_NOTIFY: u64 = 0x50;
/// Offset of the virtio-mmio InterruptACK register: a store of 1 ends in Gear1,
/// because the interrupt is edge-triggered and InterruptStatus shows bit 0 until a reset.
pub const VIRTIO_INTERRUPT_ACK: u64 = 0x64;
/// Bytes between two virtio-mmio devices of a guest, in its register page.
pub const VIRTIO_STRIDE: u64 = 0x200;

/// Words of 64 bits in a device's page that Gear2 and GDM share.
pub mod device_word {
    /// First word of the longest size of each queue, as GDM lays it down; 0: there is no such queue.
    pub const SIZES: usize = 464;
    /// Features that GDM offers to the driver, all 64 bits of them.
    pub const FEATURES: usize = 503;
    /// Guest address of the guest's RAM, in which rings may lie, and the first one behind it.
    pub const RAM_START: usize = 504;
    /// See [`RAM_START`].
    pub const RAM_END: usize = 505;
    /// Counts the register writes that Gear2 has done. Gear2's word.
    pub const WRITES: usize = 506;
    /// GDM stores [`SET_UP_HERE`] when the words above are laid down: from then on Gear2 does the
    /// writes of [`virtio::SetUp`](crate::virtio::SetUp), unless GDM has an access to the device in
    /// a slot, or has a reset to answer. GDM stores 0 before the words change their meaning, as for
    /// a device that is not there. A GDM that ends leaves the word as it is: Gear2 goes on.
    pub const SET_UP: usize = 507;
    /// Value of [`SET_UP`] that stands for the words as they are described here. 1 stood for four
    /// queues.
    pub const SET_UP_HERE: u64 = 2;
    /// GDM stores 1 when the driver has written what a reset by Gear2 does not take back, which is
    /// the configuration: GDM does the next reset then, and stores 0.
    pub const CONFIGURED: usize = 508;
    /// GDM stores 1 while the device's thread looks at the slots by itself, so that Gear2 need not
    /// raise the device's line. It stores 0 and looks once more before it sleeps; Gear2 posts
    /// before it reads this.
    pub const LOOKING: usize = 509;
    /// Gear2 adds 1 when it has paused the device's VM, which makes the number odd, and when that VM
    /// is resumed or begins another life, and raises the line. While the number is odd, GDM takes no
    /// request from the device's queues.
    pub const HOLD_ASKED: usize = 462;
    /// GDM copies `HOLD_ASKED` to this word when it does as that says: for an odd number, when the
    /// requests that it had taken are completed.
    pub const HOLD_SEEN: usize = 463;
    /// Gear2 adds 1 when it has stopped the device's VM, before that VM is loaded anew, and raises
    /// the line.
    pub const RESET_ASKED: usize = 510;
    /// GDM copies `RESET_ASKED` to this word when it has reset the device. From then on GDM does
    /// not access the VM's memory until the driver sets the device up again.
    pub const RESET_SEEN: usize = 511;
}

/// Most records of a [`TRACE_READ`](op::TRACE_READ).
pub const TRACE_RECORDS: usize = 512;
/// Words of a record: the counter; the vCPU's number plus 1 in the lower half, 0 for none, and in the
/// upper half the syndrome of Gear1's record, or a constant of [`traced`] of Gear2's.
pub const TRACE_WORDS: usize = 2;

/// Offsets of the parts in the region.
pub mod offset {
    /// [`Header`](super::Header).
    pub const HEADER: usize = 0;
    /// [`Control`](super::Control).
    pub const CONTROL: usize = 0x2000;
    /// One page for each VM, in the order of `VmId`, with an [`MmioSlot`](super::MmioSlot) for each
    /// vCPU of the machine. Slots of other VMs' vCPUs are not used there: the process that serves
    /// a VM maps that VM's page alone.
    pub const MMIO: usize = 0x16_0000;
    /// Words that Gear2 answers [`TRACE_READ`](super::op::TRACE_READ) and
    /// [`TRACE_NOTE`](super::op::TRACE_NOTE) with. They are the answer's until the next operation.
    pub const TRACE: usize = 0x17_0000;
    /// One [`DEVICE_SIZE`] page for each virtio device. Except for the words in
    /// [`device_word`](super::device_word), the page belongs to GDM and holds the state that must
    /// survive a restart of GDM.
    pub const DEVICES: usize = 0x1_0000;
    /// Bytes of a device's page.
    pub const DEVICE_SIZE: usize = 0x1000;
    /// One [`CONSOLE_SIZE`] block for each VM.
    pub const CONSOLES: usize = 0x4_0000;
    /// Bytes of a console's block: [`ConsoleRing`](super::ConsoleRing), then input, then output
    /// bytes.
    pub const CONSOLE_SIZE: usize = 0x1_2000;
    /// Offset in a console's block of the output ring (guest to GDM).
    pub const OUTPUT: usize = 0x2000;
    /// Bytes of the output ring; a power of two.
    pub const OUTPUT_SIZE: usize = 0x1_0000;
    /// Offset in a console's block of the input ring (GDM to guest).
    pub const INPUT: usize = 0x1000;
    /// Bytes of the input ring; a power of two.
    pub const INPUT_SIZE: usize = 0x1000;
    /// Low-water mark of the input ring: GDM adds input only while at most this number of bytes
    /// waits, and Gear2 raises [`LINE_REQUEST`](super::LINE_REQUEST) when it takes a byte and this
    /// number is left. A guest that reads a few bytes at a time does not wake GDM each time.
    pub const INPUT_LOW: usize = INPUT_SIZE / 2;
}

const _: () = assert!(offset::CONSOLES + MAX_CONSOLES * offset::CONSOLE_SIZE <= offset::MMIO);
const _: () = assert!(offset::MMIO + MAX_CONSOLES * 0x1000 <= offset::TRACE);
const _: () = assert!(offset::DEVICES + MAX_DEVICES * offset::DEVICE_SIZE <= offset::CONSOLES);

/// Start of the region, written by Gear2 before the device VM starts.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], stored last.
    pub magic: AtomicU64,
    /// [`PROTOCOL_VERSION`] of Gear2.
    pub version: AtomicU32,
    /// vCPUs of all VMs, so [`MmioSlot`]s in use.
    pub vcpu_count: AtomicU32,
    /// VMs, so consoles in use (at most [`MAX_CONSOLES`]).
    pub vm_count: AtomicU32,
    /// Counts GDM's starts; GDM adds 1 when it has mapped the region, and rings.
    pub gdm_starts: AtomicU32,
    /// GDM adds 1 at least once a second while it lives (heartbeat).
    pub gdm_beats: AtomicU32,
    /// Counter frequency in Hz.
    pub counter_hz: AtomicU32,
}

/// States of an [`MmioSlot`].
pub mod slot {
    /// Nothing asked.
    pub const IDLE: u32 = 0;
    /// Filled in by Gear2, owned by GDM.
    pub const POSTED: u32 = 1;
    /// GDM has put the result into `value`; Gear2's turn.
    pub const DONE: u32 = 2;
    /// GDM knows no such register: the guest gets an external abort.
    pub const ABORT: u32 = 3;
}

/// A slot for the forwarded access of a vCPU. Gear2 owns the slot while `state` is IDLE, DONE or
/// ABORT, GDM while it is POSTED: Gear2 posts no other access before GDM has answered, not even
/// when the VM was stopped meanwhile. GDM reads all slots when it starts, and each time
/// [`LINE_REQUEST`] rises; a device's thread reads its own slots each time its line rises.
#[derive(Debug, Default)]
#[repr(C)]
pub struct MmioSlot {
    /// State: a constant of [`slot`]; the side that hands over stores it last.
    pub state: AtomicU32,
    /// Virtio device (channel number), as Gear2 found it in the manifest, or [`RTC_DEVICE`].
    pub device: AtomicU32,
    /// Offset of the register in the device's 512 bytes.
    pub register: AtomicU32,
    /// log2 of the access size in bits 1:0, write in bit 2.
    pub access: AtomicU32,
    /// Value stored, or read.
    pub value: AtomicU64,
    /// Counts accesses of this vCPU.
    pub sequence: AtomicU64,
}

impl MmioSlot {
    /// Hands the slot to the other side.
    pub fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::Release);
    }

    /// Returns the state. All words that the other side wrote before are visible.
    pub fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }
}

/// Operations that GDM asks Gear2 for on behalf of `gearctl`.
pub mod op {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// `(vm)`: result words: state, vCPUs, first vCPU, restarts, flags (those of
    /// [`vm_flag`](super::vm_flag)), faults.
    pub const VM_INFO: u32 = 1;
    /// `(vm)`: starts a stopped VM.
    pub const VM_START: u32 = 2;
    /// `(vm, force)`: stops a VM. The VM through which alone people reach Gear2 is stopped only
    /// with `force` = 1, and ends as if it had turned itself off.
    pub const VM_STOP: u32 = 3;
    /// `(vm)`: stops, loads and starts a VM.
    pub const VM_RESTART: u32 = 4;
    /// `(vm, devices)`: pauses the VM's vCPUs and devices until `VM_RESUME`. With `devices` = 1 a VM
    /// that has stopped will do, too, whose devices rest until `VM_RESUME` or its next start.
    pub const VM_PAUSE: u32 = 5;
    /// `(vm, devices)`: the reverse; wakes a VM that has suspended itself.
    pub const VM_RESUME: u32 = 6;
    /// `(vcpu, reason)`: result words: exits, counter ticks in Gear2.
    pub const EXIT_STATS: u32 = 7;
    /// `(vcpu)`: result words: ticks it ran, CPU, state; since the start of its VM: ticks that it
    /// was ready and did not run, those of them that the VM sees as stolen time (a wait that lasts
    /// is not), how often it was preempted. For 3 s after each question, every WFI traps, so that
    /// the ticks between two questions are those that it ran ([`VCPU_UNSEEN`]).
    pub const VCPU_INFO: u32 = 8;
    /// `(cursor)`: result words: next cursor and a record's five words; `NOT_FOUND` at the end.
    pub const LOG_READ: u32 = 9;
    /// `()`: result words: ABI version of Gear1, protocol version, counter, CPUs, MMIO events
    /// forwarded so far, restarts of Gear2.
    pub const VERSION: u32 = 10;
    /// `(vm)`: result words: the VM's name, up to 48 bytes, zero-padded.
    pub const VM_NAME: u32 = 11;
    /// `(vm)`: result words of the VM's last fault: vCPU's index, ESR, FAR, IPA, PC, SPSR;
    /// `NOT_FOUND` if it had none.
    pub const VM_FAULT: u32 = 12;
    /// `(cpu)`: how Gear2 schedules a CPU. Result words: the policy's name, up to 16 bytes,
    /// zero-padded; the balancer's name, up to 8 bytes; flags (those of
    /// [`cpu_flag`](super::cpu_flag)); vCPUs; slice in microseconds. `NOT_FOUND`: Gear2 has no loop
    /// there.
    pub const SCHED_CPU: u32 = 13;
    /// `(vcpu)`: where a vCPU is. Result words: CPU; 1 if a move is under way, else 0; the reason
    /// why it stayed there the last time, a number of [`stays`](super::stays); the CPU that it is
    /// pinned to, counted from 1, or 0; CPUs that the manifest allows, a bit each; moves of all
    /// vCPUs since Gear2's start. `NOT_FOUND`: Gear2 does not schedule it.
    pub const SCHED_VCPU: u32 = 14;
    /// `(vcpu, cpu)`: begins to move a vCPU. `STAYS`: the first result word is why.
    pub const SCHED_MOVE: u32 = 15;
    /// `(vcpu, cpu + 1)`: pins a vCPU to the CPU where it is; `(vcpu, 0)`: to none. `WRONG_STATE`:
    /// it is elsewhere, or moves.
    pub const SCHED_PIN: u32 = 16;
    /// `(cpu, closed)`: begins to give all vCPUs of a CPU to others, and lets the CPU take no more
    /// (1), or lets it take vCPUs again (0). If the policies of the others refuse one, the CPU
    /// opens again. `STAYS`: the first result word is why.
    pub const SCHED_CLOSE: u32 = 17;
    /// `(vm, 0)`: scheduling parameters of each vCPU of a VM. Result words: weight; priority;
    /// latency; 1 if a change of any VM's is under way, else 0; why the last change was taken back,
    /// a number of [`stays`](super::stays). `(vm, 1)`: cap and its period; budget and its period;
    /// 0: none. Times are in microseconds. `WRONG_STATE`: a real-time VM.
    pub const SCHED_SHARE: u32 = 18;
    /// `(vm, parameter, value, period)`: begins to change a parameter, a constant of
    /// [`share`](super::share). If a policy refuses, all vCPUs of the VM keep the old value.
    /// `STAYS`: the first result word is why.
    pub const SCHED_SET: u32 = 19;
    /// `(pool, 0)`: a pool of CPUs, counted from 0 among those that have CPUs, that of CPUs of no
    /// other pool first. Result words: the pool's name, up to 48 bytes, zero-padded. `(pool, 1)`:
    /// the policy's name, up to 16 bytes, zero-padded; the balancer's name, up to 8 bytes; CPUs, a
    /// bit each; VMs, a bit each; slice in microseconds. `NOT_FOUND`: there is no such pool.
    pub const SCHED_POOL: u32 = 20;
    /// `(vm, pool)`: begins to move all vCPUs of a VM to CPUs of a pool, which is counted as in
    /// `SCHED_POOL`. If the policies there refuse one of them, all stay. `SCHED_SHARE` tells how
    /// far the change is, and why it was taken back. `STAYS`: the first result word is why.
    /// `WRONG_STATE`: a real-time VM.
    pub const SCHED_SET_POOL: u32 = 21;
    /// `(vm)`: how the VM did since Gear2's start. Result words: how often it hung, by its watchdog
    /// or its heartbeat; how often it refreshed its watchdog late; how often it got more time
    /// because it waited for a CPU; the longest time without a refresh in ticks, or 0; the longest run
    /// without an exit of its own in ticks, or 0; accesses of its devices that the SMMU aborted.
    pub const VM_HEALTH: u32 = 22;
    /// `(vm)`: the last end of a VM. Result words: the life, by the number of starts; the cause, a
    /// constant of [`cause`](super::cause); the counter; bytes of console output before the end;
    /// vCPUs whose registers are known, a bit each by the index in the VM. `NOT_FOUND`: there was no
    /// end since Gear2's start.
    pub const LAST_WORDS: u32 = 23;
    /// `(vm, vcpu, first)`: six registers of a vCPU, named by its index in the VM, at that end,
    /// numbered as in Gear1's `VCPU_REGS`. `NOT_FOUND`: they are not known.
    pub const LAST_REGISTERS: u32 = 24;
    /// `(vm, offset)`: 48 bytes of the console output before that end, zero-padded.
    pub const LAST_CONSOLE: u32 = 25;
    /// `(vm, vcpu, first)`: six registers of a vCPU, named by its index in the VM, which is paused or
    /// has stopped; numbered as in Gear1's `VCPU_REGS`. `FORBIDDEN`: the manifest has no `dump` for
    /// the VM. `BUSY`: another CPU still has them. `WRONG_STATE`: the VM runs.
    pub const VCPU_REGISTERS: u32 = 26;
    /// `(vm)`: presses and releases the VM's power button. `NOT_FOUND`: the manifest gives it none.
    /// `WRONG_STATE`: the VM does not run, or is paused.
    pub const VM_POWER_BUTTON: u32 = 27;
    /// `(mode)`: 1 begins to trace on all CPUs of Gear2's, 0 ends that, 2 changes nothing. Each CPU
    /// notes the counters of its vCPUs at the beginning and at the end. Result words: bytes of a ring
    /// of Gear1's; bytes of one of Gear2's; 1 if Gear1's are written since boot; CPUs of Gear2's, a bit
    /// each. `BUSY`: not all CPUs have done so yet; ask again. `NOT_FOUND`: the manifest has no rings.
    /// `UNKNOWN`: this Gear1 was built without tracing.
    pub const TRACE: u32 = 28;
    /// `(ring, cursor)`: copies up to [`TRACE_RECORDS`](super::TRACE_RECORDS) records of a ring, from
    /// the cursor on, to [`offset::TRACE`](super::offset::TRACE). Rings 0 to 7 are Gear1's of these
    /// CPUs, 8 to 15 Gear2's. Cursor 2^64 − 1: behind the newest record. Result words: the next
    /// cursor; the number of records; bytes of records that were overwritten unread.
    pub const TRACE_READ: u32 = 29;
    /// `(vcpu)`: copies what was noted of a vCPU at the beginning and at the end to
    /// [`offset::TRACE`](super::offset::TRACE): the counter, and its exits by reason, twice. Result
    /// word: the number of reasons. `NOT_FOUND`: one of the two was not noted.
    pub const TRACE_NOTE: u32 = 30;
    /// `(vcpu)`: result word: 1 if the ticks that it ran since the boot have time in which its WFI
    /// did not trap, and which it may have spent idle; else 0.
    pub const VCPU_UNSEEN: u32 = 31;
}

/// Events in a record of a ring of Gear2's.
pub mod traced {
    /// The vCPU can run.
    pub const WOKEN: u32 = 0;
    /// The vCPU cannot run.
    pub const BLOCKED: u32 = 1;
    /// The vCPU yields the rest of its turn.
    pub const YIELDED: u32 = 2;
    /// The vCPU is chosen to run.
    pub const CHOSEN: u32 = 3;
    /// No vCPU may run.
    pub const IDLE: u32 = 4;
}

/// Causes of a VM's end.
pub mod cause {
    /// Somebody has stopped or restarted it.
    pub const STOPPED: u64 = 0;
    /// The VM turned itself off.
    pub const OFF: u64 = 1;
    /// The VM has reset itself.
    pub const RESET: u64 = 2;
    /// A vCPU could not go on.
    pub const CRASH: u64 = 3;
    /// The VM did not refresh its watchdog, made no progress, or its heartbeat stopped.
    pub const HANG: u64 = 4;
}

/// Flags of `SCHED_CPU`.
pub mod cpu_flag {
    /// The CPU takes no vCPUs.
    pub const CLOSED: u64 = 1 << 0;
    /// Cluster of the CPU, a number of eight bits from this bit on.
    pub const CLUSTER: u32 = 8;
}

/// Parameters of `SCHED_SET`. Times are in microseconds.
pub mod share {
    /// Share relative to others, 1 to 1000.
    pub const WEIGHT: u64 = 0;
    /// Most that a vCPU gets in each period; 0: no limit.
    pub const CAP: u64 = 1;
    /// Least that a vCPU gets in each period; 0: no server.
    pub const BUDGET: u64 = 2;
    /// Fixed priority, 0 to 31.
    pub const PRIORITY: u64 = 3;
    /// Time that a vCPU may borrow from its own future.
    pub const LATENCY: u64 = 4;
}

/// Reasons why a vCPU or a parameter stays what it is; 0: there was none.
pub mod stays {
    /// The CPU takes no vCPUs.
    pub const CPU_IS_OFF: u64 = 1;
    /// The manifest or the VM's pool places the VM on other CPUs.
    pub const ELSEWHERE: u64 = 2;
    /// The vCPU is pinned to another CPU.
    pub const PINNED: u64 = 3;
    /// The budgets would exceed the time of the CPU.
    pub const OVERLOAD: u64 = 4;
    /// The budget is zero or longer than its period.
    pub const BAD_BUDGET: u64 = 5;
    /// The policy takes one vCPU, and has it.
    pub const FULL: u64 = 6;
    /// The balancer offered it, and the CPU has as much to do.
    pub const NO_GAIN: u64 = 7;
    /// No other CPU of the pool takes vCPUs.
    pub const NO_OTHER: u64 = 8;
    /// Parameters are being changed.
    pub const CHANGES: u64 = 9;
    /// The value is not one that a manifest may have.
    pub const OUT_OF_RANGE: u64 = 10;
    /// The device VM would have too little time.
    pub const STARVES: u64 = 11;
    /// A window of the pool's frame is the VM's.
    pub const WINDOW: u64 = 12;
    /// The pool's frame has no window for the VM.
    pub const NO_WINDOW: u64 = 13;
}

/// Flags of `VM_INFO`.
pub mod vm_flag {
    /// SYSTEM_OFF of the VM powers the machine off.
    pub const MAY_POWER_OFF: u64 = 1 << 0;
    /// The VM's vCPUs do not run until it is resumed.
    pub const PAUSED: u64 = 1 << 1;
    /// The start of the VM waits for the device model to leave its memory alone, or for an earlier
    /// VM to be up.
    pub const WAITS: u64 = 1 << 2;
    /// The VM ended too often in too short a time, and is not started again unless somebody asks.
    pub const GIVEN_UP: u64 = 1 << 3;
    /// The VM has CPUs of its own, on which Gear1 runs it: Gear2 does not schedule it, and cannot
    /// pause it.
    pub const REAL_TIME: u64 = 1 << 4;
    /// The device model runs in the VM.
    pub const DEVICE_MODEL: u64 = 1 << 5;
    /// The VM has no serial port of Gear2's: its console block has Gear2's messages alone.
    pub const NO_CONSOLE: u64 = 1 << 6;
    /// The VM is paused, and GDM works on no request of its devices.
    pub const QUIET: u64 = 1 << 8;
    /// The manifest lets the registers of the VM's vCPUs be read while the VM is paused or stopped.
    pub const DUMP: u64 = 1 << 9;
    /// The VM has suspended itself (PSCI SYSTEM_SUSPEND), and waits for an interrupt or for
    /// `VM_RESUME`.
    pub const SUSPENDED: u64 = 1 << 10;
    /// The VM is given up, and its standby was started in its place.
    pub const FAILED_OVER: u64 = 1 << 7;
}

/// Outcome of an operation.
pub mod outcome {
    /// Done.
    pub const OK: u32 = 0;
    /// Names nothing that exists.
    pub const NOT_FOUND: u32 = 1;
    /// The state does not allow it.
    pub const WRONG_STATE: u32 = 2;
    /// No such operation.
    pub const UNKNOWN: u32 = 3;
    /// Begun; the operation completes by itself (stop, restart).
    pub const STARTED: u32 = 4;
    /// The VM is the only way to reach Gear2, and is not stopped unless forced.
    pub const NEEDED: u32 = 5;
    /// A vCPU stays where it is; the first result word is a number of [`stays`](super::stays).
    pub const STAYS: u32 = 6;
    /// Not yet: ask again.
    pub const BUSY: u32 = 7;
    /// The manifest does not allow it.
    pub const FORBIDDEN: u32 = 8;
}

/// The control mailbox: one operation at a time; GDM serializes its users.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Control {
    /// GDM adds 1 when the request is filled in, then rings.
    pub asked: AtomicU32,
    /// Gear2 stores `asked` here when the answer is filled in, then raises the line.
    pub answered: AtomicU32,
    /// Operation: a constant of [`op`].
    pub op: AtomicU32,
    /// Outcome: a constant of [`outcome`].
    pub outcome: AtomicU32,
    /// Arguments.
    pub arguments: [AtomicU64; 4],
    /// Result words.
    pub results: [AtomicU64; 6],
}

/// Indices of a VM's console rings. They count bytes and wrap at 2^32; the byte
/// `i` stands at `i % size`. The writer owns its ring's `*_written`, the reader `*_read`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ConsoleRing {
    /// Count of output bytes of the guest and of Gear2's messages about the VM. The ring keeps the
    /// newest [`offset::OUTPUT_SIZE`]: a slower reader has lost the older bytes.
    pub output_written: AtomicU32,
    /// Reserved for GDM: how far it read.
    pub output_read: AtomicU32,
    /// Input bytes GDM wrote; never more than the ring's size ahead of `input_read`, and written
    /// only while [`offset::INPUT_LOW`] or fewer wait.
    pub input_written: AtomicU32,
    /// Input bytes Gear2 took.
    pub input_read: AtomicU32,
}

#[cfg(test)]
mod tests;

//! The machine's state: what all CPUs share, and what each keeps for itself.
//!
//! Requirements: G1-VCPU-002.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gear1_abi::boot::{BootChannel, BootInfo, BootVm, IrqOwner, MAX_DOORBELLS, RealTime};
use gear1_abi::call::{Failure, VmState, Waits};
use gear1_abi::event::{Ended, Ends};
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, MAX_VMS, VcpuId, VmId};
use gear1_arch::fp::FpOwner;
use gear1_arch::handover::Handover;
use gear1_arch::sync::{Claim, ClaimCell, Once, TicketGuard, TicketLock};
use gear1_arch::this_cpu::{CpuSlot, Cpus, ThisCpu};
use gear1_arch::world::World;
use gear1_core::address_filter::AddressFilter;
use gear1_core::context::VcpuContext;
use gear1_core::heartbeat::Heartbeat;
use gear1_core::idregs;
use gear1_core::lifecycle::{Masters, RunningLife};
use gear1_core::log::LogRing;
use gear1_core::mitigations::{Mitigations, SocId};
use gear1_core::monitors::{DEBUG, PMU};
use gear1_core::pci::{Asked, NOT_ASKED};
use gear1_core::pointer_auth::POINTER_AUTH;
use gear1_core::residents::Residents;
use gear1_core::sve::SVE;
use gear1_core::vcpu::{CpuShared, IcacheRequests, VcpuShared};
use gear1_core::vgic::{LrReplay, VcpuIndex, VmGic};

use crate::exit_timing::ExitTiming;
use crate::smmu_driver::Streams;

/// First INTID that all CPUs share.
pub(crate) const FIRST_SPI: u32 = 32;
/// SPIs that a guest's distributor has: INTIDs up to 511.
pub(crate) const GUEST_SPIS: usize = gear1_core::vgic::MAX_SPIS;

/// Timers that a CPU can watch: the bits of a word.
pub(crate) const WATCHED_TIMERS: usize = u64::BITS as usize;
// The last bit is the board's watchdog.
const _: () = assert!(MAX_VCPUS + MAX_DOORBELLS + MAX_CPUS < WATCHED_TIMERS);

/// A physical CPU as handlers get it.
pub(crate) type Cpu = ThisCpu<CpuData>;

/// State of a VM that its CPUs change under one lock.
pub(crate) struct VmInner {
    /// Virtual interrupt controller.
    pub(crate) gic: VmGic,
    /// State of the lifecycle.
    pub(crate) state: VmState,
    /// Bytes of memory that a load has copied and wiped already.
    pub(crate) progress: u64,
    /// Counter value at the start of the VM, the zero point of its virtual count.
    pub(crate) started: u64,
    /// Number of starts.
    pub(crate) starts: u32,
    /// End of this life by the VM itself, if nobody has handled it.
    pub(crate) end: Ended,
    /// Ends of the last lives by the VM itself, handled or not.
    pub(crate) ends: Ends,
    /// Whether a real-time VM's own CPU reloads and restarts the VM, unless Gear2 stops it first.
    pub(crate) restarts: bool,
    /// Whether the VM was ended by another CPU, so that none of its own knows of that restart yet.
    pub(crate) is_left: bool,
    /// Whether the VM's devices behind the SMMU reach memory.
    pub(crate) streams: Streams,
    /// Whether the VM's bus masters were told to stop.
    pub(crate) masters: Masters,
    /// BARs of the VM's PCI functions that show their size.
    pub(crate) asked: Asked,
}

/// vCPU whose EL1 state and list registers a CPU can hold: what does not change after boot. The
/// general registers are in [`Cpu`].
#[derive(Clone, Copy)]
pub(crate) struct Loaded {
    /// Machine, constant after boot.
    pub(crate) machine: &'static Machine,
    /// Identifier of the vCPU.
    pub(crate) id: VcpuId,
    /// VM of the vCPU.
    pub(crate) vm: VmId,
    /// Index of the vCPU in its VM.
    pub(crate) index: VcpuIndex,
    /// State of the vCPU that all CPUs share.
    pub(crate) shared: &'static VcpuShared,
    /// State of the VM, under its lock.
    pub(crate) inner: &'static TicketLock<VmInner>,
    /// Hand-over from init about the VM.
    pub(crate) boot: &'static BootVm,
    /// Addresses of the VM's channels.
    pub(crate) channels: AddressFilter,
    /// Whether the VM has an emulated PL061.
    pub(crate) has_pl061: bool,
    /// Whether an access to no channel and no interrupt controller is Gear2's, without a further
    /// look: Gear2 runs the VM, no other VM shares memory with it, it has no PL061 of Gear1's, and
    /// it owns no PCI function apart from its bridge.
    pub(crate) is_plain: bool,
    /// HPFAR_EL2 of an access to the VM's distributor, if the fast path may emulate it on some CPU.
    pub(crate) gicd_hpfar: u64,
}

impl Loaded {
    /// Returns what a CPU refers to that loads the vCPU with this number, if there is one.
    fn of(machine: &'static Machine, number: usize) -> Option<Self> {
        if number >= machine.boot.vcpu_count as usize {
            return None;
        }
        let id = VcpuId::new(number)?;
        let (vm, index) = *id.select(&machine.vcpus);
        Some(Self {
            machine,
            id,
            vm,
            index,
            shared: self::vcpu(id),
            inner: self::vm(vm),
            boot: boot_vm(machine, vm),
            is_plain: is_plain(machine, vm),
            channels: channel_addresses(machine, vm),
            has_pl061: has_pl061(machine, vm),
            gicd_hpfar: gicd_hpfar(boot_vm(machine, vm)),
        })
    }
}

/// Guest that has trapped: the proof that a vCPU is loaded on this CPU.
///
/// Only [`Guest::of`] makes one, which `exit` calls for contexts that are no Gear2. No handler that
/// gets a guest unloads the vCPU.
pub(crate) struct Guest<'a> {
    /// CPU that the guest ran on.
    pub(crate) cpu: &'a mut Cpu,
    /// vCPU of the guest.
    pub(crate) loaded: &'static Loaded,
    _trapped: Trapped,
}

struct Trapped;

impl<'a> Guest<'a> {
    /// Returns the guest that is loaded on the CPU, or the CPU where none is.
    #[inline(always)]
    pub(crate) fn of(cpu: &'a mut Cpu) -> Result<Self, &'a mut Cpu> {
        match cpu.data.loaded {
            Some(loaded) => Ok(Self {
                cpu,
                loaded,
                _trapped: Trapped,
            }),
            None => Err(cpu),
        }
    }

    /// Lends the guest on.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> Guest<'_> {
        Guest {
            cpu: self.cpu,
            loaded: self.loaded,
            _trapped: Trapped,
        }
    }
}

/// Private state of a CPU.
pub(crate) struct CpuData {
    /// Machine, constant after boot.
    pub(crate) machine: Option<&'static Machine>,
    /// Loaded vCPU, whether it runs or not.
    pub(crate) loaded: Option<&'static Loaded>,
    /// Signals to this CPU's loop, set as the CPU starts.
    pub(crate) signals: Option<&'static CpuShared>,
    /// Constants of the world switch.
    pub(crate) world: World,
    /// vCPU whose values the FP registers hold, and what of them is open to the loaded one.
    pub(crate) fp: FpOwner,
    /// CNTPCT value at which Gear2 asked to be called back.
    pub(crate) deadline: u64,
    /// CNTPCT value that the EL2 timer is set to.
    pub(crate) armed: u64,
    /// Longest time that Gear2 may take from an event to its next decision, in ticks.
    pub(crate) period: u64,
    /// Ticks by which an unloaded vCPU's timer may be taken early.
    pub(crate) early: u64,
    /// CNTPCT value by which Gear2 must have made its next call.
    pub(crate) watchdog_deadline: u64,
    /// CNTPCT value at Gear2's last event.
    pub(crate) event_delivered_at: u64,
    /// VMs' translations and instructions that this CPU's TLBs and instruction cache may hold.
    pub(crate) residents: Residents,
    /// Firmware's mitigations, and the VM whose branches this CPU's predictors may hold.
    pub(crate) mitigations: Mitigations,
    /// vCPUs of this CPU whose timer is watched in software, one bit for each `VcpuId`, behind them
    /// the doorbells that this CPU holds, the real-time CPUs at whose heartbeats it looks, and last
    /// of all the board's watchdog.
    pub(crate) watched: u64,
    /// Deadlines of the watched timers.
    pub(crate) watched_deadlines: [u64; WATCHED_TIMERS],
    /// Physical interrupts that wait for Gear2: one bit for each INTID.
    pub(crate) gear2_irqs: [u64; 16],
    /// Whether a bit in `gear2_irqs` is set.
    pub(crate) has_gear2_irq: bool,
    /// Exit that Gear2 handles: the vCPU, the reason, and the CNTPCT value at its start.
    pub(crate) exit: ExitTiming,
    /// FEAT_PAN, for exceptions that are injected.
    pub(crate) has_pan: bool,
    /// Whether a reported stage-2 fault may be a stage-1 fault with a wrong HPFAR_EL2 (erratum
    /// 834220).
    pub(crate) misreports_stage2: bool,
    /// FEAT_RAS: a guest has DISR_EL1.
    pub(crate) has_ras: bool,
    /// A bit for each list register that there is.
    pub(crate) list_registers: u32,
    /// Timer interrupt of the loaded vCPU, while the next one can be delivered without the VM's
    /// lock.
    pub(crate) timer_interrupt: Cell<LrReplay>,
    /// SGI that was posted to the loaded vCPU last, while the next one can be delivered without
    /// the VM's lock.
    pub(crate) posted_sgi: Cell<LrReplay>,
    /// Behaviour of WFI and WFE of the loaded vCPU, by Gear2's last decision to run it.
    pub(crate) waits: Waits,
    /// Mode of the real-time VM that has this CPU, if one has it.
    pub(crate) real_time: RealTime,
    /// What the loaded vCPU has of the features that the manifest gives.
    pub(crate) features: u64,
    /// Of these, its debug and performance monitors.
    pub(crate) monitors: u64,
    /// Whether this CPU has keys of pointer authentication.
    pub(crate) has_pointer_auth: bool,
    /// HPFAR_EL2 of an access to the loaded vCPU's distributor, if the fast path may emulate it.
    pub(crate) gicd_hpfar: u64,
    /// Values of the loaded vCPU's ID registers.
    pub(crate) id_registers: idregs::Values,
    /// Real-time vCPU that has this CPU to itself.
    pub(crate) rt_vcpu: Option<VcpuId>,
    /// Whether this CPU has to reload that vCPU's VM.
    pub(crate) restart: bool,
    /// The loaded vCPU has turned its VM off, which may be what powers the machine off.
    pub(crate) turned_off: bool,
}

impl CpuData {
    const fn new() -> Self {
        Self {
            machine: None,
            loaded: None,
            signals: None,
            world: World::NONE,
            residents: Residents::NONE,
            mitigations: Mitigations::NONE,
            fp: FpOwner::UNSET,
            // All fields are zero, so that the value takes no room in the image; `start_cpu` sets
            // the others.
            deadline: 0,
            armed: 0,
            early: 0,
            watchdog_deadline: 0,
            event_delivered_at: 0,
            period: 0,
            watched: 0,
            watched_deadlines: [0; WATCHED_TIMERS],
            gear2_irqs: [0; 16],
            has_gear2_irq: false,
            exit: ExitTiming::NONE,
            has_pan: false,
            misreports_stage2: false,
            has_ras: false,
            list_registers: 0,
            timer_interrupt: Cell::new(LrReplay::NONE),
            posted_sgi: Cell::new(LrReplay::NONE),
            waits: Waits::Leaves,
            real_time: RealTime::No,
            features: 0,
            monitors: 0,
            has_pointer_auth: false,
            gicd_hpfar: 0,
            id_registers: [0; 32],
            rt_vcpu: None,
            restart: false,
            turned_off: false,
        }
    }

    /// Tells whether the vCPU is the one loaded on this CPU.
    #[inline(always)]
    pub(crate) fn is_loaded(&self, id: VcpuId) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| loaded.id == id)
    }

    /// Notes a physical interrupt that waits for Gear2.
    pub(crate) fn add_gear2_irq(&mut self, intid: u32) {
        if let Some(word) = self.gear2_irqs.get_mut(intid as usize / 64) {
            *word |= 1_u64.wrapping_shl(intid % 64);
            self.has_gear2_irq = true;
        }
    }
}

/// State that does not change after boot.
pub(crate) struct Machine {
    /// Hand-over from init, as proof.
    pub(crate) handover: Handover,
    /// Hand-over from init.
    pub(crate) boot: &'static BootInfo,
    /// VM of each vCPU, and the vCPU's index in that VM.
    pub(crate) vcpus: [(VmId, VcpuIndex); MAX_VCPUS],
    /// SGI that kicks each CPU; 0: the CPU belongs to a real-time VM, or does not exist.
    pub(crate) kicks: [u64; MAX_CPUS],
    /// PARange that limits stage 2.
    pub(crate) pa_range: u64,
    /// Answers to SMCCC_ARCH_SOC_ID.
    pub(crate) soc_id: SocId,
    /// Whether firmware's TRNG service is there for the VMs that may call it.
    pub(crate) firmware_trng: bool,
}

pub(crate) static CPUS: Cpus<CpuData> =
    Cpus::new([const { CpuSlot::new(CpuData::new()) }; MAX_CPUS]);
pub(crate) static CPU_SHARED: [CpuShared; MAX_CPUS] = [const { CpuShared::new() }; MAX_CPUS];
pub(crate) static LOG_RINGS: [LogRing; MAX_CPUS] = [const { LogRing::new() }; MAX_CPUS];
static VMS: [TicketLock<VmInner>; MAX_VMS] = [const {
    TicketLock::new(VmInner {
        gic: VmGic::new(),
        state: VmState::Stopped,
        progress: 0,
        started: 0,
        starts: 0,
        end: Ended::No,
        ends: Ends(0),
        restarts: false,
        is_left: false,
        streams: Streams::new(false),
        masters: Masters::NEW,
        asked: NOT_ASKED,
    })
}; MAX_VMS];
/// Lives that each VM has begun: what CPUs cached of an earlier one is stale.
static LIVES: [AtomicU32; MAX_VMS] = [const { AtomicU32::new(0) }; MAX_VMS];
static ICACHE_REQUESTS: [IcacheRequests; MAX_VMS] = [const { IcacheRequests::new() }; MAX_VMS];
static VCPUS: [VcpuShared; MAX_VCPUS] = [const { VcpuShared::new() }; MAX_VCPUS];
static CONTEXTS: [ClaimCell<VcpuContext>; MAX_VCPUS] =
    [const { ClaimCell::new(VcpuContext::EMPTY) }; MAX_VCPUS];
static MACHINE: Once<Machine> = Once::new();
/// The state that a CPU refers to while a vCPU is loaded; `None` for an identifier without a vCPU.
static LOADABLE: Once<[Option<Loaded>; MAX_VCPUS]> = Once::new();

/// Stores the machine. Called once, by the boot CPU.
pub(crate) fn init(machine: Machine) {
    MACHINE.init(machine);
    if let Some(machine) = MACHINE.get() {
        // Bound: MAX_VCPUS (32).
        LOADABLE.init(core::array::from_fn(|number| Loaded::of(machine, number)));
    }
}

/// Returns the machine, once `init` has stored it.
pub(crate) fn get() -> Option<&'static Machine> {
    MACHINE.get()
}

/// Returns what a CPU that loads the vCPU refers to, if there is such a vCPU.
pub(crate) fn loadable(id: VcpuId) -> Option<&'static Loaded> {
    LOADABLE.get().and_then(|all| id.select(all).as_ref())
}

/// How often Gear2 was restarted.
static GEAR2_RESTARTS: AtomicU64 = AtomicU64::new(0);
/// Of the last restart of Gear2: failure, PC, CPU.
static LAST_RESTART: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static RUNNING: [RunningLife; MAX_VMS] = [const { RunningLife::new() }; MAX_VMS];
static HEARTBEATS: [Heartbeat; MAX_VMS] = [const { Heartbeat::new() }; MAX_VMS];
/// The last life of each VM whose heartbeat stopped, by the number of starts; 0: there was none.
static SILENT: [AtomicU32; MAX_VMS] = [const { AtomicU32::new(0) }; MAX_VMS];

/// Returns the state of a running VM that is readable without its lock.
#[inline]
pub(crate) fn running(id: VmId) -> &'static RunningLife {
    #[cfg(feature = "check-locks")]
    gear1_arch::confine::look();
    id.select(&RUNNING)
}

/// Returns what is known of a VM's heartbeat. One CPU looks.
pub(crate) fn heartbeat(id: VmId) -> &'static Heartbeat {
    id.select(&HEARTBEATS)
}

/// Notes the life of a VM that ends because its heartbeat has stopped.
pub(crate) fn note_silent(id: VmId, starts: u32) {
    id.select(&SILENT).store(starts, Ordering::SeqCst);
}

/// Returns the last life of a VM whose heartbeat stopped, by the number of starts; 0: there was
/// none.
pub(crate) fn last_silent(id: VmId) -> u64 {
    id.select(&SILENT).load(Ordering::SeqCst).into()
}

/// Returns a VM's lock.
#[inline]
pub(crate) fn vm(id: VmId) -> &'static TicketLock<VmInner> {
    id.select(&VMS)
}

/// Locks a VM where each byte counts more than each instruction.
#[inline(never)]
pub(crate) fn lock_vm(id: VmId) -> TicketGuard<'static, VmInner> {
    vm(id).lock()
}

/// Returns a vCPU's shared part.
#[inline]
pub(crate) fn vcpu(id: VcpuId) -> &'static VcpuShared {
    id.select(&VCPUS)
}

/// Returns the shared parts of all vCPUs, by which trace records name them.
#[cfg(feature = "trace")]
pub(crate) fn vcpus() -> &'static [VcpuShared; MAX_VCPUS] {
    &VCPUS
}

/// Returns the number of a VM's life.
#[inline]
pub(crate) fn life(id: VmId) -> &'static AtomicU32 {
    id.select(&LIVES)
}

/// Returns the requests of a VM's vCPUs to invalidate instruction caches.
#[inline]
pub(crate) fn icache_requests(id: VmId) -> &'static IcacheRequests {
    id.select(&ICACHE_REQUESTS)
}

/// Claims a vCPU's registers.
pub(crate) fn claim_context(id: VcpuId) -> Option<Claim<'static, VcpuContext>> {
    id.select(&CONTEXTS).claim()
}

/// Tells whether a CPU has a vCPU's registers.
pub(crate) fn is_context_claimed(id: VcpuId) -> bool {
    id.select(&CONTEXTS).is_claimed()
}

/// Returns a CPU's shared part.
#[inline]
pub(crate) fn cpu_shared(id: CpuIndex) -> &'static CpuShared {
    id.select(&CPU_SHARED)
}

/// Returns what init handed over about a VM.
#[inline]
pub(crate) fn boot_vm(machine: &Machine, id: VmId) -> &'static BootVm {
    id.select(&machine.boot.vms)
}

/// Returns the size of a VM's memory in bytes, which all its regions have together.
#[inline(always)]
pub(crate) fn memory_size(boot: &BootVm) -> u64 {
    let sizes = boot.regions.iter().map(|region| region.size);
    // Bound: MAX_REGIONS (4).
    sizes.fold(0_u64, u64::wrapping_add)
}

/// Returns the vCPU with `index` of a VM, if it has one.
pub(crate) fn vcpu_of(machine: &Machine, vm: VmId, index: usize) -> Option<VcpuId> {
    let boot = boot_vm(machine, vm);
    if index >= usize::from(boot.vcpu_count) {
        return None;
    }
    VcpuId::new(usize::from(boot.first_vcpu).wrapping_add(index))
}

/// Reads a VM identifier of the manifest from a register.
pub(crate) fn vm_from_reg(machine: &Machine, reg: u64) -> Option<VmId> {
    VmId::from_reg(reg).filter(|vm| vm.reg() < u64::from(machine.boot.vm_count))
}

/// Reads a vCPU identifier in use from a register.
pub(crate) fn vcpu_from_reg(machine: &Machine, reg: u64) -> Option<VcpuId> {
    VcpuId::from_reg(reg).filter(|vcpu| vcpu.reg() < u64::from(machine.boot.vcpu_count))
}

/// Returns the channels that a VM stores to.
pub(crate) fn channels_of(machine: &Machine, vm: VmId) -> &'static [BootChannel] {
    let boot = boot_vm(machine, vm);
    let first = usize::from(boot.first_channel);
    let end = first.wrapping_add(usize::from(boot.channel_count));
    machine.boot.channels.get(first..end).unwrap_or_default()
}

/// Tells whether Gear2 runs a VM that shares no memory, and has no PL061 and no configuration space
/// of Gear1's.
fn is_plain(machine: &Machine, vm: VmId) -> bool {
    let boot = boot_vm(machine, vm);
    let shares = boot.peers != 0 || boot.pci_space != 0;
    boot.real_time == RealTime::No && !shares && !has_pl061(machine, vm)
}

/// HPFAR_EL2 of no fault.
pub(crate) const NO_HPFAR: u64 = u64::MAX;

/// Returns the HPFAR_EL2 of a fault in the first page of a VM's distributor, or [`NO_HPFAR`] for a
/// VM that has the physical distributor.
fn gicd_hpfar(boot: &BootVm) -> u64 {
    match boot.real_time {
        RealTime::PassThrough => NO_HPFAR,
        RealTime::No | RealTime::Emulated => boot.gicd_ipa >> 8,
    }
}

/// Returns the addresses of a VM's channels.
fn channel_addresses(machine: &Machine, vm: VmId) -> AddressFilter {
    let own = channels_of(machine, vm).iter();
    // Bound: the VM's channels, at most `MAX_CHANNELS`.
    own.fold(AddressFilter::EMPTY, |all, channel| all.with(channel.ipa))
}

/// Tells whether a VM has an emulated PL061.
fn has_pl061(machine: &Machine, vm: VmId) -> bool {
    let mut blocks = machine.boot.pl061.iter();
    // Bound: MAX_PL061 (5).
    blocks.any(|block| block.ipa != 0 && u64::from(block.vm) == vm.reg())
}

/// Returns what a VM has of the features that the manifest gives.
pub(crate) fn features(vm: &BootVm) -> u64 {
    let has = |given: bool, what: u64| if given { what } else { 0 };
    let (keys, vectors) = (vm.pointer_auth, vm.sve_bits != 0);
    has(vm.debug, DEBUG) | has(vm.pmu, PMU) | has(keys, POINTER_AUTH) | has(vectors, SVE)
}

/// Tells whether an owner enables its interrupts itself.
pub(crate) fn is_passed_through(boot: &BootInfo, owner: IrqOwner) -> bool {
    let vm = owner.vm_index().and_then(|index| boot.vms.get(index));
    vm.is_some_and(|vm| vm.real_time == RealTime::PassThrough)
}

/// Returns the CPU that an owner's interrupts go to: the owner CPU of a VM's first
/// vCPU, and for Gear2 the lowest CPU that has a loop.
pub(crate) fn irq_cpu(boot: &BootInfo, owner: IrqOwner) -> usize {
    match owner.vm_index().and_then(|index| boot.vms.get(index)) {
        Some(vm) => boot
            .owner_cpu
            .get(usize::from(vm.first_vcpu))
            .copied()
            .map_or(0, usize::from),
        // Bound: MAX_CPUS (8).
        None => boot.cpus.iter().position(|cpu| cpu.gear2).unwrap_or(0),
    }
}

/// Returns how often Gear2 was restarted, and of the last time the failure, its PC and the CPU.
pub(crate) fn gear2_restarts() -> [u64; 4] {
    let [failure, pc, index] = &LAST_RESTART;
    // Bound: 4 words.
    [&GEAR2_RESTARTS, failure, pc, index].map(|word| word.load(Ordering::SeqCst))
}

/// Counts a restart of Gear2.
pub(crate) fn count_gear2_restart(failure: Failure, pc: u64, index: CpuIndex) {
    // planted: a restart does not count
    GEAR2_RESTARTS.fetch_add(1, Ordering::SeqCst);
    // Bound: 3 words.
    for (word, value) in LAST_RESTART.iter().zip([failure as u64, pc, index.reg()]) {
        word.store(value, Ordering::SeqCst);
    }
}

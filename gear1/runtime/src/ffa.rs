//! FF-A calls and memory that changes hands: the machine behind `gear1_core::ffa`.
//!
//! Owns the one lock over all memory that VMs share, which covers the transactions and the stage-2
//! tables of those VMs. It is taken before a VM's lock, and by nobody who holds one. Its longest
//! hold is one step of a call: some pages looked at, one table made or looked at, or one piece
//! wiped or cleaned. VMs that may not share memory never wait for it.
//!
//! Requirements: G1-MEM-019, G1-MEM-020, G1-DMA-002, G1-DMA-004.

use core::slice;

use gear1_abi::boot::{BootInfo, BootRegion, SHARING_TABLES};
use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::event::Event;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::{MAX_VMS, VcpuId, VmId};
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::regs::Regs;
use gear1_arch::entry::Resume;
use gear1_arch::pool::Pool;
use gear1_arch::sync::TicketLock;
use gear1_arch::this_cpu::LocalCpu;
use gear1_arch::window::{self, GuestPage};
use gear1_arch::{barrier, exception, tlb, world};
use gear1_core::addr::{Ipa, Pa};
use gear1_core::ffa::message::Next;
use gear1_core::ffa::{self, End, Outcome, Platform};
use gear1_core::guest_memory::GuestMemory;
use gear1_core::ownership::{Ledger, Piece, Vms};
use gear1_core::stage2::{Geometry, Leaf, Stage2};
use gear1_core::syndrome::{DataAbort, FaultKind};
use gear1_core::table::{Descriptors, ENTRIES, LiveTables, TableMemory};
use gear1_core::vcpu::Requests;

#[cfg(feature = "check-ghost")]
use crate::ghost;
use crate::machine::{self, Cpu, Guest, Loaded, Machine};
use crate::{halt, kick, messages, smmu, vcpu, vm_state};

/// All memory that changes hands.
struct Shared {
    ledger: Ledger,
    free: FreeTables,
}

/// Tables of the pool that nobody uses.
struct FreeTables {
    /// First table that was taken and given back; its first word is the address of the next one.
    given_back: u64,
    /// Address of the tables that were never taken.
    untouched: u64,
    /// Number of tables that each VM has taken.
    taken: [u8; MAX_VMS],
}

static SHARED: TicketLock<Shared> = TicketLock::new(Shared {
    ledger: Ledger::new(),
    free: FreeTables {
        given_back: 0,
        untouched: 0,
        taken: [0; MAX_VMS],
    },
});

/// Says who may share memory. Called once, by the boot CPU.
pub(crate) fn init(boot: &BootInfo) {
    let mut shared = SHARED.lock();
    // Bound: MAX_VMS (16).
    let members = (0_u32..)
        .zip(&boot.vms)
        .filter(|(_, vm)| vm.peers != 0)
        .fold(0, |mask, (index, _)| mask | 1_u16.wrapping_shl(index));
    shared.ledger.configure(members);
    shared.free.untouched = boot.pool.wrapping_add(boot.pool_used);
}

/// The machine as one CPU sees it while it holds the lock.
struct Host<'a> {
    cpu: LocalCpu<'a>,
    machine: &'a Machine,
    /// The VM whose guest called.
    current: Option<VmId>,
    free: &'a mut FreeTables,
}

/// A VM's tables.
struct Tables<'a> {
    pool: Pool,
    machine: &'a Machine,
    vm: VmId,
    is_current: bool,
    free: &'a mut FreeTables,
}

impl FreeTables {
    /// Takes a table: one that was given back, or else the next untouched one. Init made the pool
    /// large enough for what all VMs may take, and the caller has checked the VM's share.
    fn take(&mut self, pool: &Pool) -> Pa {
        match self.given_back {
            0 => {
                let table = self.untouched;
                self.untouched = table.wrapping_add(PAGE_SIZE);
                Pa::new(table)
            }
            table => {
                let table = Pa::new(table);
                self.given_back = pool.read(table, 0);
                table
            }
        }
    }

    /// Changes the number of tables that a VM has taken.
    fn count(&mut self, vm: VmId, change: impl FnOnce(u8) -> u8) {
        let taken = vm.select_mut(&mut self.taken);
        *taken = change(*taken);
    }
}

impl Descriptors for Tables<'_> {
    fn read(&self, table: Pa, index: usize) -> u64 {
        self.pool.read(table, index)
    }

    fn write(&mut self, table: Pa, index: usize, descriptor: u64) {
        // SAFETY: tables are changed by the ledger alone, which maps for a VM what it owns or was
        // lent.
        unsafe { self.pool.write(table, index, descriptor) };
    }
}

impl TableMemory for Tables<'_> {
    fn alloc(&mut self) -> Option<Pa> {
        if self.available() == 0 {
            return None;
        }
        let table = self.free.take(&self.pool);
        self.free.count(self.vm, |taken| taken.wrapping_add(1));
        // Bound: 512 entries of a table.
        for index in 0..ENTRIES {
            self.write(table, index, 0);
        }
        // Another CPU may walk the VM's tables at this moment: the zeroes are visible before the
        // descriptor that leads to the table.
        barrier::dsb_ishst();
        Some(table)
    }

    fn available(&self) -> usize {
        let taken = *self.vm.select(&self.free.taken);
        SHARING_TABLES.saturating_sub(taken.into()) as usize
    }
}

impl LiveTables for Tables<'_> {
    fn free(&mut self, table: Pa) {
        self.free.count(self.vm, |taken| taken.saturating_sub(1));
        // SAFETY: no table of a VM's leads to this one any longer.
        unsafe { self.pool.write(table, 0, self.free.given_back) };
        self.free.given_back = table.get();
    }

    fn invalidate(&mut self) {
        if self.is_current {
            tlb::invalidate_current_vmid();
        } else {
            // planted: who lost a page by another VM's end keeps it in its TLB
            world::invalidate_other_vmid(self.machine.handover, self.vm);
        }
        // planted: a device keeps a page that its VM has lent
        smmu::invalidate(self.machine, self.vm);
    }

    fn keeps_pages(&self) -> bool {
        smmu::owns_streams(self.machine, self.vm)
    }
}

impl Vms for Host<'_> {
    type Tables<'a>
        = Tables<'a>
    where
        Self: 'a;

    fn tables(&mut self, vm: VmId) -> Tables<'_> {
        Tables {
            pool: Pool::new(self.machine.handover),
            machine: self.machine,
            vm,
            is_current: self.current == Some(vm),
            free: self.free,
        }
    }

    fn stage2(&self, vm: VmId) -> Stage2 {
        stage2(self.machine, vm)
    }

    fn regions(&self, vm: VmId) -> &'static [BootRegion] {
        &machine::boot_vm(self.machine, vm).regions
    }
}

/// Returns a VM's stage 2. All VMs have the geometry of one VTCR_EL2.
fn stage2(machine: &Machine, vm: VmId) -> Stage2 {
    let root = Pa::new(machine::boot_vm(machine, vm).root);
    Geometry::from_vtcr(machine.boot.vtcr_el2).stage2(root)
}

impl Host<'_> {
    /// Returns memory of a VM, which the ledger has looked at. Halts if it is not in one region:
    /// who gets a page must not find what is left there because it could not be wiped (G1-MEM-015).
    fn guest_memory(&self, pa: Pa, size: u64) -> GuestMemory {
        match GuestMemory::of(&self.machine.boot.vms, pa.get(), size) {
            Some(memory) => memory,
            None => halt::guest_memory(pa.get(), size),
        }
    }

    /// Maps a page of the caller's, which its TX and RX buffer are. Only the caller's regions are
    /// searched: a step maps many such windows, and may not take longer for a VM that is late in
    /// the manifest (G1-MEM-023).
    fn page(&self, page: Pa) -> GuestPage {
        let own = self.current.and_then(|vm| {
            let vms = slice::from_ref(machine::boot_vm(self.machine, vm));
            GuestMemory::of(vms, page.get(), PAGE_SIZE)
        });
        match own {
            // SAFETY: the page is the caller's, and callers drop one page before the next.
            Some(memory) => unsafe { GuestPage::map(self.cpu, memory) },
            None => halt::guest_memory(page.get(), PAGE_SIZE),
        }
    }

    /// Reads words of a page of the caller's. The guest may write the page at the same moment from
    /// another vCPU: each word is read once, and `gear1_core::ffa` uses no word that it read twice.
    fn read(&self, page: Pa, offset: u64, words: &mut [u64]) {
        self.page(page).read(offset, words);
    }

    /// Returns the VMs that run and may share memory: bit per VM.
    #[cfg(feature = "check-ghost")]
    fn running(&self) -> u16 {
        let members = ghost::each_vm().filter(|vm| self.peers(*vm) != 0);
        let running = members.filter(|vm| self.is_running(*vm));
        running.fold(0, |all, vm| all | gear1_core::ownership::bit(vm))
    }
}

impl Platform for Host<'_> {
    fn read_page(&mut self, page: Pa, offset: u64, words: &mut [u64]) {
        self.read(page, offset, words);
        #[cfg(feature = "check-ghost")]
        ghost::was_read(offset, words);
    }

    fn write_page(&mut self, page: Pa, offset: u64, words: &[u64]) {
        self.page(page).write(offset, words);
    }

    fn clean(&mut self, piece: Piece) {
        let size = u64::from(piece.pages).wrapping_mul(PAGE_SIZE);
        let memory = self.guest_memory(piece.pa, size);
        // SAFETY: the ledger asks for it before the piece changes hands; no page is mapped.
        unsafe { window::clean_guest_memory(self.cpu, memory, piece.zero) };
    }

    fn is_running(&self, vm: VmId) -> bool {
        match vm_state::current(self.cpu, self.machine, vm) {
            VmState::Running | VmState::Stopping => true,
            VmState::Stopped | VmState::Loading | VmState::Loaded => false,
        }
    }

    fn peers(&self, vm: VmId) -> u16 {
        machine::boot_vm(self.machine, vm).peers
    }

    fn vcpu_count(&self, vm: VmId) -> u16 {
        machine::boot_vm(self.machine, vm).vcpu_count
    }
}

/// Answers a call of the FF-A range, if the VM may share memory with anybody.
#[inline(never)]
pub(crate) fn call(mut guest: Guest<'_>, reason: ExitReason) -> Option<Resume> {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let vm = loaded.vm;
    let peers = machine::boot_vm(machine, vm).peers;
    if peers == 0 {
        return None;
    }
    let [a, b, c, d, e, f, g, h, ..] = guest.cpu.frame().x;
    let regs = [a, b, c, d, e, f, g, h];
    if ffa::is_message(a as u32) {
        let next = messages::call(machine, loaded, peers, &regs);
        return Some(go_on(guest.reborrow(), reason, next));
    }
    memory_call(guest.cpu, loaded, &regs);
    Some(Resume::Same)
}

/// Carries out one step of a call about memory, under the lock over shared memory. A call that
/// needs more steps is executed again by the guest, so interrupts arrive between two of them.
fn memory_call(cpu: &mut Cpu, loaded: &Loaded, regs: &Regs) {
    let (machine, vm) = (loaded.machine, loaded.vm);
    let mut shared = SHARED.lock();
    let Shared { ledger, free } = &mut *shared;
    let mut host = Host {
        cpu: cpu.local(),
        machine,
        current: Some(vm),
        free,
    };
    #[cfg(feature = "check-ghost")]
    ghost::before(machine, |said| {
        if let Some((tx, _)) = ledger.buffers(vm) {
            host.read(tx, 0, said);
        }
    });
    let outcome = ffa::call(ledger, &mut host, vm, regs);
    #[cfg(feature = "check-ghost")]
    ghost::after(machine, loaded, regs, &outcome, host.running());
    // Later walks must see the new mappings.
    barrier::dsb_ishst();
    drop(shared);
    match outcome {
        Outcome::Return(regs) => cpu.frame().set_result(regs),
        Outcome::Again => exception::repeat_instruction(),
    }
}

/// Continues after a call about messages: back to the guest, to Gear2, or into a wait.
fn go_on(mut guest: Guest<'_>, reason: ExitReason, next: Next) -> Resume {
    match next {
        Next::Return(regs) => {
            guest.cpu.frame().set_result(regs);
            Resume::Same
        }
        Next::Yield => {
            guest.cpu.frame().set_result(ffa::DONE);
            let event = Event::Wfe(guest.loaded.id);
            vcpu::leave(guest.reborrow(), VcpuState::Ready, reason, &event)
        }
        Next::Block(notified) => block(guest.reborrow(), reason, notified),
    }
}

/// Blocks the running vCPU until a message comes for it; `notified` has one from it. To Gear2 the
/// wait is a WFI, which any interrupt ends as well: `messages::resume` then ends the call.
///
/// AWAITS is raised before the state is set: an answer that comes in between finds the vCPU
/// Running, raises MESSAGE, and `is_due` sees that.
fn block(mut guest: Guest<'_>, reason: ExitReason, notified: Option<VcpuId>) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    loaded.shared.raise(Requests::AWAITS);
    if let Some(id) = notified {
        kick::request(guest.cpu, machine, id, Requests::MESSAGE);
    }
    let expected = Requests::AWAITS.union(Requests::ICACHE);
    if vcpu::is_due(guest.cpu, machine, loaded, expected) {
        vcpu::after_interrupt(guest.reborrow(), reason)
    } else {
        vcpu::leave_as_is(guest.reborrow(), reason, &Event::Wfi(loaded.id))
    }
}

/// Undoes one step of what a VM has shared, unless the VM runs. For Gear2, or on a
/// real-time VM's CPU outside of its guest: no VM's stage 2 is installed, so none is current.
pub(crate) fn release(cpu: &Cpu, machine: &Machine, vm: VmId) -> End {
    if machine::boot_vm(machine, vm).peers == 0 {
        return End::Done;
    }
    let mut shared = SHARED.lock();
    let Shared { ledger, free } = &mut *shared;
    let mut host = Host {
        cpu: cpu.local(),
        machine,
        current: None,
        free,
    };
    #[cfg(feature = "check-ghost")]
    ghost::before_end(machine);
    let end = ffa::release(ledger, &mut host, vm);
    #[cfg(feature = "check-ghost")]
    ghost::after_end(machine, vm, end);
    barrier::dsb_ishst();
    end
}

/// Tells whether an access that faulted at stage 2 is allowed by now: while tables change, what
/// they map is not there for a moment (break-before-make). The lock over shared memory is held, so
/// no such moment lasts while the tables are walked here. A VM without peers shares nothing, so no
/// page of its is away for a moment.
#[inline(always)]
pub(crate) fn is_allowed_now(loaded: &Loaded, abort: DataAbort, ipa: u64) -> bool {
    // planted: no longer: a real-time VM's path takes no lock of others
    loaded.boot.peers != 0 && is_mapped_now(loaded, abort, ipa)
}

/// Walks the VM's stage 2 for an access that faulted there. One that is allowed runs again, which
/// counts.
#[inline(never)]
fn is_mapped_now(loaded: &Loaded, abort: DataAbort, ipa: u64) -> bool {
    let (machine, vm) = (loaded.machine, loaded.vm);
    let mut shared = SHARED.lock();
    let tables = Tables {
        pool: Pool::new(machine.handover),
        machine,
        vm,
        is_current: true,
        free: &mut shared.free,
    };
    let leaf = stage2(machine, vm).walk(&tables, Ipa::new(ipa));
    let is_allowed = allows(leaf, abort);
    if is_allowed {
        loaded.shared.count(ExitReason::Again);
    }
    is_allowed
}

/// Tells whether a leaf of stage 2 allows the access that faulted.
fn allows(leaf: Option<Leaf>, abort: DataAbort) -> bool {
    match abort.kind() {
        FaultKind::Translation => leaf.is_some(),
        FaultKind::Permission => abort.is_write() && leaf.is_some_and(|leaf| leaf.attributes.write),
        FaultKind::Other => false,
    }
}

/// Looks at all tables, now and when it is dropped, while nobody changes what VMs share.
#[cfg(feature = "check-ghost")]
pub(crate) struct Looking<'a>(&'a Machine);

#[cfg(feature = "check-ghost")]
impl<'a> Looking<'a> {
    pub(crate) fn begin(machine: &'a Machine) -> Self {
        let _held = SHARED.lock();
        ghost::look(machine);
        Self(machine)
    }
}

#[cfg(feature = "check-ghost")]
impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let _held = SHARED.lock();
        ghost::look(self.0);
    }
}

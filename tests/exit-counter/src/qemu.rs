//! QEMU's plugin interface, as far as it is used, by its documentation ("QEMU TCG Plugins").

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::kinds::Exit;

/// Names a plugin.
pub(crate) type Id = u64;

/// A block of code that QEMU translates.
#[repr(C)]
pub(crate) struct Block([u8; 0]);

/// An instruction of a block.
#[repr(C)]
pub(crate) struct Instruction([u8; 0]);

/// Called before an instruction or a block is executed.
pub(crate) type OnExecution = extern "C" fn(c_uint, *mut c_void);
type OnCpu = extern "C" fn(Id, c_uint);
pub(crate) type OnTranslation = extern "C" fn(Id, *mut Block);
/// Called at an access of memory: CPU, access, virtual address.
pub(crate) type OnAccess = extern "C" fn(c_uint, Memory, u64, *mut c_void);

/// QEMU's description of an access (`qemu_plugin_meminfo_t`).
pub(crate) type Memory = u32;

/// A register as QEMU describes it.
#[repr(C)]
struct Descriptor {
    handle: *mut c_void,
    name: *const c_char,
    feature: *const c_char,
}

/// GLib's GArray and GByteArray, whose first two fields are public.
#[repr(C)]
struct Array {
    data: *mut u8,
    len: c_uint,
}

const NO_REGISTERS: c_int = 0;
const READS_REGISTERS: c_int = 1;
/// `QEMU_PLUGIN_MEM_RW`.
const LOADS_AND_STORES: c_int = 3;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_init_cb(id: Id, call: OnCpu);
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: OnTranslation);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        call: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_insn_data(instruction: *const Instruction, to: *mut c_void, len: usize)
    -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        call: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        call: OnAccess,
        flags: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_get_hwaddr(access: Memory, address: u64) -> *const c_void;
    fn qemu_plugin_hwaddr_is_io(place: *const c_void) -> bool;
    fn qemu_plugin_get_registers() -> *mut Array;
    fn qemu_plugin_read_register(handle: *mut c_void, to: *mut Array) -> c_int;
    fn g_byte_array_new() -> *mut Array;
    fn g_byte_array_set_size(array: *mut Array, len: c_uint) -> *mut Array;
}

/// Has QEMU tell of new CPUs and of blocks that it translates.
pub(crate) fn register(id: Id, cpu: OnCpu, translation: OnTranslation) {
    // SAFETY: the functions are called with what they expect.
    unsafe { qemu_plugin_register_vcpu_init_cb(id, cpu) };
    // SAFETY: as above.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translation) };
}

/// Has QEMU tell of blocks that it translates.
pub(crate) fn register_translation(id: Id, translation: OnTranslation) {
    // SAFETY: the function is called with what it expects.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translation) };
}

/// Returns the instructions of a block that QEMU is translating, their addresses and words.
pub(crate) fn instructions(
    block: *mut Block,
) -> impl Iterator<Item = (*mut Instruction, u64, u32)> {
    // SAFETY: the block is valid while its translation goes on, which is while this is used.
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    (0..count).map(move |index| {
        // SAFETY: as above; there are so many.
        let instruction = unsafe { qemu_plugin_tb_get_insn(block, index) };
        // SAFETY: as above.
        let address = unsafe { qemu_plugin_insn_vaddr(instruction) };
        let mut word = [0_u8; 4];
        // SAFETY: there is room for four bytes.
        unsafe { qemu_plugin_insn_data(instruction, word.as_mut_ptr().cast(), 4) };
        (instruction, address, u32::from_le_bytes(word))
    })
}

/// Has QEMU call before the instruction.
pub(crate) fn before(
    instruction: *mut Instruction,
    call: OnExecution,
    reads_registers: bool,
    data: u64,
) {
    let flags = if reads_registers {
        READS_REGISTERS
    } else {
        NO_REGISTERS
    };
    let data = std::ptr::without_provenance_mut(data as usize);
    // SAFETY: the instruction is being translated; the data is a number.
    unsafe { qemu_plugin_register_vcpu_insn_exec_cb(instruction, call, flags, data) };
}

/// Has QEMU call before each execution of the block.
pub(crate) fn at_block(block: *mut Block, call: OnExecution, data: u64) {
    let data = std::ptr::without_provenance_mut(data as usize);
    // SAFETY: the block is being translated; the data is a number.
    unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, call, NO_REGISTERS, data) };
}

/// Has QEMU call at each access of the instruction.
pub(crate) fn at_access(instruction: *mut Instruction, call: OnAccess) {
    let (flags, data) = (NO_REGISTERS, std::ptr::null_mut());
    // SAFETY: the instruction is being translated; the data is not used.
    unsafe {
        qemu_plugin_register_vcpu_mem_cb(instruction, call, flags, LOADS_AND_STORES, data);
    };
}

/// Tells whether an access is one of a device. Called by the callback of that access.
pub(crate) fn is_device(access: Memory, address: u64) -> bool {
    // SAFETY: the callback's own arguments.
    let place = unsafe { qemu_plugin_get_hwaddr(access, address) };
    // SAFETY: QEMU's description is valid until the callback ends.
    !place.is_null() && unsafe { qemu_plugin_hwaddr_is_io(place) }
}

/// The registers of a CPU that tell what an exit is about.
pub(crate) struct Registers {
    handles: [Option<*mut c_void>; NAMES.len()],
    buffer: *mut Array,
}

/// In the order of `Exit::Trap`'s values.
const NAMES: [&str; 13] = [
    "ESR_EL2",
    "FAR_EL2",
    "HPFAR_EL2",
    "VTTBR_EL2",
    "x0",
    "x1",
    "x2",
    "x3",
    "x4",
    "x5",
    "x6",
    "x7",
    "TPIDR_EL2",
];

// SAFETY: QEMU's handles are good for all threads; the buffer is used under a lock.
unsafe impl Send for Registers {}

impl Registers {
    /// Finds the registers; called by QEMU for a new CPU.
    pub(crate) fn find() -> Option<Registers> {
        // SAFETY: called for a new CPU, as QEMU wants it.
        let array = unsafe { qemu_plugin_get_registers() };
        // SAFETY: an array that is the caller's.
        let array = unsafe { array.as_ref() }?;
        let descriptors = array.data.cast::<Descriptor>();
        // The first register's handle is a null pointer.
        let mut handles = [None; NAMES.len()];
        for index in 0..array.len as usize {
            let descriptor = descriptors.wrapping_add(index);
            // SAFETY: the array has so many descriptors.
            let descriptor = unsafe { &*descriptor };
            // SAFETY: QEMU's names are texts that end with a zero and stay.
            let name = unsafe { CStr::from_ptr(descriptor.name) };
            let place = NAMES
                .iter()
                .position(|wanted| name.to_bytes() == wanted.as_bytes());
            if let Some(handle) = place.and_then(|place| handles.get_mut(place)) {
                *handle = Some(descriptor.handle);
            }
        }
        // SAFETY: no condition.
        let buffer = unsafe { g_byte_array_new() };
        Some(Registers { handles, buffer })
    }

    fn read(&self, place: usize) -> u64 {
        let Some(Some(handle)) = self.handles.get(place) else {
            return 0;
        };
        // SAFETY: the buffer is this structure's own.
        unsafe { g_byte_array_set_size(self.buffer, 0) };
        // SAFETY: the handle is QEMU's, the call comes from a callback that reads registers.
        let size = unsafe { qemu_plugin_read_register(*handle, self.buffer) };
        let mut bytes = [0_u8; 8];
        // SAFETY: the buffer is this structure's own.
        let data = unsafe { &*self.buffer }.data;
        for (index, byte) in bytes.iter_mut().enumerate().take(size.max(0) as usize) {
            // SAFETY: QEMU has appended so many bytes.
            *byte = unsafe { data.wrapping_add(index).read() };
        }
        u64::from_le_bytes(bytes)
    }

    /// Reads what tells CPUs apart at EL2.
    pub(crate) fn cpu(&self) -> u64 {
        self.read(12)
    }

    /// Reads what an exit by this vector is about.
    pub(crate) fn exit(&self, vector: u64) -> Exit {
        let x = std::array::from_fn(|index| self.read(4 + index));
        Exit::Trap {
            vector,
            esr: self.read(0),
            far: self.read(1),
            hpfar: self.read(2),
            vttbr: self.read(3),
            x,
        }
    }
}

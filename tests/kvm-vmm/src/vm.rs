//! VMs: made, loaded and run.

use std::convert::Infallible;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread as threads;
use std::time::Duration;

use kvm_bindings::{
    KVM_ARM_VCPU_POWER_OFF, KVM_ARM_VCPU_PSCI_0_2, KVM_DEV_ARM_VGIC_CTRL_INIT,
    KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_GRP_NR_IRQS,
    KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_SIZE_U64, KVM_SYSTEM_EVENT_RESET,
    KVM_SYSTEM_EVENT_SHUTDOWN, KVM_VGIC_V2_ADDR_TYPE_CPU, KVM_VGIC_V2_ADDR_TYPE_DIST,
    KVM_VGIC_V3_ADDR_TYPE_DIST, KVM_VGIC_V3_ADDR_TYPE_REDIST, kvm_create_device, kvm_device_attr,
    kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V2, kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3,
    kvm_userspace_memory_region, kvm_vcpu_init,
};
use kvm_ioctls::{DeviceFd, IoEventAddress, Kvm, NoDatamatch, VcpuExit, VcpuFd, VmFd};
use kvm_vmm::image::Image;
use kvm_vmm::options::{Class, Gic, Options};
use kvm_vmm::{device_tree, layout};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::card::Card;
use crate::devices::Devices;
use crate::disk::Disk;
use crate::failure::Failure;
use crate::thread;

/// Alignment of the kernel, and of the data behind it. Linux wants the kernel on 2 MiB
/// (Documentation/arch/arm64/booting.rst).
const ALIGNMENT: u64 = 2 << 20;
/// Room for the device tree, in bytes. A tree of eight vCPUs has less than 8 KiB.
const TREE_BYTES: u64 = 64 << 10;
/// SCHED_FIFO priority of the thread that allows all CPUs to the vCPUs. Above all vCPUs, which
/// would else keep the thread from its time.
const FREEING_PRIORITY: i32 = 99;
/// Text before each console line of a VM. A test reads both consoles from one output.
const PREFIXES: [&str; 2] = ["", "vm1: "];

/// A VM that can run. The order of the fields is the order of dropping.
struct Vm {
    /// The handle by which interrupts are raised.
    fd: VmFd,
    devices: Devices,
    /// RAM of the VM; KVM maps it for the guest, so it is unmapped last.
    _memory: GuestMemoryMmap,
    /// Shared memory of both VMs, unmapped last for the same reason.
    _shared: Arc<GuestMemoryMmap>,
    /// KVM's interrupt controller, alive as long as the VM.
    _gic: DeviceFd,
}

/// Runs the VMs. Ends the process when the first one turns off, and returns only what failed. vCPUs
/// are threads of the process, as in QEMU's KVM machine, so the host's scheduler treats them alike.
pub(crate) fn run(options: &[Options]) -> Result<Infallible, Failure> {
    let kvm = Kvm::new().map_err(|error| Failure::new("/dev/kvm", error))?;
    let shared = Arc::new(allocate("the shared page", layout::SHARED, layout::PAGE)?);
    let (failed, failures) = mpsc::channel();
    let mut made = Vec::new();
    for (index, options) in options.iter().enumerate() {
        made.push(make(&kvm, options, PREFIXES[index], &shared, &failed)?);
    }
    // As long as the VMs run: KVM forgets an interrupt whose eventfd is closed.
    let _doorbells = match &made[..] {
        [(first, _), (second, _)] => vec![
            connect(&first.fd, &second.fd)?,
            connect(&second.fd, &first.fd)?,
        ],
        _ => Vec::new(),
    };
    // Behind all allocations: a page that the host brings in while a guest runs would be measured
    // as a slow exit of KVM's.
    thread::lock_memory().map_err(|error| Failure::new("mlockall", error))?;
    for (index, ((vm, vcpus), options)) in made.into_iter().zip(options).enumerate() {
        let vm = Arc::new(vm);
        // All vCPUs of a VM share its `Vm`: a device's state is one, whichever vCPU accesses it.
        for (vcpu, (fd, &cpu)) in vcpus.into_iter().zip(&options.cpus).enumerate() {
            let place = format!("vCPU {vcpu} of VM {index}");
            let (vm, class, failed) = (Arc::clone(&vm), options.class, failed.clone());
            threads::spawn(move || {
                let Err(failure) = prepare_thread(cpu, class).and_then(|()| run_vcpu(fd, &vm));
                // If nobody listens, another vCPU's failure has ended the process.
                let _ = failed.send(Failure::new(place, failure));
            });
        }
    }
    // The thread keeps a sender as well, so that its failure ends the program as a vCPU's does.
    if let Some(ms) = options.iter().find_map(|options| options.free_ms) {
        threads::spawn(move || {
            if let Err(failure) = free_at(ms) {
                let _ = failed.send(failure);
            }
        });
    } else {
        drop(failed);
    }
    Err(failures
        .recv()
        .unwrap_or_else(|_| Failure::new("vCPUs", "there are none")))
}

/// Makes a VM with its memory loaded and its vCPUs reset. KVM wants memory before vCPUs are reset,
/// and vCPUs before the interrupt controller.
fn make(
    kvm: &Kvm,
    options: &Options,
    prefix: &'static str,
    shared: &Arc<GuestMemoryMmap>,
    failed: &Sender<Failure>,
) -> Result<(Vm, Vec<VcpuFd>), Failure> {
    let fd = kvm
        .create_vm()
        .map_err(|error| Failure::new("KVM_CREATE_VM", error))?;
    let what = format!("the guest's {} MiB", options.memory_mib);
    let size = options.memory_mib << 20;
    let memory = allocate(&what, layout::RAM, size)?;
    map(&fd, 0, &what, &memory, (layout::RAM, size))?;
    map(
        &fd,
        1,
        "the shared page",
        shared,
        (layout::SHARED, layout::PAGE),
    )?;
    let start = load(&memory, options)?;
    // KVM numbers vCPUs in the order of their making, and the device tree names them so.
    let vcpus: Vec<VcpuFd> = (0..options.cpus.len())
        .map(|index| make_vcpu(&fd, index))
        .collect::<Result<_, _>>()?;
    let gic = make_gic(&fd, options.gic)?;
    // X1 to X3 are zero as KVM resets them, which the boot protocol wants
    // (Documentation/arch/arm64/booting.rst).
    if let Some(boot) = vcpus.first() {
        set_register(boot, 0, start.tree)?;
        set_register(boot, PC, start.entry)?;
    }
    let disk = options.disk.as_deref();
    let disk = disk.map(|path| Disk::open(&fd, path, &memory, failed.clone()));
    let card = options.net.as_deref();
    let card = card.map(|name| Card::open(&fd, name, &memory));
    let vm = Vm {
        devices: Devices::new(prefix, disk.transpose()?, card.transpose()?),
        fd,
        _memory: memory,
        _shared: Arc::clone(shared),
        _gic: gic,
    };
    Ok((vm, vcpus))
}

/// Allocates memory for guests at this guest-physical address. Anonymous memory: nothing is read
/// before the guest's first instruction.
fn allocate(what: &str, start: u64, size: u64) -> Result<GuestMemoryMmap, Failure> {
    let ranges = [(GuestAddress(start), size as usize)];
    GuestMemoryMmap::from_ranges(&ranges).map_err(|error| Failure::new(what, error))
}

/// Maps a range of it for a VM. A slot stays as it is for the VM's life.
fn map(
    vm: &VmFd,
    slot: u32,
    what: &str,
    memory: &GuestMemoryMmap,
    (start, size): (u64, u64),
) -> Result<(), Failure> {
    let host = memory
        .get_host_address(GuestAddress(start))
        .map_err(|error| Failure::new(what, error))?;
    let region = kvm_userspace_memory_region {
        slot,
        guest_phys_addr: start,
        memory_size: size,
        userspace_addr: host as u64,
        flags: 0,
    };
    // SAFETY: the region is a mapping of this size, which `Vm` keeps until after its VM is gone.
    unsafe { vm.set_user_memory_region(region) }.map_err(|error| Failure::new(what, error))
}

/// Registers at the boot vCPU's start, guest-physical. X0 and PC, by the arm64 boot protocol.
struct Start {
    /// First instruction of the kernel, X0 holding the tree's address.
    entry: u64,
    /// Behind the kernel and its bss, on 2 MiB.
    tree: u64,
}

/// Places the kernel, the device tree behind it and the RAM disk behind that. The device tree lies
/// behind the kernel's bss, and the RAM disk behind the tree's room.
///
/// `image_size` of the kernel's header covers the bss, which the file does not have: a tree inside
/// would be zeroed by the kernel before it is read. The length of the tree is checked before the
/// tree is stored, since a longer one would run into the RAM disk without an error.
fn load(memory: &GuestMemoryMmap, options: &Options) -> Result<Start, Failure> {
    let kernel = read(&options.kernel)?;
    let place = options.kernel.display().to_string();
    let image = Image::read(&kernel).map_err(|why| Failure::new(&place, why))?;
    let entry = layout::RAM + image.text_offset;
    store(memory, &place, entry, &kernel)?;
    let tree = (entry + image.size).next_multiple_of(ALIGNMENT);
    let initrd = options.initrd.as_deref();
    let initrd = initrd.map(|path| load_initrd(memory, path, tree + TREE_BYTES));
    let initrd = initrd.transpose()?;
    let blob = device_tree::blob(options, initrd);
    if blob.len() as u64 > TREE_BYTES {
        return Err(Failure::new("the device tree", "is longer than 64 KiB"));
    }
    store(memory, "the device tree", tree, &blob)?;
    Ok(Start { entry, tree })
}

/// Stores the RAM disk, and returns where it lies. The tree has to say where it ends.
fn load_initrd(memory: &GuestMemoryMmap, path: &Path, start: u64) -> Result<Range<u64>, Failure> {
    let content = read(path)?;
    store(memory, &path.display().to_string(), start, &content)?;
    Ok(start..start + content.len() as u64)
}

/// An error names the file.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::new(path.display().to_string(), error))
}

/// An error names what did not fit, and where.
fn store(memory: &GuestMemoryMmap, what: &str, at: u64, bytes: &[u8]) -> Result<(), Failure> {
    memory
        .write_slice(bytes, GuestAddress(at))
        .map_err(|error| {
            let length = bytes.len();
            Failure::new(
                what,
                format!("{length} bytes do not fit into the guest's memory at {at:#x}: {error}"),
            )
        })
}

/// Makes a vCPU as a PSCI CPU that is off, or, the first one, on. PSCI 0.2 or later lets KVM answer
/// CPU_ON itself, without an exit to this program.
fn make_vcpu(vm: &VmFd, index: usize) -> Result<VcpuFd, Failure> {
    let failure = |call, error| Failure::new(format!("{call} of vCPU {index}"), error);
    let vcpu = vm
        .create_vcpu(index as u64)
        .map_err(|error| failure("KVM_CREATE_VCPU", error))?;
    let mut init = kvm_vcpu_init::default();
    // The host's own model: KVM offers no other on most hosts, and another one would not compare.
    vm.get_preferred_target(&mut init)
        .map_err(|error| failure("KVM_ARM_PREFERRED_TARGET", error))?;
    init.features[0] |= 1 << KVM_ARM_VCPU_PSCI_0_2;
    if index > 0 {
        init.features[0] |= 1 << KVM_ARM_VCPU_POWER_OFF;
    }
    vcpu.vcpu_init(&init)
        .map_err(|error| failure("KVM_ARM_VCPU_INIT", error))?;
    Ok(vcpu)
}

/// The program counter as a core register: X0 to X30 and SP come first. Linux,
/// Documentation/virt/kvm/api.rst, "arm64 core registers".
const PC: u64 = 32;

/// Sets a core register by its number, of 64 bits each. Only before the first run.
fn set_register(vcpu: &VcpuFd, number: u64, value: u64) -> Result<(), Failure> {
    // KVM counts the offset in 32-bit words.
    let id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | u64::from(KVM_REG_ARM_CORE) | (number * 2);
    vcpu.set_one_reg(id, &value.to_le_bytes())
        .map_err(|error| Failure::new(format!("core register {number}"), error))?;
    Ok(())
}

/// Makes the interrupt controller; the vCPUs must be there. Inside the kernel: an emulation here
/// would measure this program instead of KVM.
fn make_gic(vm: &VmFd, gic: Gic) -> Result<DeviceFd, Failure> {
    let (name, kind, addresses) = match gic {
        Gic::V2 => (
            "KVM's GICv2",
            kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V2,
            [
                (KVM_VGIC_V2_ADDR_TYPE_DIST, layout::GICD),
                (KVM_VGIC_V2_ADDR_TYPE_CPU, layout::GICC),
            ],
        ),
        Gic::V3 => (
            "KVM's GICv3",
            kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3,
            [
                (KVM_VGIC_V3_ADDR_TYPE_DIST, layout::GICD),
                (KVM_VGIC_V3_ADDR_TYPE_REDIST, layout::GICR),
            ],
        ),
    };
    let mut create = kvm_create_device {
        type_: kind,
        ..Default::default()
    };
    let device = vm
        .create_device(&mut create)
        .map_err(|error| Failure::new(name, error))?;
    let set = |group, attribute, value: Option<&u64>| {
        let attribute = kvm_device_attr {
            group,
            attr: u64::from(attribute),
            addr: value.map_or(0, |value| (&raw const *value) as u64),
            flags: 0,
        };
        device
            .set_device_attr(&attribute)
            .map_err(|error| Failure::new(format!("{name}, group {group}"), error))
    };
    // KVM refuses the number of interrupts once the controller is initialized
    // (Documentation/virt/kvm/devices/arm-vgic-v3.rst).
    for (attribute, address) in addresses {
        set(KVM_DEV_ARM_VGIC_GRP_ADDR, attribute, Some(&address))?;
    }
    // 32 bits are read, which come first.
    let intids = u64::from(layout::INTIDS);
    set(KVM_DEV_ARM_VGIC_GRP_NR_IRQS, 0, Some(&intids))?;
    set(KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_CTRL_INIT, None)?;
    Ok(device)
}

/// Connects the doorbell of `from` to an interrupt of `to` inside the host's kernel, until the
/// result is dropped. An ioeventfd and an irqfd, joined: no thread of this program has a part in a
/// ring.
fn connect(from: &VmFd, to: &VmFd) -> Result<EventFd, Failure> {
    let doorbell = EventFd::new(EFD_NONBLOCK).map_err(|error| Failure::new("eventfd", error))?;
    let address = IoEventAddress::Mmio(layout::DOORBELL);
    // No data match: whatever the guest stores rings, as a store to GearV's doorbell does.
    from.register_ioevent(&doorbell, &address, NoDatamatch)
        .map_err(|error| Failure::new("the doorbell", error))?;
    // KVM counts SPIs from 0.
    to.register_irqfd(&doorbell, layout::DOORBELL_INTID - 32)
        .map_err(|error| Failure::new("the doorbell's interrupt", error))?;
    Ok(doorbell)
}

/// Allows all CPUs to the vCPUs at a time of the physical counter, and prints when. The thread that
/// does so does not wait for vCPUs: several VMs are to be released at the same time. Load and
/// measurement begin at one time, which both VMs can read. A sleep counts another clock than the
/// counter, and is repeated for what the counter lacks.
fn free_at(ms: u64) -> Result<(), Failure> {
    thread::run_with_fifo(FREEING_PRIORITY)
        .map_err(|error| Failure::new("SCHED_FIFO of the thread that frees", error))?;
    let at = ms * 1_000_000;
    while let Some(rest) = at
        .checked_sub(thread::counter_ns())
        .filter(|rest| *rest > 0)
    {
        threads::sleep(Duration::from_nanos(rest));
    }
    thread::free_all().map_err(|error| Failure::new("all CPUs for all threads", error))?;
    println!("FREED at={}", thread::counter_ns());
    Ok(())
}

/// A thread does it for itself, as the calls without a thread's number do. All vCPUs of a VM have
/// one class, as those of a real-time VM of GearV's have one.
fn prepare_thread(cpu: usize, class: Class) -> Result<(), Failure> {
    thread::pin(cpu).map_err(|error| Failure::new(format!("pinning it to CPU {cpu}"), error))?;
    let scheduled = match class {
        Class::Other(nice) => thread::run_with_nice(nice),
        Class::Fifo(priority) => thread::run_with_fifo(priority),
        Class::Deadline(times) => thread::run_with_deadline(times),
    };
    scheduled.map_err(|error| Failure::new(format!("{class:?}"), error))
}

/// Runs a vCPU until the VM turns off, which ends the process. EINTR and EAGAIN are no failures: a
/// signal came, or the vCPU is still off. Output is flushed before the end: what is still buffered
/// would be lost with the process, and a test would miss `DONE`.
fn run_vcpu(mut vcpu: VcpuFd, vm: &Vm) -> Result<Infallible, Failure> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::MmioRead(address, data)) => vm.devices.read(address, data),
            Ok(VcpuExit::MmioWrite(address, data)) => vm.devices.write(&vm.fd, address, data)?,
            Ok(VcpuExit::SystemEvent(event, _)) => {
                vm.devices.flush()?;
                match event {
                    KVM_SYSTEM_EVENT_SHUTDOWN | KVM_SYSTEM_EVENT_RESET => process::exit(0),
                    _ => return Err(Failure::new("system event", event)),
                }
            }
            Ok(VcpuExit::Intr) => {}
            Ok(exit) => return Err(Failure::new("KVM_RUN", format!("it ends with {exit:?}"))),
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {}
            Err(error) => return Err(Failure::new("KVM_RUN", error)),
        }
    }
}

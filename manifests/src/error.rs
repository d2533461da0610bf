//! Errors of a manifest, and their messages.
//!
//! Owns the rules: each has an id that never changes, a statement and a repair. An error is plain
//! data that names the rule, the node and the property, and where it applies the value found, the
//! other node in the conflict and the nearest known name. A caller with source positions looks them
//! up by node and property.

use core::fmt;

use crate::MAX_VMS;
pub use crate::found::Found;
use crate::list::List;
use crate::model::Vm;
pub use crate::node_path::NodePath;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $what:literal, $repair:literal;)+) => {
        /// A rule that a manifest must keep.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[$doc])* #[doc = concat!("`", $id, "`: ", $what, ".")] $name,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns the rule's id, which never changes.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)+ }
            }

            /// Returns the statement that is violated.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)+ }
            }

            /// Says how to repair it.
            #[must_use]
            pub const fn repair(self) -> &'static str {
                match self { $(Self::$name => $repair,)+ }
            }
        }
    };
}

/// Severity of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The manifest is refused.
    Error,
    /// The manifest runs, and exposes more than it might, or runs worse.
    Warning,
}

/// Beginning of the ids of warnings.
const WARNINGS: &str = "M-WRN-";

impl Rule {
    /// Returns how much the rule matters, which its id says.
    #[must_use]
    pub fn severity(self) -> Severity {
        if self.id().starts_with(WARNINGS) {
            Severity::Warning
        } else {
            Severity::Error
        }
    }
}

rules! {
    BadBlob = "M-BLB-001", "this is not a readable device tree",
        "compile the manifest with dtc, and pass it on whole";
    NotAManifest = "M-BLB-002", "this device tree is not a GearV manifest",
        "write compatible = \"gearv,manifest\" in the root node";
    BindingVersion = "M-BLB-003", "this version of the binding is not known here",
        "write version = <1>, or build with the GearV that the manifest was written for";

    UnknownProperty = "M-SYN-001", "the binding has no such property here",
        "remove it, or see docs/manifest.md for what there is";
    UnknownNode = "M-SYN-002", "the binding has no such node here",
        "remove it, or see docs/manifest.md for what there is";
    WrongType = "M-SYN-003", "the value has the wrong type",
        "see docs/manifest.md: numbers are <cells>, names \"strings\", switches have no value";
    DuplicateName = "M-SYN-004", "this name stands twice in one node", "remove one of the two";
    UnknownValue = "M-SYN-005", "this is not one of the property's values",
        "see docs/manifest.md for the values";
    OutOfRange = "M-SYN-006", "the number is out of range", "see docs/manifest.md for the range";

    NoVm = "M-VM-001", "there is no VM", "add a node below /vms for each VM";
    TooManyVms = "M-VM-002", "there are more than 16 VMs", "remove VMs";
    DuplicateVm = "M-VM-003", "two VMs have the same name", "rename one of them";
    VmName = "M-VM-004", "this is no name for a VM",
        "use 1 to 20 lower case letters, digits and dashes, beginning with a letter";
    SecondPowerOff = "M-VM-005", "two VMs may power the machine off",
        "leave may-power-off to one of them";
    KindNotSupported = "M-VM-006", "this build of GearV does not run VMs of this kind",
        "use another kind";

    RealTimeOrder = "M-VM-007", "a real-time VM starts with the machine",
        "remove boot-order, or give one to the VMs that are to start later";

    RealTimeRestarts = "M-VM-008", "Gear1 restarts a real-time VM, and knows no limit",
        "remove restart-limit, restart-window-ms and restart-backoff-ms";

    VcpuCount = "M-CPU-001", "a VM has 1 to 8 vCPUs", "write vcpus = <1> to <8>";
    TooManyVcpus = "M-CPU-002", "all VMs together have more than 32 vCPUs", "remove vCPUs";
    UnknownCpu = "M-CPU-003", "the machine has no such CPU",
        "number the machine's CPUs from 0 in the order of its device tree";
    CpuTwice = "M-CPU-004", "a CPU stands twice in one list", "remove one of the two";
    RealTimeCpus = "M-CPU-005", "a real-time VM needs one CPU for each vCPU",
        "list as many different CPUs in cpus as vcpus says";
    CpuTaken = "M-CPU-006", "a CPU of a real-time VM is used elsewhere too",
        "take it out of one of the two lists";
    CpuNotGear2s = "M-CPU-007", "a VM that Gear2 schedules names a CPU that is not Gear2's",
        "add the CPU to cpus of /gear2, or take it out here";
    Gear2WithoutCpu = "M-CPU-008", "no CPU is left for Gear2",
        "leave at least one CPU of the machine to it";
    NoPmu = "M-CPU-009", "this machine's CPUs have no PMU that interrupts by PPI 7",
        "leave pmu out";

    BudgetTooLong = "M-SCH-001", "the budget is longer than its period",
        "write a smaller budget-us or a longer period-us, which is 10000 if it is left out";
    ShortPeriod = "M-SCH-002", "a period as short as this is spent on switches",
        "write period-us = <100> or more";
    RealTimeParameter = "M-SCH-003", "Gear2 does not schedule a real-time VM",
        "remove it: the VM has its CPUs to itself";

    UnknownPool = "M-SCH-004", "there is no such pool",
        "write the name of a node below /gear2/pools, or leave pool out";
    PoolName = "M-SCH-005", "this is no name for a pool",
        "use 1 to 20 lower case letters, digits and dashes, beginning with a letter, but not \"default\"";
    PoolWithoutCpus = "M-SCH-006", "a pool has no CPU", "write cpus = <...>, or remove the pool";
    CpuInTwoPools = "M-SCH-007", "a CPU is in two pools", "take it out of one of the two lists";
    PoolCpuNotGear2s = "M-SCH-008", "a pool names a CPU that Gear2 does not run on",
        "add the CPU to cpus of /gear2, or take it out here";
    VmInTwoPools = "M-SCH-009", "a VM's CPUs are not all of one pool",
        "list CPUs of one pool in cpus, or leave cpus out and name the pool";
    NoCpuOutsidePools = "M-SCH-010", "every CPU is in a pool, and the VM is in none",
        "write pool = \"NAME\", or leave a CPU out of the pools";
    TooManyPools = "M-SCH-011", "there are more than 8 pools", "join some";
    TooManyWindows = "M-SCH-012", "there are more than 32 windows", "join some, or halve the frame";
    NoFrame = "M-SCH-013", "arinc653 needs a major frame and windows",
        "write frame-us = <N>; windows { NAME { vm = \"VM\"; start-us = <A>; length-us = <B>; }; };";
    WindowsUnread = "M-SCH-014", "only arinc653 has windows and a frame",
        "write scheduler = \"arinc653\", or remove them";
    WindowPlace = "M-SCH-015", "a window has no place in its frame",
        "write start-us = <A>; length-us = <B>;";
    WindowOverflow = "M-SCH-016", "a window ends behind its frame",
        "make it shorter or earlier, or the frame longer with frame-us";
    WindowOverlap = "M-SCH-017", "two windows of a frame overlap", "move one of them with start-us";
    WindowVm = "M-SCH-018", "this is no VM that Gear2 schedules",
        "write the name of a VM of the pool, or leave vm out for the VMs without a window";
    WindowUnused = "M-SCH-019", "the VM of a window has no vCPU on the pool's CPUs",
        "remove the window, or put the VM into the pool with pool or cpus";
    NeverRuns = "M-SCH-020", "no window lets this VM run",
        "add a window for it, or one without vm, to its pool";
    Overload = "M-SCH-021", "the vCPUs of one CPU need more than its time",
        "make a budget smaller or a period longer, or start a vCPU on another CPU with cpus";
    NullTwice = "M-SCH-022", "null runs one vCPU on each CPU",
        "give the CPU to one of them with cpus, or choose another scheduler";
    DeviceStarved = "M-SCH-023", "the device VM, which serves others, can be kept from running",
        "give the device VM the priority, a budget or a window, or write ceiling-us for priorities";
    WaitsTooLong = "M-SCH-024", "the budget's period ends before a window without vm is sure to come",
        "make period-us longer, or the windows without vm more frequent";

    NoMemory = "M-MEM-001", "a VM has no memory", "write memory-mib = <N>";
    MemoryAlignment = "M-MEM-002", "memory starts and ends on multiples of 2 MiB",
        "round it to a multiple of 2 MiB";
    MemoryOverlap = "M-MEM-003", "the memory of two VMs overlaps",
        "move one of them, or leave memory-address out of one";
    MemoryLimit = "M-MEM-004", "memory lies at or above 2^48", "place it lower";
    NotMemory = "M-MEM-005", "the machine has no memory there",
        "place it in one bank of the machine's memory, or leave memory-address out";
    MemoryReserved = "M-MEM-006", "this memory is reserved on this machine",
        "place it elsewhere, or leave memory-address out";
    OutOfMemory = "M-MEM-007", "the VMs need more memory than the machine has",
        "give them less with memory-mib";
    MemoryOverDevice = "M-MEM-008",
        "the memory that the guest sees covers the interrupt controller or a device",
        "choose another memory-ipa";
    NotInOnePiece = "M-MEM-009", "the machine has no free memory of this size in one piece",
        "give it less with memory-mib, or make its memory-align-mib smaller";

    AlignSize = "M-MEM-010", "the alignment is no power of two from 2 MiB on",
        "write 2, 4, 8, ... for memory-align-mib, or leave it out";
    AddressAlign = "M-MEM-011", "the address is no multiple of the VM's memory-align-mib",
        "round it, or leave one of the two out";

    NoPayload = "M-PAY-001", "a VM has nothing to run",
        "write kernel = \"FILE\" for a Linux Image, or image = \"FILE\" for a flat binary";
    TwoPayloads = "M-PAY-002", "a VM has both a kernel and an image", "remove one of the two";
    OtherPayload = "M-PAY-003", "the property belongs to the other kind of payload",
        "initrd goes with kernel; load-offset and entry-offset go with image";
    FileName = "M-PAY-004", "this is no file name",
        "write a path relative to the manifest, or \"artifact:NAME\"";
    LoadOffset = "M-PAY-005", "the offset is outside of the VM's memory or no multiple of 4",
        "choose a multiple of 4 below the size of the memory";

    DigestText = "M-PAY-006", "this is no SHA-256",
        "write the 64 digits that sha256sum prints for the file";
    DigestDiffers = "M-PAY-007", "the file is another one than the manifest was written for",
        "use the right file, or write the digest that sha256sum prints for this one";
    DigestAlone = "M-PAY-008", "this is the digest of a file that the VM does not have",
        "remove it, or name the file";

    FileMissing = "M-PAY-009", "there is no such file",
        "write a path relative to the manifest's folder, or \"artifact:NAME\"";
    FileEmpty = "M-PAY-010", "this is no file with contents",
        "name a file that can be read and is not empty";
    NotAKernel = "M-PAY-011", "this is no arm64 Linux Image",
        "name the file arch/arm64/boot/Image of a kernel's build, or Debian's /boot/vmlinuz for arm64";
    NotAFlatBinary = "M-PAY-012", "this is no flat binary",
        "name the file that objcopy -O binary makes of the program";
    NotAnInitrd = "M-PAY-013", "this is no initrd",
        "name a cpio archive, compressed or not, or an image of a file system";
    UnknownArtifact = "M-PAY-014", "xtask makes no such file",
        "see docs/manifest.md for the artifacts that there are";
    PayloadTooLarge = "M-PAY-015", "the payload does not fit into the VM's memory",
        "raise memory-mib, or name a smaller file";
    EntryBehindImage = "M-PAY-016", "the entry point lies behind the image's end",
        "entry-offset counts from the image's first byte: write one below the file's size";

    ConsoleAddress = "M-CON-001", "the console's address is no multiple of 4 KiB below 2^48",
        "choose one, or leave it out";
    ConsoleInterrupt = "M-CON-002", "the console's interrupt is not a shared one",
        "choose an INTID from 32 to 511, or leave it out";
    RealTimeConsole = "M-CON-004", "a real-time VM has no emulated console",
        "remove the console node; give it a UART with devices";
    ConsoleOverMemory = "M-CON-003", "the console lies in the VM's memory or over a device",
        "choose another address for it, or another memory-ipa";

    RtcAddress = "M-RTC-001", "the real-time clock's address is no multiple of 4 KiB below 2^48",
        "choose one, or leave it out";
    RtcOverMemory = "M-RTC-002",
        "the real-time clock lies in the VM's memory, or over another device",
        "choose another address for it, or another memory-ipa";
    RtcNotGuest = "M-RTC-003", "only a guest can have the device VM's real-time clock",
        "remove the rtc node; give the VM a clock of the machine with devices";
    RtcWithoutServer = "M-RTC-004", "a real-time clock needs a VM that tells the time",
        "add a VM of kind = \"device\"";

    PrivilegeNotSupported = "M-GR2-001", "this build of GearV does not run Gear2 at this level",
        "write privilege = \"el0\" or leave it out";

    PassThroughGic = "M-GIC-001",
        "only a real-time VM can have the physical interrupt controller",
        "write gic = \"emulated\" or leave it out";

    NotTheDeviceVm = "M-DEV-001", "the property belongs to a VM that owns devices",
        "remove it, or write kind = \"device\" or \"real-time\"";
    SecondDeviceVm = "M-DEV-002", "two VMs own the devices", "make one of them a guest";
    DevicePath = "M-DEV-003", "this is no path of a device in the board's device tree",
        "write \"/node/node@address\"; a * is allowed at the end";
    DeviceVmIpa = "M-DEV-004", "the VM that owns the devices must see its memory where it is",
        "remove memory-ipa: devices use physical addresses";
    WindowAddress = "M-DEV-005", "the window is no multiple of 1 MiB below 2^48",
        "choose one, or leave it out";
    WindowOverMemory = "M-DEV-006", "the window lies over memory, the console or a device",
        "choose a window-address where the machine has nothing";

    NoSuchDevice = "M-DEV-007", "the machine has no such enabled device",
        "write the path of an enabled node in the board's device tree";
    DeviceStays = "M-DEV-008", "this device cannot be given away", "take it out of devices";
    DeviceTaken = "M-DEV-009", "the device has another owner too",
        "give all devices of one page, or of one interrupt, to one VM";
    TooManyMasters = "M-DEV-010", "more devices master the bus than Gear1 can stop",
        "give away fewer of them";

    VirtioWithoutServer = "M-VIO-001", "virtio devices need a VM that serves them",
        "add a VM of kind = \"device\"";
    VirtioNotGuest = "M-VIO-002", "only a guest can have virtio devices",
        "remove the virtio node";
    TooManyVirtioOfVm = "M-VIO-003", "a VM has more than 8 virtio devices", "remove some";
    TooManyVirtio = "M-VIO-004", "all VMs together have more than 32 virtio devices",
        "remove some";
    VirtioType = "M-VIO-005", "a virtio device has no type",
        "write type = \"block\", \"net\", \"console\", \"rng\" or \"vhost-user\"";
    VirtioBackend = "M-VIO-006", "a virtio device has nothing that serves it",
        "write backend = \"...\": a file or device, a tap device, or \"pty\"";
    VirtioOtherType = "M-VIO-007", "the property belongs to another type of virtio device",
        "read-only goes with block, mac with net, and what names a socket and its device with \
         vhost-user; rng and vhost-user have no backend";
    VirtioAddress = "M-VIO-008", "the virtio registers are no multiple of 4 KiB below 2^48",
        "choose one, or leave it out";
    VirtioOverMemory = "M-VIO-009",
        "the virtio registers lie in the VM's memory, or over its console or a device",
        "choose another virtio-address, or another memory-ipa";
    VirtioInterrupt = "M-VIO-010", "the console has the interrupt of a virtio device",
        "choose another one: those from 48 on are the virtio devices'";
    SameBackend = "M-VIO-011", "two virtio devices have the same backend",
        "give each its own; disks may share one if all of them are read-only";
    BackendText = "M-VIO-012", "a backend's text has a control character",
        "write a path or a name of one line";
    TapName = "M-VIO-013", "this is no name of a tap device",
        "use 1 to 15 bytes without blanks, '/', ':' and '%'";
    OwnDisk = "M-VIO-014", "the device VM uses this disk itself",
        "give the guest another disk or partition, or take root= or resume= out of cmdline";
    MacText = "M-VIO-015", "this is no MAC address of one network card",
        "write \"02:xx:xx:xx:xx:xx\", six pairs of hexadecimal digits, the first of them even";
    SameMac = "M-VIO-016", "two network cards have the same MAC address",
        "give each its own, or leave them out";

    DiskPath = "M-VIO-017", "this is no path of a disk in the device VM",
        "write the absolute path of a file or a block device there, such as \"/dev/vda\"";
    ConsoleBackend = "M-VIO-018", "this is no backend of a console",
        "write backend = \"pty\"";
    VhostFunction = "M-VIO-019", "nothing says, or two properties say, what the guest sees here",
        "write device = \"block\" or another function, or device-id = <N>, from 1 to 63";
    VhostSocket = "M-VIO-020", "this is no path of a socket in the device VM",
        "write socket = \"/run/NAME.socket\": an absolute path of at most 107 bytes in one line";
    VhostSize = "M-VIO-021", "a device that another program serves cannot have so much",
        "write queues from 1 to 4, and config-size from 0 to 256, or leave them out";
    VhostTag = "M-VIO-022", "a file system has no tag, by which the guest mounts it",
        "write tag = \"NAME\", of 1 to 36 bytes";
    VhostCommand = "M-VIO-023", "the device model cannot start this program, or give it these files",
        "write command = \"/usr/bin/NAME\", \"ARGUMENT\", of at most 1024 bytes, and absolute paths \
         in files";

    DmaUnchecked = "M-WRN-001",
        "a device that masters the bus reaches all memory, as there is no SMMU to stop it",
        "give such devices to VMs that may be trusted with everything";
    ServedForLittle = "M-WRN-002",
        "the device VM can write all of this VM's memory for the sake of random numbers",
        "remove the virtio node: a guest's device tree has an rng-seed";
    ManyPeers = "M-WRN-003", "this VM may share memory with three or more others",
        "name only those that must see it in ffa-peers";

    TwoClusters = "M-WRN-004",
        "this VM's vCPUs start on CPUs of several clusters, which may differ in kind",
        "list CPUs of one cluster in cpus";

    NeedsOther = "M-WRN-005", "a device needs another one, which its VM does not have",
        "give that one to the VM too; its driver waits for it otherwise";

    ManyWriters = "M-WRN-006", "three or more VMs can write this memory, and none can tell who did",
        "name those that only read it in readers, or use one memory for each pair";

    EarlyWatchdog = "M-WRN-007",
        "the device VM restarts before its device model has ended itself for a thread that hangs",
        "write watchdog-ms = <12000> or more, or leave it out";

    ShortTime = "M-WRN-008", "so short a time is seldom meant",
        "write the time in milliseconds: 10 s are <10000>";

    NoSuchConsole = "M-WRN-009", "the VM has no such console",
        "write console=ttyAMA0 for the emulated UART, or console=hvc0 for the first virtio console; \
        other UARTs must be in devices";
    LongCommandLine = "M-WRN-010", "Linux drops what is behind byte 2047 of its command line",
        "shorten cmdline";

    NoSuchDisk = "M-WRN-011", "the VM has no such disk",
        "name one of its virtio disks, in the order of the manifest: /dev/vda is the first";
    ReadOnlyRoot = "M-WRN-012", "the root file system is to be written, and its disk is read-only",
        "write ro in cmdline, remove read-only, or name another disk";
    CannotServe = "M-WRN-013", "the device VM cannot serve its guests",
        "give it their disks with devices, and let it start with the machine, before them";
    OtherInterface = "M-WRN-014", "this name is usually another network device's than a tap's",
        "write a name that the device model makes a tap device of, such as \"tap0\"";
    SameAddress = "M-WRN-015", "two VMs have the same address on the device VM's network",
        "write gearv.ip=10.0.2.102/24 in the cmdline of one of them";
    NoGuestAddress = "M-WRN-016", "this is no address of a guest on the device VM's network",
        "write gearv.ip=10.0.2.N/24, and not the device VM's own 10.0.2.100";
    NoEffect = "M-WRN-017", "this has no effect", "remove it, or change what it depends on";
    OddRestarts = "M-WRN-018", "a VM is seldom meant to be restarted like this",
        "see docs/manifest.md for restarts";
    NoWriter = "M-WRN-019", "no VM can write this memory",
        "name the one that writes it in vms";
    OtherInitrd = "M-WRN-020", "this initial RAM disk is made for another VM",
        "take device-initramfs for the device VM, guest-initramfs for a guest with a virtio disk, \
        and busybox-initramfs for others";

    KernelWord = "M-WRN-021", "Linux does not take this word of its command line as it is meant",
        "see the kernel's documentation of its parameters";

    UnusedPool = "M-WRN-022", "no VM is in this pool",
        "name it with pool in a VM, or remove it";
    Unread = "M-WRN-023", "the scheduler of the VM's CPUs does not read this",
        "remove it, or choose a scheduler that does";
    LittleLeft = "M-WRN-024", "budgets leave this VM little of its CPU",
        "make a budget smaller, or give this VM one";
    NoRoot = "M-WRN-025", "Linux finds no root file system",
        "name an initrd, or write root=/dev/vda in cmdline; a kernel with an initramfs of its own \
        needs neither";

    SharedPlace = "M-SHM-001",
        "shared memory has an address, from 2 MiB on, and a size, both multiples of 2 MiB",
        "write address = <A> and size-mib = <N>";
    SharedOverlap = "M-SHM-002", "shared memory overlaps with other memory, or with what a VM sees",
        "move one of them; 2 MiB before it describe it to Linux";
    SharedAlone = "M-SHM-003", "fewer than two VMs have this memory", "name another in vms or readers";
    SharedVm = "M-SHM-004", "this is no VM of the manifest, or it is named twice here",
        "write the name of each VM that has the memory, once";
    TooManyShared = "M-SHM-005", "there are more than 8 shared memories", "join some";

    TooManyChannels = "M-CHN-001", "there are more than 16 channels",
        "let one doorbell stand for several events, and say in memory which they are";
    ChannelVm = "M-CHN-002", "a channel leads from one VM of the manifest to another",
        "write from = \"A\" and to = \"B\", the names of two VMs";
    ChannelName = "M-CHN-003", "this is no name for a channel",
        "use 1 to 20 lower case letters, digits and dashes, beginning with a letter";
    RingsEmulated = "M-CHN-004",
        "a doorbell would wait for a real-time VM whose interrupt controller is emulated",
        "write gic = \"pass-through\" in that VM, or let it poll shared memory";
    RealTimeRings = "M-CHN-005",
        "a real-time VM rings real-time VMs alone: it would wait for any other",
        "let the other VM poll shared memory, or ring a real-time VM";
    NoInterval = "M-CHN-006", "this channel may interrupt a real-time VM at any rate",
        "write min-interval-us = <N>, or <0> if the VM bears any rate";
    NoTimer = "M-CHN-007", "Gear1 has no timer on the CPUs of a VM with pass-through",
        "write min-interval-us = <0>, or remove it";
    ChannelMemory = "M-CHN-008", "this is no shared memory of both VMs",
        "name a node of /shared-memory that has both VMs in vms or readers";
    DoorbellAddress = "M-CHN-009",
        "the doorbell's address is no multiple of 4 KiB below 2^48",
        "write address = <A>, where the VM has nothing else";
    DoorbellOverMemory = "M-CHN-010",
        "the doorbell lies in the VM's memory, or over something else that the VM has",
        "write another address";
    ChannelInterrupt = "M-CHN-011", "the channel's interrupt is not a shared one",
        "write interrupt = <32> to <511>";
    ChannelInterruptTaken = "M-CHN-012", "the channel's interrupt has another source",
        "write another interrupt";

    UnknownPeer = "M-FFA-001", "this is no other VM of the manifest",
        "write the name of a VM that this one may share memory with";
    PeerIsServed = "M-FFA-002",
        "a VM with virtio devices cannot share memory: the device VM sees all of it",
        "take it out of ffa-peers, or remove its virtio devices";
    PeerIsRealTime = "M-FFA-003",
        "a real-time VM cannot share memory: it would wait for the other VM",
        "take it out of ffa-peers";
}

/// A violation of a rule in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestError<'a> {
    /// The rule that is broken.
    pub rule: Rule,
    /// Node with the error.
    pub node: NodePath<'a>,
    /// Property with the error, if the error is in one.
    pub property: Option<&'a str>,
    /// The value found.
    pub found: Found<'a>,
    /// The other node that this one conflicts with.
    pub other: Option<NodePath<'a>>,
    /// The known name that was probably meant.
    pub nearest: Option<&'a str>,
}

impl<'a> ManifestError<'a> {
    /// Makes an error at a node.
    #[must_use]
    pub const fn at(rule: Rule, node: NodePath<'a>) -> Self {
        Self {
            rule,
            node,
            property: None,
            found: Found::Nothing,
            other: None,
            nearest: None,
        }
    }

    /// Makes an error at a property.
    #[must_use]
    pub const fn at_property(rule: Rule, node: NodePath<'a>, property: &'a str) -> Self {
        Self {
            property: Some(property),
            ..Self::at(rule, node)
        }
    }

    /// Adds the value found.
    #[must_use]
    pub const fn found(self, found: Found<'a>) -> Self {
        Self { found, ..self }
    }

    /// Adds the known name that was probably meant.
    #[must_use]
    pub const fn near(self, nearest: Option<&'a str>) -> Self {
        Self { nearest, ..self }
    }

    /// Adds the other node in the conflict.
    #[must_use]
    pub const fn conflicts(self, other: NodePath<'a>) -> Self {
        Self {
            other: Some(other),
            ..self
        }
    }
}

impl fmt::Display for ManifestError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.rule.id(), self.node)?;
        if let Some(property) = self.property {
            write!(f, "{property}: ")?;
        }
        write!(f, "{}{}", self.rule.what(), self.found)?;
        if let Some(other) = self.other {
            write!(f, ", in conflict with {other}")?;
        }
        match self.nearest {
            Some(name) => write!(f, "; did you mean {name}?"),
            None => write!(f, "; {}", self.rule.repair()),
        }
    }
}

impl core::error::Error for ManifestError<'_> {}

/// The manifest is refused; the errors have been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of errors.
    pub error_count: usize,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error_count {
            1 => f.write_str("the manifest is refused: 1 error"),
            count => write!(f, "the manifest is refused: {count} errors"),
        }
    }
}

impl core::error::Error for Refused {}

/// Counts errors on their way to the caller, and remembers their nodes.
pub(crate) struct Report<'r, 'a> {
    sink: &'r mut dyn FnMut(ManifestError<'a>),
    pub(crate) error_count: usize,
    /// Whether an error was at `/gear2`.
    pub(crate) gear2_is_faulty: bool,
    /// The VMs with errors.
    faulty: List<&'a str, MAX_VMS>,
}

impl<'r, 'a> Report<'r, 'a> {
    pub(crate) fn new(sink: &'r mut dyn FnMut(ManifestError<'a>)) -> Self {
        Self {
            sink,
            error_count: 0,
            gear2_is_faulty: false,
            faulty: List::new(),
        }
    }

    /// Passes an error, or a warning, on.
    pub(crate) fn error(&mut self, error: ManifestError<'a>) {
        if error.rule.severity() == Severity::Error {
            self.error_count += 1;
            match error.node.names {
                [Some("gear2"), ..] => self.gear2_is_faulty = true,
                // A rule of its own reports more VMs than there can be.
                [Some("vms"), Some(vm), ..] => _ = self.faulty.push(vm),
                _ => {}
            }
        }
        (self.sink)(error);
    }

    /// Tells whether no error was at the VM.
    pub(crate) fn is_sound(&self, vm: &Vm<'_>) -> bool {
        !self.faulty.iter().any(|faulty| *faulty == vm.name)
    }

    pub(crate) fn outcome(&self) -> Result<(), Refused> {
        match self.error_count {
            0 => Ok(()),
            error_count => Err(Refused { error_count }),
        }
    }
}

#[cfg(test)]
mod tests;

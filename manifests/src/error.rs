//! Errors of a manifest, and their messages.
//!
//! Owns the rules: each has an id that never changes, a statement, a repair and a reason. An error
//! is plain data that names the rule, the node and the property, and where it applies the value
//! found, the other node in the conflict and the nearest known name. A caller with source positions
//! looks them up by node and property.

pub use crate::found::Found;
pub use crate::node_path::NodePath;

mod report;
mod table;
#[cfg(test)]
mod tests;
mod warnings;

pub(crate) use report::Report;
pub use report::{ManifestError, Refused};
pub use table::Severity;
use table::rules;
use warnings::rules_and_warnings;

rules_and_warnings! {
    /// Nothing of a damaged blob is believed: what is left of it may be another manifest.
    BadBlob = "M-BLB-001", "this is not a readable device tree",
        "compile the manifest with dtc, and pass it on whole";
    /// Any device tree would otherwise be a manifest without VMs.
    NotAManifest = "M-BLB-002", "this device tree is not a GearV manifest",
        "write compatible = \"gearv,manifest\" in the root node";
    /// A later binding may give a name that is known here another meaning.
    BindingVersion = "M-BLB-003", "this version of the binding is not known here",
        "write version = <1>, or build with the GearV that the manifest was written for";

    /// A misspelled property would be a default that nobody chose.
    UnknownProperty = "M-SYN-001", "the binding has no such property here",
        "remove it, or see docs/manifest.md for what there is";
    /// A misspelled node would be a VM without a console, or a pool without windows.
    UnknownNode = "M-SYN-002", "the binding has no such node here",
        "remove it, or see docs/manifest.md for what there is";
    /// A blob has no types: text of three letters is a number to a reader.
    WrongType = "M-SYN-003", "the value has the wrong type",
        "see docs/manifest.md: numbers are <cells>, names \"strings\", switches have no value";
    /// A reader finds the first of two, and the author may mean the other.
    DuplicateName = "M-SYN-004", "this name stands twice in one node", "remove one of the two";
    /// A default in place of a misspelled word would change who may do what.
    UnknownValue = "M-SYN-005", "this is not one of the property's values",
        "see docs/manifest.md for the values";
    /// Gear2 computes with these numbers in ticks, and must neither overflow nor divide by 0.
    OutOfRange = "M-SYN-006", "the number is out of range", "see docs/manifest.md for the range";

    /// A machine without VMs looks like one that hangs.
    NoVm = "M-VM-001", "there is no VM", "add a node below /vms for each VM";
    /// Gear1 has no heap: its tables of VMs have a fixed size.
    TooManyVms = "M-VM-002", "there are more than 16 VMs", "remove VMs";
    /// Channels, windows, peers and `gearctl` find a VM by its name.
    DuplicateVm = "M-VM-003", "two VMs have the same name", "rename one of them";
    /// The name is a label on the console and a part of file names in the device VM.
    VmName = "M-VM-004", "this is no name for a VM",
        "use 1 to 20 lower case letters, digits and dashes, beginning with a letter";
    /// The end of one VM would power the other one's machine off.
    SecondPowerOff = "M-VM-005", "two VMs may power the machine off",
        "leave may-power-off to one of them";
    /// A build without the code for a kind would run the VM as another kind.
    KindNotSupported = "M-VM-006", "this build of GearV does not run VMs of this kind",
        "use another kind";

    /// Gear1 starts real-time VMs before there is a Gear2 that could keep an order.
    RealTimeOrder = "M-VM-007", "a real-time VM starts with the machine",
        "remove boot-order, or give one to the VMs that are to start later";

    /// The limits are Gear2's, and a real-time VM goes on without Gear2.
    RealTimeRestarts = "M-VM-008", "Gear1 restarts a real-time VM, and knows no limit",
        "remove restart-limit, restart-window-ms and restart-backoff-ms";
    /// The limits and what follows are Gear2's, and a real-time VM goes on without Gear2. Nobody
    /// else could serve the guests of a device VM.
    GiveUpOfNoGuest = "M-VM-009", "only a guest has a safe state of its own",
        "remove on-give-up and standby";
    /// One without the other would be a default that nobody chose.
    StandbyAlone = "M-VM-010", "on-give-up = \"fail-over\" and standby belong together",
        "write both, or neither";
    /// A standby that runs already, or waits for another one, takes over nothing.
    NotAStandby = "M-VM-011", "this VM cannot be the standby",
        "name another guest, which has no-autostart and does not fail over itself";
    /// The device VM sees no memory but that of the guests whose devices it serves.
    DumpOfNoServed = "M-VM-012", "only a guest with virtio devices can be dumped",
        "remove dump, or give the guest a virtio device";
    /// No deadline of Gear1's comes while firmware waits at EL3 for its source.
    RealTimeFirmware = "M-VM-013", "a real-time VM does not wait in firmware",
        "remove firmware-trng";

    /// A GICv2 names the targets of an interrupt by 8 bits.
    VcpuCount = "M-CPU-001", "a VM has 1 to 8 vCPUs", "write vcpus = <1> to <8>";
    /// Gear1 has no heap: registers and states of vCPUs have fixed places.
    TooManyVcpus = "M-CPU-002", "all VMs together have more than 32 vCPUs", "remove vCPUs";
    /// A vCPU on a CPU that is not there would never run.
    UnknownCpu = "M-CPU-003", "the machine has no such CPU",
        "number the machine's CPUs from 0 in the order of its device tree";
    /// vCPU *i* starts on entry *i*, so a repeated entry is rarely meant.
    CpuTwice = "M-CPU-004", "a CPU stands twice in one list", "remove one of the two";
    /// Two vCPUs of one CPU need a scheduler, which a real-time VM's CPUs lack.
    RealTimeCpus = "M-CPU-005", "a real-time VM needs one CPU for each vCPU",
        "list as many different CPUs in cpus as vcpus says";
    /// Anybody else who runs there takes time from the real-time VM.
    CpuTaken = "M-CPU-006", "a CPU of a real-time VM is used elsewhere too",
        "take it out of one of the two lists";
    /// No loop of Gear2's runs there, so the vCPU would never run.
    CpuNotGear2s = "M-CPU-007", "a VM that Gear2 schedules names a CPU that is not Gear2's",
        "add the CPU to cpus of /gear2, or take it out here";
    /// Without a loop nobody schedules, loads or restarts a VM.
    Gear2WithoutCpu = "M-CPU-008", "no CPU is left for Gear2",
        "leave at least one CPU of the machine to it";
    /// The guest's driver would wait for an interrupt that never comes.
    NoPmu = "M-CPU-009", "this machine's CPUs have no PMU that interrupts by PPI 7",
        "leave pmu out";
    /// The architecture knows no other lengths.
    SveBits = "M-CPU-010", "the length of vectors is no multiple of 128 from 128 to 2048",
        "write sve-bits = <128> to <2048>, or leave it out for no SVE";
    /// The guest would see another length than the manifest says, or no SVE.
    NoVectors = "M-CPU-011", "this machine's CPUs have no vectors of this length",
        "write a length that they have, or leave sve-bits out";

    /// A server that needs more than all of a CPU misses each deadline.
    BudgetTooLong = "M-SCH-001", "the budget is longer than its period",
        "write a smaller budget-us or a longer period-us, which is 10000 if it is left out";
    /// Each period costs a switch to the vCPU and one back.
    ShortPeriod = "M-SCH-002", "a period as short as this is spent on switches",
        "write period-us = <100> or more";
    /// A parameter that nobody reads would promise what does not happen.
    RealTimeParameter = "M-SCH-003", "Gear2 does not schedule a real-time VM",
        "remove it: the VM has its CPUs to itself";

    /// The VM would run under another scheduler than its author chose.
    UnknownPool = "M-SCH-004", "there is no such pool",
        "write the name of a node below /gear2/pools, or leave pool out";
    /// `default` is what `gearctl` calls the CPUs of no pool.
    PoolName = "M-SCH-005", "this is no name for a pool",
        "use 1 to 20 lower case letters, digits and dashes, beginning with a letter, but not \"default\"";
    /// VMs of such a pool would never run.
    PoolWithoutCpus = "M-SCH-006", "a pool has no CPU", "write cpus = <...>, or remove the pool";
    /// The loop of a CPU has one scheduler.
    CpuInTwoPools = "M-SCH-007", "a CPU is in two pools", "take it out of one of the two lists";
    /// A CPU without a loop of Gear2's has no scheduler at all.
    PoolCpuNotGear2s = "M-SCH-008", "a pool names a CPU that Gear2 does not run on",
        "add the CPU to cpus of /gear2, or take it out here";
    /// A VM's parameters mean different things to different schedulers.
    VmInTwoPools = "M-SCH-009", "a VM's CPUs are not all of one pool",
        "list CPUs of one pool in cpus, or leave cpus out and name the pool";
    /// The VM would have no CPU to start on.
    NoCpuOutsidePools = "M-SCH-010", "every CPU is in a pool, and the VM is in none",
        "write pool = \"NAME\", or leave a CPU out of the pools";
    /// A pool has a CPU of its own, and no machine has more.
    TooManyPools = "M-SCH-011", "there are more than 8 pools", "join some";
    /// The reader has no heap, so that its lists have fixed lengths.
    TooManyWindows = "M-SCH-012", "there are more than 32 windows", "join some, or halve the frame";
    /// Without a window, no VM of the pool ever runs.
    NoFrame = "M-SCH-013", "arinc653 needs a major frame and windows",
        "write frame-us = <N>; windows { NAME { vm = \"VM\"; start-us = <A>; length-us = <B>; }; };";
    /// Windows under another scheduler would promise times that nobody keeps.
    WindowsUnread = "M-SCH-014", "only arinc653 has windows and a frame",
        "write scheduler = \"arinc653\", or remove them";
    /// A default place would take time from another VM.
    WindowPlace = "M-SCH-015", "a window has no place in its frame",
        "write start-us = <A>; length-us = <B>;";
    /// The rest of the window would fall into the next frame, where another VM has the CPU.
    WindowOverflow = "M-SCH-016", "a window ends behind its frame",
        "make it shorter or earlier, or the frame longer with frame-us";
    /// Both VMs are promised the CPU.
    WindowOverlap = "M-SCH-017", "two windows of a frame overlap", "move one of them with start-us";
    /// The VM that is meant would have no time.
    WindowVm = "M-SCH-018", "this is no VM that Gear2 schedules",
        "write the name of a VM of the pool, or leave vm out for the VMs without a window";
    /// The CPU would be kept free for a VM that cannot run there.
    WindowUnused = "M-SCH-019", "the VM of a window has no vCPU on the pool's CPUs",
        "remove the window, or put the VM into the pool with pool or cpus";
    /// A started VM without any time looks like one that hangs.
    NeverRuns = "M-SCH-020", "no window lets this VM run",
        "add a window for it, or one without vm, to its pool";
    /// Budgets are guarantees, and earliest deadline first keeps them up to all of a CPU.
    Overload = "M-SCH-021", "the vCPUs of one CPU need more than its time",
        "make a budget smaller or a period longer, or start a vCPU on another CPU with cpus";
    /// `null` has no queue: the second vCPU would never run.
    NullTwice = "M-SCH-022", "null runs one vCPU on each CPU",
        "give the CPU to one of them with cpus, or choose another scheduler";
    /// All guests wait for their disks as long as the device VM waits for a CPU.
    DeviceStarved = "M-SCH-023", "the device VM, which serves others, can be kept from running",
        "give the device VM the priority, a budget or a window, or write ceiling-us for priorities";
    /// The budget's deadline could pass while only other windows are open.
    WaitsTooLong = "M-SCH-024", "the budget's period ends before a window without vm is sure to come",
        "make period-us longer, or the windows without vm more frequent";

    /// A size has no default: too little is a crash of the guest, and too much is another VM's.
    NoMemory = "M-MEM-001", "a VM has no memory", "write memory-mib = <N>";
    /// Stage 2 maps blocks of 2 MiB: a rest would need tables, and more TLB entries.
    MemoryAlignment = "M-MEM-002", "memory starts and ends on multiples of 2 MiB",
        "round it to a multiple of 2 MiB";
    /// A page has one owner.
    MemoryOverlap = "M-MEM-003", "the memory of two VMs overlaps",
        "move one of them, or leave memory-address out of one";
    /// Stage 2 translates 48 bits at most.
    MemoryLimit = "M-MEM-004", "memory lies at or above 2^48", "place it lower";
    /// Stores there would reach a device, or end in SErrors.
    NotMemory = "M-MEM-005", "the machine has no memory there",
        "place it in one bank of the machine's memory, or leave memory-address out";
    /// Gear1, the archive or firmware lies there.
    MemoryReserved = "M-MEM-006", "this memory is reserved on this machine",
        "place it elsewhere, or leave memory-address out";
    /// Told with the sum, before the placement fails at whichever VM comes last.
    OutOfMemory = "M-MEM-007", "the VMs need more memory than the machine has",
        "give them less with memory-mib";
    /// Emulated registers are where nothing is mapped: memory would hide them.
    MemoryOverDevice = "M-MEM-008",
        "the memory that the guest sees covers the interrupt controller or a device",
        "choose another memory-ipa";
    /// A VM's memory is one region, in the VM and in the machine.
    NotInOnePiece = "M-MEM-009", "the machine has no free memory of this size in one piece",
        "give it less with memory-mib, or make its memory-align-mib smaller";

    /// Blocks of page tables are powers of two, so no other alignment gains one.
    AlignSize = "M-MEM-010", "the alignment is no power of two from 2 MiB on",
        "write 2, 4, 8, ... for memory-align-mib, or leave it out";
    /// Two wishes, of which one can hold.
    AddressAlign = "M-MEM-011", "the address is no multiple of the VM's memory-align-mib",
        "round it, or leave one of the two out";

    /// A VM without code would fault at its first instruction.
    NoPayload = "M-PAY-001", "a VM has nothing to run",
        "write kernel = \"FILE\" for a Linux Image, or image = \"FILE\" for a flat binary";
    /// The two are entered by different protocols.
    TwoPayloads = "M-PAY-002", "a VM has both a kernel and an image", "remove one of the two";
    /// The property would have no effect.
    OtherPayload = "M-PAY-003", "the property belongs to the other kind of payload",
        "initrd goes with kernel; load-offset and entry-offset go with image";
    /// The archive has members of its own, which a payload's name could hide.
    FileName = "M-PAY-004", "this is no file name",
        "write a path relative to the manifest, or \"artifact:NAME\"";
    /// AArch64 instructions lie on multiples of 4, the first one included.
    LoadOffset = "M-PAY-005", "the offset is outside of the VM's memory or no multiple of 4",
        "choose a multiple of 4 below the size of the memory";

    /// Text that is no digest equals no file's.
    DigestText = "M-PAY-006", "this is no SHA-256",
        "write the 64 digits that sha256sum prints for the file";
    /// The author has vouched for another file.
    DigestDiffers = "M-PAY-007", "the file is another one than the manifest was written for",
        "use the right file, or write the digest that sha256sum prints for this one";
    /// A digest of nothing looks like a check that is done.
    DigestAlone = "M-PAY-008", "this is the digest of a file that the VM does not have",
        "remove it, or name the file";

    /// Told before a build that takes minutes.
    FileMissing = "M-PAY-009", "there is no such file",
        "write a path relative to the manifest's folder, or \"artifact:NAME\"";
    /// A VM without an instruction would run on zeroes.
    FileEmpty = "M-PAY-010", "this is no file with contents",
        "name a file that can be read and is not empty";
    /// The first byte is executed: a compressed file or an ELF header is no code.
    NotAKernel = "M-PAY-011", "this is no arm64 Linux Image",
        "name the file arch/arm64/boot/Image of a kernel's build, or Debian's /boot/vmlinuz for arm64";
    /// The first byte is executed: Gear1 knows no format of programs.
    NotAFlatBinary = "M-PAY-012", "this is no flat binary",
        "name the file that objcopy -O binary makes of the program";
    /// Linux tells only when the guest has booted, in the middle of its log.
    NotAnInitrd = "M-PAY-013", "this is no initrd",
        "name a cpio archive, compressed or not, or an image of a file system";
    /// A misspelled artifact would be looked for when all others are built.
    UnknownArtifact = "M-PAY-014", "xtask makes no such file",
        "see docs/manifest.md for the artifacts that there are";
    /// Told here rather than on the board, after its card was written.
    PayloadTooLarge = "M-PAY-015", "the payload does not fit into the VM's memory",
        "raise memory-mib, or name a smaller file";
    /// Memory behind the image is zero, which is an undefined instruction.
    EntryBehindImage = "M-PAY-016", "the entry point lies behind the image's end",
        "entry-offset counts from the image's first byte: write one below the file's size";

    /// A page is the least that traps by itself.
    ConsoleAddress = "M-CON-001", "the console's address is no multiple of 4 KiB below 2^48",
        "choose one, or leave it out";
    /// A private interrupt belongs to one vCPU, and the UART to the VM.
    ConsoleInterrupt = "M-CON-002", "the console's interrupt is not a shared one",
        "choose an INTID from 32 to 511, or leave it out";
    /// Gear2 emulates the UART, and never runs on the VM's CPUs.
    RealTimeConsole = "M-CON-004", "a real-time VM has no emulated console",
        "remove the console node; give it a UART with devices";
    /// Accesses to mapped memory do not trap: the UART would be silent.
    ConsoleOverMemory = "M-CON-003", "the console lies in the VM's memory or over a device",
        "choose another address for it, or another memory-ipa";

    /// A page is the least that traps by itself.
    RtcAddress = "M-RTC-001", "the real-time clock's address is no multiple of 4 KiB below 2^48",
        "choose one, or leave it out";
    /// Accesses to mapped memory do not trap: the clock would show what lies there.
    RtcOverMemory = "M-RTC-002",
        "the real-time clock lies in the VM's memory, or over another device",
        "choose another address for it, or another memory-ipa";
    /// The device VM has the machine's clock, and a real-time VM waits for nobody.
    RtcNotGuest = "M-RTC-003", "only a guest can have the device VM's real-time clock",
        "remove the rtc node; give the VM a clock of the machine with devices";
    /// Gear2 knows no time of day: the device VM tells it.
    RtcWithoutServer = "M-RTC-004", "a real-time clock needs a VM that tells the time",
        "add a VM of kind = \"device\"";

    /// A page is the least that traps by itself.
    WatchdogAddress = "M-WDG-001", "the watchdog's address is no multiple of 4 KiB below 2^48",
        "choose one, or leave watchdog-address out";
    /// Accesses to mapped memory do not trap: nobody would see a refresh. A heartbeat's page is
    /// mapped itself.
    WatchdogOverMemory = "M-WDG-002",
        "the watchdog's pages lie in the VM's memory, or over another device",
        "choose another watchdog-address, or another memory-ipa";
    /// The handler of one device would hide the interrupts of the other.
    WatchdogInterrupt = "M-WDG-003", "the console has the interrupt of the VM's watchdog",
        "choose another interrupt for the console, or leave it out";

    /// Gear1 feeds what it has a driver for, and a disabled device may lack its clock.
    NotFeedable = "M-BWD-001", "the machine has no such enabled device that Gear1 can feed",
        "name the node of a watchdog, or for gpio-heartbeat that of a PL061, by its path";
    /// A shorter one would reset the machine at once, and a longer one be cut off.
    FeedTimeout = "M-BWD-002", "the board's watchdog does not count this time",
        "write a timeout-ms within its range";
    /// No two boards are alike, so that no default would be right for both.
    FedIncomplete = "M-BWD-003", "the node needs this property", "write it";

    /// Each exception level needs an image of Gear2 of its own.
    PrivilegeNotSupported = "M-GR2-001", "this build of GearV does not run Gear2 at this level",
        "write privilege = \"el0\" or leave it out";
    /// Nobody would find a record of what was to be recorded.
    TraceWithoutRing = "M-GR2-002", "trace-from-boot needs rings of trace records",
        "write trace-kib, or remove trace-from-boot";

    /// VMs that share a CPU cannot share its CPU interface.
    PassThroughGic = "M-GIC-001", "only a real-time VM can have the physical interrupt controller",
        "write gic = \"emulated\" or leave it out";

    /// Only the device model has a window, so the property would have no effect.
    NotTheDeviceVm = "M-DEV-001", "the property belongs to the device VM",
        "remove it, or write kind = \"device\"";
    /// Gear2 shares one region with one device model.
    SecondDeviceVm = "M-DEV-002", "two VMs own the devices", "make one of them a guest";
    /// A pattern is compared with absolute paths, letter by letter.
    DevicePath = "M-DEV-003", "this is no path of a device in the board's device tree",
        "write \"/node/node@address\"; a * is allowed at the end";
    /// Drivers give devices the VM's addresses, and no SMMU translates these.
    DeviceVmIpa = "M-DEV-004", "the VM that owns the devices must see its memory where it is",
        "remove memory-ipa: devices use physical addresses";
    /// The parts of the window lie at fixed offsets in 1 MiB.
    WindowAddress = "M-DEV-005", "the window is no multiple of 1 MiB below 2^48",
        "choose one, or leave it out";
    /// The window's registers are emulated: a mapping would hide them.
    WindowOverMemory = "M-DEV-006", "the window lies over memory, the console or a device",
        "choose a window-address where the machine has nothing";

    /// A misspelled path would be a VM that misses a device when it runs.
    NoSuchDevice = "M-DEV-007", "the machine has no such enabled device",
        "write the path of an enabled node in the board's device tree";
    /// The interrupt controller, memory and the boot UART have other owners.
    DeviceStays = "M-DEV-008", "this device cannot be given away", "take it out of devices";
    /// Stage 2 gives whole pages, and one VM alone can end an interrupt.
    DeviceTaken = "M-DEV-009", "the device has another owner too",
        "give all devices of one page, or of one interrupt, to one VM";
    /// One that is not stopped writes to the memory of whatever runs there next.
    TooManyMasters = "M-DEV-010", "more devices master the bus than Gear1 can stop",
        "give away fewer of them";
    /// Stage 2 does not judge what a device reads and writes, and a guest is trusted with nothing.
    DmaUntrusted = "M-DEV-011", "a device of a guest may reach all memory, as no SMMU keeps it back",
        "take it out of devices, or write trusts-dma for a guest that is trusted with all memory";
    /// Shared memory changes only once no device uses what it was before, and a device that never
    /// ends an access would hold Gear1 up.
    DmaAndPeers = "M-DEV-012", "a guest with devices behind the SMMU shares memory at run time",
        "take out ffa-peers or devices, or write trusts-dma if the guest is trusted with the machine";

    /// A value that nobody chose would leave the device running.
    MasterIncomplete = "M-BUS-001", "the way to stop a device needs this property", "write it";
    /// Gear1 writes and reads the register by one access of 32 bits.
    MasterRegister = "M-BUS-002", "this is no place of a register",
        "write a multiple of 4 below 16 MiB, counted from the device's first register";
    /// Of two ways one would never be used.
    MasterTwice = "M-BUS-003", "two nodes say how the same kind of device is stopped",
        "remove one of the two";
    /// Gear1's init has no heap for a manifest.
    TooManyKinds = "M-BUS-004", "there are more than 8 ways to stop a device", "remove some";
    /// A misspelled word would leave the device running when its VM has stopped.
    NoSuchMaster = "M-BUS-005", "no VM owns a device of this kind",
        "write a word of the device's compatible in the board's device tree, or remove the node";

    /// Nothing else says which device is meant.
    AsBootedIncomplete = "M-ASB-001", "what is used as firmware left it needs this property",
        "write the path of the device in the board's device tree";
    /// Of two lists of rates one would never be used.
    AsBootedTwice = "M-ASB-002", "two nodes say that the same device is used as firmware left it",
        "remove one of the two";
    /// Gear1's init has no heap for a manifest.
    TooManyAsBooted = "M-ASB-003", "more than 16 devices are used as firmware left them",
        "remove some";
    /// A misspelled path would leave the device waiting for its clocks.
    NoSuchAsBooted = "M-ASB-004", "no VM owns this device",
        "write the path of a device that a VM owns, or remove the node";
    /// A driver takes its clocks by their place in the list.
    AsBootedClocks = "M-ASB-005", "these are not the rates of the device's clocks",
        "write one rate in Hz for each entry of the device's clocks in the board's device tree";

    /// The guest would wait for its disk for ever.
    VirtioWithoutServer = "M-VIO-001", "virtio devices need a VM that serves them",
        "add a VM of kind = \"device\"";
    /// The device VM serves, and a real-time VM waits for nobody.
    VirtioNotGuest = "M-VIO-002", "only a guest can have virtio devices", "remove the virtio node";
    /// The registers of all devices of a VM lie in one page.
    TooManyVirtioOfVm = "M-VIO-003", "a VM has more than 8 virtio devices", "remove some";
    /// Each device has a slot, a doorbell and a line of a PL061, all of fixed number.
    TooManyVirtio = "M-VIO-004", "all VMs together have more than 32 virtio devices", "remove some";
    /// Drivers are chosen by the type, so a default would be another device.
    VirtioType = "M-VIO-005", "a virtio device has no type",
        "write type = \"block\", \"net\", \"console\", \"rng\", \"input\", \"vsock\" or \"vhost-user\"";
    /// A device without a backend answers no request, and its guest waits for ever.
    VirtioBackend = "M-VIO-006", "a virtio device has nothing that serves it",
        "write backend = \"...\": a file or device, a tap device, \"pty\" or \"socket:...\"";
    /// A disk whose `read-only` stands in another node would be writable.
    VirtioOtherType = "M-VIO-007", "the property belongs to another type of virtio device",
        "read-only and serial go with block, queues with block, net and vhost-user, mac and mtu with \
         net, limits with block and net, cid with vsock, socket with vsock and vhost-user, and what names \
         the socket's device with vhost-user; rng, vsock and vhost-user have no backend";
    /// A page is the least that traps by itself.
    VirtioAddress = "M-VIO-008", "the virtio registers are no multiple of 4 KiB below 2^48",
        "choose one, or leave it out";
    /// A page of the guest's addresses has one meaning.
    VirtioOverMemory = "M-VIO-009",
        "the virtio registers lie in the VM's memory, or over its console or a device",
        "choose another virtio-address, or another memory-ipa";
    /// The interrupt of a device follows from its place, so that the console's has to give way.
    VirtioInterrupt = "M-VIO-010", "the console has the interrupt of a virtio device",
        "choose another one: those from 48 on are the virtio devices'";
    /// Two kernels that write one file system destroy it.
    SameBackend = "M-VIO-011", "two virtio devices have the same backend",
        "give each its own; disks may share one if all of them are read-only";
    /// The control protocol would end a line at a control character.
    BackendText = "M-VIO-012", "a backend's text has a control character",
        "write a path or a name of one line";
    /// Linux makes no network device of another name.
    TapName = "M-VIO-013", "this is no name of a tap device",
        "use 1 to 15 bytes without blanks, '/', ':' and '%'";
    /// The device VM's kernel and the guest's would write one file system.
    OwnDisk = "M-VIO-014", "the device VM uses this disk itself",
        "give the guest another disk or partition, or take root= or resume= out of cmdline";
    /// A group's address is nobody's source address.
    MacText = "M-VIO-015", "this is no MAC address of one network card",
        "write \"02:xx:xx:xx:xx:xx\", six pairs of hexadecimal digits, the first of them even";
    /// The bridge would give the frames of both to one of them.
    SameMac = "M-VIO-016", "two network cards have the same MAC address",
        "give each its own, or leave them out";

    /// The device model would say so at run time, to a guest that waits for its disk.
    DiskPath = "M-VIO-017", "this is no path of a disk in the device VM",
        "write the absolute path of a file or a block device there, such as \"/dev/vda\"";
    /// The device model would say so at run time, and the console be silent.
    ConsoleBackend = "M-VIO-018", "this is no backend of a console", "write backend = \"pty\"";
    /// Drivers are chosen by the device id, which the function or the number gives.
    VhostFunction = "M-VIO-019", "nothing says, or two properties say, what the guest sees here",
        "write device = \"block\" or another function, or device-id = <N>, from 1 to 63";
    /// Linux's `sun_path` has 108 bytes, with the NUL.
    VhostSocket = "M-VIO-020", "this is no path of a socket in the device VM",
        "write socket = \"/run/NAME.socket\": an absolute path of at most 107 bytes in one line, of \
         at most 96 with vsock, which adds ports";
    /// Queues and configuration have fixed places in the device model's registers.
    VhostSize = "M-VIO-021", "a device that another program serves cannot have so much",
        "write queues from 1 to 4, and config-size from 0 to 256, or leave them out";
    /// The tag has 36 bytes in the configuration space (virtio 1.2, 5.11.4).
    VhostTag = "M-VIO-022", "a file system has no tag, by which the guest mounts it",
        "write tag = \"NAME\", of 1 to 36 bytes";
    /// The device model starts the program without a shell, so nobody looks for it in a PATH.
    VhostCommand = "M-VIO-023", "the device model cannot start this program, or give it these files",
        "write command = \"/usr/bin/NAME\", \"ARGUMENT\", of at most 1024 bytes, and absolute paths \
         in files";
    /// A limit of nothing stops the device, and a burst of nothing limits nothing.
    RateLimit = "M-VIO-024", "the device model cannot keep this rate limit",
        "write iops-limit from 1 to 10000000, bytes-per-second-limit from 65536 to 4294967295, and \
         beside one of them burst-ms from 1 to 10000";
    /// A guest cuts a longer one off, and names a link by it.
    SerialText = "M-VIO-025", "this is no serial number of a disk",
        "use 1 to 20 printable ASCII characters without blanks and '/'";
    /// The device's page keeps the requests of four queues of a disk, and has room for four pairs and
    /// the control queue of a card.
    ServedQueues = "M-VIO-031", "no disk or network card of the device model has so many queues",
        "write queues from 1 to 4: one, or a pair, for each vCPU that uses the device much";
    /// Linux refuses others, and the card would have none.
    NoMtu = "M-VIO-026", "no network card of the device model has such packets",
        "write mtu = <1500>, or another number from 68 to 65521";
    /// Numbers below 3 are the machine's, and the greatest stands for any.
    VsockCid = "M-VIO-027", "this is no identifier of a guest with sockets to the device VM",
        "write cid = <N>, from 3 to 4294967294";
    /// A program that knows a guest by its number would speak to another one.
    SameCid = "M-VIO-028", "two guests have the same identifier", "give each a cid of its own";
    /// A program names no device by which it connects.
    SecondVsock = "M-VIO-029", "a guest has two vsock devices, and Linux uses one", "remove one";
    /// A request fails by an answer that the device type has for that.
    VhostTimeout = "M-VIO-030", "requests of this device cannot fail after this time",
        "write timeout-ms = <N>, from 100 to 3600000, for a block device, fs, gpu, sound, i2c or \
         gpio, or leave it out";
    /// GDM opens a path in no folder of its own, and makes a socket whose path Linux takes whole.
    InputBackend = "M-VIO-032", "this is no backend of an input device",
        "write backend = \"/dev/input/eventN\" or another path there, or \"socket:/run/gearv/NAME.input\"";

    /// The VMs agree on the address, so that nobody can choose it for them.
    SharedPlace = "M-SHM-001",
        "shared memory has an address, from 2 MiB on, and a size, both multiples of 2 MiB",
        "write address = <A> and size-mib = <N>";
    /// Each VM sees the memory at its physical address, which has to be free in all of them.
    SharedOverlap = "M-SHM-002", "shared memory overlaps with other memory, or with what a VM sees",
        "move one of them; 2 MiB before it describe it to Linux";
    /// Memory of one VM is that VM's, and takes `memory-mib`.
    SharedAlone = "M-SHM-003", "fewer than two VMs have this memory", "name another in vms or readers";
    /// A misspelled name would leave a VM without the memory.
    SharedVm = "M-SHM-004", "this is no VM of the manifest, or it is named twice here",
        "write the name of each VM that has the memory, once";
    /// The reader has no heap, so that its lists have fixed lengths.
    TooManyShared = "M-SHM-005", "there are more than 8 shared memories", "join some";

    /// The runtime has no heap: doorbells have fixed places.
    TooManyChannels = "M-CHN-001", "there are more than 16 channels",
        "let one doorbell stand for several events, and say in memory which they are";
    /// A doorbell without an end would be dead, without a word.
    ChannelVm = "M-CHN-002", "a channel leads from one VM of the manifest to another",
        "write from = \"A\" and to = \"B\", the names of two VMs";
    /// The name is that of a node in both VMs' device trees.
    ChannelName = "M-CHN-003", "this is no name for a channel",
        "use 1 to 20 lower case letters, digits and dashes, beginning with a letter";
    /// Only the VM's own CPU may take the lock of its virtual interrupt controller.
    RingsEmulated = "M-CHN-004",
        "a doorbell would wait for a real-time VM whose interrupt controller is emulated",
        "write gic = \"pass-through\" in that VM, or let it poll shared memory";
    /// A CPU of a real-time VM takes no lock that another CPU may hold.
    RealTimeRings = "M-CHN-005",
        "a real-time VM rings real-time VMs alone: it would wait for any other",
        "let the other VM poll shared memory, or ring a real-time VM";
    /// Interrupts take time from the real-time VM: its author has to say how much.
    NoInterval = "M-CHN-006", "this channel may interrupt a real-time VM at any rate",
        "write min-interval-us = <N>, or <0> if the VM bears any rate";
    /// A ring that is held back needs a timer of Gear1's on the sender's CPU.
    NoTimer = "M-CHN-007", "Gear1 has no timer on the CPUs of a VM with pass-through",
        "write min-interval-us = <0>, or remove it";
    /// The node tells both ends where the memory is, so both have to have it.
    ChannelMemory = "M-CHN-008", "this is no shared memory of both VMs",
        "name a node of /shared-memory that has both VMs in vms or readers";
    /// A page is the least that traps by itself.
    DoorbellAddress = "M-CHN-009", "the doorbell's address is no multiple of 4 KiB below 2^48",
        "write address = <A>, where the VM has nothing else";
    /// A store to mapped memory does not trap, and would not ring.
    DoorbellOverMemory = "M-CHN-010",
        "the doorbell lies in the VM's memory, or over something else that the VM has",
        "write another address";
    /// A private interrupt belongs to one CPU, and the doorbell to the VM.
    ChannelInterrupt = "M-CHN-011", "the channel's interrupt is not a shared one",
        "write interrupt = <32> to <511>";
    /// The receiver could not tell the two apart.
    ChannelInterruptTaken = "M-CHN-012", "the channel's interrupt has another source",
        "write another interrupt";
    /// The receiver takes each ring as one of the VM that `from` names.
    TellsNobody = "M-CHN-013", "this is no channel of the VM's own",
        "write the name of a node of /channels whose from is this VM";
    /// A VM that could ring it would shut another one down.
    ButtonOfAVm = "M-CHN-014", "Gear2 alone presses a power button",
        "remove this, or remove power-button";
    /// `gearctl shutdown` presses one.
    SecondButton = "M-CHN-015", "a VM has one power button", "remove one of the two";
    /// A program in the device VM would stop the VM in which it runs.
    DeviceButton = "M-CHN-016", "gearctl presses power buttons from the device VM, which has none",
        "name another VM; `poweroff` shuts the device VM down";

    /// A misspelled name would refuse each share at run time.
    UnknownPeer = "M-FFA-001", "this is no other VM of the manifest",
        "write the name of a VM that this one may share memory with";
    /// The device VM would keep access to what the guest has lent away.
    PeerIsServed = "M-FFA-002",
        "a VM with virtio devices cannot share memory: the device VM sees all of it",
        "take it out of ffa-peers, or remove its virtio devices";
    /// A share takes a lock that the other VM's CPU may hold.
    PeerIsRealTime = "M-FFA-003",
        "a real-time VM cannot share memory: it would wait for the other VM",
        "take it out of ffa-peers";
}

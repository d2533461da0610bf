//! The rules that are warnings, as rows of the table of rules.

/// Makes [`Rule`](super::Rule) out of the rows that it gets and those of the warnings.
macro_rules! rules_and_warnings {
    ($($rows:tt)*) => {
        rules! {
            $($rows)*

            /// Stage 2 does not judge what a device reads and writes.
            DmaUnchecked = "M-WRN-001",
                "a device that masters the bus reaches all memory, as there is no SMMU to stop it",
                "give such devices to VMs that may be trusted with everything";
            /// Serving a device takes a mapping of all the guest's memory.
            ServedForLittle = "M-WRN-002",
                "the device VM can write all of this VM's memory for the sake of random numbers",
                "remove the virtio node: a guest's device tree has an rng-seed";
            /// Each peer is one more that can be handed memory by mistake.
            ManyPeers = "M-WRN-003", "this VM may share memory with three or more others",
                "name only those that must see it in ffa-peers";

            /// A guest that sees CPUs of one kind may run at two speeds.
            TwoClusters = "M-WRN-004",
                "this VM's vCPUs start on CPUs of several clusters, which may differ in kind",
                "list CPUs of one cluster in cpus";

            /// Linux defers the probe of a device whose supplier is missing.
            NeedsOther = "M-WRN-005", "a device needs another one, which its VM does not have",
                "give that one to the VM too, or name the device in /as-booted; its driver waits for it \
                otherwise";

            /// A corrupted structure has as many suspects as writers.
            ManyWriters = "M-WRN-006",
                "three or more VMs can write this memory, and none can tell who did",
                "name those that only read it in readers, or use one memory for each pair";

            /// The device model's own end keeps the other guests' devices.
            EarlyWatchdog = "M-WRN-007",
                "the device VM restarts before its device model has ended itself for a thread \
                that hangs",
                "write watchdog-ms = <12000> or more, or leave it out";

            /// Seconds in place of milliseconds are the usual slip.
            ShortTime = "M-WRN-008", "so short a time is seldom meant",
                "write the time in milliseconds: 10 s are <10000>";

            /// Linux boots without a word, and looks as if it hung.
            NoSuchConsole = "M-WRN-009", "the VM has no such console",
                "write console=ttyAMA0 for the emulated UART, or console=hvc0 for the first \
                virtio console; other UARTs must be in devices";
            /// `COMMAND_LINE_SIZE` of arm64 is 2048, with the NUL.
            LongCommandLine = "M-WRN-010",
                "Linux drops what is behind byte 2047 of its command line",
                "shorten cmdline";

            /// Linux would panic, or wait for ever with `rootwait`.
            NoSuchDisk = "M-WRN-011", "the VM has no such disk",
                "name one of its virtio disks, in the order of the manifest: /dev/vda is the first";
            /// Linux falls back to `ro`, and services that write fail one by one.
            ReadOnlyRoot = "M-WRN-012",
                "the root file system is to be written, and its disk is read-only",
                "write ro in cmdline, remove read-only, or name another disk";
            /// Guests would wait for devices that nobody answers.
            CannotServe = "M-WRN-013", "the device VM cannot serve its guests",
                "give it their disks with devices, and let it start with the machine, before them";
            /// No tap device can be made under the name of another device.
            OtherInterface = "M-WRN-014",
                "this name is usually another network device's than a tap's",
                "write a name that the device model makes a tap device of, such as \"tap0\"";
            /// Both would answer to the address, in turns.
            SameAddress = "M-WRN-015", "two VMs have the same address on the device VM's network",
                "write gearv.ip=10.0.2.102/24 in the cmdline of one of them";
            /// The guest would reach nobody on the bridge.
            NoGuestAddress = "M-WRN-016",
                "this is no address of a guest on the device VM's network",
                "write gearv.ip=10.0.2.N/24, and not the device VM's own 10.0.2.100";
            /// Somebody who wrote this expected an effect.
            NoEffect = "M-WRN-017", "this has no effect", "remove it, or change what it depends on";
            /// A VM that fails at once would restart for ever, or never.
            OddRestarts = "M-WRN-018", "a VM is seldom meant to be restarted like this",
                "see docs/manifest.md for restarts";
            /// Readers would read zeroes for ever.
            NoWriter = "M-WRN-019", "no VM can write this memory",
                "name the one that writes it in vms";
            /// Each initramfs expects devices that the other VMs do not have.
            OtherInitrd = "M-WRN-020", "this initial RAM disk is made for another VM",
                "take device-initramfs for the device VM, guest-initramfs for a guest with a \
                virtio disk, and busybox-initramfs for others";

            /// Linux boots all the same, without what the word was to do.
            KernelWord = "M-WRN-021",
                "Linux does not take this word of its command line as it is meant",
                "correct the word in cmdline, or remove it; Linux' \
                Documentation/admin-guide/kernel-parameters.rst has all options";

            /// CPUs of the pool would be idle.
            UnusedPool = "M-WRN-022", "no VM is in this pool",
                "name it with pool in a VM, or remove it";
            /// A parameter that nobody reads would promise what does not happen.
            Unread = "M-WRN-023", "the scheduler of the VM's CPUs does not read this",
                "remove it, or choose a scheduler that does";
            /// A VM that is always last looks like one that hangs.
            LittleLeft = "M-WRN-024", "budgets leave this VM little of its CPU",
                "make a budget smaller, or give this VM one";
            /// Linux panics, at the end of a boot that looked well.
            NoRoot = "M-WRN-025", "Linux finds no root file system",
                "name an initrd; a kernel with its drivers built in takes root=/dev/vda in \
                cmdline instead, and one with an initramfs of its own needs neither";
            /// A gap among the CPUs that are used is mostly one that a list forgot.
            IdleCpu = "M-WRN-026", "a CPU of the machine is nobody's, and one behind it is used",
                "add it to cpus of /gear2, or give it to a real-time VM";
            /// A name that was to be another one leaves that device to nobody.
            SameDevice = "M-WRN-027", "an entry before this one stands for the device too",
                "remove it, or name the device that is meant";
            /// The device model would wait for a socket that nobody makes.
            OtherSocket = "M-WRN-028", "the program makes its socket elsewhere than at socket",
                "write the path of socket behind --socket-path=";
        }
    };
}

pub(super) use rules_and_warnings;

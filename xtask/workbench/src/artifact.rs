//! The names of files that xtask makes or downloads for a manifest, as in `artifact:debian-kernel`.

use std::fs;

use crate::workspace;

/// Prefix of the artifacts that are guests in `tests/guests`.
const GUEST: &str = "guest:";

/// The property that an artifact is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// `kernel` of a VM.
    Kernel,
    /// `initrd` of a VM that runs Linux and serves nobody.
    Initrd,
    /// `initrd` of any VM that runs Linux.
    AnyInitrd,
    /// `initrd` of a device VM alone: the device model is in it.
    DeviceInitrd,
    /// `initrd` of a guest whose root is a virtio disk.
    DiskInitrd,
    /// `image` of a VM.
    Flat,
    /// `image` of `/gear2`.
    Gear2,
}

impl Use {
    /// Says what an artifact for this use is.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Kernel => "a Linux kernel",
            Self::Initrd | Self::AnyInitrd | Self::DeviceInitrd | Self::DiskInitrd => {
                "an initial RAM disk"
            }
            Self::Flat => "a program for a VM",
            Self::Gear2 => "an image of Gear2",
        }
    }
}

macro_rules! artifacts {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $used:ident;)+) => {
        /// A file that xtask makes or downloads.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Artifact {
            $($(#[$doc])* $kind,)+
            /// A bare-metal guest of `tests/guests`, by the name of its program.
            Guest(String),
        }

        impl Artifact {
            /// Returns the artifact of this name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)+
                    _ => {
                        let guest = name.strip_prefix(GUEST)?;
                        let is_there = guests().iter().any(|there| there == guest);
                        is_there.then(|| Self::Guest(guest.to_owned()))
                    }
                }
            }

            /// Returns what the artifact is for.
            pub const fn used_as(&self) -> Use {
                match self {
                    $(Self::$kind => Use::$used,)+
                    Self::Guest(_) => Use::Flat,
                }
            }

            /// Returns the names of all artifacts.
            pub fn names() -> Vec<String> {
                let guests = guests().into_iter().map(|guest| format!("{GUEST}{guest}"));
                [$($name),+].map(str::to_owned).into_iter().chain(guests).collect()
            }
        }
    };
}

artifacts! {
    /// Debian's 6.12 kernel for arm64.
    DebianKernel = "debian-kernel", Kernel;
    /// Debian's 6.1 kernel for arm64.
    DebianKernel6_1 = "debian-kernel-6.1", Kernel;
    /// Debian's 6.12 kernel with PREEMPT_RT for arm64.
    DebianRtKernel = "debian-rt-kernel", Kernel;
    /// A shell on the console.
    BusyboxInitramfs = "busybox-initramfs", Initrd;
    /// A shell, and programs that load the machine.
    StressInitramfs = "stress-initramfs", Initrd;
    /// A shell, and what uses sockets to the device VM and input devices.
    PeripheralsInitramfs = "peripherals-initramfs", Initrd;
    /// A shell, and what uses channels by UIO.
    UioInitramfs = "uio-initramfs", Initrd;
    /// The device VM's: the device model, `gearctl` and the network.
    DeviceInitramfs = "device-initramfs", DeviceInitrd;
    /// The device VM's, with programs that serve devices.
    BackendsInitramfs = "backends-initramfs", DeviceInitrd;
    /// Tests: a device model one of whose processes runs code of its guest.
    HostileInitramfs = "hostile-initramfs", DeviceInitrd;
    /// A guest whose root is a virtio disk.
    GuestInitramfs = "guest-initramfs", DiskInitrd;
    /// Such a guest with the modules of a graphics card, input devices and sockets.
    DesktopInitramfs = "desktop-initramfs", DiskInitrd;
    /// The measurement of wake-ups in the device VM.
    WakeInitramfs = "wake-initramfs", DeviceInitrd;
    /// The benchmark of devices in a guest.
    BenchInitramfs = "bench-initramfs", AnyInitrd;
    /// The benchmark of programs in a guest.
    AppsInitramfs = "apps-initramfs", AnyInitrd;
    /// cyclictest in a guest.
    JitterInitramfs = "jitter-initramfs", AnyInitrd;
    /// Gear2 with failures that tests cause.
    FailingGear2 = "failing-gear2", Gear2;
}

/// Returns the names of the programs in `tests/guests`: of each file, and each folder with a
/// `main.rs`, as cargo finds them.
fn guests() -> Vec<String> {
    let folder = fs::read_dir(workspace::root().join("tests/guests/src/bin"));
    let programs = folder.into_iter().flatten().flatten().filter_map(|entry| {
        let path = entry.path();
        let is_file = path.extension().is_some_and(|suffix| suffix == "rs");
        let is_program = is_file || path.join("main.rs").is_file();
        let name = path.file_stem()?.to_str()?;
        is_program.then(|| name.to_owned())
    });
    programs.collect()
}

#[cfg(test)]
mod tests;

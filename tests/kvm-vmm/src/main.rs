//! A small VMM on KVM: runs under Debian's kernel what GearV runs, to compare with.
//!
//! A process has one VM, or two whose doorbells interrupt each other. The interrupt controller,
//! PSCI and the timers are KVM's; the VMM answers a PL011, whose bytes are its standard output, one
//! register, a virtio disk, and the registers of a virtio network card, whose frames the host's
//! kernel moves. It ends when the first VM turns off: code 0, or 1 when something went wrong.

#[cfg(target_arch = "aarch64")]
mod card;
#[cfg(target_arch = "aarch64")]
mod devices;
#[cfg(target_arch = "aarch64")]
mod disk;
#[cfg(target_arch = "aarch64")]
mod failure;
#[cfg(target_arch = "aarch64")]
mod thread;
#[cfg(target_arch = "aarch64")]
mod vm;

#[cfg(target_arch = "aarch64")]
fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let vms = match kvm_vmm::options::Options::parse(&words) {
        Ok(vms) => vms,
        Err(error) => {
            eprintln!("kvm-vmm: {error}\n{}", kvm_vmm::options::USAGE);
            return std::process::ExitCode::FAILURE;
        }
    };
    let Err(error) = vm::run(&vms);
    eprintln!("kvm-vmm: {error}");
    std::process::ExitCode::FAILURE
}

#[cfg(not(target_arch = "aarch64"))]
fn main() -> std::process::ExitCode {
    eprintln!("kvm-vmm: runs on aarch64 only");
    std::process::ExitCode::FAILURE
}

//! Gear2's view of Gear1: the calls of [`gear1_abi::call`], typed.
//!
//! Owns the encoding of calls into registers and of results out of them. The
//! target supplies the `SVC` instruction as a [`Conduit`], the tests a fake
//! that checks the contract.

use gear1_abi::call::vcpu_reg::{self, PER_CALL};
use gear1_abi::call::{Decision, DmaKind, Failure, Reply, Status, VcpuState, VmState, number};
use gear1_abi::event::{Ended, Ends};
use gear1_abi::exit::ExitReason;
use gear1_abi::id::{CpuIndex, VcpuId, VmId};
use gear1_abi::record::Record;
use gear1_abi::regs::Regs;

/// The last restart of Gear2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRestart {
    /// Number of restarts of Gear2.
    pub count: u64,
    /// Why; `None` if this Gear2 does not know the reason.
    pub failure: Option<Failure>,
    /// Program counter of Gear2.
    pub pc: u64,
    /// The CPU whose loop failed.
    pub cpu: u64,
}

/// Starts and ends of a VM, as Gear1 keeps them over restarts of Gear2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmHistory {
    /// Number of starts.
    pub starts: u32,
    /// End of the current life by the VM itself, if nobody has handled it yet.
    pub end: Ended,
    /// Ends of the last lives.
    pub ends: Ends,
    /// The last life, by the number of starts, whose heartbeat stopped; 0: there was none.
    pub silent: u64,
}

/// Waits of a vCPU for its CPU since the start of its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Ticks stolen, as the VM sees them.
    pub stolen: u64,
    /// Stolen ticks, with those of a wait that lasts.
    pub waited: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Ticks for which any vCPU of its CPU has waited inside Gear1, since the loop there began.
    pub here: u64,
    /// Whether the vCPU waits there now.
    pub is_here: bool,
}

/// Access of a device that the SMMU has aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaEvent {
    /// The VM that owns the device; `None`: nobody does.
    pub vm: Option<VmId>,
    /// StreamID, which names the device.
    pub stream: u32,
    /// What the device tried.
    pub kind: DmaKind,
    /// Address that the device used (IPA), unless the kind is unknown.
    pub address: u64,
    /// Number of the event (Arm IHI 0070, 7.3).
    pub number: u64,
    /// Whether later events were lost.
    pub is_overflow: bool,
}

/// Times of an event, as counter values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The last decision took effect: its vCPU was entered, or the wait began. Zero: an event was
    /// pending, so that nothing ran.
    pub began: u64,
    /// The event came.
    pub now: u64,
    /// Ticks for which the vCPU of the decision has waited inside Gear1, and
    /// [`WAITS_HERE`](gear1_abi::call::WAITS_HERE) if it still does: it is in WFI, or was woken by
    /// what a `Wake` tells of.
    pub waited: u64,
}

impl Times {
    /// Returns when the gears' work between the last event and this one ended.
    pub(crate) const fn work_ended(self) -> u64 {
        if self.began == 0 {
            self.now
        } else {
            self.began
        }
    }
}

/// The way of a call to Gear1.
pub trait Conduit {
    /// Makes the call `NUMBER` with `arguments` in X0 to X7 and returns X0 to X7.
    fn svc<const NUMBER: u16>(&mut self, arguments: Regs) -> Regs;

    /// Makes the call [`NEXT`](number::NEXT) with zeroes in X8 and X9. Returns both as well.
    fn svc_next(&mut self, arguments: Regs) -> (Regs, [u64; 2]) {
        (self.svc::<{ number::NEXT }>(arguments), [0, 0])
    }
}

/// The calls of Gear1; every [`Conduit`] has them.
pub trait Gear1: Conduit {
    /// Executes a decision. Returns the next event, as its registers, and its times.
    fn next(&mut self, decision: Decision) -> (Regs, Times) {
        let (regs, [began, waited]) = self.svc_next(decision.encode());
        let times = Times {
            began,
            now: regs[7],
            waited,
        };
        (regs, times)
    }

    /// Returns the counter.
    fn now(&mut self) -> u64 {
        self.svc::<{ number::VERSION }>([0; 8])[2]
    }

    /// Returns Gear1's ABI version.
    fn abi_version(&mut self) -> u64 {
        self.svc::<{ number::VERSION }>([0; 8])[1]
    }

    /// Returns facts about the last restart of Gear2, if there was one.
    fn last_restart(&mut self) -> Option<LastRestart> {
        let [_, _, _, count, failure, pc, cpu, _] = self.svc::<{ number::VERSION }>([0; 8]);
        (count != 0).then_some(LastRestart {
            count,
            failure: Failure::from_reg(failure),
            pc,
            cpu,
        })
    }

    /// Returns what became of a VM.
    fn vm_history(&mut self, vm: VmId) -> Result<VmHistory, Status> {
        let regs = outcome(self.svc::<{ number::VM_STATE }>(args([vm.reg()])))?;
        let end = Ended::from_reg(regs[4]).unwrap_or_default();
        let starts = u32::try_from(regs[3]).unwrap_or(u32::MAX);
        let ends = Ends(regs[5]);
        let silent = regs[6];
        Ok(VmHistory {
            starts,
            end,
            ends,
            silent,
        })
    }

    /// Returns address and access word of what a vCPU waits for, if it waits for an access.
    fn vcpu_awaits(&mut self, vcpu: VcpuId) -> Option<(u64, u64)> {
        let regs = outcome(self.svc::<{ number::VCPU_STATE }>(args([vcpu.reg()]))).ok()?;
        let waits = VcpuState::from_reg(regs[1]) == Some(VcpuState::AwaitsMmio);
        waits.then_some((regs[2], regs[3]))
    }

    /// Returns the state of a vCPU and the CPU that it belongs to, as numbers.
    fn vcpu_info(&mut self, vcpu: VcpuId) -> Result<(u64, u64), Status> {
        outcome(self.svc::<{ number::VCPU_STATE }>(args([vcpu.reg()])))
            .map(|regs| (regs[1], regs[4]))
    }

    /// Tells whether a vCPU waits in power-down, and starts anew when it wakes.
    fn is_powered_down(&mut self, vcpu: VcpuId) -> bool {
        let regs = outcome(self.svc::<{ number::VCPU_STATE }>(args([vcpu.reg()])));
        regs.is_ok_and(|regs| regs[5] != 0)
    }

    /// Returns the state of a vCPU.
    fn vcpu_state(&mut self, vcpu: VcpuId) -> Result<VcpuState, Status> {
        let regs = outcome(self.svc::<{ number::VCPU_STATE }>(args([vcpu.reg()])))?;
        VcpuState::from_reg(regs[1]).ok_or(Status::Invalid)
    }

    /// Returns how long a vCPU has waited and how often it was preempted.
    fn vcpu_waits(&mut self, vcpu: VcpuId) -> Result<Waits, Status> {
        let regs = outcome(self.svc::<{ number::VCPU_WAITS }>(args([vcpu.reg()])))?;
        let [_, stolen, waited, preemptions, here, is_here, ..] = regs;
        Ok(Waits {
            stolen,
            waited,
            preemptions,
            here,
            is_here: is_here != 0,
        })
    }

    /// Returns the registers of a vCPU that does not run, by their numbers.
    fn vcpu_registers(&mut self, vcpu: VcpuId) -> Result<[u64; vcpu_reg::COUNT], Status> {
        let mut registers = [0; vcpu_reg::COUNT];
        for (first, part) in (0..).step_by(PER_CALL).zip(registers.chunks_mut(PER_CALL)) {
            let six = self.six_registers(vcpu, first)?;
            part.copy_from_slice(&six[..part.len()]);
        }
        Ok(registers)
    }

    /// Returns six registers of a vCPU that does not run, from a number on; 0 stands for those that
    /// there are not.
    fn six_registers(&mut self, vcpu: VcpuId, first: u64) -> Result<[u64; PER_CALL], Status> {
        let regs = outcome(self.svc::<{ number::VCPU_REGS }>(args([vcpu.reg(), first])))?;
        let [_, six @ .., _] = regs;
        Ok(six)
    }

    /// Sends the wake-ups of a vCPU to the loop on `cpu`.
    fn vcpu_assign(&mut self, vcpu: VcpuId, cpu: CpuIndex) -> Result<(), Status> {
        outcome(self.svc::<{ number::VCPU_ASSIGN }>(args([vcpu.reg(), cpu.reg()]))).map(drop)
    }

    /// Completes what a vCPU waits for without running it.
    fn vcpu_reply(&mut self, vcpu: VcpuId, reply: Reply, value: u64) -> Result<(), Status> {
        let arguments = args([vcpu.reg(), value, reply as u64]);
        outcome(self.svc::<{ number::VCPU_REPLY }>(arguments)).map(drop)
    }

    /// Returns the state of a VM.
    fn vm_state(&mut self, vm: VmId) -> Result<VmState, Status> {
        let regs = outcome(self.svc::<{ number::VM_STATE }>(args([vm.reg()])))?;
        VmState::from_reg(regs[1]).ok_or(Status::Invalid)
    }

    /// Asks all vCPUs of a VM to stop.
    fn vm_stop(&mut self, vm: VmId) -> Result<(), Status> {
        outcome(self.svc::<{ number::VM_STOP }>(args([vm.reg()]))).map(drop)
    }

    /// Wipes and loads the next piece of a stopped VM and returns how many bytes are left.
    fn vm_load(&mut self, vm: VmId) -> Result<u64, Status> {
        outcome(self.svc::<{ number::VM_LOAD }>(args([vm.reg()]))).map(|regs| regs[1])
    }

    /// Makes the boot vCPU of a loaded VM runnable. Returns the count at which the VM's virtual count
    /// is 0.
    fn vm_start(&mut self, vm: VmId) -> Result<u64, Status> {
        outcome(self.svc::<{ number::VM_START }>(args([vm.reg()]))).map(|regs| regs[1])
    }

    /// Drives the interrupt line of an emulated device.
    fn irq_set(&mut self, vm: VmId, intid: u32, level: bool) -> Result<(), Status> {
        let arguments = args([vm.reg(), u64::from(intid), u64::from(level)]);
        outcome(self.svc::<{ number::IRQ_SET }>(arguments)).map(drop)
    }

    /// Ends a physical interrupt that came as an event.
    fn irq_done(&mut self, intid: u32) -> Result<(), Status> {
        outcome(self.svc::<{ number::IRQ_DONE }>(args([u64::from(intid)]))).map(drop)
    }

    /// Makes the loop on `cpu` look at its vCPUs again.
    fn poke(&mut self, cpu: CpuIndex) -> Result<(), Status> {
        outcome(self.svc::<{ number::POKE }>(args([cpu.reg()]))).map(drop)
    }

    /// Raises a line of an emulated PL061 of the device VM.
    fn pl061_raise(&mut self, pl061: usize, line: u32) -> Result<(), Status> {
        let arguments = args([pl061 as u64, u64::from(line)]);
        outcome(self.svc::<{ number::PL061_RAISE }>(arguments)).map(drop)
    }

    /// Rings a doorbell between VMs.
    fn channel_ring(&mut self, doorbell: u32) -> Result<(), Status> {
        outcome(self.svc::<{ number::CHANNEL_RING }>(args([u64::from(doorbell)]))).map(drop)
    }

    /// Takes the oldest event of the SMMU, if there is one.
    fn dma_event(&mut self) -> Option<DmaEvent> {
        let regs = outcome(self.svc::<{ number::DMA_EVENT }>([0; 8])).ok()?;
        let [_, vm, stream, address, kind, number, lost, _] = regs;
        Some(DmaEvent {
            vm: VmId::from_reg(vm),
            stream: stream as u32,
            address,
            kind: DmaKind::from_reg(kind).unwrap_or(DmaKind::Unknown),
            number,
            is_overflow: lost != 0,
        })
    }

    /// Returns how often a vCPU exited for a reason, and the ticks that took.
    fn exit_stats(&mut self, vcpu: VcpuId, reason: ExitReason) -> Result<(u64, u64), Status> {
        let arguments = args([vcpu.reg(), reason as u64]);
        outcome(self.svc::<{ number::EXIT_STATS }>(arguments)).map(|regs| (regs[1], regs[2]))
    }

    /// Returns the log record at `cursor`, if there is one, and the cursor of the one after it.
    fn log_read(&mut self, cursor: u64) -> Option<(u64, Record)> {
        let regs = outcome(self.svc::<{ number::LOG_READ }>(args([cursor]))).ok()?;
        let [_, next, time, id_and_cpu, a, b, c, _] = regs;
        let record = Record {
            time,
            id_and_cpu,
            values: [a, b, c],
        };
        Some((next, record))
    }

    /// Has this CPU write its ring of trace records, or no longer.
    fn trace(&mut self, on: bool) -> Result<(), Status> {
        outcome(self.svc::<{ number::TRACE }>(args([u64::from(on)]))).map(drop)
    }

    /// Powers the machine off. Does not return on the target, unless Gear1 refuses since a
    /// real-time VM runs.
    fn power_off(&mut self) -> Result<(), Status> {
        outcome(self.svc::<{ number::SYSTEM }>([0; 8])).map(drop)
    }

    /// Tells Gear1 that Gear2 cannot go on: it is restarted. Does not return on the target.
    fn fatal(&mut self, pc: u64, detail: u64) {
        self.svc::<{ number::FATAL }>(args([pc, detail]));
    }
}

impl<T: Conduit> Gear1 for T {}

/// Returns the registers with the first ones set.
fn args<const N: usize>(values: [u64; N]) -> Regs {
    const { assert!(N <= 8) };
    let mut regs = [0; 8];
    regs[..N].copy_from_slice(&values);
    regs
}

fn outcome(regs: Regs) -> Result<Regs, Status> {
    match Status::from_reg(regs[0]) {
        Some(Status::Ok) => Ok(regs),
        Some(refusal) => Err(refusal),
        None => Err(Status::NoSuchCall),
    }
}

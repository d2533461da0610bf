//! Random behaviour of the guests of a simulated machine, and the answers that they expect.

use alloc::format;

use gear1_abi::call::{Reply, VcpuState, Waits};
use gear1_abi::event::{Ended, Event, Fault, Mmio, VmEnd};
use gear1_abi::guest::GEAR2_NOP;
use gear1_abi::id::VcpuId;

use super::gdm::{self, Gdm};
use super::world::{Vcpu, Vm, World};
use super::{CONSOLE, Guest, NOTHING_IPA, VIRTIO_IPA, WATCHDOG};
use crate::watchdog::FRAME_BYTES;

impl World {
    /// Does something on behalf of a guest.
    /// The numbers are shares of a thousand: a console and sleep are what guests do most, and the
    /// last ten are ends. An answer of `Reply::None` comes first: the CPU executes the same
    /// instruction again. The boot vCPU stays on, as its VM would have no vCPU that answers the
    /// console. CPU_ON is seen by its result alone: Gear1 serves PSCI by itself, and reports
    /// another event meanwhile.
    pub(super) fn act(&mut self, index: usize, id: VcpuId) -> Event {
        let vm = self.vcpus[index].vm;
        if core::mem::take(&mut self.vcpus[index].again)
            && let Some(event) = self.vcpus[index].asked
        {
            return self.ask_again(index, event);
        }
        if let Guest::Feeds(pause) = self.vms[vm].guest {
            return self.feed(index, id, pause);
        }
        if let Some((ending, how)) = self.ends_next
            && ending == vm
        {
            self.ends_next = None;
            return self.end(index, id, how);
        }
        let ends = self.disorder && self.vms[vm].guest == Guest::WorksAndEnds;
        match self.below(if ends { 1010 } else { 1000 }) {
            0..400 => self.use_console(index, id),
            400..450 if self.vms[vm].devices > 0 && self.gdm.is_some() => {
                self.use_device(index, id)
            }
            400..450 => self.ask(
                index,
                id,
                VcpuState::AwaitsMmio,
                (Reply::Abort, None),
                |id| {
                    Event::Mmio(
                        id,
                        Mmio {
                            ipa: NOTHING_IPA,
                            size_log2: 2,
                            store: Some(1),
                        },
                    )
                },
            ),
            450..600 => {
                let expected = (Reply::Value, Some(0));
                self.ask(index, id, VcpuState::AwaitsHypercall, expected, |id| {
                    Event::Hypercall(id, [u64::from(GEAR2_NOP), 0, 0, 0, 0])
                })
            }
            600..620 => {
                let expected = (Reply::Value, Some(u64::MAX));
                self.ask(index, id, VcpuState::AwaitsHypercall, expected, |id| {
                    Event::Hypercall(id, [0x8600_0abc, 0, 0, 0, 0])
                })
            }
            620..900 => {
                let wake_in = 1 + self.below(3000);
                let vcpu = &mut self.vcpus[index];
                vcpu.state = VcpuState::Wfi;
                vcpu.wake_at = self.now + wake_in;
                Event::Wfi(id)
            }
            900..940 if self.cpus[self.vcpus[index].cpu].waits == Waits::GivesWay => Event::Wfe(id),
            900..940 => Event::Deadline(Some(id)),
            940..980 => {
                // The call is CPU_ON of a sibling: the caller continues; Gear1 reports another
                // event meanwhile.
                let off = |vcpu: &Vcpu| vcpu.vm == vm && vcpu.state == VcpuState::Off;
                if let Some(sibling) = self.vcpus.iter().position(off) {
                    self.make_ready(sibling);
                }
                Event::Poke(Some(id))
            }
            980..1000 if index == self.vms[vm].first => Event::Deadline(Some(id)),
            980..1000 => {
                self.turn_off(index);
                Event::Off(id)
            }
            1000..1004 => self.end(index, id, Ended::Reset),
            1004..1007 => self.end(index, id, Ended::Off),
            _ => self.end(index, id, Ended::Fault),
        }
    }

    /// Refreshes the watchdog, or sleeps after that.
    fn feed(&mut self, index: usize, id: VcpuId, pause: u64) -> Event {
        let vcpu = &mut self.vcpus[index];
        // The store was answered: the kernel's timer for the next refresh runs.
        if vcpu.asked.take().is_some() {
            vcpu.state = VcpuState::Wfi;
            vcpu.wake_at = self.now + pause;
            return Event::Wfi(id);
        }
        self.vms[vcpu.vm].fed += 1;
        let access = Mmio {
            ipa: WATCHDOG.ipa + FRAME_BYTES,
            size_log2: 2,
            store: Some(0),
        };
        let state = VcpuState::AwaitsMmio;
        self.ask(index, id, state, (Reply::Value, None), |id| {
            Event::Mmio(id, access)
        })
    }

    /// Ends the VM of a vCPU that runs.
    fn end(&mut self, index: usize, id: VcpuId, how: Ended) -> Event {
        let vm = self.vcpus[index].vm;
        self.vms[vm].ends_by_itself(how);
        // An end of the device VM ends GDM with it, whatever GDM had under way.
        self.gdm_ends(vm);
        let running = |vcpu: &&mut Vcpu| vcpu.vm == vm;
        for vcpu in self.vcpus.iter_mut().filter(running) {
            vcpu.wake = false;
            vcpu.leave = vcpu.state == VcpuState::Running;
            // A vCPU on another CPU ends with that CPU's next event. The others end at once.
            if !vcpu.leave {
                vcpu.state = VcpuState::Off;
                vcpu.expected = None;
                vcpu.again = false;
            }
        }
        self.turn_off(index);
        match how {
            Ended::Reset => Event::VmEnd(id, VmEnd::Reset),
            Ended::Off => Event::VmEnd(id, VmEnd::Off),
            Ended::Fault | Ended::No => Event::Fault(id, Fault::default()),
        }
    }

    /// Asks the question once more that Gear2 left without an answer. Its way may be another one
    /// now: a device model that was there may be gone, and one that was gone be back.
    pub(super) fn ask_again(&mut self, index: usize, event: Event) -> Event {
        let served = |mmio: Mmio| self.gdm.is_some() && mmio.ipa & !0xfff == VIRTIO_IPA;
        let forwarded = matches!(event, Event::Mmio(_, mmio) if served(mmio));
        let vcpu = &mut self.vcpus[index];
        vcpu.state = match event {
            Event::Hypercall(..) => VcpuState::AwaitsHypercall,
            _ => VcpuState::AwaitsMmio,
        };
        vcpu.questions += 1;
        vcpu.forwarded = forwarded;
        event
    }

    /// Has a vCPU ask Gear2 something, and notes the answer that it has to get. `None` for the
    /// value is any value.
    pub(super) fn ask(
        &mut self,
        index: usize,
        id: VcpuId,
        state: VcpuState,
        expected: (Reply, Option<u64>),
        event: impl FnOnce(VcpuId) -> Event,
    ) -> Event {
        self.vcpus[index].state = state;
        self.vcpus[index].forwarded = false;
        self.vcpus[index].expected = Some(expected);
        let event = event(id);
        self.vcpus[index].asked = Some(event);
        self.vcpus[index].questions += 1;
        event
    }

    /// Loads or stores a register of a virtio device.
    pub(super) fn use_device(&mut self, index: usize, id: VcpuId) -> Event {
        let vm = &self.vms[self.vcpus[index].vm];
        let (first, count) = (vm.first_channel, u64::from(vm.devices));
        let device = u32::try_from(self.below(count)).unwrap();
        let register = u32::try_from(self.below(0x80)).unwrap() * 4;
        // A store of 0 would look as a load does in what GDM's answer mixes.
        let store = (self.below(2) == 1).then_some(1 + self.below(1 << 20));
        let access = Mmio {
            ipa: VIRTIO_IPA + u64::from(device) * 0x200 + u64::from(register),
            size_log2: 2,
            store,
        };
        let word = u32::try_from(access.access_word()).unwrap();
        // The answer is a function of the access, so that no order of answers has to be known.
        let (reply, value) = gdm::answer(first + device, register, word, store.unwrap_or(0));
        let state = VcpuState::AwaitsMmio;
        let event = self.ask(index, id, state, (reply, Some(value)), |id| {
            Event::Mmio(id, access)
        });
        self.vcpus[index].forwarded = true;
        self.forwarded += 1;
        event
    }

    /// Uses the console. The boot vCPU sends the next byte of the numbers 0, 1, 2, a line each, and
    /// on its interrupt reads typed input, `x` or with a device model the alphabet; the other vCPUs
    /// read the flags.
    pub(super) fn use_console(&mut self, index: usize, id: VcpuId) -> Event {
        let vm = &mut self.vms[self.vcpus[index].vm];
        let mut value = None;
        let (offset, store) = if index != vm.first {
            (0x18, None)
        // The interrupt mask comes first: without it no interrupt tells of typed input.
        } else if !core::mem::replace(&mut vm.listens, true) {
            (0x38, Some(0x50))
        } else if vm.irq {
            value = Some(u64::from(match self.gdm {
                // Positions count from the first byte that was ever typed: a lost or doubled byte
                // shifts the alphabet.
                Some(_) => gdm::typed_byte(u32::try_from(vm.read).unwrap()),
                None => b'x',
            }));
            vm.read += 1;
            vm.in_one_go += 1;
            // The UART's FIFO has 16 bytes, and a handler reads until it is empty.
            assert!(vm.in_one_go <= 16, "the handler never finds the FIFO empty");
            (0x00, None)
        } else {
            (0x00, Some(vm.next_byte()))
        };
        let access = Mmio {
            ipa: CONSOLE.ipa + offset,
            size_log2: 0,
            store,
        };
        let state = VcpuState::AwaitsMmio;
        self.ask(index, id, state, (Reply::Value, value), |id| {
            Event::Mmio(id, access)
        })
    }
}

impl Vcpu {
    /// Returns whether the vCPU asked for a byte of its console.
    pub(super) fn reads_input(&self) -> bool {
        let mmio = |mmio: &Mmio| mmio.ipa == CONSOLE.ipa && mmio.store.is_none();
        matches!(&self.asked, Some(Event::Mmio(_, access)) if mmio(access))
    }

    /// Returns whether the device model has the vCPU's request.
    pub(super) fn has_slot(&self, gdm: &Option<Gdm>) -> bool {
        let Some(Event::Mmio(id, access)) = self.asked else {
            return false;
        };
        let slot = gdm
            .as_ref()
            .and_then(|gdm| gdm.region.slot(self.vm, id.index()));
        let virtio = access.ipa & !0xfff == VIRTIO_IPA;
        virtio && slot.is_some_and(|slot| slot.state() != gear2_protocol::slot::IDLE)
    }
}

impl Vm {
    /// Returns the next byte of the VM's output. Numbers in ascending order show a byte that is
    /// lost, doubled or in another VM's console.
    pub(super) fn next_byte(&mut self) -> u64 {
        let line = format!("{}\n", self.line);
        let byte = line.as_bytes()[self.sent];
        self.sent += 1;
        if self.sent == line.len() {
            self.line += 1;
            self.sent = 0;
        }
        byte.into()
    }
}

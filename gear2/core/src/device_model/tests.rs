//! Tests of the signals to the device model.

use alloc::boxed::Box;

use gear1_abi::call::number;
use gear1_abi::regs::Regs;
use gear2_protocol::offset::{INPUT_LOW, INPUT_SIZE};
use gear2_protocol::slot;

use gear2_protocol::device_word::{
    FEATURES, RAM_END, RAM_START, SET_UP, SET_UP_HERE, SIZES, WRITES,
};
use gear2_protocol::virtio::{QUEUES, queue_word, register, status, word};

use super::*;
use crate::gear1::Conduit;
use crate::simulator::{Simulated, config, gdm};

/// A Gear1 that agrees with everything and counts raises of the line, and of the device's.
#[derive(Default)]
struct Counts(u32, u32);

impl Conduit for Counts {
    fn svc<const NUMBER: u16>(&mut self, arguments: Regs) -> Regs {
        if NUMBER == number::PL061_RAISE {
            match arguments {
                [0, 0, ..] => self.0 += 1,
                [1, 0, ..] => self.1 += 1,
                other => panic!("{other:?} is nobody's line"),
            }
        }
        [0; 8]
    }
}

impl Counts {
    fn take(&mut self) -> u32 {
        core::mem::take(&mut self.0)
    }

    fn take_device(&mut self) -> u32 {
        core::mem::take(&mut self.1)
    }
}

fn model() -> (DeviceModel<Simulated>, &'static Region, Counts) {
    let (model, region, _) = model_with_pages();
    (model, region, Counts::default())
}

/// Returns the register pages, too: device 0 is the first one of the first page.
fn model_with_pages() -> (
    DeviceModel<Simulated>,
    &'static Region,
    &'static [RegisterPage; 2],
) {
    let plan = crate::simulator::Plan {
        guest: crate::simulator::Guest::Spins,
        cpus: [0].into(),
        restart: gearv_manifest::Restart::Never,
        restarts: crate::simulator::AT_ONCE,
        devices: 1,
        watchdog: 0,
        progress: 0,
        dma_fault_limit: 0,
        boot_order: 0,
        dump: false,
        safe_state: crate::config::SafeState::Stop,
        tells: None,
        power_button: None,
        waits: false,
        real_time: false,
        affinity: None,
    };
    let region = gdm::region();
    let config = config(1, &[plan.clone(), plan]);
    let kept = Box::leak(Box::new(Kept::new()));
    let pages: &_ = Box::leak(Box::new([const { RegisterPage::new() }; 2]));
    let shared = Shared { region, pages };
    let model = DeviceModel::new(&config, shared, kept, false);
    (model, region, pages)
}

const REQUEST: Request = Request {
    device: 0,
    register: 0x70,
    access: 0b110,
    value: 0,
};

#[test]
fn the_header_describes_the_machine() {
    let (_, region, _) = model();
    let header = &region.header;
    assert_eq!(header.magic.load(Relaxed), MAGIC);
    let words = [
        &header.version,
        &header.vcpu_count,
        &header.vm_count,
        &header.gdm_starts,
        &header.counter_hz,
    ];
    let words = words.map(|word| word.load(Relaxed));
    assert_eq!(words, [PROTOCOL_VERSION, 2, 2, 0, 1_000_000]);
}

/// A process of the device model that serves one VM maps that VM's page alone.
#[test]
fn a_vcpus_slot_is_in_the_page_of_its_vm_alone() {
    let (model, region, mut gear1) = model();
    for (vm, other) in [(0, 1), (1, 0)] {
        let vcpu = VcpuId::new(vm).unwrap();
        assert_eq!(model.forward(&mut gear1, vcpu, REQUEST), None);
        assert_eq!(region.slot(vm, vm).unwrap().state(), slot::POSTED);
        let of_other = region.slots[other].iter();
        let posted = of_other.filter(|slot| slot.state() == slot::POSTED).count();
        assert_eq!(posted, vm, "the other VM's own");
    }
}

#[test]
fn each_request_is_told_of() {
    let (model, region, mut gear1) = model();
    let vcpu = VcpuId::new(1).unwrap();
    assert_eq!(model.forward(&mut gear1, vcpu, REQUEST), None);
    assert_eq!((gear1.take(), gear1.take_device()), (0, 1));
    model.slots.lock().abandon(vcpu);
    assert_eq!(model.forward(&mut gear1, vcpu, REQUEST), None);
    assert_eq!((gear1.take(), gear1.take_device()), (0, 0), "it waits");
    region.slot(1, 1).unwrap().set_state(slot::DONE);
    model.collect(&mut gear1, |_| panic!("nobody asked"));
    assert_eq!(gear1.take(), 1, "it is posted now");
}

#[test]
fn who_looks_by_itself_is_not_told() {
    let (model, region, mut gear1) = model();
    for (index, looking) in [(0, 1), (1, 0)] {
        region.devices[0][LOOKING].store(looking, Relaxed);
        let vcpu = VcpuId::new(index).unwrap();
        assert_eq!(model.forward(&mut gear1, vcpu, REQUEST), None);
        assert_eq!(region.slot(index, index).unwrap().state(), slot::POSTED);
        assert_eq!(u64::from(gear1.take_device()), 1 - looking);
    }
}

#[test]
fn a_new_gdm_is_told_once() {
    let (model, region, mut gear1) = model();
    model.greet(&mut gear1);
    assert_eq!(gear1.take(), 0);
    region.header.gdm_starts.store(1, Relaxed);
    model.greet(&mut gear1);
    model.greet(&mut gear1);
    assert_eq!(gear1.take(), 1);
}

#[test]
fn output_is_told_of_soon_but_not_byte_by_byte() {
    let (model, _, mut gear1) = model();
    assert_eq!(model.notify_output(&mut gear1, 5_000), None);
    assert_eq!(gear1.take(), 0, "nothing to tell");
    model.write(1, b"a");
    assert_eq!(model.notify_output(&mut gear1, 5_000), None);
    assert_eq!(gear1.take(), 1);
    model.write(1, b"b");
    assert_eq!(model.notify_output(&mut gear1, 5_001), Some(6_000));
    model.write(1, b"c");
    assert_eq!(model.notify_output(&mut gear1, 5_999), Some(6_000));
    assert_eq!(gear1.take(), 0);
    assert_eq!(model.notify_output(&mut gear1, 6_000), None);
    assert_eq!(model.notify_output(&mut gear1, 9_000), None);
    assert_eq!(gear1.take(), 1);
}

#[test]
fn room_in_a_ring_is_told_of_once() {
    let (model, region, mut gear1) = model();
    let written = &region.consoles[1].ring.input_written;
    written.store(INPUT_SIZE as u32, Relaxed);
    for _ in 1..INPUT_SIZE - INPUT_LOW {
        assert!(model.take_input(&mut gear1, 1).is_some());
    }
    assert_eq!(gear1.take(), 0);
    assert!(model.take_input(&mut gear1, 1).is_some());
    assert_eq!(gear1.take(), 1);
    while model.take_input(&mut gear1, 1).is_some() {}
    assert_eq!(gear1.take(), 0);
}

/// The device model fills the ring each time that it is told of room, as long as somebody pastes.
#[test]
fn room_is_told_of_seldom_while_somebody_pastes() {
    let (model, region, mut gear1) = model();
    let written = &region.consoles[1].ring.input_written;
    let pasted = 16 * INPUT_SIZE as u32;
    written.store(INPUT_SIZE as u32, Relaxed);
    let (mut taken, mut wakes) = (0, 0);
    while model.take_input(&mut gear1, 1).is_some() {
        taken += 1;
        if gear1.take() > 0 {
            wakes += 1;
            written.store(pasted.min(taken + INPUT_SIZE as u32), Relaxed);
        }
    }
    assert_eq!(taken, pasted, "nobody waits for room in vain");
    assert!(wakes <= 2 * pasted / INPUT_SIZE as u32, "{wakes}");
}

/// Lays down a disk of one queue, as GDM does.
fn lay_down(region: &Region) {
    let words = [
        (SIZES, 256),
        (FEATURES, 1 << 32 | 0x40),
        (RAM_START, 0x4000_0000),
        (RAM_END, 0x5000_0000),
        (SET_UP, SET_UP_HERE),
    ];
    for (word, value) in words {
        region.devices[0][word].store(value, Relaxed);
    }
}

const fn store(register: usize, value: u32) -> Request {
    Request {
        device: 0,
        register: register as u32,
        access: 0b110,
        value: value as u64,
    }
}

fn shown(model: &DeviceModel<Simulated>, register: usize) -> u32 {
    model.devices[0].unwrap().registers[register / 4].load(Relaxed)
}

/// Does a write that is GDM's, as far as GDM changes the status.
fn answer(model: &DeviceModel<Simulated>, gear1: &mut Counts, request: Request) {
    let slot = model.region.slot(1, 1).unwrap();
    assert_eq!(slot.state(), slot::POSTED);
    if request.register as usize == register::STATUS {
        model.region.devices[0][word::STATUS].store(request.value, Relaxed);
        let status = &model.devices[0].unwrap().registers[register::STATUS / 4];
        status.store(request.value as u32, Relaxed);
    }
    slot.set_state(slot::DONE);
    let mut ready = 0;
    model.collect(gear1, |_| ready += 1);
    assert_eq!(ready, 1);
}

/// Writes of Linux 6.12 from the probe of virtio_mmio to the end of virtio_blk's, in order, with
/// one queue.
const LINUX: [(usize, u32); 24] = [
    (register::STATUS, 0),
    (register::STATUS, 1),
    (register::STATUS, 3),
    (register::DEVICE_FEATURES_SEL, 1),
    (register::DEVICE_FEATURES_SEL, 0),
    (register::DRIVER_FEATURES_SEL, 1),
    (register::DRIVER_FEATURES, 1),
    (register::DRIVER_FEATURES_SEL, 0),
    (register::DRIVER_FEATURES, 0x40),
    (register::STATUS, 0xb),
    (register::QUEUE_SEL, 0),
    (register::QUEUE_NUM, 256),
    (register::QUEUE_DESC, 0x4100_0000),
    (register::QUEUE_DESC_HIGH, 0),
    (register::QUEUE_DRIVER, 0x4100_1000),
    (register::QUEUE_DRIVER_HIGH, 0),
    (register::QUEUE_DEVICE, 0x4100_2000),
    (register::QUEUE_DEVICE_HIGH, 0),
    (register::QUEUE_READY, 1),
    (register::QUEUE_SEL, 1),
    (register::QUEUE_SEL, 0),
    (register::DRIVER_FEATURES_SEL, 0),
    (register::QUEUE_NUM, 128),
    (register::STATUS, 0xf),
];

/// The device model sleeps through a set-up but for what it has to judge: FEATURES_OK, DRIVER_OK,
/// and the reset of a device that is in use.
#[test]
fn a_disks_set_up_wakes_the_device_model_three_times_at_most() {
    let (model, region, mut gear1) = model();
    lay_down(region);
    let vcpu = VcpuId::new(1).unwrap();
    for life in 0..3 {
        let mut wakes = 0;
        for (register, value) in LINUX {
            let request = store(register, value);
            if model.forward(&mut gear1, vcpu, request).is_none() {
                wakes += gear1.take_device();
                answer(&model, &mut gear1, request);
            }
        }
        assert_eq!(wakes, if life == 0 { 2 } else { 3 }, "life {life}");
        let queue = |place: usize| region.devices[0][QUEUES + place].load(Relaxed);
        assert_eq!(queue(queue_word::SIZE), 256, "a queue in use stays");
        assert_eq!(queue(queue_word::USED), 0x4100_2000);
        assert_eq!(shown(&model, register::STATUS), 0xf);
        assert_eq!(shown(&model, register::QUEUE_READY), 1);
    }
    assert_eq!(model.slots.lock().forwarded(), 8);
    let writes = region.devices[0][WRITES].load(Relaxed);
    assert_eq!(writes, 3 * LINUX.len() as u64 - 8);
}

/// Gear2 stores to no page of another VM or device, whatever the device model says.
#[test]
fn a_selector_shows_what_was_laid_down() {
    let (model, region, pages) = model_with_pages();
    let mut gear1 = Counts::default();
    let vcpu = VcpuId::new(1).unwrap();
    lay_down(region);
    let cases = [
        (
            register::DEVICE_FEATURES_SEL,
            1,
            register::DEVICE_FEATURES,
            1,
        ),
        (
            register::DEVICE_FEATURES_SEL,
            0,
            register::DEVICE_FEATURES,
            0x40,
        ),
        (
            register::DEVICE_FEATURES_SEL,
            2,
            register::DEVICE_FEATURES,
            0,
        ),
        (register::QUEUE_SEL, 0, register::QUEUE_NUM_MAX, 256),
        (register::QUEUE_SEL, 1, register::QUEUE_NUM_MAX, 0),
        (register::QUEUE_SEL, u32::MAX, register::QUEUE_NUM_MAX, 0),
        (register::QUEUE_SEL, 0x8000_0000, register::QUEUE_READY, 0),
    ];
    for (selector, value, shows, expected) in cases {
        let answer = model.forward(&mut gear1, vcpu, store(selector, value));
        assert_eq!(answer, Some(Answer::Value(0)));
        assert_eq!(shown(&model, shows), expected, "{selector:#x}: {value:#x}");
    }
    assert_eq!((gear1.take(), gear1.take_device()), (0, 0));
    let others = pages[0].devices[1..].iter().chain(&pages[1].devices);
    let mut words = others.flatten();
    assert!(words.all(|word| word.load(Relaxed) == 0));
}

/// Only a store of four bytes to a register of a device of the vCPU's VM is done at once, and only
/// while the device model is at nothing.
#[test]
fn a_write_is_done_at_once_where_the_device_is() {
    let (model, region, pages) = model_with_pages();
    let mut gear1 = Counts::default();
    lay_down(region);
    let [vcpu, other] = [0, 1].map(|vcpu| VcpuId::new(vcpu).unwrap());
    let register = model.views[0].ipa + register::DEVICE_FEATURES_SEL as u64;
    let write = Mmio {
        ipa: register,
        size_log2: 2,
        store: Some(1),
    };
    assert!(model.set_up_at_once(vcpu, write));
    assert_eq!(shown(&model, register::DEVICE_FEATURES), 1);
    let load = Mmio {
        store: None,
        ..write
    };
    let wide = Mmio {
        size_log2: 3,
        ..write
    };
    let at = |ipa| Mmio { ipa, ..write };
    let (next, before) = (register + VIRTIO_STRIDE, register - VIRTIO_STRIDE);
    for access in [load, wide, at(register + 1), at(next), at(before), at(4)] {
        assert!(!model.set_up_at_once(vcpu, access), "{access:?}");
    }
    // The other VM has its own device there, of which the device model has said nothing.
    assert!(!model.set_up_at_once(other, write));
    let ready = store(register::QUEUE_READY, 1);
    assert_eq!(model.forward(&mut gear1, other, ready), None);
    assert!(!model.set_up_at_once(vcpu, write));
    let mut words = pages[0].devices[1..].iter().flatten();
    assert!(words.all(|word| word.load(Relaxed) == 0));
}

/// Each condition under which a write waits for the device model.
#[test]
fn what_the_device_model_is_at_comes_before_a_write() {
    let select = store(register::QUEUE_SEL, 0);
    let is_asked = |prepare: &dyn Fn(&DeviceModel<Simulated>, &Region, &mut Counts), request| {
        let (model, region, mut gear1) = model();
        lay_down(region);
        prepare(&model, region, &mut gear1);
        let vcpu = VcpuId::new(1).unwrap();
        model.forward(&mut gear1, vcpu, request).is_none()
    };
    let set = |word: usize, value| {
        move |_: &DeviceModel<Simulated>, region: &Region, _: &mut Counts| {
            region.devices[0][word].store(value, Relaxed);
        }
    };
    assert!(!is_asked(&|_, _, _| {}, select));
    assert!(is_asked(&set(SET_UP, 0), select), "nothing is laid down");
    for other in [SET_UP_HERE - 1, SET_UP_HERE + 1] {
        assert!(is_asked(&set(SET_UP, other), select), "of another version");
    }
    assert!(is_asked(&set(RESET_ASKED, 1), select), "a reset waits");
    // Another vCPU's access to the device, or to another one.
    let posts = |device| {
        move |model: &DeviceModel<Simulated>, _: &Region, gear1: &mut Counts| {
            let request = Request { device, ..REQUEST };
            let other = VcpuId::new(0).unwrap();
            let access = Request {
                access: 0b010,
                ..request
            };
            assert_eq!(model.forward(gear1, other, access), None);
            model.slots.lock().abandon(other);
        }
    };
    assert!(is_asked(&posts(0), select), "an access is under way");
    assert!(!is_asked(&posts(RTC_DEVICE), select), "a clock's");
    // Not all writes are Gear2's.
    let all = &|_: &DeviceModel<Simulated>, _: &Region, _: &mut Counts| {};
    let byte = Request {
        access: 0b100,
        ..select
    };
    let config = store(register::CONFIG, 1);
    let acknowledge = store(register::INTERRUPT_ACK, 2);
    let ready = store(register::QUEUE_READY, 1);
    let early = store(register::STATUS, 4);
    for request in [
        byte,
        config,
        acknowledge,
        ready,
        early,
        store(register::STATUS, 0x80),
    ] {
        assert!(is_asked(all, request), "{request:?}");
    }
    let broken = set(word::STATUS, status::NEEDS_RESET);
    assert!(is_asked(&broken, store(register::STATUS, 1)));
    assert!(is_asked(&broken, store(register::STATUS, 0)));
}

/// A Gear2 that takes over finds which devices the device model has accesses to.
#[test]
fn a_restarted_gear2_lets_no_write_overtake_what_an_earlier_one_posted() {
    let (before, region, mut gear1) = model();
    lay_down(region);
    let vcpu = VcpuId::new(0).unwrap();
    let ready = store(register::QUEUE_READY, 1);
    assert_eq!(before.forward(&mut gear1, vcpu, ready), None);
    let kept = Box::leak(Box::new(Kept::new()));
    // Each of the VMs has a vCPU.
    let places = core::array::from_fn(|index| region.slot(index, index));
    let mut slots = Slots::new(places, kept);
    assert!(slots.is_idle(0));
    slots.take_over(vcpu, None);
    assert!(!slots.is_idle(0) && slots.is_idle(1));
    region.slot(0, 0).unwrap().set_state(slot::DONE);
    assert!(!slots.collect(|_, _| panic!("nobody waits")));
    assert!(slots.is_idle(0));
}

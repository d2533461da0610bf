//! Tests of the signals to the device model.

use alloc::boxed::Box;

use gear1_abi::call::number;
use gear1_abi::regs::Regs;
use gear2_protocol::offset::{INPUT_LOW, INPUT_SIZE};
use gear2_protocol::slot;

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
    let plan = crate::simulator::Plan {
        guest: crate::simulator::Guest::Spins,
        cpus: [0].into(),
        restart: gearv_manifest::Restart::Never,
        restarts: crate::simulator::AT_ONCE,
        devices: 1,
        boot_order: 0,
        real_time: false,
        affinity: None,
    };
    let region = gdm::region();
    let config = config(1, &[plan.clone(), plan]);
    let kept = Box::leak(Box::new(Kept::new()));
    (
        DeviceModel::new(&config, region, kept, false),
        region,
        Counts::default(),
    )
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

#[test]
fn each_request_is_told_of() {
    let (model, region, mut gear1) = model();
    let vcpu = VcpuId::new(1).unwrap();
    model.forward(&mut gear1, vcpu, REQUEST);
    assert_eq!((gear1.take(), gear1.take_device()), (0, 1));
    model.slots.lock().abandon(vcpu);
    model.forward(&mut gear1, vcpu, REQUEST);
    assert_eq!((gear1.take(), gear1.take_device()), (0, 0), "it waits");
    region.slots[1].set_state(slot::DONE);
    model.collect(&mut gear1, |_| panic!("nobody asked"));
    assert_eq!(gear1.take(), 1, "it is posted now");
}

#[test]
fn who_looks_by_itself_is_not_told() {
    let (model, region, mut gear1) = model();
    for (index, looking) in [(0, 1), (1, 0)] {
        region.devices[0][LOOKING].store(looking, Relaxed);
        model.forward(&mut gear1, VcpuId::new(index).unwrap(), REQUEST);
        assert_eq!(region.slots[index].state(), slot::POSTED);
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

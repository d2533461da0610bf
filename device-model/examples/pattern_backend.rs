//! A backend from scratch: an entropy device that repeats one byte, for tests that must repeat.
//!
//! CONTRIBUTING.md ("A device backend") names the places that make a backend part of GDM.

use device_model::backend::{Backend, Progress, TURN};
use device_model::transport::Identity;
use device_model::vring::{Broken, Chain, Vring};
use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;

/// Most bytes given for one request; a guest that wants more asks again.
const MOST: usize = 256;

/// Fills every request with one byte.
#[derive(Debug)]
struct Pattern(u8);

impl Backend for Pattern {
    fn identity(&self) -> Identity {
        Identity {
            device_id: VIRTIO_ID_RNG,
            features: 0,
            dependencies: &[],
            queue_sizes: vec![64],
            config: Vec::new(),
        }
    }

    fn process(&mut self, _queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        for _ in 0..TURN {
            // `take` has checked every descriptor: the buffers lie inside the guest's memory.
            if !ring.take(&mut chain)? {
                return Ok(Progress::Drained);
            }
            let wanted = chain.writable.length().min(MOST as u64) as usize;
            let bytes = vec![self.0; wanted];
            let written = chain.writable.write(ring.memory(), 0, &bytes);
            ring.complete(chain.head, written as u64)?;
        }
        Ok(Progress::More)
    }
}

fn main() {
    println!(
        "{:?} has the identity {:?}",
        Pattern(7),
        Pattern(7).identity()
    );
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use device_model::mapping::Mapping;
    use device_model::state::{DeviceState, WORDS};
    use device_model::vring::Setup;
    use vm_memory::{Bytes, GuestAddress};

    use super::*;

    const RAM: u64 = 0x4000_0000;
    const DATA: u64 = RAM + 0x8000;
    /// VIRTQ_DESC_F_WRITE.
    const WRITABLE: u64 = 2 << 32;

    #[test]
    fn a_request_is_filled_and_nothing_beyond_it() {
        let memory = Mapping::of_zeroes(0x1_0000).unwrap().memory(RAM).unwrap();
        let put = |offset: u64, words: [u64; 2]| {
            for (at, word) in (RAM + offset..).step_by(8).zip(words) {
                memory.write_obj(word, GuestAddress(at)).unwrap();
            }
        };
        // One descriptor of 16 writable bytes, and an available ring that names it.
        put(0, [DATA, 16 | WRITABLE]);
        put(0x1000, [1 << 16, 0]);
        let setup = Setup {
            size: 16,
            descriptors: RAM,
            available: RAM + 0x1000,
            used: RAM + 0x2000,
        };
        let words: [AtomicU64; WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
        let state = DeviceState::new(Box::leak(Box::new(words)));
        let mut ring = Vring::new(&memory, state, 64, setup, false).unwrap();
        assert_eq!(Pattern(7).process(0, &mut ring), Ok(Progress::Drained));
        let mut found = [0; 17];
        memory.read_slice(&mut found, GuestAddress(DATA)).unwrap();
        assert_eq!((found[..16].to_vec(), found[16]), (vec![7; 16], 0));
        let used: u16 = memory.read_obj(GuestAddress(RAM + 0x2002)).unwrap();
        assert_eq!(used, 1);
    }
}

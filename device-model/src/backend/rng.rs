//! virtio-rng (virtio 1.2, 5.4): random bytes of the device VM's kernel.

use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;

use super::{Backend, Progress, TURN};
use crate::progress;
use crate::state::Word;
use crate::sys;
use crate::transport::Identity;
use crate::vring::{Broken, Chain, Vring};

/// Most bytes given for one request; a guest that wants more asks again.
const MOST: usize = 4096;

/// Type in the register DeviceID (virtio 1.2, 5.4.1).
pub(super) const DEVICE_ID: u32 = VIRTIO_ID_RNG;
/// Longest queue that a driver may choose; Linux keeps one request in the queue.
pub(super) const QUEUE_SIZE: u16 = 64;

/// The entropy device.
#[derive(Debug)]
pub struct Rng;

impl Backend for Rng {
    fn identity(&self) -> Identity {
        Identity {
            device_id: DEVICE_ID,
            features: 0,
            dependencies: &[],
            queue_sizes: vec![QUEUE_SIZE],
            config: Vec::new(),
        }
    }

    // Less than was asked for may be given (virtio 1.2, 5.4.6), so that a request costs a bounded
    // time.
    fn process(&mut self, _queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        let mut bytes = [0; MOST];
        for _ in 0..TURN {
            if !ring.take(&mut chain)? {
                return Ok(Progress::Drained);
            }
            let wanted = chain.writable.length().min(MOST as u64) as usize;
            let bytes = bytes.get_mut(..wanted).unwrap_or_default();
            // The device VM's kernel may still wait for its first entropy.
            let got = progress::in_kernel(|| sys::random(bytes));
            let written =
                chain
                    .writable
                    .write(ring.memory(), 0, bytes.get(..got).unwrap_or_default());
            ring.state().count(Word::BytesIn, written as u64);
            ring.complete(chain.head, written as u64)?;
        }
        Ok(Progress::More)
    }
}

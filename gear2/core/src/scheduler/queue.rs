//! Sets and ordered queues of vCPUs, of fixed size.

use core::array;

use gear1_abi::id::{MAX_VCPUS, VcpuId};

#[cfg(test)]
mod tests;

/// A set of vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(pub(super) u32);

const _: () = assert!(MAX_VCPUS <= u32::BITS as usize);

impl Set {
    const fn bit(vcpu: VcpuId) -> u32 {
        1 << vcpu.index()
    }

    pub(super) const fn contains(self, vcpu: VcpuId) -> bool {
        self.0 & Self::bit(vcpu) != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a vCPU. Returns whether it is new.
    pub(super) const fn insert(&mut self, vcpu: VcpuId) -> bool {
        let new = !self.contains(vcpu);
        self.0 |= Self::bit(vcpu);
        new
    }

    /// Removes a vCPU. Returns whether it was there.
    pub(super) const fn remove(&mut self, vcpu: VcpuId) -> bool {
        let there = self.contains(vcpu);
        self.0 &= !Self::bit(vcpu);
        there
    }
}

/// Order of a queue: a time or virtual time, then the order of arrival.
type Key = (u64, u64);

/// A queue ordered by a key: the least first, in the order of arrival among equals. A binary heap
/// that knows each vCPU's place, so that every change takes O(log n) steps.
#[derive(Debug)]
pub(super) struct Queue {
    heap: [VcpuId; MAX_VCPUS],
    len: usize,
    /// Place of each vCPU in the heap.
    places: [u8; MAX_VCPUS],
    keys: [Key; MAX_VCPUS],
    members: Set,
    arrivals: u64,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            heap: [VcpuId::FIRST; MAX_VCPUS],
            len: 0,
            places: [0; MAX_VCPUS],
            keys: array::from_fn(|_| (0, 0)),
            members: Set::default(),
            arrivals: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn contains(&self, vcpu: VcpuId) -> bool {
        self.members.contains(vcpu)
    }

    /// Returns the first vCPU and its key.
    pub(super) fn first(&self) -> Option<(VcpuId, u64)> {
        (self.len != 0).then(|| (self.heap[0], self.keys[self.heap[0].index()].0))
    }

    /// Returns the first vCPU but one, and its key.
    pub(super) fn second(&self) -> Option<(VcpuId, u64)> {
        let rest = self.heap[..self.len].get(1..)?;
        let vcpu = *rest.iter().take(2).min_by_key(|vcpu| self.key(**vcpu))?;
        Some((vcpu, self.key(vcpu).0))
    }

    /// Inserts a vCPU, or moves it behind those with the same key.
    pub(super) fn insert(&mut self, vcpu: VcpuId, key: u64) {
        self.arrivals += 1;
        self.keys[vcpu.index()] = (key, self.arrivals);
        if self.members.insert(vcpu) {
            self.put(self.len, vcpu);
            self.len += 1;
        }
        self.sift(vcpu);
    }

    /// Changes the key of a vCPU that is in the queue; its order among equals stays.
    pub(super) fn set_key(&mut self, vcpu: VcpuId, key: u64) {
        if self.contains(vcpu) {
            self.keys[vcpu.index()].0 = key;
            self.sift(vcpu);
        }
    }

    /// Removes a vCPU. Returns whether it was there.
    pub(super) fn remove(&mut self, vcpu: VcpuId) -> bool {
        if !self.members.remove(vcpu) {
            return false;
        }
        self.len -= 1;
        let (hole, last) = (self.place(vcpu), self.heap[self.len]);
        if last != vcpu {
            self.put(hole, last);
            self.sift(last);
        }
        true
    }

    /// Removes and returns the first vCPU, if its key is at most `limit`.
    pub(super) fn pop_until(&mut self, limit: u64) -> Option<VcpuId> {
        let (vcpu, _) = self.first().filter(|(_, key)| *key <= limit)?;
        self.remove(vcpu);
        Some(vcpu)
    }

    fn key(&self, vcpu: VcpuId) -> Key {
        self.keys[vcpu.index()]
    }

    fn place(&self, vcpu: VcpuId) -> usize {
        usize::from(self.places[vcpu.index()])
    }

    fn put(&mut self, place: usize, vcpu: VcpuId) {
        self.heap[place] = vcpu;
        #[expect(clippy::cast_possible_truncation, reason = "below MAX_VCPUS")]
        let place = place as u8;
        self.places[vcpu.index()] = place;
    }

    /// Moves a vCPU up, then down, to where its key belongs.
    fn sift(&mut self, vcpu: VcpuId) {
        let key = self.key(vcpu);
        let mut place = self.place(vcpu);
        // Bounded by the height of the heap.
        while place > 0 && key < self.key(self.heap[(place - 1) / 2]) {
            self.put(place, self.heap[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        // Bounded by the height of the heap.
        while let Some(child) = self.least_child(place)
            && self.key(self.heap[child]) < key
        {
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, vcpu);
    }

    /// Returns the place of the lesser child of a place.
    fn least_child(&self, place: usize) -> Option<usize> {
        let first = 2 * place + 1;
        let children = first..self.len.min(first + 2);
        children.min_by_key(|&child| self.key(self.heap[child]))
    }
}

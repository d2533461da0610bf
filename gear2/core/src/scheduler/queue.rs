//! Sets and ordered queues of vCPUs, of fixed size.

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

/// A vCPU in a queue, with its order: a time or virtual time in the upper half, then the order of
/// arrival and the vCPU. One comparison of two registers orders two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    fn new(vcpu: VcpuId, key: u64, arrival: u64) -> Self {
        // 56 bits of arrivals: with one each nanosecond they last for two years.
        let low = arrival << u8::BITS | vcpu.reg();
        Self(u128::from(key) << u64::BITS | u128::from(low))
    }

    /// Returns the same with another key.
    fn with_key(self, key: u64) -> Self {
        Self(u128::from(key) << u64::BITS | u128::from(self.low()))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    const fn low(self) -> u64 {
        self.0 as u64
    }

    const fn key(self) -> u64 {
        (self.0 >> u64::BITS) as u64
    }

    const fn vcpu(self) -> VcpuId {
        VcpuId::from_low_bits(self.0 as usize)
    }
}

/// A queue ordered by a key: the least first, in the order of arrival among equals. A binary heap
/// that knows each vCPU's place, so that every change takes O(log n) steps.
#[derive(Debug)]
pub(super) struct Queue {
    /// No entry is above one that is less: those below `n` are at `2 * n + 1` and `2 * n + 2`.
    heap: [Entry; MAX_VCPUS],
    len: usize,
    /// Place of each vCPU in the heap.
    places: [u8; MAX_VCPUS],
    /// vCPUs in the queue. The places of the others mean nothing.
    members: Set,
    /// Number of insertions, by which entries with the same key keep their order.
    arrivals: u64,
}

// `at` masks places, and `places` and `Entry` have a byte for each.
const _: () = assert!(MAX_VCPUS.is_power_of_two() && MAX_VCPUS <= 1 << u8::BITS);

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            heap: [Entry::default(); MAX_VCPUS],
            len: 0,
            places: [0; MAX_VCPUS],
            members: Set::default(),
            arrivals: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) const fn contains(&self, vcpu: VcpuId) -> bool {
        self.members.contains(vcpu)
    }

    /// Returns the first vCPU and its key.
    #[inline]
    pub(super) fn first(&self) -> Option<(VcpuId, u64)> {
        (self.len != 0).then(|| (self.heap[0].vcpu(), self.heap[0].key()))
    }

    /// Returns all vCPUs with their keys, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (VcpuId, u64)> {
        let entries = self.heap.iter().take(self.len);
        entries.map(|entry| (entry.vcpu(), entry.key()))
    }

    /// Inserts a vCPU, or moves it behind those with the same key.
    pub(super) fn insert(&mut self, vcpu: VcpuId, key: u64) {
        self.arrivals += 1;
        let entry = Entry::new(vcpu, key, self.arrivals);
        if self.members.insert(vcpu) {
            self.len += 1;
            self.rise(self.len - 1, entry);
        } else {
            self.sift(self.place(vcpu), entry);
        }
    }

    /// Changes the key of a vCPU that is in the queue; its order among equals stays.
    #[inline]
    pub(super) fn set_key(&mut self, vcpu: VcpuId, key: u64) {
        if self.contains(vcpu) {
            let place = self.place(vcpu);
            self.sift(place, self.at(place).with_key(key));
        }
    }

    /// Removes a vCPU. Returns whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, vcpu: VcpuId) -> bool {
        let there = self.members.remove(vcpu);
        if there {
            self.len -= 1;
            // The last entry fills the hole. It comes from another branch, and may belong above it.
            let (hole, last) = (self.place(vcpu), self.at(self.len));
            if hole != self.len {
                self.sift(hole, last);
            }
        }
        there
    }

    /// Inserts a vCPU that is not in the queue, then removes and returns the first one, which may
    /// be the same. One entry takes the other one's place, so this is half the work of both.
    #[inline]
    pub(super) fn exchange(&mut self, vcpu: VcpuId, key: u64) -> VcpuId {
        let Some((first, _)) = self.first().filter(|(_, least)| *least <= key) else {
            return vcpu;
        };
        self.arrivals += 1;
        self.members.remove(first);
        self.members.insert(vcpu);
        self.sink(0, Entry::new(vcpu, key, self.arrivals));
        first
    }

    /// Removes and returns the first vCPU, if its key is at most `limit`.
    pub(super) fn pop_until(&mut self, limit: u64) -> Option<VcpuId> {
        let (vcpu, _) = self.first().filter(|(_, key)| *key <= limit)?;
        self.remove(vcpu);
        Some(vcpu)
    }

    /// Returns the entry at a place. The mask changes no place, and shows the compiler that there
    /// is an entry.
    #[inline]
    const fn at(&self, place: usize) -> Entry {
        self.heap[place & (MAX_VCPUS - 1)]
    }

    #[inline]
    fn place(&self, vcpu: VcpuId) -> usize {
        usize::from(*vcpu.select(&self.places))
    }

    #[inline]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place & (MAX_VCPUS - 1)] = entry;
        #[expect(clippy::cast_possible_truncation, reason = "below MAX_VCPUS")]
        let place = place as u8;
        *entry.vcpu().select_mut(&mut self.places) = place;
    }

    /// Puts an entry where it belongs, above or below a place that is free.
    fn sift(&mut self, place: usize, entry: Entry) {
        if place > 0 && entry < self.at((place - 1) / 2) {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    /// Puts an entry where it belongs, at or above a place that is free.
    #[inline]
    fn rise(&mut self, mut place: usize, entry: Entry) {
        // Bounded by the height of the heap.
        while place > 0 {
            let parent = (place - 1) / 2;
            let above = self.at(parent);
            if above < entry {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Puts an entry where it belongs, at or below a place that is free.
    #[inline]
    fn sink(&mut self, mut place: usize, entry: Entry) {
        // Bounded by the height of the heap.
        loop {
            let left = 2 * place + 1;
            if left >= self.len {
                break;
            }
            let (mut child, mut below) = (left, self.at(left));
            if left + 1 < self.len && self.at(left + 1) < below {
                (child, below) = (left + 1, self.at(left + 1));
            }
            if entry < below {
                break;
            }
            self.put(place, below);
            place = child;
        }
        self.put(place, entry);
    }
}

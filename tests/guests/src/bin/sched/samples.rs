//! Samples in RAM, sorted when the measurement is over.

use core::cell::UnsafeCell;

use test_guests::timer;

/// Most samples of a run. Two minutes of the default period of `periodic`, in 480 KB.
pub(crate) const MOST: usize = 120_000;

struct Room(UnsafeCell<[u32; MOST]>);

// SAFETY: only [`Samples::new`] reaches it, which the boot CPU calls once.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; MOST]));

/// Ticks that something took, in the order in which they were taken.
pub(crate) struct Samples {
    room: &'static mut [u32; MOST],
    count: usize,
    sum: u64,
}

/// Distribution of samples in nanoseconds.
pub(crate) struct Spread {
    /// Number of samples.
    pub(crate) count: usize,
    /// Least sample.
    pub(crate) min: u64,
    /// Median.
    pub(crate) median: u64,
    /// 99th percentile.
    pub(crate) p99: u64,
    /// Greatest sample.
    pub(crate) max: u64,
    /// Mean.
    pub(crate) mean: u64,
}

impl Samples {
    /// Takes the room. A guest has one role, and each role calls this once.
    pub(crate) fn new() -> Samples {
        // SAFETY: called once, so that no other reference is alive.
        let room = unsafe { &mut *ROOM.0.get() };
        Samples {
            room,
            count: 0,
            sum: 0,
        }
    }

    /// Keeps a sample. Those beyond the room are not kept: the count tells.
    pub(crate) fn add(&mut self, ticks: u64) {
        if let Some(place) = self.room.get_mut(self.count) {
            *place = u32::try_from(ticks).unwrap_or(u32::MAX);
            self.count += 1;
            self.sum += ticks;
        }
    }

    /// Sorts the samples and returns their distribution; `None` if there are none.
    pub(crate) fn spread(self) -> Option<Spread> {
        let kept = self.room.get_mut(..self.count)?;
        kept.sort_unstable();
        let at = |index: usize| kept.get(index).map(|ticks| timer::to_ns((*ticks).into()));
        Some(Spread {
            count: self.count,
            min: at(0)?,
            median: at(self.count / 2)?,
            p99: at(self.count * 99 / 100)?,
            max: at(self.count - 1)?,
            mean: timer::to_ns(self.sum) / self.count as u64,
        })
    }
}

impl core::fmt::Display for Spread {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Spread {
            count,
            min,
            median,
            p99,
            max,
            mean,
        } = self;
        write!(
            out,
            "count={count} min={min} median={median} p99={p99} max={max} mean={mean}"
        )
    }
}

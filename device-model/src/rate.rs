//! Limits of what a device moves: token buckets, one for requests and one for bytes.
//!
//! A bucket is the time at which it will be full again. Taking tokens moves that time on by as long
//! as their refill lasts, so that no timer fills anything and no account is lost to rounding: a
//! refill is rounded up.
//!
//! Invariants: in any window of time no more passes than the rate allows in that time and the burst
//! at once, or one request that alone is larger than the burst; and each request passes at the
//! latest when the bucket is full.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Of a second. The product with a number of tokens, which has 64 bits, has 128.
const NANOSECONDS: u128 = 1_000_000_000;

/// A bucket of tokens. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Tokens a second, not 0.
    rate: u64,
    /// Time in which the empty bucket fills.
    burst: u64,
    /// Time at which the bucket is full.
    full_at: u64,
}

impl Bucket {
    /// Makes an empty bucket, so that a GDM that is killed and starts again gives no burst as a
    /// present. A bucket has room for one token.
    fn new(rate: u32, burst: Duration) -> Option<Self> {
        let rate = u64::from(rate);
        let one = NANOSECONDS.div_ceil(u128::from(rate.max(1))) as u64;
        let burst = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX).max(one);
        (rate > 0).then_some(Self {
            rate,
            burst,
            full_at: burst,
        })
    }

    /// Returns how long tokens take to be refilled.
    fn refill(&self, tokens: u64) -> u64 {
        let time = (u128::from(tokens) * NANOSECONDS).div_ceil(u128::from(self.rate));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Returns how long tokens have to be waited for; 0: they are there.
    fn wait(&self, now: u64, tokens: u64) -> u64 {
        // More than the bucket holds passes when it is full: it would never pass otherwise.
        // planted: a request that is larger than the burst waits for ever
        let needs = self.refill(tokens).min(self.burst);
        let missing = self.full_at.saturating_sub(now);
        missing.saturating_add(needs).saturating_sub(self.burst)
    }

    /// Takes tokens out. A request that is larger than the burst leaves a debt.
    fn take(&mut self, now: u64, tokens: u64) {
        // planted: a bucket is fuller than full
        let from = self.full_at.max(now);
        self.full_at = from.saturating_add(self.refill(tokens));
    }
}

/// Limits that the queues of a device share. A queue that is always full keeps their share from none
/// of the others: those that wait pass in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    limits: Limits,
    /// Queues with a request that waits.
    line: VecDeque<usize>,
}

impl Shared {
    /// Makes limits as [`Limits::new`] does.
    pub(crate) fn new(limits: [u32; 3]) -> Self {
        Self {
            limits: Limits::new(limits),
            line: VecDeque::new(),
        }
    }

    /// Tells whether anything may ever have to wait.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits.requests.is_some() || self.limits.bytes.is_some()
    }

    /// Tells whether a queue's request of so many bytes may pass now, and charges for it if it may.
    /// The queue of a request that may not stands in line.
    pub(crate) fn admit(&mut self, queue: usize, bytes: u64) -> bool {
        if !self.has_limits() {
            return true;
        }
        // planted: a queue that is always full keeps the limits for itself
        let is_next = self.line.front().is_none_or(|first| *first == queue);
        let passes = is_next && self.limits.admit(bytes);
        if passes {
            self.leave(queue);
        } else if !self.line.contains(&queue) {
            self.line.push_back(queue);
        }
        passes
    }

    /// Takes a queue out of the line: its request passes by, or is given up.
    pub(crate) fn leave(&mut self, queue: usize) {
        if !self.line.is_empty() {
            self.line.retain(|waits| *waits != queue);
        }
    }

    /// Takes all queues out of the line.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
    }

    /// Returns how long what was not admitted has to wait from now on; `None`: the limits were not
    /// asked, as another queue came first.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.limits.pause()
    }
}

/// Limits of a device, in one direction where it has two.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Zero of the buckets' times, which are 64-bit nanoseconds: enough for 584 years.
    begin: Instant,
    /// Requests a second; `None`: without limit.
    requests: Option<Bucket>,
    /// Bytes a second; `None`: without limit.
    bytes: Option<Bucket>,
    /// Time at which what waits may pass.
    due: Option<Instant>,
}

impl Limits {
    /// Makes limits of requests and of bytes a second, 0 for none, which burst for so many
    /// milliseconds.
    pub(crate) fn new([requests, bytes, burst_ms]: [u32; 3]) -> Self {
        let burst = Duration::from_millis(burst_ms.into());
        Self {
            begin: Instant::now(),
            requests: Bucket::new(requests, burst),
            bytes: Bucket::new(bytes, burst),
            due: None,
        }
    }

    /// Tells whether a request of so many bytes may pass now, and charges for it if it may.
    pub(crate) fn admit(&mut self, bytes: u64) -> bool {
        if self.requests.is_none() && self.bytes.is_none() {
            return true;
        }
        let now = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wait = self.charge(now, bytes);
        self.due = match wait {
            0 => None,
            wait => Instant::now().checked_add(Duration::from_nanos(wait)),
        };
        wait == 0
    }

    /// Returns how long what was not admitted has to wait from now on.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.due
            .map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Returns how long a request has to wait, and charges for it if that is no time: one bucket
    /// alone must not pay for what the other holds back.
    fn charge(&mut self, now: u64, bytes: u64) -> u64 {
        let all = [(&mut self.requests, 1), (&mut self.bytes, bytes)];
        let mut all = all.map(|(bucket, tokens)| (bucket.as_mut(), tokens));
        let waits = all.iter().map(|(bucket, tokens)| {
            let bucket = bucket.as_deref();
            bucket.map_or(0, |bucket| bucket.wait(now, *tokens))
        });
        let wait = waits.max().unwrap_or(0);
        if wait == 0 {
            for (bucket, tokens) in &mut all {
                if let Some(bucket) = bucket {
                    bucket.take(now, *tokens);
                }
            }
        }
        wait
    }
}

//! A VM's lives, and how much of them was reported.
//!
//! Gear1 counts the starts of a VM and keeps how its last lives ended. Events and wake-ups say only
//! that there is something to hear: several become one, a second vCPU can ask for the end that the
//! first one caused, and a Gear2 that fails takes the event with it. Therefore Gear2 reports what
//! the history has more than was reported before: every start and every end by itself once, and in
//! order.

use gear1_abi::event::{Ended, Ends};

use crate::gear1::VmHistory;

#[cfg(test)]
mod tests;

/// News of a VM for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A life began.
    Started,
    /// The VM ended by itself.
    Ended(Ended),
    /// Several lives began; the ends before the last of them are no longer known.
    Forgotten(u32),
}

/// Part of a VM's history that was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Lives whose start was reported.
    starts: u32,
    /// Whether the end of the last of these lives was reported.
    end: bool,
}

impl Reported {
    /// Returns what the two words from [`Self::words`] say. Those of a Gear2 that failed may be
    /// any: more than has happened cannot have been reported.
    pub(crate) const fn from_words([starts, end]: [u32; 2], history: &VmHistory) -> Self {
        if starts > history.starts {
            return Self {
                starts: history.starts,
                end: false,
            };
        }
        Self {
            starts,
            end: end != 0,
        }
    }

    /// Returns the state as words for [`Self::from_words`].
    pub(crate) const fn words(self) -> [u32; 2] {
        [self.starts, self.end as u32]
    }

    /// Returns that everything was reported up to the start of the life with this number.
    pub(crate) const fn up_to_start(starts: u32) -> Self {
        Self { starts, end: false }
    }

    /// Returns how many starts were reported.
    pub(crate) const fn starts(self) -> u32 {
        self.starts
    }

    /// Returns the next unreported news, and marks it as reported.
    pub(crate) fn next(&mut self, history: &VmHistory) -> Option<News> {
        let later_lives = history.starts.checked_sub(self.starts)?;
        // planted: an end that a restart follows is not reported
        let how = history.ends.of_life(later_lives);
        if let (false, Some(how @ (Ended::Off | Ended::Reset | Ended::Fault))) = (self.end, how) {
            self.end = true;
            return Some(News::Ended(how));
        }
        let last_one_is_known = self.end || later_lives < Ends::LIVES;
        let (begun, news) = match later_lives {
            0 => return None,
            1..=Ends::LIVES if last_one_is_known => (1, News::Started),
            // Up to the oldest life whose end is known.
            _ => {
                let begun = later_lives - (Ends::LIVES - 1);
                (begun, News::Forgotten(begun))
            }
        };
        *self = Self::up_to_start(self.starts.saturating_add(begun));
        Some(news)
    }
}

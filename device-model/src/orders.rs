//! The way of an order (`order.rs`) from the thread of the control socket to the device's own
//! thread, which alone touches the device.
//!
//! There are two such ways, one behind the other: in GDM to the thread that keeps the guest's
//! process, and in that process to the device's thread. Orders and answers are plain numbers and
//! text, which cross as messages in between. A process that serves a guest may open nothing: a
//! medium is opened by GDM (`hub/opening.rs`), and its descriptors go ahead of the order.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::EventFd;

use crate::backend::block::Medium;
use crate::link::Link;
use crate::order::{Answer, Order};
use crate::progress;

/// Longest time until a device's thread answers; one that waits for its disk takes longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two steps of the thread that waits, which the hub expects.
const STEP: Duration = Duration::from_millis(100);

/// An order on its way, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) order: Order,
    /// Dropped without an answer when the device's process ends: whoever waits then stops.
    pub(crate) answer: Sender<Answer>,
    /// In the guest's process: what is to be put into a disk.
    pub(crate) medium: Option<Medium>,
    /// In GDM: the process for which all was opened that the order needs.
    pub(crate) process: Option<Arc<Link>>,
}

/// End of the way at which orders are given.
#[derive(Debug)]
pub struct Desk {
    /// Takes orders to the [`Inbox`], however many wait there.
    sender: Sender<Asked>,
    /// Wakes the device's thread.
    kick: EventFd,
}

/// End of the way at which the device's thread finds orders.
#[derive(Debug)]
pub struct Inbox(Receiver<Asked>);

/// Makes the way to the thread that `kick` wakes.
pub fn way(kick: &EventFd) -> io::Result<(Desk, Inbox)> {
    let (sender, receiver) = mpsc::channel();
    let kick = kick.try_clone()?;
    Ok((Desk { sender, kick }, Inbox(receiver)))
}

impl Desk {
    /// Gives an order and waits for its answer. An order that the thread has not come to in time is
    /// done later all the same: nothing takes an order back that may have begun.
    pub fn give(&self, order: Order) -> Answer {
        let answered = self.ask(order);
        let gone = || "the device's thread has ended".to_owned();
        let begin = Instant::now();
        loop {
            match answered.recv_timeout(STEP) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) => progress::step(),
            }
            if begin.elapsed() >= PATIENCE {
                return Err("the device waits for its disk, and obeys when that answers".into());
            }
        }
    }
}

impl Desk {
    /// Gives an order; its answer comes later. No answer will come where the sender has gone.
    pub(crate) fn ask(&self, order: Order) -> Receiver<Answer> {
        self.send(order, None, None)
    }

    /// Gives the order to put a medium in.
    pub(crate) fn insert(&self, medium: Medium) -> Receiver<Answer> {
        self.send(Order::Attach(String::new()), Some(medium), None)
    }

    /// Gives an order for this process, for which all was opened.
    pub(crate) fn pass(&self, order: Order, process: &Arc<Link>) -> Receiver<Answer> {
        self.send(order, None, Some(Arc::clone(process)))
    }

    fn send(
        &self,
        order: Order,
        medium: Option<Medium>,
        process: Option<Arc<Link>>,
    ) -> Receiver<Answer> {
        let (answer, answered) = mpsc::channel();
        // An order that nobody can take is dropped, and its answer's sender with it.
        let _ = self.sender.send(Asked {
            order,
            answer,
            medium,
            process,
        });
        let _ = self.kick.write(1);
        answered
    }

    /// Makes another end of the same way.
    pub(crate) fn another(&self) -> io::Result<Self> {
        Ok(Self {
            sender: self.sender.clone(),
            kick: self.kick.try_clone()?,
        })
    }
}

impl Inbox {
    /// Takes the next order.
    pub(crate) fn take(&self) -> Option<Asked> {
        self.0.try_recv().ok()
    }

    /// Has `obey` do each order that is there. Who gave it may have ceased to wait.
    pub(crate) fn each(&self, mut obey: impl FnMut(Order, Option<Medium>) -> Answer) {
        while let Some(asked) = self.take() {
            let _ = asked.answer.send(obey(asked.order, asked.medium));
        }
    }
}

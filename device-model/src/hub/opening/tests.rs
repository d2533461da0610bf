//! Tests of the wishes of processes.

use std::time::Duration;

use super::*;
use crate::testing::{Directory, node};

fn wish(is_anew: bool) -> (Wish, Arc<Link>) {
    let (link, _) = Link::pair().unwrap();
    let link = Arc::new(link);
    let wish = Wish {
        link: Arc::clone(&link),
        is_anew,
    };
    (wish, link)
}

fn taken_wish(desk: &Desk) -> Wish {
    match desk.take() {
        Job::Wish(wish) => wish,
        Job::Change(_) => panic!("nobody ordered anything"),
    }
}

/// A subverted process wishes without end.
#[test]
fn a_wish_is_heard_once_the_one_before_is_fulfilled() {
    let desk = Desk::default();
    let (first, _link) = wish(true);
    desk.put(first, true);
    let taken = taken_wish(&desk);
    for _ in 0..3 {
        desk.put(wish(false).0, false);
    }
    assert!(desk.wished.lock().unwrap().wish.is_none());
    assert!(desk.fulfil(taken).is_anew, "no newer one");
    desk.put(wish(false).0, false);
    desk.put(wish(true).0, false);
    assert!(!taken_wish(&desk).is_anew, "the second was not heard");
}

/// A process ends while its backend is opened: the backend is for the next process.
#[test]
fn a_backend_goes_to_the_newest_process() {
    let desk = Desk::default();
    let ((first, _old), (second, new)) = (wish(true), wish(true));
    desk.put(first, true);
    let taken = taken_wish(&desk);
    desk.put(second, true);
    assert!(Arc::ptr_eq(&desk.fulfil(taken).link, &new));
    assert!(desk.wished.lock().unwrap().wish.is_none());
}

#[test]
fn descriptors_arrive_before_their_backend() {
    let (link, theirs) = Link::pair().unwrap();
    let opened = Opened {
        parts: vec![std::fs::File::open("/dev/zero").unwrap().into()],
        claim: None,
    };
    hand_over(&link, 7, &opened).unwrap();
    let theirs = Link::of(theirs);
    let (part, descriptor) = theirs.receive().unwrap().unwrap();
    assert_eq!((part, descriptor.is_some()), (Message::Part(7), true));
    let (last, descriptor) = theirs.receive().unwrap().unwrap();
    assert_eq!((last, descriptor.is_some()), (Message::Backend(7), false));
}

#[test]
fn a_wish_ends_the_wait_for_it() {
    let desk = Arc::new(Desk::default());
    let other = Arc::clone(&desk);
    let waiting = thread::spawn(move || taken_wish(&other).is_anew);
    thread::sleep(Duration::from_millis(20));
    desk.put(wish(true).0, true);
    assert!(waiting.join().unwrap());
}

/// A disk of GDM's, the way to its process, and what the process does with an order.
struct Drive {
    slot: Slot,
    directory: Directory,
    manifests: String,
}

impl Drive {
    fn new() -> Self {
        let directory = Directory::new("opening");
        let manifests = directory.file("manifests", &[0; 1024]);
        let node = DeviceNode {
            kind: DeviceKind::Block,
            backend: manifests.clone(),
            ..node()
        };
        let choices = Choices::read(directory.text(), std::slice::from_ref(&node));
        Self {
            slot: Slot {
                node,
                choices: Arc::new(choices),
                claim: None,
            },
            directory,
            manifests,
        }
    }

    /// Has the medium changed, beside a process that answers so; returns the answer, and the
    /// messages that the process got.
    fn change(&mut self, order: Order, process: Option<Answer>) -> (Answer, Vec<Message>) {
        let (link, theirs) = Link::pair().unwrap();
        let (link, theirs) = (Arc::new(link), Link::of(theirs));
        let kick = EventFd::new(0).unwrap();
        let (orders, inbox) = orders::way(&kick).unwrap();
        let (answer, _answered) = mpsc::channel();
        let change = Change {
            order,
            answer,
            orders,
            link: Arc::clone(&link),
        };
        let given = thread::scope(|scope| {
            let given = scope.spawn(|| {
                let answer = self.slot.change(&change);
                drop(change);
                answer
            });
            // The ward passes the order on, or its process has ended.
            while !given.is_finished() {
                if let Some(asked) = inbox.take() {
                    assert!(Arc::ptr_eq(asked.process.as_ref().unwrap(), &link));
                    link.send(Message::Order(0, asked.order), None).unwrap();
                    if let Some(process) = &process {
                        asked.answer.send(process.clone()).unwrap();
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
            given.join().unwrap()
        });
        drop(link);
        let messages = std::iter::from_fn(|| theirs.receive().unwrap());
        (given, messages.map(|(message, _)| message).collect())
    }

    fn medium(&self) -> String {
        let node = std::slice::from_ref(&self.slot.node);
        let next = Choices::read(self.directory.text(), node);
        next.apply(&self.slot.node).backend
    }
}

/// The process gets descriptors and no path, and the next GDM knows the choice.
#[test]
fn a_medium_is_opened_for_the_process() {
    let mut drive = Drive::new();
    let other = drive.directory.file("other", &[0; 2048]);
    let (answer, messages) = drive.change(Order::Attach(other.clone()), Some(Ok(2048)));
    assert_eq!((answer, drive.medium()), (Ok(2048), other.clone()));
    let (last, parts) = messages.split_last().unwrap();
    assert_eq!(last, &Message::Order(0, Order::Attach(String::new())));
    assert!(!parts.is_empty() && parts.iter().all(|part| *part == Message::Part(0)));
    // The claim is the new medium's: nobody else can have it, and the old one is free.
    assert!(Block::claim(&other, false).is_err());
    assert!(Block::claim(&drive.manifests, false).is_ok());
    let (answer, messages) = drive.change(Order::Detach, Some(Ok(0)));
    assert_eq!((answer, drive.medium()), (Ok(0), String::new()));
    assert_eq!(messages, [Message::Order(0, Order::Detach)]);
    assert!(Block::claim(&other, false).is_ok());
    let (answer, _) = drive.change(Order::Attach(String::new()), Some(Ok(1024)));
    assert_eq!(
        (answer, drive.medium()),
        (Ok(1024), drive.manifests.clone())
    );
}

/// An order that cannot be done changes nothing, and the sentence names the file.
#[test]
fn a_medium_that_cannot_be_had_changes_nothing() {
    let mut drive = Drive::new();
    let used = drive.directory.file("used", &[0; 512]);
    let user = Block::claim(&used, false).unwrap();
    let folder = drive.directory.text().to_owned();
    for path in ["/nowhere/disk", used.as_str(), folder.as_str(), "/dev/null"] {
        let (answer, messages) = drive.change(Order::Attach(path.into()), Some(Ok(1)));
        assert!(answer.unwrap_err().starts_with(path));
        assert_eq!(
            (messages, drive.medium()),
            (vec![], drive.manifests.clone())
        );
    }
    drop(user);
    let manifests = drive.manifests.clone();
    let (answer, _) = drive.change(Order::Attach(manifests.clone()), None);
    assert_eq!(answer, Err(format!("{manifests} is its medium already")));
    // The process refuses, or ends.
    for (said, sentence) in [(Some(Err("no".into())), "no"), (None, "the process")] {
        let (answer, _) = drive.change(Order::Attach(used.clone()), said);
        assert!(answer.unwrap_err().starts_with(sentence));
        assert_eq!(drive.medium(), manifests);
        assert!(Block::claim(&used, false).is_ok());
    }
}

/// A disk whose medium cannot be opened gets another one, or none.
#[test]
fn a_choice_ends_the_wait_for_a_medium() {
    let drive = Drive::new();
    assert_eq!(drive.slot.choose(&Order::Detach), Ok(0));
    assert_eq!(drive.medium(), "");
    assert!(
        drive
            .slot
            .choose(&Order::Attach("/nowhere".into()))
            .is_err()
    );
    assert_eq!(drive.medium(), "");
}

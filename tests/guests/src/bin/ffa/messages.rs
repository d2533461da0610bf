//! Direct messages: to a VM on this CPU and to one on another, by both conduits; interrupts, ends
//! and refusals meanwhile (G1-MSG-001 to G1-MSG-004).

use test_guests::ffa::{self, Regs, function, status, task};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;
use test_guests::{check, cpu, gic, timer};

use crate::{AGENT, ECHO, OWN, PAGE, STRANGER, Test};

/// SMC64's.
const WIDE: u64 = 0x4000_0000;

/// A request for `to`.
fn request(id: u64, to: u64, what: u64, a: u64) -> Regs {
    [id, OWN << 16 | to, 0, what, a, 1 << 40 | 6, 7, 8]
}

impl Test {
    pub(crate) fn messages(&self) {
        for conduit in [ffa::hvc, ffa::smc] {
            let test = Test { conduit, ..*self };
            test.echo(ECHO);
            let number = test.agent_serves();
            test.echo(AGENT);
            test.agent_is_done(number);
        }
        self.message_refusals();
        self.interrupted();
        self.circle();
        self.echo_ends("asked-resets", task::RESET);
    }

    /// Sends a request to the echo. Returns X3 and X5 of its response.
    pub(crate) fn tell(&self, what: u64, a: u64, b: u64) -> (u64, u64) {
        let x = [
            function::DIRECT_REQ | WIDE,
            OWN << 16 | ECHO,
            0,
            what,
            a,
            b,
            0,
            0,
        ];
        let mut x = self.ask(x);
        while x[0] == function::INTERRUPT {
            x = self.call([function::RUN, x[1], 0, 0, 0, 0, 0, 0]);
        }
        (x[3], x[5])
    }

    /// Repeats a request while the receiver is busy, because it may not wait yet.
    fn ask(&self, x: Regs) -> Regs {
        loop {
            let answer = self.call(x);
            if ffa::status_of(&answer) != status::BUSY {
                return answer;
            }
            let yielded = self.call([function::YIELD, 0, 0, 0, 0, 0, 0, 0]);
            if yielded[0] != function::SUCCESS {
                return yielded;
            }
        }
    }

    /// The echo returns each word one larger, truncated as the calling convention says.
    fn echo(&self, to: u64) {
        let mut right = 0;
        for round in 0..200 {
            let id = function::DIRECT_REQ | if round % 2 == 0 { 0 } else { WIDE };
            let x = self.ask(request(id, to, 0, round));
            let wide = if round % 2 == 0 { 0 } else { 1 << 40 };
            let expected = [id + 1, to << 16 | OWN, 0, 0, round + 1, wide | 7, 8, 9];
            if x == expected {
                right += 1;
            } else {
                equal("message", x, expected);
                break;
            }
        }
        equal("messages", right, 200);
    }

    /// Lets the agent serve requests until one ends that.
    fn agent_serves(&self) -> u64 {
        let number = read64(self.control) + 1;
        self.post(6, [0; 8], number);
        number
    }

    fn agent_is_done(&self, number: u64) {
        self.ask(request(function::DIRECT_REQ, AGENT, task::LEAVE, 0));
        cpu::wait_until(|| read64(self.control + 8) == number);
    }

    fn message_refusals(&self) {
        let right = request(function::DIRECT_REQ, AGENT, 0, 0);
        self.status("message-nobody-waits", status::BUSY, right);
        let with = |at: usize, value: u64| {
            let mut x = right;
            x[at] = value;
            x
        };
        for (name, expected, x) in [
            (
                "message-for-another",
                status::INVALID,
                with(1, AGENT << 16 | OWN),
            ),
            ("message-framework", status::INVALID, with(2, 1 << 31)),
            ("message-reserved", status::INVALID, with(2, 1)),
            ("message-self", status::DENIED, with(1, OWN << 16 | OWN)),
            ("message-hypervisor", status::DENIED, with(1, OWN << 16)),
            (
                "message-no-peer",
                status::DENIED,
                with(1, OWN << 16 | STRANGER),
            ),
            (
                "message-nobody",
                status::DENIED,
                with(1, OWN << 16 | 0xffff),
            ),
            (
                "message-no-request",
                status::DENIED,
                with(0, function::DIRECT_RESP),
            ),
            (
                "message-run",
                status::DENIED,
                [function::RUN, AGENT << 16, 0, 0, 0, 0, 0, 0],
            ),
        ] {
            self.status(name, expected, x);
        }
    }

    /// An interrupt while a response is waited for, and while a request is: it is pending when the
    /// call returns.
    fn interrupted(&self) {
        let page = self.arena + 50 * PAGE;
        write64(page, 0);
        let handle = self
            .send(function::SHARE, &[(page, 1)], |descriptor| {
                descriptor.receiver = ECHO
            })
            .unwrap_or_default();
        equal(
            "interrupted-share",
            self.tell(task::RETRIEVE, handle, 0),
            (0, 1),
        );
        gic::enable(timer::INTID);
        timer::arm(timer::now() + timer::from_us(3_000));
        let slow = request(function::DIRECT_REQ, ECHO, task::AWAIT, page);
        let x = self.ask(slow);
        equal(
            "interrupted",
            (x[0], x[1]),
            (function::INTERRUPT, ECHO << 16),
        );
        check!("interrupted-by", self.timer_rings(), "nothing");
        self.status("interrupted-ask", status::BUSY, slow);
        self.status(
            "interrupted-wait",
            status::DENIED,
            [function::MSG_WAIT, 0, 0, 0, 0, 0, 0, 0],
        );
        self.status(
            "interrupted-run",
            status::DENIED,
            [function::RUN, AGENT << 16, 0, 0, 0, 0, 0, 0],
        );
        write64(page, 1);
        let mut x = self.call([function::RUN, ECHO << 16, 0, 0, 0, 0, 0, 0]);
        while x[0] == function::INTERRUPT {
            x = self.call([function::RUN, x[1], 0, 0, 0, 0, 0, 0]);
        }
        equal(
            "interrupted-response",
            (x[0], x[3]),
            (function::DIRECT_RESP, 0),
        );
        equal(
            "interrupted-relinquish",
            self.tell(task::RELINQUISH, handle, 0),
            (0, 1),
        );
        equal("interrupted-reclaim", self.reclaim(handle, 0), 0);
        timer::arm(timer::now() + timer::from_us(2_000));
        let x = self.call([function::MSG_WAIT, 0, 0, 0, 0, 0, 0, 0]);
        equal(
            "wait-interrupted",
            (x[0], x[1]),
            (function::INTERRUPT, OWN << 16),
        );
        check!("wait-interrupted-by", self.timer_rings(), "nothing");
    }

    /// Takes the timer's interrupt.
    fn timer_rings(&self) -> bool {
        let intid = gic::acknowledge();
        timer::disarm();
        if gic::is_real(intid) {
            gic::end(intid);
        }
        gic::intid(intid) == timer::INTID
    }

    /// A request back to the VM that waits for the answer is refused.
    fn circle(&self) {
        let x = self.ask(request(function::DIRECT_REQ, ECHO, task::ASK_BACK, 0));
        equal(
            "circle",
            (x[0], x[3] as i32),
            (function::DIRECT_RESP, status::BUSY),
        );
    }

    /// The receiver ends before it answers.
    pub(crate) fn echo_ends(&self, name: &str, what: u64) {
        let mut x = self.ask(request(function::DIRECT_REQ, ECHO, what, 0));
        while x[0] == function::INTERRUPT {
            x = self.call([function::RUN, x[1], 0, 0, 0, 0, 0, 0]);
        }
        equal(name, ffa::status_of(&x), status::ABORTED);
    }
}

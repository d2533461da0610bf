//! Direct messages: to a VM on this CPU and to one on another, by both conduits; interrupts, ends
//! and refusals meanwhile (G1-MSG-001 to G1-MSG-004).

use test_guests::ffa::{self, Regs, function, regs, status, task};
use test_guests::mmio::{read64, write64};
use test_guests::report::equal;
use test_guests::{check, cpu, gic, timer};

use crate::{AGENT, ECHO, OWN, PAGE, STRANGER, Test};

/// SMC64's. Bit 30 of a function's identifier (SMCCC). Of an SMC32 message the receiver gets the
/// lower halves of X3 to X7 alone.
const WIDE: u64 = 0x4000_0000;
/// X0 and X1 when an interrupt comes while the echo runs, and while this VM waits. FFA_INTERRUPT
/// names in X1 whom FFA_RUN would continue: the endpoint in bits 31:16, its vCPU below. An asker is
/// told its receiver, a waiting VM itself.
const INTERRUPTED_ECHO: (u64, u64) = (function::INTERRUPT, ECHO << 16);
const INTERRUPTED_OWN: (u64, u64) = (function::INTERRUPT, OWN << 16);

/// A request for `to`. X2 is 0: its bit 31 would make the message one of the framework's. X5 has a
/// bit above 31, to be cut from an SMC32 message.
fn request(id: u64, to: u64, what: u64, a: u64) -> Regs {
    [id, OWN << 16 | to, 0, what, a, 1 << 40 | 6, 7, 8]
}

impl Test {
    /// HVC and SMC lead to the same function. The agent is on another CPU, where the message is
    /// delivered by a kick; the echo shares this CPU, where Gear2 has to change to it.
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

    /// Sends a request to the echo. Returns X3 and X5 of its response. X5 comes back one larger
    /// where the task leaves it alone, as all registers from X4 on do.
    pub(crate) fn tell(&self, what: u64, a: u64, b: u64) -> (u64, u64) {
        let id = function::DIRECT_REQ | WIDE;
        let x = self.ask(regs([id, OWN << 16 | ECHO, 0, what, a, b]));
        let x = self.run_on(x);
        (x[3], x[5])
    }

    /// Repeats a request while the receiver is busy, because it may not wait yet. Requests never
    /// queue: a queue could let VMs wait for each other in a circle (G1-MSG-002). The receiver
    /// shares this CPU, so that only a yield lets it reach its wait.
    fn ask(&self, x: Regs) -> Regs {
        loop {
            let answer = self.call(x);
            if ffa::status_of(&answer) != status::BUSY {
                return answer;
            }
            let yielded = self.call(regs([function::YIELD]));
            if yielded[0] != function::SUCCESS {
                return yielded;
            }
        }
    }

    /// The echo returns each word one larger, truncated as the calling convention says. Both
    /// conventions alternate: what an SMC64 message left in an upper half must not come with the
    /// SMC32 message that follows. Sender and receiver change places in X1.
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

    /// Lets the agent serve requests until one ends that. The control page says so, since the agent
    /// may not be called yet. A command that is answered, as others are, would be answered only
    /// when the agent serves no longer.
    fn agent_serves(&self) -> u64 {
        let number = read64(self.control) + 1;
        self.post(6, [0; 8], number);
        number
    }

    /// The agent counts what it has done. The response to the last request comes before the agent
    /// has left FFA_MSG_WAIT.
    fn agent_is_done(&self, number: u64) {
        self.ask(request(function::DIRECT_REQ, AGENT, task::LEAVE, 0));
        cpu::wait_until(|| read64(self.control + 8) == number);
    }

    /// FFA_MSG_SEND_DIRECT_REQ names sender and receiver; a sender cannot name another. Arguments
    /// are judged before the receiver's state: INVALID and DENIED come although nobody waits. A VM
    /// that could name another sender would get answers that are the other VM's. DENIED is also the
    /// answer to a response without a request, and to FFA_RUN of a VM that was not asked.
    fn message_refusals(&self) {
        let right = request(function::DIRECT_REQ, AGENT, 0, 0);
        self.status("message-nobody-waits", status::BUSY, right);
        let with = |at: usize, value: u64| {
            let mut x = right;
            x[at] = value;
            x
        };
        let from_own = |to: u64| with(1, OWN << 16 | to);
        let response = with(0, function::DIRECT_RESP);
        for (name, expected, x) in [
            (
                "message-for-another",
                status::INVALID,
                with(1, AGENT << 16 | OWN),
            ),
            ("message-framework", status::INVALID, with(2, 1 << 31)),
            ("message-reserved", status::INVALID, with(2, 1)),
            ("message-self", status::DENIED, from_own(OWN)),
            ("message-hypervisor", status::DENIED, from_own(0)),
            ("message-no-peer", status::DENIED, from_own(STRANGER)),
            ("message-nobody", status::DENIED, from_own(0xffff)),
            ("message-no-request", status::DENIED, response),
        ] {
            self.status(name, expected, x);
        }
        let run = regs([function::RUN, AGENT << 16]);
        self.status("message-run", status::DENIED, run);
    }

    /// An interrupt while a response is waited for, and while a request is: it is pending when the
    /// call returns. A call that held back interrupts would give the receiver power over this VM's
    /// latency (G1-MSG-002).
    fn interrupted(&self) {
        let page = self.arena + 50 * PAGE;
        write64(page, 0);
        let sent = self.send(function::SHARE, &[(page, 1)], |d| d.receiver = ECHO);
        let handle = sent.unwrap_or_default();
        let retrieved = self.tell(task::RETRIEVE, handle, 0);
        equal("interrupted-share", retrieved, (0, 1));
        gic::enable(timer::INTID);
        self.request_interrupted(page);
        let relinquished = self.tell(task::RELINQUISH, handle, 0);
        equal("interrupted-relinquish", relinquished, (0, 1));
        equal("interrupted-reclaim", self.reclaim(handle, 0), 0);
        timer::arm(timer::now() + timer::from_us(2_000));
        let x = self.call(regs([function::MSG_WAIT]));
        equal("wait-interrupted", (x[0], x[1]), INTERRUPTED_OWN);
        check!("wait-interrupted-by", self.timer_rings(), "nothing");
    }

    /// Interrupts a request that the echo does not answer before the word at `page` is set. Until
    /// then this VM may only run the echo on. The role in Gear1 is Asks all the while: a second
    /// request is BUSY, and a wait for requests or FFA_RUN of another VM is DENIED. The response is
    /// kept until FFA_RUN takes it.
    fn request_interrupted(&self, page: u64) {
        timer::arm(timer::now() + timer::from_us(3_000));
        let slow = request(function::DIRECT_REQ, ECHO, task::AWAIT, page);
        let x = self.ask(slow);
        equal("interrupted", (x[0], x[1]), INTERRUPTED_ECHO);
        check!("interrupted-by", self.timer_rings(), "nothing");
        self.status("interrupted-ask", status::BUSY, slow);
        let wait = regs([function::MSG_WAIT]);
        self.status("interrupted-wait", status::DENIED, wait);
        let other = regs([function::RUN, AGENT << 16]);
        self.status("interrupted-run", status::DENIED, other);
        write64(page, 1);
        let x = self.call(regs([function::RUN, ECHO << 16]));
        let x = self.run_on(x);
        let expected = (function::DIRECT_RESP, 0);
        equal("interrupted-response", (x[0], x[3]), expected);
    }

    /// Runs an interrupted receiver on until it answers. Any interrupt of this VM's ends the call,
    /// and not only the one that a test has armed.
    fn run_on(&self, mut answer: Regs) -> Regs {
        while answer[0] == function::INTERRUPT {
            answer = self.call(regs([function::RUN, answer[1]]));
        }
        answer
    }

    /// Takes the timer's interrupt. Interrupts are masked at the CPU: pending is enough to end the
    /// call, as it is to end WFI.
    fn timer_rings(&self) -> bool {
        let intid = gic::acknowledge();
        timer::disarm();
        if gic::is_real(intid) {
            gic::end(intid);
        }
        gic::intid(intid) == timer::INTID
    }

    /// A request back to the VM that waits for the answer is refused. Both vCPUs would be blocked
    /// for ever otherwise, each until the other one answers (G1-MSG-002).
    fn circle(&self) {
        let x = self.ask(request(function::DIRECT_REQ, ECHO, task::ASK_BACK, 0));
        let expected = (function::DIRECT_RESP, status::BUSY);
        equal("circle", (x[0], x[3] as i32), expected);
    }

    /// The receiver ends before it answers. G1-MSG-003: FFA_ERROR with ABORTED. A response can no
    /// longer come, and the asker has no time limit of its own.
    pub(crate) fn echo_ends(&self, name: &str, what: u64) {
        let x = self.ask(request(function::DIRECT_REQ, ECHO, what, 0));
        equal(name, ffa::status_of(&self.run_on(x)), status::ABORTED);
    }
}

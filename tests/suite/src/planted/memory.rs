//! Bugs in what a VM sees of memory, and in how memory and messages change hands.

use super::bug::{Bug, Finder};
use crate::change::Change;

const OWNERSHIP: &str = "gear1/core/src/ownership/tests.rs";
const STEPS: &str = "gear1/core/src/ownership/tests/steps.rs";
const MODEL: &str = "gear1/core/src/ownership/tests/model.rs";
const GHOST: &str = "gear1/core/src/ffa/tests/ghost.rs";
const HOSTILE: &str = "gear1/core/src/ffa/tests/hostile.rs";
const MESSAGES: &str = "gear1/core/src/ffa/message/tests.rs";
const TLB: &str = "tests/guests/src/bin/tlb.rs";
const RULES: &str = "tests/suite/src/architecture.rs";
const FFA: Finder = Finder::Guest("ffa", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "a piece that is wiped lies in two regions",
        change: Change::Quoted(
            "gear1/core/src/ownership/steps.rs",
            "if piece.pages != 0 && (is_other || !follows || with_it > PIECE || !is_one_region()) {",
            "if piece.pages != 0 && (is_other || !follows || with_it > PIECE || with_it == 0 && !is_one_region()) {",
        ),
        breaks: &["G1-MEM-015"],
        test: "gear1/core/src/ownership/tests/pieces.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "memory that is given back twice need not be wiped the second time",
        change: Change::Quoted(
            "gear1/core/src/ffa.rs",
            "let is_asked = transaction.is_given_back_by(self.vm, said.zero);",
            "let is_asked = transaction.is_given_back_by(self.vm, false);",
        ),
        breaks: &["G1-MEM-015"],
        test: "gear1/core/src/ffa/tests/siblings.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "the ghost leaves out what the end of a transaction changed",
        change: Change::Become("\n&& (change == 0 || !is_its_end);"),
        breaks: &["G1-MEM-011"],
        test: GHOST,
        finder: Finder::Host,
    },
    Bug {
        name: "a window reaches behind the region that it begins in",
        change: Change::Quoted(
            "gear1/core/src/guest_memory.rs",
            "offset < region.size && size <= region.size.wrapping_sub(offset)",
            "offset < region.size",
        ),
        breaks: &["G1-MEM-003", "G1-MEM-015"],
        test: "gear1/core/src/guest_memory/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "EL2's code is writable",
        change: Change::Swap(" | AP_READ_ONLY", ""),
        breaks: &["G1-MEM-001"],
        test: "gear1/core/src/stage1/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "stage 2 has addresses of 52 bits",
        change: Change::Swap("5", "6"),
        breaks: &["G1-MEM-002", "G1-CPU-004"],
        test: "gear1/core/src/stage2/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a device's registers are memory to stage 2",
        change: Change::Swap("DEVICE_NGNRE", "NORMAL | INNER_SHAREABLE"),
        breaks: &["G1-MEM-002"],
        test: "gear1/core/src/stage2/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a share takes what the sender does not own",
        change: Change::Swap(
            "state == self as u64",
            "(state == self as u64 || matches!(self, Self::Owned))",
        ),
        breaks: &["G1-MEM-011"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    Bug {
        name: "a lent page stays mapped in its owner",
        change: Change::Become("Self::Donated => false,\nSelf::Lent => true,"),
        breaks: &["G1-MEM-011"],
        test: GHOST,
        finder: Finder::Host,
    },
    Bug {
        name: "a VM shares another VM's memory",
        change: Change::Quoted(
            "gear1/core/src/ownership.rs",
            "if mixed || (returning && !comes_home) {",
            "if mixed {",
        ),
        breaks: &["G1-MEM-011"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    Bug {
        name: "who is not named retrieves",
        change: Change::Quoted(
            "gear1/core/src/ownership/transaction.rs",
            "sent && self.offer.is_for(vm) && !self.is_held_by(vm)",
            "sent && !self.is_held_by(vm)",
        ),
        breaks: &["G1-MEM-011"],
        test: MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "what a receiver still has is reclaimed",
        change: Change::Quoted(
            "gear1/core/src/ownership.rs",
            "Phase::Retrieved => (transaction.holders & running == 0, transaction.holders),",
            "Phase::Retrieved => (transaction.holders & running == 0, 0),",
        ),
        breaks: &["G1-MEM-011"],
        test: MODEL,
        finder: Finder::Host,
    },
    Bug {
        name: "a claim that is refused is not undone",
        change: Change::Quoted(
            "gear1/core/src/ownership/steps.rs",
            "transaction.limit = transaction.at;\n",
            "transaction.limit = Cursor::START;\n",
        ),
        breaks: &["G1-MEM-012"],
        test: STEPS,
        finder: Finder::Host,
    },
    Bug {
        name: "a cursor skips a page where a step ends",
        change: Change::Quoted(
            "gear1/core/src/ownership/pages.rs",
            "Some((pa, self.skip(1, count)))",
            "Some((pa, self.skip(if self.page == 15 { 2 } else { 1 }, count)))",
        ),
        breaks: &["G1-MEM-011"],
        test: STEPS,
        finder: Finder::Host,
    },
    Bug {
        name: "a step makes all tables that its pages take",
        change: Change::Quoted(
            "gear1/core/src/ownership/pages.rs",
            "== Edited::TableMade {\n            break;\n",
            "== Edited::TableMade {\n            continue;\n",
        ),
        breaks: &["G1-MEM-023"],
        test: STEPS,
        finder: Finder::Host,
    },
    Bug {
        name: "what is still being received is passed on",
        change: Change::Quoted(
            "gear1/core/src/ownership/steps.rs",
            "matches!(self.transaction(index).phase, Phase::Given(_))",
            "self.transaction(index).phase != Phase::Free",
        ),
        breaks: &["G1-MEM-011", "G1-MEM-017"],
        test: STEPS,
        finder: Finder::Host,
    },
    Bug {
        name: "a receiver waits for one that makes no more steps",
        change: Change::Quoted(
            "gear1/core/src/ffa.rs",
            "if !transaction.may_retrieve(vm) && response.next == written {",
            "if transaction.may_retrieve(vm) && response.next == written {",
        ),
        breaks: &["G1-MEM-023"],
        test: "gear1/core/src/ffa/tests/siblings.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a descriptor is read beyond its end",
        change: Change::Quoted(
            "gear1/core/src/ffa.rs",
            "if offset.saturating_add(size_of_val(words) as u64) > size {",
            "if offset > size.saturating_add(4096) {",
        ),
        breaks: &["G1-MEM-012"],
        test: HOSTILE,
        finder: Finder::Host,
    },
    Bug {
        name: "the sender's name is not looked at",
        change: Change::Quoted(
            "gear1/core/src/ffa.rs",
            "if header.sender != endpoint(self.vm)\n            || header.handle != 0",
            "if header.handle != 0",
        ),
        breaks: &["G1-MEM-012"],
        test: "tests/guests/src/bin/ffa/refusals.rs",
        finder: FFA,
    },
    Bug {
        name: "reclaim does not ask whose it is",
        change: Change::Quoted(
            "gear1/core/src/ffa.rs",
            "if offer.sender != self.vm || flags > 1 {",
            "if flags > 1 {",
        ),
        breaks: &["G1-MEM-011"],
        test: GHOST,
        finder: Finder::Host,
    },
    Bug {
        name: "relinquish does not ask who calls",
        change: Change::Quoted(
            "gear1/core/src/ffa.rs",
            "if said.endpoint != endpoint(self.vm) || !offer.is_for(self.vm) {",
            "if !offer.is_for(self.vm) {",
        ),
        breaks: &["G1-MEM-012"],
        test: "tests/guests/src/bin/ffa/refusals.rs",
        finder: FFA,
    },
    Bug {
        name: "a call goes on without enough tables",
        change: Change::Quoted(
            "gear1/core/src/ownership.rs",
            "let list = vms.tables(offer.sender).alloc().ok_or(Error::NoMemory)?;",
            "let list = vms.tables(offer.sender).alloc().unwrap_or(Pa::new(0));",
        ),
        breaks: &["G1-MEM-013"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    Bug {
        name: "a lost page stays in TLBs",
        change: Change::Quoted(
            "gear1/core/src/ownership/steps.rs",
            "        if committing.takes_rights() {\n            vms.tables(sender).invalidate();\n        }\n",
            "",
        ),
        breaks: &["G1-MEM-014"],
        test: STEPS,
        finder: Finder::Host,
    },
    Bug {
        name: "a page that was given back stays in TLBs",
        change: Change::Quoted(
            "gear1/core/src/ownership/steps.rs",
            "                    vms.tables(keeper).invalidate();\n",
            "",
        ),
        breaks: &["G1-MEM-014"],
        test: STEPS,
        finder: Finder::Host,
    },
    Bug {
        name: "what somebody else sees is kept in blocks, which take a table to be taken away",
        change: Change::Swap(">> STATE_SHIFT & STATE_MASK == Self::Owned as u64", "!= 0"),
        breaks: &["G1-MEM-011", "G1-MEM-017"],
        test: "gear1/core/src/ownership/tests/exhausted.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a lost page stays in other CPUs' TLBs",
        change: Change::Swap("vmalls12e1is", "alle1"),
        breaks: &["G1-MEM-014"],
        test: TLB,
        finder: Finder::Guest("tlb", "cortex-a57"),
    },
    Bug {
        name: "a lost page stays in other CPUs' TLBs, which QEMU does not show",
        change: Change::Swap("vmalls12e1is", "vmalls12e1"),
        breaks: &["G1-MEM-014"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "who lost a page by another VM's end keeps it in its TLB",
        change: Change::Quoted(
            "gear1/runtime/src/ffa.rs",
            "            world::invalidate_other_vmid(other, machine::vttbr(boot.null_root, boot.null_vmid));\n",
            "            let _ = (world::invalidate_other_vmid, machine::vttbr, other);\n",
        ),
        breaks: &["G1-MEM-014", "G1-MEM-017"],
        test: TLB,
        finder: Finder::Guest("tlb", "cortex-a57"),
    },
    Bug {
        name: "siblings on a CPU have one TLB",
        change: Change::Swap(" != new", ".life != new.life"),
        breaks: &["G1-MEM-022"],
        test: "gear1/core/src/residents/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "nothing is forgotten when a vCPU is loaded",
        change: Change::Become("let _ = stayed;"),
        breaks: &["G1-MEM-022"],
        test: RULES,
        finder: Finder::Rules,
    },
    Bug {
        name: "a block is made a table without break before make",
        change: Change::Swap(
            "    memory.write(slot.table, slot.index, 0);\n    memory.invalidate();\n",
            "",
        ),
        breaks: &["G1-MEM-014"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    Bug {
        name: "what is donated comes back as it was left",
        change: Change::Quoted(
            "gear1/core/src/ownership/steps.rs",
            "Phase::Returning => true,",
            "Phase::Returning => false,",
        ),
        breaks: &["G1-MEM-015"],
        test: "tests/guests/src/bin/ffa/exchange.rs",
        finder: FFA,
    },
    Bug {
        name: "what is to be wiped is not",
        change: Change::Quoted(
            "gear1/core/src/ownership/steps.rs",
            "Phase::Sending => transaction.offer.zero,",
            "Phase::Sending => false,",
        ),
        breaks: &["G1-MEM-015"],
        test: "tests/guests/src/bin/ffa/exchange.rs",
        finder: FFA,
    },
    Bug {
        name: "a receiver writes what it may only read",
        change: Change::Quoted(
            "gear1/core/src/ownership/transaction.rs",
            "write: self.writing & bit(vm) != 0,",
            "write: true,",
        ),
        breaks: &["G1-MEM-016"],
        test: "tests/guests/src/bin/ffa/exchange.rs",
        finder: FFA,
    },
    Bug {
        name: "what is shared is executed",
        change: Change::Quoted(
            "gear1/core/src/ffa/descriptor.rs",
            "let alone = offer.kind != Kind::Share && offer.receivers == bit(receiver);",
            "let alone = offer.receivers == bit(receiver);",
        ),
        breaks: &["G1-MEM-016"],
        test: "tests/guests/src/bin/ffa/refusals.rs",
        finder: FFA,
    },
    Bug {
        name: "a VM's end leaves what it borrowed",
        change: Change::Quoted(
            "gear1/core/src/ownership/release.rs",
            "Phase::Retrieved if self.is_held_by(vm) => {",
            "Phase::Retrieved if self.is_held_by(vm) && self.offer.sender == vm => {",
        ),
        breaks: &["G1-MEM-017"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    Bug {
        name: "tables that are empty stay",
        change: Change::Drop,
        breaks: &["G1-MEM-018"],
        test: "gear1/core/src/table/tests.rs",
        finder: Finder::Host,
    },
    Bug {
        name: "a VM takes all transactions",
        change: Change::Quoted(
            "gear1/core/src/ownership.rs",
            "(first..first.wrapping_add(part))\n",
            "(first..MAX_TRANSACTIONS)\n",
        ),
        breaks: &["G1-MEM-019"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    Bug {
        name: "memory goes to who is no peer",
        change: Change::Quoted(
            "gear1/core/src/ffa/descriptor.rs",
            "if bit & peers == 0 {",
            "if bit == 0 {",
        ),
        breaks: &["G1-MEM-020"],
        test: "tests/guests/src/bin/ffa/main.rs",
        finder: FFA,
    },
    Bug {
        name: "a response has the request's registers",
        change: Change::Quoted(
            "gear1/core/src/ffa/message.rs",
            "self.slot(asker).mail = message(regs);",
            "self.slot(asker).mail = message(&[regs[0], regs[1], 0, 0, 0, 0, 0, 0]);",
        ),
        breaks: &["G1-MSG-001"],
        test: MESSAGES,
        finder: Finder::Host,
    },
    Bug {
        name: "two VMs wait for each other",
        change: Change::Quoted(
            "gear1/core/src/ffa/message.rs",
            "function::DIRECT_REQ if own.asks != 0 => Err(Error::Busy),",
            "function::DIRECT_REQ if own.asks == u32::MAX => Err(Error::Busy),",
        ),
        breaks: &["G1-MSG-002", "G1-MSG-004"],
        test: MESSAGES,
        finder: Finder::Host,
    },
    Bug {
        name: "who asked a VM that ends hears nothing",
        change: Change::Quoted(
            "gear1/core/src/ffa/message.rs",
            "                role.mail = error(ABORTED);\n",
            "",
        ),
        breaks: &["G1-MSG-003"],
        test: MESSAGES,
        finder: Finder::Host,
    },
    Bug {
        name: "a message goes in another's name",
        change: Change::Quoted(
            "gear1/core/src/ffa/message.rs",
            "if low(x1) >> 16 != name(places, bit(me.index())) >> 16 || low(x2) != 0 {",
            "if low(x2) != 0 {",
        ),
        breaks: &["G1-MSG-004"],
        test: MESSAGES,
        finder: Finder::Host,
    },
];

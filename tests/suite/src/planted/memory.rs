//! Bugs in what a VM sees of memory, and in how memory and messages change hands.
//!
//! Four groups: traces and stage 1 and 2; who owns a page, and its life from send to reclaim; TLBs,
//! which the host's tests only count and QEMU hardly has; and messages. The implementation of FF-A
//! answers calls right with most of these bugs. Hence the tests that find them look at all pages of
//! all VMs after each call (the table of calls, the model, the ghost), between any two steps of a
//! call, and with pools of tables that run out.

use super::bug::{Bug, Finder};
use crate::change::Change;

const OWNERSHIP: &str = "gear1/core/src/ownership/tests.rs";
const STEPS: &str = "gear1/core/src/ownership/tests/steps.rs";
const FAIRNESS: &str = "gear1/core/src/ffa/tests/fairness.rs";
const MODEL: &str = "gear1/core/src/ownership/tests/model.rs";
const GHOST: &str = "gear1/core/src/ffa/tests/ghost.rs";
const HOSTILE: &str = "gear1/core/src/ffa/tests/hostile.rs";
const MESSAGES: &str = "gear1/core/src/ffa/message/tests.rs";
const TLB: &str = "tests/guests/src/bin/tlb.rs";
const RULES: &str = "tests/suite/src/architecture.rs";
const FFA: Finder = Finder::Guest("ffa", "cortex-a57");

pub(super) const BUGS: &[Bug] = &[
    // Each trace record names the vCPU behind its own. Timelines stay plausible, so only a test
    // that decodes known references sees the shift.
    Bug {
        name: "a record is taken for another vCPU's",
        change: Change::Swap("self.first_vcpu", "self.first_vcpu - self.vcpu_stride"),
        breaks: &["G1-TRC-001"],
        test: "gear1/abi/src/trace/tests.rs",
        finder: Finder::Host,
    },
    // Class 0x24 (a data abort of a guest) counts as an instruction. The sum over all groups is
    // still right; the test compares the group of each class with that of the counter of its
    // reason.
    Bug {
        name: "an exit is in another group than its reason",
        change: Change::Swap("0x20 | 0x24", "0x20"),
        breaks: &["G1-TRC-002"],
        test: "gear1/abi/src/trace/tests.rs",
        finder: Finder::Host,
    },
    // Gear2 could forge the evidence of what Gear1 did. No honest Gear2 stores there, so the test
    // reads the access bits of the mapping that init makes.
    Bug {
        name: "Gear2 writes the records of Gear1",
        change: Change::Swap("READ_ONLY_UNOWNED", "WRITTEN_UNOWNED"),
        breaks: &["G1-TRC-003"],
        test: "gear1/init/src/trace/tests.rs",
        finder: Finder::Host,
    },
    // The window of a wipe is checked against one region, and Gear1 halts at a piece of two. Only a
    // transaction over two adjoining regions has such a piece, which the test makes with each
    // split.
    Bug {
        name: "a piece that is wiped lies in two regions",
        change: Change::Swap("PIECE || ", "PIECE || with_it == 0 && "),
        breaks: &["G1-MEM-015"],
        test: "gear1/core/src/ownership/tests/pieces.rs",
        finder: Finder::Host,
    },
    // A relinquish that asks for a wipe joins a sibling's that does not, and succeeds without the
    // wipe. Both descriptors are valid; the test lets two vCPUs of one VM name one handle.
    Bug {
        name: "memory that is given back twice need not be wiped the second time",
        change: Change::Swap("said.zero", "false"),
        breaks: &["G1-MEM-015"],
        test: "gear1/core/src/ffa/tests/siblings.rs",
        finder: Finder::Host,
    },
    // The ghost skips pages that did not change; the bug widens the skip. A checker that looks less
    // finds less and stays green: the test compares the short look with a look at all pages.
    Bug {
        name: "the ghost leaves out what the end of a transaction changed",
        change: Change::Become("\n&& (change == 0 || !is_its_end);"),
        breaks: &["G1-MEM-011"],
        test: GHOST,
        finder: Finder::Host,
    },
    // The start alone is checked, so a window of EL2 may show bytes of the next VM. The test asks
    // for pieces of some pages before and behind each border of regions that adjoin.
    Bug {
        name: "a window reaches behind the region that it begins in",
        change: Change::Swap(" && size <= region.size.wrapping_sub(offset)", ""),
        breaks: &["G1-MEM-003", "G1-MEM-015"],
        test: "gear1/core/src/guest_memory/tests.rs",
        finder: Finder::Host,
    },
    // A stage 1 without the read-only bit works, because no honest run stores to code. The test
    // reads the descriptor bits of each kind of right.
    Bug {
        name: "EL2's code is writable",
        change: Change::Swap(" | AP_READ_ONLY", ""),
        breaks: &["G1-MEM-001"],
        test: "gear1/core/src/stage1/tests.rs",
        finder: Finder::Host,
    },
    // PARange 6 needs descriptors of another format where pages have 4 KiB. Only a CPU such as
    // QEMU's `max` reports 6, so the test builds VTCR_EL2 for every PARange and the reserved
    // values.
    Bug {
        name: "stage 2 has addresses of 52 bits",
        change: Change::Swap("5", "6"),
        breaks: &["G1-MEM-002", "G1-CPU-004"],
        test: "gear1/core/src/stage2/tests.rs",
        finder: Finder::Host,
    },
    // A device works in QEMU, which has no caches, with any memory type. The test compares MEMATTR
    // of the leaf with the manual's value.
    Bug {
        name: "a device's registers are memory to stage 2",
        change: Change::Swap(
            "LEAF::MEMATTR::DeviceNGnRE",
            "LEAF::MEMATTR::WriteBack + LEAF::SH::Inner",
        ),
        breaks: &["G1-MEM-002"],
        test: "gear1/core/src/stage2/tests.rs",
        finder: Finder::Host,
    },
    // Every state passes for Owned, so borrowed pages are shared on. The test makes each call in
    // each phase, refused ones included, and compares all pages after each refusal.
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
    // The receiver gets its page, and every answer is right. The ghost compares the rights of all
    // VMs to each page after each random call, which a test of the answers alone does not.
    Bug {
        name: "a lent page stays mapped in its owner",
        change: Change::Become("Self::Donated => false,\nSelf::Lent => true,"),
        breaks: &["G1-MEM-011"],
        test: GHOST,
        finder: Finder::Host,
    },
    // The condition that remains refuses ranges that are partly own, and reads as complete. A range
    // that is wholly another VM's passes as far as the claim of its pages.
    Bug {
        name: "a VM shares another VM's memory",
        change: Change::Swap("|| !comes_home ", ""),
        breaks: &["G1-MEM-011"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    // The handle is right and the phase is right; only the caller is not. The model makes the call
    // of every VM in every state, so a third VM tries each handle.
    Bug {
        name: "who is not named retrieves",
        change: Change::Swap("self.offer.is_for(vm) && ", ""),
        breaks: &["G1-MEM-011"],
        test: MODEL,
        finder: Finder::Host,
    },
    // The owner gets pages back that a receiver has mapped: two VMs with rights that no transaction
    // explains. The model's invariants hold in no state behind that reclaim.
    Bug {
        name: "what a receiver still has is reclaimed",
        change: Change::Swap("self.holders", "0"),
        breaks: &["G1-MEM-011"],
        test: MODEL,
        finder: Finder::Host,
    },
    // The undo begins and ends at the first page. A refusal at that page leaves nothing to undo, so
    // the test refuses the claim at each later page.
    Bug {
        name: "a claim that is refused is not undone",
        change: Change::Swap("transaction.at", "Cursor::START"),
        breaks: &["G1-MEM-012"],
        test: STEPS,
        finder: Finder::Host,
    },
    // One page in 16 is passed over, and none of a transaction shorter than one step. The test
    // makes passes over layouts that put a step's end at each page.
    Bug {
        name: "a cursor skips a page where a step ends",
        change: Change::Swap("1", "if self.page == 15 { 2 } else { 1 }"),
        breaks: &["G1-MEM-011"],
        test: STEPS,
        finder: Finder::Host,
    },
    // Results are right; only the time without interrupts at EL2 grows. The test counts the
    // descriptors that the worst step reads and writes, with every layout of 256 pages.
    Bug {
        name: "a step makes all tables that its pages take",
        change: Change::Become("continue;"),
        breaks: &["G1-MEM-023"],
        test: STEPS,
        finder: Finder::Host,
    },
    // A receiver gives on the first half of a donation while the second may still be taken back.
    // The state lasts for some steps only: the test stops the retrieval behind its first page, and
    // sends that page back.
    Bug {
        name: "what is still being received is passed on",
        change: Change::Swap(
            "matches!(self.transaction(index).phase, Phase::Given(_))",
            "self.transaction(index).phase != Phase::Free",
        ),
        breaks: &["G1-MEM-011", "G1-MEM-017"],
        test: STEPS,
        finder: Finder::Host,
    },
    // The helper's condition is inverted: a receiver helps only when there is nothing to help with.
    // Receivers that go on finish anyway, so the test stops one of two after each step.
    Bug {
        name: "a receiver waits for one that makes no more steps",
        change: Change::Swap("if !", "if "),
        breaks: &["G1-MEM-023"],
        test: "gear1/core/src/ffa/tests/siblings.rs",
        finder: Finder::Host,
    },
    // The check is there, with a page of slack, so ordinary lengths are refused as before. Random
    // lengths that lie reach the slack.
    Bug {
        name: "a descriptor is read beyond its end",
        change: Change::Become(
            "if offset > size.saturating_add(4096) {\n    return Err(Error::Invalid);\n}",
        ),
        breaks: &["G1-MEM-012"],
        test: HOSTILE,
        finder: Finder::Host,
    },
    // FFA_MEM_SHARE, _LEND and _DONATE act for the caller whatever the descriptor says, so nothing
    // is stolen by it. The guest sends each call once in another's name, and expects the refusal.
    Bug {
        name: "the sender's name is not looked at",
        change: Change::Swap("sender != endpoint(self.vm)\n            || header.", ""),
        breaks: &["G1-MEM-012"],
        test: "tests/guests/src/bin/ffa/refusals.rs",
        finder: FFA,
    },
    // Handles are small numbers that a receiver is told. The random calls reclaim by handles of
    // others too, and the ghost says who has each page.
    Bug {
        name: "reclaim does not ask whose it is",
        change: Change::Swap("transaction.offer.sender == sender", "true"),
        breaks: &["G1-MEM-011"],
        test: GHOST,
        finder: Finder::Host,
    },
    // A send that was cut off has a slot and a number, but gave no answer. The sender guesses the
    // number while its pages are on their way back, which the test does at each step.
    Bug {
        name: "a handle that nobody was told is valid",
        change: Change::Swap("is_own && transaction.is_sent", "is_own"),
        breaks: &["G1-MEM-012"],
        test: FAIRNESS,
        finder: Finder::Host,
    },
    // The second condition still asks whether the VM is a receiver, so a stranger is refused as
    // before. The guest relinquishes with another endpoint in its descriptor.
    Bug {
        name: "relinquish does not ask who calls",
        change: Change::Swap("said.endpoint != endpoint(self.vm) || ", ""),
        breaks: &["G1-MEM-012"],
        test: "tests/guests/src/bin/ffa/refusals.rs",
        finder: FFA,
    },
    // Address 0 serves as the list of pages. Tables run out in no ordinary run: the test gives each
    // kind of call a pool of 0 to 7 tables, and compares all state after each refusal.
    Bug {
        name: "a call goes on without enough tables",
        change: Change::Swap("ok_or(Error::NoMemory)?", "unwrap_or(Pa::new(0))"),
        breaks: &["G1-MEM-013"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    // The pass that takes pages from their sender ends without an invalidation. The host has no
    // TLB, so the test counts the invalidations before the next phase begins.
    Bug {
        name: "a lost page stays in TLBs",
        change: Change::Drop,
        breaks: &["G1-MEM-014"],
        test: STEPS,
        finder: Finder::Host,
    },
    // The other pass that takes rights away, in the undo of a mapping. One of two such places is
    // easily forgotten: the test counts at both.
    Bug {
        name: "a page that was given back stays in TLBs",
        change: Change::Drop,
        breaks: &["G1-MEM-014"],
        test: STEPS,
        finder: Finder::Host,
    },
    // Received pages merge into a block of 2 MiB. Nothing is wrong until one of them is taken back
    // and the VM has no table to split the block, which is the state that the test makes.
    Bug {
        name: "what somebody else sees is kept in blocks, which take a table to be taken away",
        change: Change::Swap(
            "LEAF::STATE.read(descriptor) == Self::Owned as u64",
            "descriptor != 0",
        ),
        breaks: &["G1-MEM-011", "G1-MEM-017"],
        test: "gear1/core/src/ownership/tests/exhausted.rs",
        finder: Finder::Host,
    },
    // TLBI ALLE1 acts on the calling CPU alone. The guest has a second CPU that reads the page all
    // the time without an exit, so that no entry leaves its TLB by itself.
    Bug {
        name: "a lost page stays in other CPUs' TLBs",
        change: Change::Swap("vmalls12e1is", "alle1"),
        breaks: &["G1-MEM-014"],
        test: TLB,
        finder: Finder::Guest("tlb", "cortex-a57"),
    },
    // QEMU performs the local VMALLS12E1 on all CPUs, so no guest can tell the two forms apart. The
    // rule looks for the broadcast instruction in the linked runtime.
    Bug {
        name: "a lost page stays in other CPUs' TLBs, which QEMU does not show",
        change: Change::Swap("vmalls12e1is", "vmalls12e1"),
        breaks: &["G1-MEM-014"],
        test: RULES,
        finder: Finder::Rules,
    },
    // A page is lost here without a call of the loser, while another VMID is in VTTBR_EL2. The
    // taker's second CPU goes on reading what the other VM's end took.
    Bug {
        name: "who lost a page by another VM's end keeps it in its TLB",
        change: Change::Become("let _ = world::invalidate_other_vmid;"),
        breaks: &["G1-MEM-014", "G1-MEM-017"],
        test: TLB,
        finder: Finder::Guest("tlb", "cortex-a57"),
    },
    // A guest invalidates on one CPU what it changed for that CPU alone. Two vCPUs that share a CPU
    // and a VMID would see each other's entries; the life alone does not tell them apart.
    Bug {
        name: "siblings on a CPU have one TLB",
        change: Change::Swap(" != new", ".life != new.life"),
        breaks: &["G1-MEM-022"],
        test: "gear1/core/src/residents/tests.rs",
        finder: Finder::Host,
    },
    // The decision is made and dropped. QEMU keeps no entry over a change of VTTBR_EL2, so no guest
    // can notice: the rule follows the calls from the load to TLBI VMALLE1 and IC IALLU.
    Bug {
        name: "nothing is forgotten when a vCPU is loaded",
        change: Change::Become("let _ = stayed;"),
        breaks: &["G1-MEM-022"],
        test: RULES,
        finder: Finder::Rules,
    },
    // The write of 0 and its invalidation look redundant in front of the write of the table. QEMU
    // needs neither; the test expects two invalidations of a send that splits a block.
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
    // A donation that returns at its receiver's end carries the receiver's data home. The guest
    // donates a page, has the receiver reset itself, and finds zeroes or not.
    Bug {
        name: "what is donated comes back as it was left",
        change: Change::Swap("true", "false"),
        breaks: &["G1-MEM-015"],
        test: "tests/guests/src/bin/ffa/exchange.rs",
        finder: FFA,
    },
    // The sender asks by the descriptor's flag for a wipe before the receiver sees the pages. The
    // guest reads the pages in the receiver, and the page between two ranges, which keeps its
    // words.
    Bug {
        name: "what is to be wiped is not",
        change: Change::Become("Phase::Sending => false,"),
        breaks: &["G1-MEM-015"],
        test: "tests/guests/src/bin/ffa/exchange.rs",
        finder: FFA,
    },
    // The answer to the retrieval is right, and reads work. The guest stores to each page that it
    // may only read, and expects an abort.
    Bug {
        name: "a receiver writes what it may only read",
        change: Change::Become("write: true,"),
        breaks: &["G1-MEM-016"],
        test: "tests/guests/src/bin/ffa/exchange.rs",
        finder: FFA,
    },
    // Shared memory is never executable (FF-A 1.1), whoever the only receiver is. Reads and writes
    // show nothing; the test is the refusal of a retrieval that asks for execution.
    Bug {
        name: "what is shared is executed",
        change: Change::Swap("kind != Kind::Share && offer.", ""),
        breaks: &["G1-MEM-016"],
        test: "tests/guests/src/bin/ffa/refusals.rs",
        finder: FFA,
    },
    // Peers that repeat calls keep the release of a VM from its end. One call does no harm: the
    // test repeats all calls of all peers after each step of the release.
    Bug {
        name: "a VM that leaves is sent more",
        change: Change::Swap("offer.receivers", "0"),
        breaks: &["G1-MEM-017", "G1-MEM-023"],
        test: FAIRNESS,
        finder: Finder::Host,
    },
    // The release waits for a phase that two busy receivers never leave. A single receiver always
    // leaves the phase, so the test has two vCPUs retrieve and relinquish in turn.
    Bug {
        name: "a receiver that leaves waits for a pause in the others' calls",
        change: Change::Swap("Retrieved", "Free"),
        breaks: &["G1-MEM-017", "G1-MEM-023"],
        test: FAIRNESS,
        finder: Finder::Host,
    },
    // The state was checked before the lock was taken, so the check under the lock looks redundant.
    // The test starts the VM between the two looks.
    Bug {
        name: "a load that comes late takes the memory of the VM's next life",
        change: Change::Swap("platform.is_running(vm)", "false"),
        breaks: &["G1-MEM-017", "G1-RUN-009"],
        test: "gear1/core/src/ffa/tests/ends.rs",
        finder: Finder::Host,
    },
    // The list of waiting receivers is kept and not used. Fairness alone is lost, and only beside a
    // receiver whose two vCPUs leave no pause, as the test's do.
    Bug {
        name: "a receiver waits for a pause in another's calls",
        change: Change::Swap("waiting", "0"),
        breaks: &["G1-MEM-023"],
        test: FAIRNESS,
        finder: Finder::Host,
    },
    // Another VM's steps end the call; the vCPU is to read an answer from a buffer that is gone,
    // and takes the next buffer's contents for it. The test unmaps between the end and the answer.
    Bug {
        name: "buffers go before a vCPU is told that its call is done",
        change: Change::Swap("(waiting | self.unanswered)", "waiting"),
        breaks: &["G1-MEM-012"],
        test: "gear1/core/src/ffa/tests/siblings.rs",
        finder: Finder::Host,
    },
    // A retrieval is cut off by another VM, and the half-written answer keeps the receiver's only
    // RX buffer. Every later call of that VM is refused, for no reason that the VM can see.
    Bug {
        name: "an answer about nothing keeps an RX buffer",
        change: Change::Swap("offer.receivers", "offer.receivers & 0"),
        breaks: &["G1-MEM-012"],
        test: FAIRNESS,
        finder: Finder::Host,
    },
    // One of the phases during which a receiver has to wait refuses instead. The phase lasts while
    // pages are wiped, so the test stops the other receiver at each step.
    Bug {
        name: "a retrieval is refused while another receiver gives the pages back",
        change: Change::Swap(
            "let is_another = ",
            "let is_another = self.phase != Phase::Relinquishing && ",
        ),
        breaks: &["G1-MEM-023"],
        test: FAIRNESS,
        finder: Finder::Host,
    },
    // The refusal comes half-way, and the receiver may have written to the first half. The test
    // takes the second table away, and lists the pages that are cleaned before others get them.
    Bug {
        name: "what a refused retrieval mapped is not cleaned",
        change: Change::Swap("Stage::Clean", "Stage::Over"),
        breaks: &["G1-MEM-015"],
        test: "gear1/core/src/ownership/tests/pieces.rs",
        finder: Finder::Host,
    },
    // The claim refuses such pages in the end, but its search for them splits blocks of the
    // sender's. The test compares the tables, not only the answer.
    Bug {
        name: "a range is the VM's own in part",
        change: Change::Swap("touches(", "false && touches("),
        breaks: &["G1-MEM-012"],
        test: STEPS,
        finder: Finder::Host,
    },
    // The end handles what the VM sent, which most tests look at. The test ends a VM that only
    // received.
    Bug {
        name: "a VM's end leaves what it borrowed",
        change: Change::Swap("vm) ", "vm) && self.offer.sender == vm "),
        breaks: &["G1-MEM-017"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    // Splitting and merging leak a table each time. Mappings are right for as long as there are
    // tables: the test compares the number of tables with that of the start.
    Bug {
        name: "tables that are empty stay",
        change: Change::Drop,
        breaks: &["G1-MEM-018"],
        test: "gear1/core/src/table/tests.rs",
        finder: Finder::Host,
    },
    // The search begins at the VM's own part and goes on into the others' parts. The test fills one
    // VM's part and expects the next send to be refused.
    Bug {
        name: "a VM takes all transactions",
        change: Change::Swap("first.wrapping_add(part)", "MAX_TRANSACTIONS"),
        breaks: &["G1-MEM-019"],
        test: OWNERSHIP,
        finder: Finder::Host,
    },
    // The manifest names the peers of each VM. All other checks hold for any VM. The manifest has a
    // VM that is nobody's peer, to which the guest sends.
    Bug {
        name: "memory goes to who is no peer",
        change: Change::Swap("& peers ", ""),
        breaks: &["G1-MEM-020"],
        test: "tests/guests/src/bin/ffa/main.rs",
        finder: FFA,
    },
    // X0 and X1 arrive, X2 to X7 are zero. The test has a distinct value in each register of the
    // response.
    Bug {
        name: "a response has the request's registers",
        change: Change::Swap("regs", "&[regs[0], regs[1], 0, 0, 0, 0, 0, 0]"),
        breaks: &["G1-MSG-001"],
        test: MESSAGES,
        finder: Finder::Host,
    },
    // A VM that waits for a response asks another one, and closes a circle. The test makes random
    // calls of all vCPUs and follows each chain of waiting to its end.
    Bug {
        name: "two VMs wait for each other",
        change: Change::Swap("!= 0", "== u32::MAX"),
        breaks: &["G1-MSG-002", "G1-MSG-004"],
        test: MESSAGES,
        finder: Finder::Host,
    },
    // The asker is woken, and waits on without an answer. The test ends the VM that serves a
    // request, and expects an error in the asker's registers.
    Bug {
        name: "who asked a VM that ends hears nothing",
        change: Change::Drop,
        breaks: &["G1-MSG-003"],
        test: MESSAGES,
        finder: Finder::Host,
    },
    // The check of X2 remains, and X1 is taken as the guest gives it. A receiver would trust the
    // name. The table of calls by role has a request in the name of another VM.
    Bug {
        name: "a message goes in another's name",
        change: Change::Become("if low(x2) != 0 {\n    return Err(Error::Invalid);\n}"),
        breaks: &["G1-MSG-004"],
        test: MESSAGES,
        finder: Finder::Host,
    },
];

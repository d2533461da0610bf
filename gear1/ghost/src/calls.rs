//! Effects of FF-A calls on the model.
//!
//! Registers and descriptors are read by their offsets in the specification (Arm DEN 0077A), on
//! purpose without Gear1's own parser: a mistake that both made alike would not be found. A call
//! that Gear1 has done changes the model, or is wrong by a number, which stands once in this file.
//! A call that Gear1 has refused changes nothing.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-017.

use gear1_abi::regs::Regs;

use super::{Checked, Ghost, Kind, PAGE, RANGES, TRANSACTIONS, Transaction, Words, Wrong, bit};

/// Functions of FF-A that concern memory, in their 32-bit form.
const ERROR: u32 = 0x8400_0060;
const RXTX_MAP: u32 = 0x8400_0066;
const RXTX_UNMAP: u32 = 0x8400_0067;
const MEM_DONATE: u32 = 0x8400_0071;
const MEM_LEND: u32 = 0x8400_0072;
const MEM_SHARE: u32 = 0x8400_0073;
const MEM_RETRIEVE_REQ: u32 = 0x8400_0074;
const MEM_RELINQUISH: u32 = 0x8400_0076;
const MEM_RECLAIM: u32 = 0x8400_0077;
const MEM_FRAG_RX: u32 = 0x8400_007a;
const MEM_FRAG_TX: u32 = 0x8400_007b;
/// Bit of a function that has arguments of 64 bits (SMCCC).
const WIDE: u32 = 0x4000_0000;
/// Lower half of a register: an argument of 32 bits.
const LOW: u64 = 0xffff_ffff;

/// A call of a VM, as the registers and the buffer have it.
struct Call<'a> {
    /// Function, in its 32-bit form.
    id: u32,
    vm: usize,
    /// X0 to X7 of the call.
    regs: &'a Regs,
    /// Descriptor in the VM's TX buffer, as it was when Gear1 read it.
    tx: Words<'a>,
    /// X0 to X7 of the answer; `None`: the call is going to be made again.
    answer: Option<&'a Regs>,
}

impl Call<'_> {
    /// Returns that the call must not have been done, for this reason.
    const fn wrong(&self, why: u32) -> Wrong {
        Wrong::Done(self.id, self.vm, why)
    }

    /// Tells whether the call sends memory, or more of a descriptor that does.
    const fn is_send(&self) -> bool {
        matches!(self.id, MEM_DONATE | MEM_LEND | MEM_SHARE | MEM_FRAG_TX)
    }

    /// Returns the handle of the transaction that the call names, if it names one.
    fn handle(&self) -> Option<u64> {
        match self.id {
            MEM_RETRIEVE_REQ => Some(self.tx.field(8, 8)),
            MEM_RELINQUISH => Some(self.tx.field(0, 8)),
            MEM_RECLAIM | MEM_FRAG_RX => Some(self.regs[2] << 32 | self.regs[1] & LOW),
            _ => None,
        }
    }
}

/// Calls.
impl Ghost {
    /// Follows a call of vCPU `vcpu` of `vm` with these registers and this descriptor in the VM's
    /// TX buffer. `answer`: X0 to X7, or nothing if the call is going to be made again. `running`:
    /// bit per VM.
    pub fn call(
        &mut self,
        vm: usize,
        vcpu: usize,
        regs: &Regs,
        tx: &[u64],
        answer: Option<&Regs>,
        running: u16,
    ) -> Checked {
        let call = Call {
            id: regs[0] as u32 & !WIDE,
            vm,
            regs,
            tx: Words(tx),
            answer,
        };
        self.note_under_way(&call, vcpu);
        match answer {
            None => self.check_unfinished(&call),
            Some(x) if x[0] == u64::from(ERROR) => {
                if call.is_send() {
                    self.forget(vm);
                }
                Ok(())
            }
            Some(_) => self.follow(&call, running),
        }
    }

    /// Notes whether the vCPU's call is under way. A call is done in steps, between which other
    /// vCPUs and VMs make calls, and the tables are compared: until it is done, the pages that it
    /// concerns are as before or as after.
    fn note_under_way(&mut self, call: &Call<'_>, vcpu: usize) {
        let set = |callers: &mut u8| {
            *callers = *callers & !(1 << vcpu) | u8::from(call.answer.is_none()) << vcpu;
        };
        if call.is_send() || matches!(call.id, RXTX_MAP | RXTX_UNMAP) {
            set(&mut self.changing[call.vm]);
        }
        if let Some(slot) = self.named(call) {
            set(&mut self.transactions[slot].movers[call.vm]);
        }
    }

    /// Checks a call that is going to be made again: a step of one that names nothing can be none.
    fn check_unfinished(&self, call: &Call<'_>) -> Checked {
        match call.handle() {
            Some(handle) if self.find(handle).is_none() => Err(call.wrong(20)),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the transaction that a call names.
    fn named(&self, call: &Call<'_>) -> Option<usize> {
        call.handle().and_then(|handle| self.find(handle))
    }

    /// Follows a call that was done.
    fn follow(&mut self, call: &Call<'_>, running: u16) -> Checked {
        match call.id {
            RXTX_MAP => self.map_buffers(call),
            RXTX_UNMAP => self.set_buffers(call.vm, [0; 2]),
            MEM_DONATE | MEM_LEND | MEM_SHARE => self.send(call),
            MEM_FRAG_TX => self.fragment(call),
            MEM_RETRIEVE_REQ => self.retrieve(call),
            MEM_RELINQUISH => self.relinquish(call),
            MEM_RECLAIM => self.reclaim(call, running),
            _ => Ok(()),
        }
    }

    /// FFA_RXTX_MAP: two pages of the VM's own, neither of which it has sent, become its buffers.
    fn map_buffers(&mut self, call: &Call<'_>) -> Checked {
        let vm = call.vm;
        let is_wide = call.regs[0] & u64::from(WIDE) != 0;
        let address = |x: u64| if is_wide { x } else { x & LOW };
        let mut buffers = [0; 2];
        for (buffer, x) in buffers.iter_mut().zip(&call.regs[1..3]) {
            match self.page_at(vm, address(*x)) {
                Some((page, true)) if self.is_free(page) => *buffer = page + 1,
                _ => return Err(call.wrong(17)),
            }
        }
        if self.buffers[vm] != [0; 2] || buffers[0] == buffers[1] {
            return Err(call.wrong(18));
        }
        self.set_buffers(vm, buffers)
    }

    /// Tells whether a page is in no transaction, or in one that the end of a VM is taking back.
    fn is_free(&self, page: usize) -> bool {
        let out = self.pages.get(page).out;
        out == 0 || self.is_settling(out)
    }

    /// Drops the unfinished descriptor of a VM.
    fn forget(&mut self, vm: usize) {
        self.drafts[vm].count = 0;
        self.drafts[vm].transaction.used = false;
    }

    /// FFA_MEM_SHARE, FFA_MEM_LEND or FFA_MEM_DONATE: the descriptor, or its first fragment.
    fn send(&mut self, call: &Call<'_>) -> Checked {
        let mut transaction = Transaction {
            used: true,
            kind: match call.id {
                MEM_SHARE => Kind::Share,
                MEM_LEND => Kind::Lend,
                _ => Kind::Donate,
            },
            sender: call.vm,
            ..Transaction::default()
        };
        let composite = self.receivers(&call.tx, &mut transaction);
        let draft = &mut self.drafts[call.vm];
        draft.count = 0;
        draft.transaction = transaction;
        self.ranges(call, composite + 16, call.regs[2] & LOW)?;
        self.take_all_out(call)
    }

    /// Notes who receives, and returns where the ranges' description is. A receiver of a donation
    /// gets all rights, whatever the descriptor says.
    fn receivers(&self, words: &Words<'_>, transaction: &mut Transaction) -> u64 {
        let first = words.field(32, 4);
        for index in 0..words.field(28, 4) {
            let at = first + 16 * index;
            let receiver = bit(words.field(at, 2) as usize - 1);
            transaction.receivers |= receiver;
            if transaction.kind == Kind::Donate || words.field(at + 2, 1) & 3 == 2 {
                transaction.writers |= receiver;
            }
        }
        words.field(first + 4, 4)
    }

    /// FFA_MEM_FRAG_TX: a fragment has ranges alone, from the buffer's beginning.
    fn fragment(&mut self, call: &Call<'_>) -> Checked {
        if !self.drafts[call.vm].transaction.used {
            return Err(call.wrong(6));
        }
        self.ranges(call, 0, call.regs[3] & LOW)?;
        self.take_all_out(call)
    }

    /// Notes ranges from one offset to another, 16 bytes each: the address and the number of pages.
    /// Gear1 refuses a descriptor with more ranges than `RANGES`, so no call that was done has
    /// them.
    fn ranges(&mut self, call: &Call<'_>, from: u64, to: u64) -> Checked {
        let draft = &mut self.drafts[call.vm];
        for at in (from..to).step_by(16) {
            if draft.count == RANGES {
                return Err(call.wrong(7));
            }
            draft.ranges[draft.count] = (call.tx.field(at, 8), call.tx.field(at + 8, 4));
            draft.count += 1;
        }
        Ok(())
    }

    /// A fragment was taken: the pages are out if it was the last. Gear1 answers with
    /// FFA_MEM_FRAG_RX as long as it wants more, and then with the transaction's handle.
    fn take_all_out(&mut self, call: &Call<'_>) -> Checked {
        let is_last = |x: &&Regs| x[0] != u64::from(MEM_FRAG_RX);
        let Some(x) = call.answer.filter(is_last) else {
            return Ok(());
        };
        let free = self.transactions.iter().position(|t| !t.used);
        let slot = free.ok_or(Wrong::Room)?;
        let mut transaction = self.drafts[call.vm].transaction;
        for index in 0..self.drafts[call.vm].count {
            let (ipa, count) = self.drafts[call.vm].ranges[index];
            for number in 0..count {
                self.take_out(call, ipa + number * PAGE, slot)?;
                transaction.pages += 1;
            }
        }
        transaction.handle = x[3] << 32 | x[2] & LOW;
        self.transactions[slot] = transaction;
        self.drafts[call.vm].transaction.used = false;
        Ok(())
    }

    /// Takes the page at the sender's address out of its owner's hands: into a transaction of its
    /// home, or back to its home.
    fn take_out(&mut self, call: &Call<'_>, ipa: u64, slot: usize) -> Checked {
        let number = slot as u8 + 1;
        let Some((page, at_home)) = self.page_at(call.vm, ipa) else {
            return Err(call.wrong(8));
        };
        if !at_home {
            return self.send_back(call, page, number);
        }
        if !self.is_free(page) {
            return Err(call.wrong(9));
        }
        if self.is_buffer(call.vm, page) {
            return Err(call.wrong(19));
        }
        self.pages.set_out(page, number)
    }

    /// Sends a page of another VM, which the sender has received by a donation, back to its home:
    /// to nobody else, and by nothing but a donation. The home owns no page twice, so there is no
    /// way to hand a received page on.
    fn send_back(&mut self, call: &Call<'_>, page: usize, number: u8) -> Checked {
        let is = self.pages.get(page);
        let given = is.out.checked_sub(1);
        let given = given.map(|out| self.transactions[usize::from(out)]);
        let sent = &self.drafts[call.vm].transaction;
        let right = given.is_some_and(|given| {
            given.kind == Kind::Donate
                && given.holders == bit(call.vm)
                && sent.kind == Kind::Donate
                && sent.receivers == bit(given.sender)
        });
        if !right || is.back != 0 {
            return Err(call.wrong(10));
        }
        self.pages.set_back(page, number);
        Ok(())
    }

    /// FFA_MEM_RETRIEVE_REQ: a receiver gets the pages, with the rights that it asks for.
    fn retrieve(&mut self, call: &Call<'_>) -> Checked {
        let slot = self.named(call).ok_or(call.wrong(11))?;
        let t = self.transactions[slot];
        let own = bit(call.vm);
        check_receiver(call, &t)?;
        let number = slot as u8 + 1;
        if self.pages.find(0, |page| page.back == number).is_some() {
            return self.come_home(slot);
        }
        let (writes, executes) = asked_rights(call, &t)?;
        let t = &mut self.transactions[slot];
        t.holders |= own;
        t.writing = t.writing & !own | if writes { own } else { 0 };
        t.executing = t.executing & !own | if executes { own } else { 0 };
        Ok(())
    }

    /// FFA_MEM_RELINQUISH: a receiver gives the pages back. What was donated is the receiver's own.
    fn relinquish(&mut self, call: &Call<'_>) -> Checked {
        let slot = self.named(call).ok_or(call.wrong(1))?;
        let t = &mut self.transactions[slot];
        if t.receivers & bit(call.vm) == 0 || t.kind == Kind::Donate {
            return Err(call.wrong(2));
        }
        t.holders &= !bit(call.vm);
        Ok(())
    }

    /// FFA_MEM_RECLAIM: the sender takes the pages back, which no VM that runs may hold any longer.
    fn reclaim(&mut self, call: &Call<'_>, running: u16) -> Checked {
        let slot = self.named(call).ok_or(call.wrong(3))?;
        let t = &self.transactions[slot];
        if t.sender != call.vm || t.holders & running != 0 {
            return Err(call.wrong(4));
        }
        if t.kind == Kind::Donate && t.holders != 0 {
            return Err(call.wrong(5));
        }
        self.close(slot)
    }

    /// Pages that were given away are at home again; so ends the gift when none is left of it. The
    /// home owns its pages as before the gift, and no transaction names them any longer.
    fn come_home(&mut self, slot: usize) -> Checked {
        let number = slot as u8 + 1;
        while let Some(page) = self.pages.find(0, |page| page.back == number) {
            let gift = usize::from(self.pages.get(page).out) - 1;
            self.pages.set_back(page, 0);
            self.pages.set_out(page, 0)?;
            self.transactions[gift].pages -= 1;
            if self.transactions[gift].pages == 0 {
                self.transactions[gift] = Transaction::default();
            }
        }
        self.transactions[slot] = Transaction::default();
        Ok(())
    }

    /// A step was made towards the end of a VM, which is loaded anew. Gear1 takes the pages back in
    /// steps, in whatever order: until the last, nothing is required of them.
    pub fn begin_end(&mut self, vm: usize) {
        self.ending |= bit(vm);
    }

    /// Ends a step of the VM's end: no shared memory of the VM is left. Calls of its vCPUs that
    /// were under way are over, since no vCPU of it runs.
    pub fn end(&mut self, vm: usize) -> Checked {
        self.ending &= !bit(vm);
        self.end_calls(vm);
        self.forget(vm);
        self.set_buffers(vm, [0; 2])?;
        // Gifts last: what goes back to its home in another transaction is part of one.
        for gifts in [false, true] {
            for slot in 0..TRANSACTIONS {
                self.end_part(slot, vm, gifts)?;
            }
        }
        Ok(())
    }

    /// Ends the part that a VM has in a transaction: its own ends with the VM, and in another's it
    /// holds nothing any longer. `gifts`: those that are received donations, which end as a whole.
    fn end_part(&mut self, slot: usize, vm: usize, gifts: bool) -> Checked {
        let t = self.transactions[slot];
        let of_vm = t.sender == vm || t.receivers & bit(vm) != 0;
        if !t.used || !of_vm {
            return Ok(());
        }
        let number = slot as u8 + 1;
        let is_return = self.pages.find(0, |page| page.back == number).is_some();
        let is_given = t.kind == Kind::Donate && t.holders != 0;
        if t.sender == vm || is_return || (is_given && gifts) {
            if is_given == gifts || is_return {
                self.close(slot)?;
            }
        } else if !is_given {
            self.transactions[slot].holders &= !bit(vm);
        }
        Ok(())
    }
}

/// Checks that a VM may retrieve: the sender named it, it names the sender, and it does not hold
/// the pages yet.
fn check_receiver(call: &Call<'_>, t: &Transaction) -> Checked {
    let own = bit(call.vm);
    if t.receivers & own == 0 || t.holders & own != 0 {
        return Err(call.wrong(12));
    }
    if call.tx.field(0, 2) as usize != t.sender + 1 {
        return Err(call.wrong(13));
    }
    Ok(())
}

/// Returns whether a receiver asks to write and to execute. Without a wish the receiver writes what
/// the sender lets it write. Executing has to be asked for, and needs memory that nobody else has
/// at that time: another could write the instructions.
fn asked_rights(call: &Call<'_>, t: &Transaction) -> Result<(bool, bool), Wrong> {
    let (words, own) = (&call.tx, bit(call.vm));
    let first = words.field(32, 4);
    let accesses = (0..words.field(28, 4)).map(|index| first + 16 * index);
    let mut mine = accesses.filter(|at| words.field(*at, 2) == call.vm as u64 + 1);
    let said = mine.next().map(|at| words.field(at + 2, 1));
    let said = said.ok_or(call.wrong(14))?;
    let may_write = t.writers & own != 0;
    if said & 3 == 2 && !may_write {
        return Err(call.wrong(15));
    }
    let executes = said >> 2 & 3 == 2;
    if executes && (t.kind == Kind::Share || t.receivers != own) {
        return Err(call.wrong(16));
    }
    Ok((may_write && said & 3 != 1, executes))
}

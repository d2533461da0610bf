//! Effects of FF-A calls on the model.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-017.

use gear1_abi::regs::Regs;

use super::{Checked, Ghost, Kind, PAGE, RANGES, TRANSACTIONS, Transaction, Words, Wrong, bit};

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
        let id = regs[0] as u32 & !0x4000_0000;
        let is_error = answer.is_some_and(|x| x[0] == 0x8400_0060);
        let is_send = matches!(id, 0x8400_0071..=0x8400_0073 | 0x8400_007b);
        let changes_own = is_send || matches!(id, 0x8400_0066 | 0x8400_0067);
        let handle = match id {
            0x8400_0074 => Some(Words(tx).field(8, 8)),
            0x8400_0076 => Some(Words(tx).field(0, 8)),
            0x8400_0077 | 0x8400_007a => Some(regs[2] << 32 | regs[1] & 0xffff_ffff),
            _ => None,
        };
        let set = |callers: &mut u8| {
            *callers = *callers & !(1 << vcpu) | u8::from(answer.is_none()) << vcpu;
        };
        if changes_own {
            set(&mut self.changing[vm]);
        }
        if let Some(slot) = handle.and_then(|handle| self.find(handle)) {
            set(&mut self.transactions[slot].movers[vm]);
        }
        if answer.is_none() {
            return match handle {
                Some(handle) if self.find(handle).is_none() => Err(Wrong::Done(id, vm, 20)),
                _ => Ok(()),
            };
        }
        if is_error {
            if is_send {
                self.forget(vm);
            }
            return Ok(());
        }
        let wrong = |why| Err(Wrong::Done(id, vm, why));
        match id {
            0x8400_0066 => self.map_buffers(id, vm, regs),
            0x8400_0067 => self.set_buffers(vm, [0; 2]),
            0x8400_0071..=0x8400_0073 => self.send(id, vm, regs, &Words(tx), answer),
            0x8400_007b => self.fragment(id, vm, regs, &Words(tx), answer),
            0x8400_0074 => self.retrieve(id, vm, &Words(tx)),
            0x8400_0076 => {
                let words = Words(tx);
                let Some(slot) = self.find(words.field(0, 8)) else {
                    return wrong(1);
                };
                let t = &mut self.transactions[slot];
                if t.receivers & bit(vm) == 0 || t.kind == Kind::Donate {
                    return wrong(2);
                }
                t.holders &= !bit(vm);
                Ok(())
            }
            0x8400_0077 => {
                let Some(slot) = self.find(regs[2] << 32 | regs[1] & 0xffff_ffff) else {
                    return wrong(3);
                };
                let t = &mut self.transactions[slot];
                if t.sender != vm || t.holders & running != 0 {
                    return wrong(4);
                }
                if t.kind == Kind::Donate && t.holders != 0 {
                    return wrong(5);
                }
                self.close(slot)
            }
            _ => Ok(()),
        }
    }

    fn map_buffers(&mut self, id: u32, vm: usize, regs: &Regs) -> Checked {
        let is_wide = regs[0] & 0x4000_0000 != 0;
        let address = |x: u64| if is_wide { x } else { x & 0xffff_ffff };
        let mut buffers = [0; 2];
        for (buffer, x) in buffers.iter_mut().zip(&regs[1..3]) {
            match self.page_at(vm, address(*x)) {
                Some((page, true))
                    if self.pages.get(page).out == 0
                        || self.is_settling(self.pages.get(page).out) =>
                {
                    *buffer = page + 1;
                }
                _ => return Err(Wrong::Done(id, vm, 17)),
            }
        }
        if self.buffers[vm] != [0; 2] || buffers[0] == buffers[1] {
            return Err(Wrong::Done(id, vm, 18));
        }
        self.set_buffers(vm, buffers)
    }

    /// Drops the unfinished descriptor of a VM.
    fn forget(&mut self, vm: usize) {
        self.drafts[vm].count = 0;
        self.drafts[vm].transaction.used = false;
    }

    fn send(
        &mut self,
        id: u32,
        vm: usize,
        regs: &Regs,
        words: &Words<'_>,
        answer: Option<&Regs>,
    ) -> Checked {
        let mut transaction = Transaction {
            used: true,
            kind: match id {
                0x8400_0073 => Kind::Share,
                0x8400_0072 => Kind::Lend,
                _ => Kind::Donate,
            },
            sender: vm,
            ..Transaction::default()
        };
        let composite = self.receivers(words, &mut transaction);
        let draft = &mut self.drafts[vm];
        draft.count = 0;
        draft.transaction = transaction;
        self.ranges(id, vm, words, composite + 16, regs[2] & 0xffff_ffff)?;
        self.take_all_out(id, vm, answer)
    }

    /// Notes who receives, and returns where the ranges' description is.
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

    fn fragment(
        &mut self,
        id: u32,
        vm: usize,
        regs: &Regs,
        words: &Words<'_>,
        answer: Option<&Regs>,
    ) -> Checked {
        if !self.drafts[vm].transaction.used {
            return Err(Wrong::Done(id, vm, 6));
        }
        self.ranges(id, vm, words, 0, regs[3] & 0xffff_ffff)?;
        self.take_all_out(id, vm, answer)
    }

    /// Notes ranges from one offset to another.
    fn ranges(&mut self, id: u32, vm: usize, words: &Words<'_>, from: u64, to: u64) -> Checked {
        let draft = &mut self.drafts[vm];
        for at in (from..to).step_by(16) {
            if draft.count == RANGES {
                return Err(Wrong::Done(id, vm, 7));
            }
            draft.ranges[draft.count] = (words.field(at, 8), words.field(at + 8, 4));
            draft.count += 1;
        }
        Ok(())
    }

    /// A fragment was taken: the pages are out if it was the last.
    fn take_all_out(&mut self, id: u32, vm: usize, answer: Option<&Regs>) -> Checked {
        let Some(x) = answer.filter(|x| x[0] != 0x8400_007a) else {
            return Ok(());
        };
        let slot = self
            .transactions
            .iter()
            .position(|t| !t.used)
            .ok_or(Wrong::Room)?;
        let mut transaction = self.drafts[vm].transaction;
        for index in 0..self.drafts[vm].count {
            let (ipa, count) = self.drafts[vm].ranges[index];
            for number in 0..count {
                let found = self.page_at(vm, ipa + number * PAGE);
                let Some((page, at_home)) = found else {
                    return Err(Wrong::Done(id, vm, 8));
                };
                self.take_out(id, vm, page, at_home, slot, &transaction)?;
                transaction.pages += 1;
            }
        }
        transaction.handle = x[3] << 32 | x[2] & 0xffff_ffff;
        self.transactions[slot] = transaction;
        self.drafts[vm].transaction.used = false;
        Ok(())
    }

    fn take_out(
        &mut self,
        id: u32,
        vm: usize,
        page: usize,
        at_home: bool,
        slot: usize,
        t: &Transaction,
    ) -> Checked {
        let number = slot as u8 + 1;
        let is = self.pages.get(page);
        if at_home {
            if is.out != 0 && !self.is_settling(is.out) {
                return Err(Wrong::Done(id, vm, 9));
            }
            if self.is_buffer(vm, page) {
                return Err(Wrong::Done(id, vm, 19));
            }
            return self.pages.set_out(page, number);
        }
        // A page of another VM goes back to its home, from the VM that received it.
        let given = is
            .out
            .checked_sub(1)
            .map(|out| self.transactions[usize::from(out)]);
        let right = given.is_some_and(|given| {
            given.kind == Kind::Donate
                && given.holders == bit(vm)
                && t.kind == Kind::Donate
                && t.receivers == bit(given.sender)
        });
        if !right || is.back != 0 {
            return Err(Wrong::Done(id, vm, 10));
        }
        self.pages.set_back(page, number);
        Ok(())
    }

    fn retrieve(&mut self, id: u32, vm: usize, words: &Words<'_>) -> Checked {
        let wrong = |why| Err(Wrong::Done(id, vm, why));
        let Some(slot) = self.find(words.field(8, 8)) else {
            return wrong(11);
        };
        let mut t = self.transactions[slot];
        let own = bit(vm);
        if t.receivers & own == 0 || t.holders & own != 0 {
            return wrong(12);
        }
        if words.field(0, 2) as usize != t.sender + 1 {
            return wrong(13);
        }
        let number = slot as u8 + 1;
        if self.pages.find(0, |page| page.back == number).is_some() {
            return self.come_home(slot);
        }
        let first = words.field(32, 4);
        let accesses = (0..words.field(28, 4)).map(|index| first + 16 * index);
        let mut mine = accesses.filter(|at| words.field(*at, 2) == vm as u64 + 1);
        let Some(said) = mine.next().map(|at| words.field(at + 2, 1)) else {
            return wrong(14);
        };
        let may_write = t.writers & own != 0;
        if said & 3 == 2 && !may_write {
            return wrong(15);
        }
        if said >> 2 & 3 == 2 && (t.kind == Kind::Share || t.receivers != own) {
            return wrong(16);
        }
        t.holders |= own;
        t.writing &= !own;
        t.executing &= !own;
        if may_write && said & 3 != 1 {
            t.writing |= own;
        }
        if said >> 2 & 3 == 2 {
            t.executing |= own;
        }
        self.transactions[slot] = t;
        Ok(())
    }

    /// Pages that were given away are at home again; so ends the gift when none is left of it.
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

    /// A step was made towards the end of a VM, which is loaded anew.
    pub fn begin_end(&mut self, vm: usize) {
        self.ending |= bit(vm);
    }

    /// Ends a step of the VM's end: no shared memory of the VM is left.
    pub fn end(&mut self, vm: usize) -> Checked {
        self.ending &= !bit(vm);
        self.end_calls(vm);
        self.forget(vm);
        self.set_buffers(vm, [0; 2])?;
        // Gifts last: what goes back to its home in another transaction is part of one.
        for gifts in [false, true] {
            for slot in 0..TRANSACTIONS {
                let t = self.transactions[slot];
                let of_vm = t.sender == vm || t.receivers & bit(vm) != 0;
                if !t.used || !of_vm {
                    continue;
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
            }
        }
        Ok(())
    }
}

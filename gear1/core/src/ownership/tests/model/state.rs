//! State of the machine: all that a call can change, and that a later one can depend on.

use gear1_abi::id::VmId;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::vec::Vec;

use super::super::Setup;
use crate::addr::Ipa;
use crate::ownership::pages::range;
use crate::ownership::testing::{start, vm};
use crate::ownership::transaction::{Cursor, Stage};
use crate::ownership::{Error, MAX_TRANSACTIONS, Phase, Transaction, Vms as _};

/// The permutations of three VMs: where each goes.
const NAMES: [[usize; 3]; 6] = [
    [0, 1, 2],
    [1, 0, 2],
    [0, 2, 1],
    [2, 1, 0],
    [1, 2, 0],
    [2, 0, 1],
];

/// The slots of a VM's part.
const PART: usize = MAX_TRANSACTIONS / 3;

/// Slots that three VMs' transactions of so few pages can use.
pub(super) fn slots(pages: usize) -> impl Iterator<Item = usize> {
    (0..3).flat_map(move |vm| (0..pages).map(move |slot| vm * PART + slot))
}

impl Setup {
    /// Returns all that a call can change, and that a later one can depend on.
    pub(super) fn state(&mut self, pages: usize) -> Vec<u64> {
        let mut state = Vec::with_capacity(64);
        for (who, page) in (0..3).flat_map(|who| (0..pages).map(move |page| (who, page))) {
            state.extend(self.page(who, page));
        }
        state.extend(self.vms.table_counts().iter().map(|count| *count as u64));
        state.extend((0..3).map(|who| u64::from(self.vms.is_starved(who))));
        for slot in slots(pages) {
            let transaction = self.ledger.transaction(slot);
            if transaction.phase != Phase::Free {
                state.push(slot as u64);
                state.extend(words(&transaction));
            }
        }
        state
    }

    /// Returns what the tables of `who` say of a place's first page: the size, and the descriptor.
    fn page(&mut self, who: usize, page: usize) -> [u64; 2] {
        let stage2 = self.vms.stage2(vm(who));
        let ipa = Ipa::new(self.sees(who, page));
        let (size, descriptor) = stage2.descriptor(&self.vms.tables(vm(who)), ipa);
        [size, descriptor]
    }

    /// Returns the same, if VM `who` were `names[who]`, and slots had no numbers.
    fn named(&mut self, pages: usize, names: [usize; 3]) -> Vec<u64> {
        const ADDRESS: u64 = 0xffff_ffff_f000;
        let renamed = |set: u64| {
            let each = names.iter().enumerate();
            each.fold(0, |new, (old, name)| new | (set >> old & 1) << name)
        };
        let mut transactions = Vec::new();
        for slot in slots(pages) {
            let transaction = self.ledger.transaction(slot);
            if transaction.phase == Phase::Free {
                continue;
            }
            let mut words = words(&transaction);
            for who in [2, 12] {
                words[who] = names[words[who] as usize] as u64;
            }
            for set in [3, 4, 8, 9] {
                words[set] = renamed(words[set]);
            }
            let (pa, _) = range(&mut self.vms, &transaction, 0);
            let home = (0..3)
                .find(|home| start(*home) + 0x5000 == pa.get())
                .unwrap();
            transactions.push((words, names[home], slot));
        }
        transactions.sort_unstable();
        let mut state = std::vec![0; 3 * 3 * 2 + 3];
        for (who, page) in (0..3).flat_map(|who| (0..pages).map(move |page| (who, page))) {
            let [size, descriptor] = self.page(who, page);
            let is_valid = descriptor & 1 != 0;
            // The place identifies the page; the rank of the transaction identifies its VM.
            let tag = (descriptor >> 59) as usize;
            let rank = transactions.iter().position(|(_, _, slot)| *slot == tag);
            let rank = rank.filter(|_| !is_valid && descriptor != 0);
            let rank = rank.map_or(0, |rank| rank as u64 + 1);
            let address = if is_valid || descriptor != 0 {
                ADDRESS
            } else {
                0
            };
            let rest = descriptor & !address & ((1 << 59) - 1);
            let place = 2 * (3 * names[who] + names[page]);
            state[place] = size << 8 | rank;
            state[place + 1] = rest;
        }
        for (who, count) in self.vms.table_counts().into_iter().enumerate() {
            state[18 + names[who]] = count as u64;
        }
        for (words, home, _) in transactions {
            state.push(home as u64);
            state.extend(words);
        }
        state
    }

    /// Returns what all states with the same names taken away have in common, in 128 bits: that two
    /// of some millions of states have the same is as likely as 1 in 10^25.
    pub(super) fn canonical(&mut self, pages: usize) -> u128 {
        // A VM without a page keeps its name.
        let names = NAMES
            .into_iter()
            .filter(|names| (pages..3).all(|vm| names[vm] == vm));
        let least = names.map(|names| self.named(pages, names)).min();
        fingerprint(&least.unwrap())
    }
}

pub(super) fn fingerprint(state: &[u64]) -> u128 {
    let hash = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, state).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    hash(1) << 64 | hash(2)
}

/// Returns a number for each phase, with its argument.
fn phase_word(phase: Phase) -> u64 {
    let error = |error: Option<Error>| error.map_or(0, |error| 1 + error as u64);
    match phase {
        Phase::Free => 0,
        Phase::Filling => 1,
        Phase::Claiming => 2,
        Phase::Unclaiming(refused) => 0x100 | error(Some(refused)),
        Phase::Committing => 3,
        Phase::Sending => 4,
        Phase::Sent => 5,
        Phase::Mapping => 6,
        Phase::Unmapping(refused) => 0x200 | error(refused),
        Phase::Retrieved => 7,
        Phase::Relinquishing => 8,
        Phase::Reclaiming => 9,
        Phase::Given(left) => 0x4_0000 | u64::from(left),
        Phase::Homing => 10,
        Phase::Returning => 11,
    }
}

/// Returns what a transaction says, but for its number and where its list is.
pub(in super::super) fn words(transaction: &Transaction) -> [u64; 16] {
    let Transaction {
        phase,
        stage,
        at,
        limit,
        who,
        request: _,
        cleans,
        // Each VM is told at once what came of its call, and no call waits for another.
        unanswered: _,
        wiping: _,
        turns: _,
        refused: _,
        fragment: _,
        offer,
        filled,
        counted,
        holders,
        writing,
        execute,
        zero_after,
        serial: _,
        returning,
        // A handle is looked up before the calls that are made here.
        is_sent: _,
        list: _,
    } = *transaction;
    // These fields are read only after a new write.
    let who = match transaction.phase {
        Phase::Mapping | Phase::Unmapping(_) | Phase::Relinquishing => who,
        Phase::Reclaiming if stage == Stage::Undo || stage == Stage::Tidy => who,
        _ => VmId::FIRST,
    };
    let zero_after = match transaction.phase {
        Phase::Sent => false,
        Phase::Reclaiming => zero_after && cleans,
        _ => zero_after,
    };
    // Both fields mean nothing while no work is under way.
    let cursor = |cursor: Cursor| u64::from(cursor.range) << 16 | u64::from(cursor.page);
    let steps = if transaction.is_under_way() {
        let first = (stage as u64) << 40 | u64::from(cleans) << 32 | cursor(at);
        [1 << 48 | first, cursor(limit)]
    } else {
        [0; 2]
    };
    [
        phase_word(phase),
        offer.kind as u64,
        offer.sender.reg(),
        offer.receivers.into(),
        offer.writers.into(),
        offer.pages.into(),
        filled.into(),
        counted.into(),
        holders.into(),
        writing.into(),
        execute.into(),
        zero_after.into(),
        who.reg(),
        returning.into(),
        steps[0],
        steps[1],
    ]
}

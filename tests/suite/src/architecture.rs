//! Rules of the architecture that QEMU does not enforce, checked in the runtime's linked code. QEMU
//! has no caches, keeps no TLB entry across a change of VTTBR_EL2, performs each access in its
//! place, takes no physical SError and does not trap registers that it implements as constants.
//!
//! Invariant: a rule fails if the code has none of the instructions that it is about.
//!
//! Encodings: Arm ARM (DDI 0487) C5; SYS, MSR and MRS have op0, op1, CRn, CRm and op2 in one form.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind, SymbolKind};

use crate::part::Tally;

/// Whole instructions, for those without an operand that a compiler chooses.
const DSB_SY: u32 = 0xd503_3f9f;
const DSB_NSH: u32 = 0xd503_379f;
const DMB_LD: u32 = 0xd503_3dbf;
const ISB: u32 = 0xd503_3fdf;
const ESB: u32 = 0xd503_221f;
/// Field of the general register, which the compiler chooses: comparisons leave the field out. As a
/// value, 31 is XZR.
const RT: u32 = 31;
/// Bit of MRS and SYSL beside MSR and SYS. Bit L of the encoding.
const READ: u32 = 1 << 21;

/// Instructions with the register left out (`AT`, MRS, MSR), or with XZR (`IC`, `TLBI`).
const IC_IALLU: u32 = system(1, 0, 7, 5, 0) | RT;
const IC_IALLUIS: u32 = system(1, 0, 7, 1, 0) | RT;
const TLBI_VMALLE1: u32 = system(1, 0, 8, 7, 0) | RT;
const TLBI_ALLE1: u32 = system(1, 4, 8, 7, 4) | RT;
const TLBI_ALLE1IS: u32 = system(1, 4, 8, 3, 4) | RT;
const TLBI_VMALLS12E1IS: u32 = system(1, 4, 8, 3, 6) | RT;
const AT_S1E1R: u32 = system(1, 0, 7, 8, 0);
const AT_S1E0R: u32 = system(1, 0, 7, 8, 2);
const ICC_IAR1_EL1: u32 = system(3, 0, 12, 12, 0);
const ICC_SRE_EL2: u32 = system(3, 4, 12, 9, 5);
const ICH_ELRSR_EL2: u32 = system(3, 4, 12, 11, 5);
const ISR_EL1: u32 = system(3, 0, 12, 1, 0);
const DISR_EL1: u32 = system(3, 0, 12, 1, 1);
const VTTBR_EL2: u32 = system(3, 4, 2, 1, 0);
/// HAFGRTR_EL2, HDFGRTR2_EL2, HDFGWTR2_EL2, HFGRTR2_EL2, HFGWTR2_EL2, HFGITR2_EL2. Given by op2.
/// Firmware may leave traps in them that Gear1 has no answer for. QEMU starts without such a
/// firmware.
const FINE_GRAINED: [u32; 6] = [6, 0, 1, 2, 3, 7];

/// The layout is that of C5.1.2: op0 at bit 19, op1 at 16, CRn at 12, CRm at 8, op2 at 5.
const fn system(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    0xd500_0000 | op0 << 19 | op1 << 16 | crn << 12 | crm << 8 | op2 << 5
}

/// The code of an image, by functions. A linked image is judged and not the source, because the
/// order of instructions is the compiler's, too.
struct Image {
    functions: Vec<Function>,
}

struct Function {
    /// The name as the linker has it, mangled or not.
    name: String,
    /// Virtual address of the first instruction.
    start: u64,
    /// Everything up to the next symbol, literals included.
    words: Vec<u32>,
}

/// Checks a runtime. One rule after the other, each by its own verdict: rules are independent, and
/// one change may break several. A GICv2 image has no system registers of a GIC, so its rules
/// differ.
pub(super) fn check(elf: &Path, gic: u32, tally: &mut Tally) -> Result<()> {
    let image = Image::read(elf)?;
    type Rule = (&'static str, fn(&Image) -> Result<()>);
    let rules: &[Rule] = &[
        ("broadcasts (G1-RT-008, G1-MEM-014)", broadcasts),
        ("vCPUs of one VM on one CPU (G1-MEM-022)", siblings),
        ("instruction caches (G1-CPU-011)", instruction_caches),
        ("address translation (G1-FLT-007)", translations),
        ("SErrors of guests (G1-FLT-006)", serrors_of_guests),
        ("SErrors of Gear2 (G1-FLT-006)", serrors_of_gear2),
        ("traps that firmware left open (G1-CPU-002)", fine_grained),
    ];
    let of_gic: &[Rule] = match gic {
        2 => &[("kicks (G1-VCPU-001)", acknowledges_gicv2)],
        _ => &[
            ("kicks (G1-VCPU-001)", acknowledges),
            ("ICC_SRE_EL1 (G1-GIC-015)", sre),
            ("empty list registers (G1-GIC-007)", list_registers),
        ],
    };
    for (name, rule) in rules.iter().chain(of_gic) {
        tally.check(&format!("{name} in {}", elf.display()), rule(&image));
    }
    Ok(())
}

/// Checks that translations of one VMID are invalidated on all CPUs, and that no other invalidation
/// is broadcast. A broadcast reaches the CPUs of real-time VMs, too, and costs them what they have
/// cached, so only what memory's safety needs may be one (G1-RT-008). A change of stage 2 does need
/// one: other vCPUs of the VM run elsewhere.
fn broadcasts(image: &Image) -> Result<()> {
    for (name, word) in [("TLBI ALLE1IS", TLBI_ALLE1IS), ("IC IALLUIS", IC_IALLUIS)] {
        let found = image.holders(|found| found == word);
        ensure!(found.is_empty(), "{name} in {found:?}");
    }
    let by_vmid = image.holders(|found| found == TLBI_VMALLS12E1IS);
    ensure!(!by_vmid.is_empty(), "no TLBI VMALLS12E1IS");
    // One function, once per life of a CPU: the CPU starts with nothing of an earlier life.
    let local = image.holders(|found| found == TLBI_ALLE1);
    ensure!(
        local.len() == 1,
        "TLBI ALLE1 in {local:?}: once a CPU enters Gear2's loop"
    );
    Ok(())
}

/// Loading a vCPU and what precedes its entry, a reset among others, lead to where the CPU forgets
/// its siblings. QEMU flushes when the VMID changes, so no guest can show a stale entry there.
fn siblings(image: &Image) -> Result<()> {
    let forgets = |function: &Function| {
        function.words.contains(&TLBI_VMALLE1) && function.words.contains(&IC_IALLU)
    };
    ensure!(
        // A function that no longer exists must not make the rule pass, nor may inlining break the
        // rule.
        image.functions.iter().any(forgets),
        "no TLBI VMALLE1 with IC IALLU"
    );
    // Loading covers another vCPU on the CPU, requests cover a reset and a move of the same one.
    for name in [
        "run::run_another",
        "load::load_another",
        "vcpu::handle_requests",
    ] {
        image.leads_to(name, &forgets)?;
    }
    Ok(())
}

/// A vCPU that asks its siblings to invalidate instruction caches, and one that was asked,
/// invalidate that of their own CPU, behind what they have read and before what they fetch. DSB NSH
/// in front completes what the CPU has read; DSB NSH and ISB behind make it fetch anew. QEMU has no
/// instruction cache in which old code could be found.
fn instruction_caches(image: &Image) -> Result<()> {
    let invalidates = |function: &Function| {
        let mut windows = function.words.windows(4);
        windows.any(|window| window == [DSB_NSH, IC_IALLU, DSB_NSH, ISB])
    };
    for name in ["vcpu::handle_requests", "sysreg::invalidate_icaches"] {
        image.leads_to(name, &invalidates)?;
    }
    Ok(())
}

/// A walk that aborts is provided for. An external abort in a walk by AT is a synchronous exception
/// at EL2, which is fatal anywhere but between the two labels. QEMU aborts no such walk.
fn translations(image: &Image) -> Result<()> {
    let (first, last) = image.window("gear1_translate_first", "gear1_translate_last")?;
    let is_at = |word: u32| matches!(word & !RT, AT_S1E1R | AT_S1E0R);
    let mut count = 0;
    for (address, word) in image.words() {
        if is_at(word) {
            count += 1;
            ensure!(
                (first..last).contains(&address),
                "AT at {address:#x} is outside"
            );
        }
    }
    // The number keeps the rule honest: a third AT needs a look by a person, even inside of the
    // window.
    ensure!(count == 2, "{count} AT instructions, 2 are known");
    Ok(())
}

/// Before Gear2's stage 2 replaces a guest's, pending SErrors are collected for the guest. A
/// pending SError that is taken after the exchange would count as Gear2's fault, and Gear2 would be
/// restarted for what a guest did. The list has the functions that make the exchange.
fn serrors_of_guests(image: &Image) -> Result<()> {
    for name in [
        "exit::device_access",
        "exit::vendor_call",
        "guest_call::wait",
        "vcpu::leave_as_is",
        "supervise::stop_waiting_and_rejoin",
    ] {
        let function = image.named(name)?;
        let words = &mut function.words.iter();
        // Whatever comes before the write of VTTBR_EL2 happens with the guest's stage 2.
        let exchange = words.position(|word| word & !RT == VTTBR_EL2);
        let exchange = exchange.with_context(|| format!("{name} does not leave the guest"))?;
        collected(image, name, &function.words[..exchange])?;
    }
    Ok(())
}

/// Before a guest is entered, pending SErrors are collected for Gear2. The opposite order: an
/// SError that Gear2 caused must not be given to the guest.
fn serrors_of_gear2(image: &Image) -> Result<()> {
    for name in ["gear1_svc", "run::next"] {
        collected(image, name, &image.named(name)?.words)?;
    }
    Ok(())
}

/// Both ways to see an SError that is pending: with RAS, and without. A CPU with FEAT_RAS takes one
/// and another CPU the other, so the code has both.
fn collected(image: &Image, name: &str, words: &[u32]) -> Result<()> {
    let _open = image.window("gear1_take_serror_first", "gear1_take_serror_last")?;
    let has = |sequence: &[u32]| {
        let is = |window: &[u32]| window.iter().zip(sequence).all(|(a, b)| a & !RT == b & !RT);
        words.windows(sequence.len()).any(is)
    };
    ensure!(has(&[ESB, DISR_EL1 | READ]), "no ESB in {name}");
    ensure!(
        has(&[DSB_SY, ISB, ISR_EL1 | READ]),
        "no look at ISR_EL1 in {name}"
    );
    Ok(())
}

/// FEAT_FGT2's registers, and the one of the activity monitors. All six writes have op0 3, op1 4,
/// CRn 3, CRm 1.
fn fine_grained(image: &Image) -> Result<()> {
    for op2 in FINE_GRAINED {
        let write = system(3, 4, 3, 1, op2);
        let found = image.holders(|word| word & !RT == write);
        ensure!(!found.is_empty(), "S3_4_C3_C1_{op2} is not made zero");
    }
    Ok(())
}

/// Nothing is loaded from memory between an acknowledge and the barrier. A load that is performed
/// before the acknowledge could miss a request whose kick is acknowledged by it, and the wake-up
/// would be lost. QEMU performs all accesses in order.
fn acknowledges(image: &Image) -> Result<()> {
    let mut count = 0;
    for function in &image.functions {
        for (at, word) in function.words.iter().enumerate() {
            if word & !RT == ICC_IAR1_EL1 | READ {
                count += 1;
                let next = function.words.get(at + 1);
                ensure!(next == Some(&DSB_SY), "no DSB SY in {}", function.name);
            }
        }
    }
    // A rule that finds no instruction of its kind has looked at the wrong image.
    ensure!(count > 0, "no acknowledge");
    Ok(())
}

/// Checks the same order for GICv2, where the acknowledge is one load of many: the barrier must
/// follow the load. The address of GICC_IAR is not in the instruction, so the barrier is looked
/// for, and the load right before it.
fn acknowledges_gicv2(image: &Image) -> Result<()> {
    let found = image.holders(|word| word == DMB_LD);
    for name in ["gear1_irq", "irq::handle_pending"] {
        let function = image.named(name)?;
        let barrier = function.words.iter().position(|word| *word == DMB_LD);
        let barrier = barrier.with_context(|| format!("no DMB LD in {name}, but in {found:?}"))?;
        // One load in between could be of memory, and be performed before the acknowledge.
        let load = barrier.checked_sub(1).map(|at| function.words[at]);
        // LDR (immediate) of a word.
        ensure!(
            load.is_some_and(|word| word >> 22 == 0b10_1110_0101),
            "no load right before the DMB LD in {name}"
        );
    }
    Ok(())
}

/// Guests' accesses to ICC_SRE_EL1 trap: every value written to ICC_SRE_EL2 has Enable = 0.
fn sre(image: &Image) -> Result<()> {
    let mut count = 0;
    for function in &image.functions {
        for (at, word) in function.words.iter().enumerate() {
            if word & !RT != ICC_SRE_EL2 {
                continue;
            }
            count += 1;
            // MOVZ of the register that is written.
            let before = function.words[..at].iter().rev();
            let value = before
                .copied()
                .find(|other| other & 0x7f80_0000 == 0x5280_0000 && other & RT == word & RT)
                .map(|movz| (movz >> 5) & 0xffff);
            ensure!(value == Some(7), "{value:?} in {}", function.name);
        }
    }
    ensure!(count > 0, "ICC_SRE_EL2 is not written");
    Ok(())
}

/// Checks that an ISB precedes each read of ICH_ELRSR_EL2, so that list registers just written do
/// not count as empty.
fn list_registers(image: &Image) -> Result<()> {
    for name in ["flush_slowly", "vcpu::is_due"] {
        let function = image.named(name)?;
        let read = |word: &u32| word & !RT == ICH_ELRSR_EL2 | READ;
        let Some(first) = function.words.iter().position(read) else {
            // Inlined elsewhere.
            continue;
        };
        ensure!(
            function.words[..first].contains(&ISB),
            "no ISB before ICH_ELRSR_EL2 in {name}"
        );
    }
    Ok(())
}

/// Returns the names of an image's functions by address.
fn names(file: &object::File, text: &Range<u64>) -> Result<BTreeMap<u64, String>> {
    let symbols = file.symbols().filter(|symbol| {
        text.contains(&symbol.address())
            && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown)
    });
    let mut names = BTreeMap::new();
    for symbol in symbols {
        let name = symbol.name()?;
        // Mapping symbols say what follows, code or data.
        if !name.is_empty() && !name.starts_with('$') {
            names.insert(symbol.address(), name.to_owned());
        }
    }
    Ok(names)
}

impl Image {
    fn read(elf: &Path) -> Result<Image> {
        let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
        let file = object::File::parse(&*bytes)?;
        let mut sections = file.sections();
        // The runtime has one section of code, by its linker script.
        let text = sections.find(|section| section.kind() == SectionKind::Text);
        let text = text.context("no code")?;
        let (base, data) = (text.address(), text.data()?);
        let end = base + data.len() as u64;
        let names = names(&file, &(base..end))?;
        let ends = names.keys().skip(1).copied().chain([end]);
        let functions = names.iter().zip(ends).map(|((start, name), end)| {
            let at = |address: u64| usize::try_from(address - base).unwrap_or(usize::MAX);
            let code = data.get(at(*start)..at(end)).unwrap_or_default();
            let words = code.as_chunks().0.iter().copied().map(u32::from_le_bytes);
            Function {
                name: name.clone(),
                start: *start,
                words: words.collect(),
            }
        });
        Ok(Image {
            functions: functions.collect(),
        })
    }

    /// Returns each instruction with its address.
    fn words(&self) -> impl Iterator<Item = (u64, u32)> {
        self.functions.iter().flat_map(|function| {
            let addresses = (function.start..).step_by(4);
            addresses.zip(function.words.iter().copied())
        })
    }

    /// Returns the names of the functions with such an instruction.
    fn holders(&self, is: impl Fn(u32) -> bool) -> Vec<&str> {
        let found = self
            .functions
            .iter()
            .filter(|f| f.words.iter().any(|word| is(*word)));
        found.map(|function| &*function.name).collect()
    }

    /// Returns the function of the runtime with this name, mangled or not.
    fn named(&self, name: &str) -> Result<&Function> {
        let mangled = name.split("::").map(|part| format!("{}{part}", part.len()));
        let mangled: String = mangled.collect();
        let is = |function: &&Function| {
            function.name == name || {
                // Legacy mangling ends with a hash, v0's with nothing behind the name.
                let rest = function.name.split(&mangled).nth(1);
                rest.is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with("17h") || rest.starts_with('B')
                })
            }
        };
        let found = self.functions.iter().find(is);
        found.with_context(|| format!("no function {name}"))
    }

    /// Returns the addresses of two labels, one behind the other.
    fn window(&self, first: &str, last: &str) -> Result<(u64, u64)> {
        let (first, last) = (self.named(first)?.start, self.named(last)?.start);
        ensure!(first < last, "{first:#x} to {last:#x}");
        Ok((first, last))
    }

    /// Checks that a function is the wanted one, or calls it, directly or not.
    fn leads_to(&self, name: &str, is: &dyn Fn(&Function) -> bool) -> Result<()> {
        let mut seen = std::collections::BTreeSet::new();
        let mut open = vec![self.named(name)?.start];
        while let Some(start) = open.pop() {
            // Calls may form circles in the linked code, although the source has no recursion.
            if !seen.insert(start) {
                continue;
            }
            let Some(function) = self.functions.iter().find(|f| f.start == start) else {
                continue;
            };
            if is(function) {
                return Ok(());
            }
            open.extend(function.calls().map(|(_, to)| to));
        }
        bail!("{name} does not lead there")
    }
}

impl Function {
    /// Returns the place of each B and BL, and where control goes.
    fn calls(&self) -> impl Iterator<Item = (usize, u64)> {
        self.words.iter().enumerate().filter_map(|(at, word)| {
            let offset = (i64::from(*word & 0x3ff_ffff) << 38) >> 36;
            let from = self.start + 4 * at as u64;
            (word & 0x7c00_0000 == 0x1400_0000).then(|| (at, from.wrapping_add_signed(offset)))
        })
    }
}

use super::{Entry, FaultKind, Syndrome, SysregId, ec, stepped_over};

const IL: u64 = 1 << 25;

const ISV: u64 = 1 << 24;
const SSE: u64 = 1 << 21;
const SF: u64 = 1 << 15;

fn load(size_log2: u64, flags: u64) -> super::DataAbort {
    Syndrome(ec::DATA_ABORT << 26 | IL | ISV | size_log2 << 22 | 5 << 16 | flags | 0x07)
        .data_abort()
}

#[test]
fn loads_extend_as_their_instruction_says() {
    let value = 0xffff_ffff_ffff_ff80;
    assert_eq!(load(0, 0).extend(value), 0x80, "LDRB");
    assert_eq!(load(0, SSE).extend(value), 0xffff_ff80, "LDRSB W");
    assert_eq!(load(0, SSE | SF).extend(value), value, "LDRSB X");
    assert_eq!(
        load(1, SSE | SF).extend(0x8000),
        0xffff_ffff_ffff_8000,
        "LDRSH X"
    );
    assert_eq!(load(2, 0).extend(value), 0xffff_ff80, "LDR W");
    assert_eq!(
        load(2, SSE | SF).extend(0x8000_0000),
        0xffff_ffff_8000_0000,
        "LDRSW"
    );
    assert_eq!(load(3, SF).extend(value), value, "LDR X");
    assert_eq!(load(0, SSE).extend(0x7f), 0x7f);
}

/// G1-FLT-005: which of an access's faults the log calls one without syndrome.
#[test]
fn only_an_access_that_is_not_decoded_lacks_its_syndrome() {
    let abort = |flags: u64, status: u64| {
        let esr = ec::DATA_ABORT << 26 | IL | flags | status;
        Syndrome(esr).data_abort().lacks_syndrome()
    };
    const S1PTW: u64 = 1 << 7;
    // Translation and permission faults of each level, an access flag fault, an external abort.
    for (status, concerns) in [
        (0x04, true),
        (0x07, true),
        (0x0c, true),
        (0x0f, true),
        (0x0b, false),
        (0x10, false),
    ] {
        assert_eq!(abort(0, status), concerns, "LDP, {status:#x}");
        assert!(!abort(ISV, status), "LDR, {status:#x}");
        assert!(!abort(S1PTW, status), "a walk, {status:#x}");
    }
}

#[test]
fn stores_are_cut_to_their_size() {
    let value = 0x1122_3344_5566_7788;
    for (size, expected) in [(0, 0x88), (1, 0x7788), (2, 0x5566_7788), (3, value)] {
        assert_eq!(load(size, 0).truncate(value), expected);
    }
}

#[test]
fn fault_kinds() {
    for level in 0..4 {
        assert_eq!(
            Syndrome(0x04 | level).data_abort().kind(),
            FaultKind::Translation
        );
        assert_eq!(
            Syndrome(0x0c | level).data_abort().kind(),
            FaultKind::Permission
        );
        assert_eq!(
            Syndrome(0x08 | level).data_abort().kind(),
            FaultKind::Other,
            "access flag"
        );
        assert_eq!(
            Syndrome(level).data_abort().kind(),
            FaultKind::Other,
            "address size"
        );
    }
    assert_eq!(
        Syndrome(0x10).data_abort().kind(),
        FaultKind::Other,
        "external"
    );
    assert_eq!(
        Syndrome(0x21).data_abort().kind(),
        FaultKind::Other,
        "alignment"
    );
}

#[test]
fn a_register_is_found_in_its_syndrome() {
    // MRS X3, ICC_IAR1_EL1 (S3_0_C12_C12_0) as QEMU reported it.
    let id = SysregId::new(3, 0, 12, 12, 0);
    let access = Syndrome(ec::SYSREG << 26 | IL | u64::from(id.0) | 3 << 5 | 1).sysreg();
    assert_eq!(
        (access.id(), access.register(), access.is_read()),
        (id, 3, true)
    );
    assert_eq!(SysregId::new(3, 1, 2, 3, 4).fields(), (3, 1, 2, 3, 4));
}

#[test]
fn vectors_by_where_the_exception_came_from() {
    let vector = |pstate| Entry::synchronous(pstate, 0, false).vector_offset();
    assert_eq!(vector(0x3c5), 0x200, "EL1h");
    assert_eq!(vector(0x3c4), 0x000, "EL1t");
    assert_eq!(vector(0x000), 0x400, "EL0");
    assert_eq!(vector(0x1d0), 0x600, "AArch32 EL0");
}

#[test]
fn a_handler_is_masked_and_keeps_the_flags() {
    let entry = Entry::synchronous(0xf000_0000, 0, false);
    assert_eq!(entry.pstate(), 0xf000_03c5);
    let span = 1 << 23;
    assert_eq!(
        Entry::synchronous(0, 0, true).pstate() & 1 << 22,
        1 << 22,
        "SPAN = 0 sets PAN"
    );
    assert_eq!(
        Entry::synchronous(0, span, true).pstate() & 1 << 22,
        0,
        "SPAN = 1 leaves PAN"
    );
}

#[test]
fn an_external_abort_says_at_which_level_and_whether_it_was_a_write() {
    let store = Syndrome(ec::DATA_ABORT << 26 | IL | ISV | 1 << 6 | 0x07);
    let from_el1 = Entry::synchronous(0x3c5, 0, false).external_abort(store, None);
    assert_eq!(from_el1, ec::DATA_ABORT_SAME << 26 | IL | 1 << 6 | 0x10);
    let from_el0 = Entry::synchronous(0, 0, false).external_abort(store, None);
    assert_eq!(from_el0 >> 26, ec::DATA_ABORT);
    let fetch = Syndrome(ec::INSTRUCTION_ABORT << 26 | IL | 0x07);
    let fetched = Entry::synchronous(0x3c5, 0, false).external_abort(fetch, None);
    assert_eq!(fetched, ec::INSTRUCTION_ABORT_SAME << 26 | IL | 0x10);
}

/// G1-FLT-002.
#[test]
fn an_abort_on_a_walk_names_the_level_and_nothing_of_stage_2() {
    let s1ptw = 1 << 7;
    let walk = Syndrome(ec::DATA_ABORT << 26 | IL | s1ptw | 0x07);
    let entry = Entry::synchronous(0x3c5, 0, false);
    for level in 0..4 {
        assert_eq!(
            entry.external_abort(walk, Some(level)),
            ec::DATA_ABORT_SAME << 26 | IL | 0x14 | u64::from(level)
        );
    }
}

/// G1-FLT-003.
#[test]
fn a_handler_gets_the_speculation_that_sctlr_gives_it() {
    let (ssbs, dssbs) = (1 << 12, 1 << 44);
    assert_eq!(Entry::synchronous(0, dssbs, false).pstate() & ssbs, ssbs);
    assert_eq!(Entry::synchronous(ssbs, 0, false).pstate() & ssbs, 0);
}

/// G1-CPU-002: TI of a trapped WFx (QEMU 10 reports WFIT as WFI).
#[test]
fn a_wait_with_a_timeout_is_told_from_one_without() {
    let wfx = |ti| Syndrome(ec::WFX << 26 | IL | ti);
    assert_eq!(
        [0, 1, 2, 3].map(|ti| wfx(ti).is_wfe()),
        [false, true, false, true]
    );
    assert_eq!(
        [0, 1, 2, 3].map(|ti| wfx(ti).is_wfxt()),
        [false, false, true, true]
    );
}

/// G1-CPU-009.
#[test]
fn an_emulated_instruction_leaves_no_branch_type_and_no_step() {
    // EL1h with NZCV, SS, BTYPE and DAIF.
    assert_eq!(stepped_over(0xf020_0fc5), 0xf000_03c5);
}

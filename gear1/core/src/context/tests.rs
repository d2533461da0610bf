use super::{FpState, Frame, PSTATE_EL1H_MASKED, SCTLR_EL1_RESET, VcpuContext};
use crate::timer::PhysicalTimer;
use crate::vcpu::Start;

const START: Start = Start {
    pc: 0x4008_0000,
    argument: 0x4800_0000,
    warm: false,
};

#[test]
fn register_31_is_zero_and_takes_nothing() {
    let mut frame = Frame::default();
    for number in 0..32 {
        frame.set_reg(number, u64::from(number) + 100);
    }
    assert_eq!(frame.reg(30), 130);
    assert_eq!(frame.reg(31), 0);
    assert_eq!(frame.pc, 0);
}

#[test]
fn fp_registers_have_their_numbers() {
    let v = core::array::from_fn(|number| [2 * number as u64, 2 * number as u64 + 1]);
    let (fpsr, fpcr) = (64, 65);
    let all = FpState { v, fpsr, fpcr }.registers();
    assert_eq!(all, core::array::from_fn(|number| number as u64));
}

#[test]
fn a_reset_forgets_everything_but_whose_vcpu_it_is() {
    let mut context = VcpuContext::EMPTY;
    (context.hcr, context.vttbr, context.vmpidr) = (1, 2, 3);
    context.frame.x = [0xdead; 31];
    context.el1.ttbr0 = 4;
    context.el1.cntv_ctl = 1;
    context.fp.v[7] = [1, 2];
    (context.features, context.keys) = (4, [6; 10]);
    context.physical_timer = PhysicalTimer::new(1, 5);
    context.reset(START, 77);
    assert_eq!((context.hcr, context.vttbr, context.vmpidr), (1, 2, 3));
    assert_eq!(
        (context.frame.pc, context.frame.pstate),
        (0x4008_0000, PSTATE_EL1H_MASKED)
    );
    assert_eq!(
        (context.frame.reg(0), context.frame.reg(1)),
        (0x4800_0000, 0)
    );
    assert_eq!(
        (context.el1.sctlr, context.el1.ttbr0, context.el1.cntv_ctl),
        (SCTLR_EL1_RESET, 0, 0)
    );
    assert_eq!(context.fp.v[7], [0, 0]);
    assert_eq!((context.features, context.keys), (4, [0; 10]));
    assert_eq!(
        (context.cntvoff, context.physical_timer),
        (77, PhysicalTimer::OFF)
    );
}

/// G1-TIM-009.
#[test]
fn timers_run_on_through_power_down() {
    let mut context = VcpuContext::EMPTY;
    (context.el1.cntv_ctl, context.el1.cntv_cval) = (1, 1000);
    (context.el1.ttbr0, context.cntvoff) = (4, 33);
    context.physical_timer = PhysicalTimer::new(1, 5);
    let start = Start {
        warm: true,
        ..START
    };
    context.reset(start, 77);
    assert_eq!((context.el1.ttbr0, context.cntvoff), (0, 33));
    assert_eq!((context.el1.cntv_ctl, context.el1.cntv_cval), (1, 1000));
    assert_eq!(context.physical_timer, PhysicalTimer::new(1, 5));
}

/// G1-FLT-006: pending virtual interrupts and SErrors are of the life that ended.
#[test]
fn nothing_that_is_pending_outlives_a_reset() {
    const VF: u64 = 1 << 6;
    const VI: u64 = 1 << 7;
    const VSE: u64 = 1 << 8;
    for warm in [false, true] {
        let mut context = VcpuContext::EMPTY;
        context.hcr = 1 | VF | VI | VSE;
        context.el1.disr = 1 << 31;
        context.reset(Start { warm, ..START }, 77);
        assert_eq!((context.hcr, context.el1.disr), (1, 0), "warm: {warm}");
    }
}

use super::{Frame, PSTATE_EL1H_MASKED, SCTLR_EL1_RESET, VcpuContext};

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
fn a_reset_forgets_everything_but_whose_vcpu_it_is() {
    let mut context = VcpuContext::EMPTY;
    (context.hcr, context.vttbr, context.vmpidr) = (1, 2, 3);
    context.frame.x = [0xdead; 31];
    context.el1.ttbr0 = 4;
    context.el1.cntv_ctl = 1;
    context.fp.v[7] = [1, 2];
    context.reset(0x4008_0000, 0x4800_0000);
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
}

//! Scheduling in a manifest: the policies of CPUs, and the parameters of VMs.

use super::Section;
use super::binding::{BALANCERS, SCHEDULERS};
use crate::error::Report;
use crate::model::{PARAMETERS, Parameters, Policy};

/// Reads how CPUs are scheduled, from `/gear2` or a pool.
pub(super) fn read_policy<'a>(section: &Section<'a>, report: &mut Report<'_, 'a>) -> Policy {
    const DEFAULT: Policy = Policy::DEFAULT;
    Policy {
        scheduler: section
            .choice("scheduler", SCHEDULERS, report)
            .unwrap_or(DEFAULT.scheduler),
        slice_us: section.number("slice-us", report),
        ceiling_us: section
            .number("ceiling-us", report)
            .unwrap_or(DEFAULT.ceiling_us),
        balancer: section
            .choice("balancer", BALANCERS, report)
            .unwrap_or(DEFAULT.balancer),
    }
}

/// Reads the parameters of a VM.
pub(super) fn read_parameters<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> Parameters {
    let [
        weight,
        cap_percent,
        budget_us,
        period_us,
        priority,
        latency_us,
    ] = PARAMETERS.map(|name| vm.number(name, report));
    Parameters {
        weight,
        cap_percent,
        budget_us,
        period_us,
        priority,
        latency_us,
    }
}

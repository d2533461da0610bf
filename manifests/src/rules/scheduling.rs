//! Rules on scheduling: values that a policy can work with.

use super::error;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::{
    BUDGET_US, CAP_PERCENT, CEILING_US, LATENCY_US, PERIOD_US, PRIORITY, SLICE_US, WEIGHT,
};
use crate::model::{Manifest, Parameters, Policy, Vm, VmKind};

#[cfg(test)]
mod tests;

/// Judges what needs no placement.
pub(super) fn check<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    check_policy(
        &manifest.gear2.policy,
        NodePath::ROOT.child("gear2"),
        report,
    );
    for vm in manifest.vms.iter() {
        check_parameters(vm, report);
    }
}

/// Judges the numbers of a policy.
fn check_policy<'a>(policy: &Policy, node: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let ceiling_us = Some(policy.ceiling_us).filter(|us| *us != 0);
    let values = [
        ("slice-us", policy.slice_us, SLICE_US),
        ("ceiling-us", ceiling_us, CEILING_US),
    ];
    for (property, value, range) in values {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let place = ManifestError::at_property(Rule::OutOfRange, node, property);
            report.error(place.found(Found::Number(value.into())));
        }
    }
}

/// Judges the parameters of a VM by themselves.
fn check_parameters<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let parameters = &vm.parameters;
    for (property, value) in parameters.named() {
        let place = |rule| error(rule, vm, property).found(Found::Number(value.into()));
        if vm.kind == VmKind::RealTime {
            report.error(place(Rule::RealTimeParameter));
        } else if property == "period-us" && value < *PERIOD_US.start() {
            report.error(error(Rule::ShortPeriod, vm, property).found(Found::Us(value)));
        } else if !is_in_range(property, value) {
            report.error(place(Rule::OutOfRange));
        }
    }
    check_budget(vm, parameters, report);
}

/// Tells whether a parameter is in its range.
fn is_in_range(property: &str, value: u32) -> bool {
    let range = match property {
        "weight" => WEIGHT,
        "cap-percent" => CAP_PERCENT,
        "budget-us" => BUDGET_US,
        "period-us" => PERIOD_US,
        "priority" => PRIORITY,
        "latency-us" => LATENCY_US,
        _ => return true,
    };
    range.contains(&value)
}

/// Refuses a budget that does not fit into its period.
fn check_budget<'a>(vm: &Vm<'a>, parameters: &Parameters, report: &mut Report<'_, 'a>) {
    if let Some(server) = parameters.server()
        && server.budget_us > server.period_us
        && vm.kind != VmKind::RealTime
    {
        let place = error(Rule::BudgetTooLong, vm, "budget-us");
        report.error(place.found(Found::Budget(server)));
    }
}

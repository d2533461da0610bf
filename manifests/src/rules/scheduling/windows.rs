//! Rules on the windows of a major frame.

use super::pool_path;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::{LENGTH_US, START_US};
use crate::model::{Manifest, Policy, Scheduler, VmKind, Window};
use crate::nearest::nearest;

/// Judges the windows of a pool; `complete` says that no VM was left out.
pub(super) fn check<'a>(
    manifest: &Manifest<'a>,
    pool: Option<usize>,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    let policy = manifest.policy_of(pool);
    let node = pool_path(manifest, pool);
    if check_presence(manifest, pool, policy, node, report) {
        return;
    }
    // Windows are compared with those ahead of them, so each pair is told once.
    let windows = node.child("windows");
    for (index, window) in manifest.windows_of(pool).enumerate() {
        let path = windows.child(window.name);
        if check_place(window, policy, path, report) {
            let before = manifest.windows_of(pool).take(index);
            check_overlap(window, before, windows, report);
        }
        // The VM of a window may be one that was left out for its own errors.
        if complete {
            check_vm(manifest, window, path, report);
        }
    }
}

/// Refuses a window at the time of one of those before it: a CPU runs one VM at a time.
fn check_overlap<'m, 'a: 'm>(
    window: &Window<'a>,
    mut before: impl Iterator<Item = &'m Window<'a>>,
    windows: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    // Sums of two times are 64 bits wide: the latest end is beyond 32.
    let overlaps = |other: &&Window<'_>| {
        // planted: windows overlap
        u64::from(window.start_us) < other.end_us() && u64::from(other.start_us) < window.end_us()
    };
    if let Some(other) = before.find(overlaps) {
        let path = windows.child(window.name);
        let place = ManifestError::at_property(Rule::WindowOverlap, path, "start-us");
        let place = place.found(Found::Span(window.start_us.into(), window.end_us()));
        report.error(place.conflicts(windows.child(other.name)));
    }
}

/// Refuses windows without arinc653, and arinc653 without windows. Returns whether it has.
fn check_presence<'a>(
    manifest: &Manifest<'a>,
    pool: Option<usize>,
    policy: &Policy,
    node: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) -> bool {
    let has_windows = manifest.windows_of(pool).next().is_some();
    let is_arinc = policy.scheduler == Scheduler::Arinc653;
    // By what there is of the three: the policy, a frame, windows. All cases are written out, so
    // that a new one has to be thought of.
    let (rule, property) = match (is_arinc, policy.frame_us, has_windows) {
        // planted: windows have no frame
        (true, 0, _) => (Rule::NoFrame, "frame-us"),
        // A window that could not be read may be all that there is.
        (true, _, false) if report.gear2_is_faulty => return true,
        (true, _, false) => (Rule::NoFrame, "windows"),
        // planted: windows are nobody's to read
        (false, _, true) => (Rule::WindowsUnread, "windows"),
        (false, 1.., false) => (Rule::WindowsUnread, "frame-us"),
        (true, 1.., true) | (false, 0, false) => return false,
    };
    report.error(ManifestError::at_property(rule, node, property));
    true
}

/// Judges beginning and length of a window, and tells whether they are good.
fn check_place<'a>(
    window: &Window<'a>,
    policy: &Policy,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) -> bool {
    // Ranges first: an end that is the sum of damaged numbers says nothing about the frame.
    if !check_ranges(window, path, report) {
        return false;
    }
    // planted: a window ends behind its frame
    if window.end_us() > policy.frame_us.into() {
        let place = ManifestError::at_property(Rule::WindowOverflow, path, "length-us");
        report.error(place.found(Found::Overflow(window.end_us(), policy.frame_us)));
        return false;
    }
    true
}

/// Judges the two numbers of a window by themselves, and tells whether they are good. The first
/// that is not is reported alone, as one slip of the unit damages both.
fn check_ranges<'a>(window: &Window<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) -> bool {
    let values = [
        ("start-us", window.start_us, START_US),
        ("length-us", window.length_us, LENGTH_US),
    ];
    for (property, value, range) in values {
        if !range.contains(&value) {
            let place = ManifestError::at_property(Rule::OutOfRange, path, property);
            report.error(place.found(Found::Us(value)));
            return false;
        }
    }
    true
}

/// Judges the VM of a window, and that the VM is in the pool: other CPUs follow other windows. A
/// real-time VM has its CPUs all the time, so that a window for one is a mistake, too.
fn check_vm<'a>(
    manifest: &Manifest<'a>,
    window: &Window<'a>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    let Some(name) = window.vm else { return };
    let place = |rule| ManifestError::at_property(rule, path, "vm").found(Found::Text(name));
    let scheduled = || manifest.vms.iter().filter(|vm| vm.kind != VmKind::RealTime);
    match scheduled().find(|vm| vm.name == name) {
        // planted: a window is nobody's
        None => {
            let near = nearest(name, scheduled().map(|vm| vm.name));
            report.error(place(Rule::WindowVm).near(near));
        }
        // planted: a window is another pool's VM's
        Some(vm) if manifest.pool_of(vm) != window.pool => {
            report.error(place(Rule::WindowUnused).conflicts(NodePath::vm(name)));
        }
        Some(_) => {}
    }
}

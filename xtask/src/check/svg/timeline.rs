//! Time in the picture: the windows of major frames, and the parts of CPUs, each pool in its turn.
//!
//! An SVG tells its size before its content: heights are computed for the head, and again while the
//! content is drawn. All numbers are whole pixels, so that no rounding differs between machines.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{MEMORY_X, ROW, boxed, colour, text};
use crate::check::report::scheduling::{Part, Pool, Window};
use crate::check::report::{Owner, Report};

/// Pixels of a frame, or of a whole CPU. Fixed, so that frames of different lengths are drawn to
/// their own scales.
pub(in crate::check) const WIDTH: usize = 800;
/// Height of a bar. High enough for a label inside.
const BAR: usize = 36;
/// Below a bar: its scale.
const SCALE: usize = 22;
/// Under the memory map.
const LEFT: usize = MEMORY_X;
/// Labels of the last bounds stand beyond the bar's end. 80 pixels hold the longest time of a
/// frame.
const RIGHT: usize = LEFT + WIDTH + 80;

/// Returns width and height of what [`draw`] draws. Computed before anything is drawn, because the
/// head of an SVG has it.
pub(super) fn size(report: &Report) -> (usize, usize) {
    let heights = report.pools.iter().map(height);
    (RIGHT, heights.sum::<usize>() + 2 * ROW)
}

/// Has to count what [`draw`] draws; a picture cut off at the bottom shows where it does not. Lines
/// of text, bars and space below, in the order of drawing.
fn height(pool: &Pool) -> usize {
    let frame = if pool.windows.is_empty() {
        0
    } else {
        BAR + SCALE
    };
    let cpus = pool
        .cpus
        .iter()
        .map(|(_, parts)| BAR + ROW + parts.len() * ROW);
    ROW + pool.vms.len() * ROW + frame + cpus.sum::<usize>() + ROW
}

/// Draws all pools below `y`. Pools follow each other in the order of the text.
pub(super) fn draw(svg: &mut String, report: &Report, mut y: usize) {
    text(svg, LEFT, y, "14", "Scheduling");
    y += ROW;
    for pool in &report.pools {
        text(svg, LEFT, y + 12, "12", &pool.title);
        let mut below = y + ROW;
        for vm in &pool.vms {
            text(svg, LEFT + 20, below + 12, "12", vm);
            below += ROW;
        }
        if !pool.windows.is_empty() {
            draw_frame(svg, report, pool, below);
            below += BAR + SCALE;
        }
        for (cpu, parts) in &pool.cpus {
            below = draw_cpu(svg, report, cpu, parts, below);
        }
        y += height(pool);
    }
}

/// Draws the windows of a frame, each with its begin below. Time without a window is hatched:
/// nobody runs there.
fn draw_frame(svg: &mut String, report: &Report, pool: &Pool, y: usize) {
    let frame = u64::from(pool.frame_us).max(1);
    let place = |us: u64| LEFT + (us * WIDTH as u64 / frame) as usize;
    text(svg, LEFT - 100, y + BAR / 2 + 4, "12", "frame");
    hatched(svg, LEFT, y, WIDTH);
    for window in &pool.windows {
        draw_window(
            svg,
            report,
            window,
            (place(window.start_us), place(window.end_us)),
            y,
        );
    }
    let mut free = 0;
    for us in bounds(pool, frame) {
        // A label that would lie over the one before it is left out.
        if place(us) >= free {
            text(svg, place(us), y + BAR + 14, "10", &format!("{us} us"));
            free = place(us) + 60;
        }
    }
}

/// Returns the times of a frame, in microseconds, at which a window begins or ends, and the frame's
/// end. A set, as windows that follow each other share a bound.
fn bounds(pool: &Pool, frame: u64) -> BTreeSet<u64> {
    let windows = pool.windows.iter();
    let bounds = windows.flat_map(|window| [window.start_us, window.end_us]);
    bounds.chain([frame]).collect()
}

/// Draws a window, at least a pixel wide: one that is too short to be seen is still time that
/// nobody else has. A window of no VM is white, like all that has no single owner.
fn draw_window(
    svg: &mut String,
    report: &Report,
    window: &Window,
    (start, end): (usize, usize),
    y: usize,
) {
    let fill = window.owner.map_or("#ffffff", colour);
    let width = end.saturating_sub(start).max(1);
    boxed(svg, start, y, (width, BAR), fill);
    inside(svg, (start, y, width), &report.window_label(window));
}

/// Draws the parts of a CPU, and returns where the next thing goes. Labels stand below the bar,
/// because small parts have no room inside. Parts beyond the whole CPU are drawn up to the edge: a
/// rule has refused them, and the label has the number.
fn draw_cpu(svg: &mut String, report: &Report, cpu: &str, parts: &[Part], y: usize) -> usize {
    text(svg, LEFT - 100, y + BAR / 2 + 4, "12", cpu);
    let mut before = 0;
    let place = |ppm: u64| LEFT + (ppm.min(1_000_000) * WIDTH as u64 / 1_000_000) as usize;
    let mut below = y + BAR + 4;
    for part in parts {
        let (start, end) = (place(before), place(before + part.ppm));
        boxed(
            svg,
            start,
            y,
            (end.saturating_sub(start).max(1), BAR),
            colour(part.owner),
        );
        boxed(svg, LEFT + 20, below, (12, ROW - 4), colour(part.owner));
        text(svg, LEFT + 40, below + 12, "12", &report.part_label(part));
        before += part.ppm;
        below += ROW;
    }
    below + ROW - 4
}

/// Writes into a box what fits. A label that does not fit is cut at its colon, down to the VM's
/// name, or left out.
fn inside(svg: &mut String, (x, y, width): (usize, usize, usize), label: &str) {
    let room = width.saturating_sub(8) / super::LETTER;
    let letters = label.chars().count();
    if letters <= room {
        text(svg, x + 4, y + BAR / 2 + 4, "12", label);
    } else if let Some((short, _)) = label.split_once(':')
        && short.chars().count() <= room
    {
        text(svg, x + 4, y + BAR / 2 + 4, "12", short);
    }
}

/// Draws time that nobody has. Lines and no pattern: not every viewer knows SVG patterns. Gear2's
/// colour, as the time is Gear2's to give.
fn hatched(svg: &mut String, x: usize, y: usize, width: usize) {
    boxed(svg, x, y, (width, BAR), colour(Owner::Gear2));
    for at in (x..x + width).step_by(12) {
        let end = (at + 12).min(x + width);
        writeln!(
            svg,
            "<line x1=\"{at}\" y1=\"{}\" x2=\"{end}\" y2=\"{y}\" stroke=\"#868e96\"/>",
            y + BAR
        )
        .expect("writing to a String does not fail");
    }
}

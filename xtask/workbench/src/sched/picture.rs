//! The time line as an SVG picture: a lane for each CPU, and one for each of its vCPUs.
//!
//! A vCPU's lane shows its runs as blocks, the waits after its wake-ups as a thin line, and the
//! wake-ups as strokes.

use std::fmt::Write as _;

use super::Simulated;
use super::figures::us;
use crate::svg;

/// Room for the names, in pixels; the time line begins there.
const LEFT: f64 = 150.0;
/// Width of the time line.
const WIDTH: f64 = 1_200.0;
/// Room for the axis above the first lane.
const TOP: f64 = 40.0;
/// Height of a lane with the space below.
const LANE: f64 = 22.0;
/// Height of a block.
const BAR: f64 = 14.0;
/// Space below the lanes of a CPU.
const GAP: f64 = 12.0;
/// Shorter pauses between two blocks cannot be seen. In pixels. Blocks that are nearer are drawn as
/// one: a file with each run of a second has megabytes.
const FINEST: f64 = 0.4;
/// Red: what waits is what a reader looks for.
const WAIT: &str = "#c1121f";

/// A part of the time line, in ticks. A whole simulation has more runs than a picture has pixels.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// First tick.
    pub start: u64,
    /// Tick behind the last one.
    pub end: u64,
}

impl Section {
    /// Times outside are moved to the edge, so that a run that begins before is drawn.
    fn x(self, time: u64) -> f64 {
        let time = time.clamp(self.start, self.end) - self.start;
        LEFT + WIDTH * time as f64 / (self.end - self.start) as f64
    }

    /// Ends are exclusive.
    const fn overlaps(self, start: u64, end: u64) -> bool {
        start < self.end && end > self.start
    }
}

/// Draws a section of a simulation. Plain rectangles and lines: a browser shows the file without a
/// script.
pub fn draw(simulated: &[Simulated], section: Section) -> String {
    let lanes: usize = simulated.iter().map(|cpu| cpu.lanes.len() + 1).sum();
    let height = TOP + LANE * lanes as f64 + GAP * simulated.len() as f64 + 20.0;
    let width = LEFT + WIDTH + 30.0;
    let mut svg = svg::head(width, height);
    draw_axis(&mut svg, section, height);
    let mut y = TOP;
    for cpu in simulated {
        draw_cpu(&mut svg, cpu, section, y);
        y += LANE;
        for task in 0..cpu.lanes.len() {
            draw_vcpu(&mut svg, cpu, task, section, y);
            y += LANE;
        }
        y += GAP;
    }
    svg + "</svg>\n"
}

/// Draws lines at round times, between 6 and 15 of them. Steps of 1, 2 and 5 are what people read
/// without counting.
fn draw_axis(svg: &mut String, section: Section, height: f64) {
    let length = section.end - section.start;
    let steps = (0..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let step = steps
        .into_iter()
        .find(|step| length / step <= 12)
        .unwrap_or(length.max(1));
    let mut time = section.start.next_multiple_of(step);
    while time <= section.end {
        let (x, bottom) = (section.x(time), height - 16.0);
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n",
            TOP - 12.0,
            TOP - 16.0,
            time_text(time)
        );
        time += step;
    }
}

/// The unit changes once, at a millisecond.
fn time_text(time: u64) -> String {
    match time {
        _ if time.is_multiple_of(1_000_000) => format!("{} ms", time / 1_000_000),
        _ if time < 1_000_000 => format!("{} us", us(time)),
        _ => format!("{} ms", us(time) / 1_000.0),
    }
}

/// The lane of a CPU has all runs there: a gap is idle time.
fn draw_cpu(svg: &mut String, cpu: &Simulated, section: Section, y: f64) {
    let label = format!("CPU {}, {}", cpu.cpu, cpu.policy);
    draw_label(svg, &label, y, "bold");
    for task in 0..cpu.lanes.len() {
        draw_runs(svg, cpu, task, section, y);
    }
}

/// Waits are drawn first, and runs over them.
fn draw_vcpu(svg: &mut String, cpu: &Simulated, task: usize, section: Section, y: f64) {
    draw_label(svg, &cpu.lanes[task].name, y, "normal");
    let middle = y + BAR / 2.0;
    for (wake, latency) in &cpu.virtual_cpu.tasks[task].wakes {
        let end = wake + latency;
        if !section.overlaps(*wake, end + 1) {
            continue;
        }
        let (start, end) = (section.x(*wake), section.x(end));
        let _ = writeln!(
            svg,
            "<path d=\"M{start:.2} {y:.1}v{BAR} M{start:.2} {middle:.1}H{end:.2}\" \
             stroke=\"{WAIT}\" fill=\"none\"/>"
        );
    }
    draw_runs(svg, cpu, task, section, y);
}

/// Returns begin and end of each block of a vCPU's runs, on the picture's axis. Runs with a pause
/// that cannot be seen become one block. A simulation of seconds would else be a file of megabytes.
fn blocks(cpu: &Simulated, task: usize, section: Section) -> Vec<(f64, f64)> {
    let runs = cpu.virtual_cpu.stretches.iter();
    let runs = runs.filter(|run| run.task == task && section.overlaps(run.start, run.end));
    let mut blocks: Vec<(f64, f64)> = Vec::new();
    for run in runs {
        let (start, end) = (section.x(run.start), section.x(run.end));
        match blocks.last_mut() {
            Some(last) if start - last.1 < FINEST => last.1 = end,
            _ => blocks.push((start, end)),
        }
    }
    blocks
}

/// A run is at least as wide as can be seen.
fn draw_runs(svg: &mut String, cpu: &Simulated, task: usize, section: Section, y: f64) {
    let colour = svg::COLOURS[cpu.lanes[task].vm % svg::COLOURS.len()];
    for (start, end) in blocks(cpu, task, section) {
        let width = (end - start).max(FINEST);
        let _ = writeln!(
            svg,
            "<rect x=\"{start:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{BAR}\" \
             fill=\"{colour}\"/>"
        );
    }
}

/// Names come from manifests, hence the escapes.
fn draw_label(svg: &mut String, text: &str, y: f64, weight: &str) {
    let text = svg::escaped(text);
    let y = y + BAR - 3.0;
    let _ = writeln!(
        svg,
        "<text x=\"10\" y=\"{y:.1}\" font-weight=\"{weight}\">{text}</text>"
    );
}

//! The report as a picture: the memory map from the lowest address down, CPUs, devices and
//! interrupts beside it, each in its owner's colour.

use std::fmt::Write as _;

use super::{Item, Owner, Range, Report, bytes};

const WIDTH: usize = 1280;
const MEMORY_X: usize = 200;
const MEMORY_WIDTH: usize = 430;
const LISTS_X: usize = 660;
const TOP: usize = 70;
const ROW: usize = 20;
/// The height of the smallest range, and what each doubling of 2 MiB adds.
const SMALLEST: usize = 20;
const STEP: usize = 6;
/// Colours of VMs, taken in turn.
const COLOURS: [&str; 8] = [
    "#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#84dcc6", "#f4a261", "#a3b18a",
];

pub(super) fn draw(report: &Report) -> String {
    let memory_height: usize = report.memory.iter().map(height).sum();
    let lists = [
        ("CPUs", &report.cpus),
        ("Devices", &report.devices),
        ("Interrupts", &report.interrupts),
    ];
    let list_height: usize = lists.iter().map(|(_, list)| (list.len() + 2) * ROW).sum();
    let height = TOP + memory_height.max(list_height) + ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, 20, 30, "18", &report.title);
    text(&mut svg, MEMORY_X, TOP - 10, "14", "Memory (not to scale)");
    draw_memory(&mut svg, report);
    let mut y = TOP - 10;
    for (title, items) in lists {
        text(&mut svg, LISTS_X, y, "14", title);
        y += 10;
        for item in items {
            draw_item(&mut svg, report, item, y);
            y += ROW;
        }
        y += 2 * ROW - 10;
    }
    svg + "</svg>\n"
}

/// Grows with the logarithm, so that 4 KiB and 4 GiB can both be seen.
fn height(range: &Range) -> usize {
    let blocks = range.region.bytes() >> 21;
    SMALLEST + STEP * (u64::BITS - blocks.leading_zeros()) as usize
}

fn draw_memory(svg: &mut String, report: &Report) {
    let mut y = TOP;
    for range in &report.memory {
        let height = height(range);
        boxed(
            svg,
            MEMORY_X,
            y,
            (MEMORY_WIDTH, height),
            colour(range.owner),
        );
        let start = format!("{:#012x}", range.region.start);
        text(svg, MEMORY_X - 110, y + 12, "11", &start);
        let size = bytes(range.region.bytes());
        let label = match range.owner {
            Owner::Nobody => format!("left: {size}"),
            owner => format!("{}, {size}: {}", report.owner(owner), range.what),
        };
        text(svg, MEMORY_X + 8, y + height / 2 + 4, "12", &label);
        y += height;
    }
}

fn draw_item(svg: &mut String, report: &Report, item: &Item, y: usize) {
    boxed(svg, LISTS_X, y, (12, ROW - 4), colour(item.owner));
    let owner = report.owner(item.owner);
    let what = if item.what.is_empty() {
        String::new()
    } else {
        format!(" ({})", item.what)
    };
    let label = format!("{}: {owner}{what}", item.name);
    text(svg, LISTS_X + 20, y + 12, "12", &label);
}

const fn colour(owner: Owner) -> &'static str {
    match owner {
        Owner::Nobody => "#ffffff",
        Owner::Firmware => "#bbbbbb",
        Owner::Gear1 => "#6c757d",
        Owner::Gear2 => "#adb5bd",
        Owner::Vm(index) => COLOURS[index % COLOURS.len()],
    }
}

fn boxed(svg: &mut String, x: usize, y: usize, (width, height): (usize, usize), fill: &str) {
    writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" stroke=\"black\"/>"
    )
    .expect("writing to a String does not fail");
}

fn text(svg: &mut String, x: usize, y: usize, size: &str, text: &str) {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\">{text}</text>"
    )
    .expect("writing to a String does not fail");
}

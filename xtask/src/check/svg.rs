//! The report as a picture: the memory map from the lowest address down, CPUs, devices and
//! interrupts beside it, the time of the CPUs below, each in its owner's colour.
//!
//! The picture is made from the report and never from the manifest: what it shows is what the text
//! says.

use std::fmt::Write as _;

use workbench::svg;

use super::report::{Item, Owner, Range, Report, bytes};

pub(super) mod timeline;

/// Pixels from the left edge to the memory map; addresses stand before it.
const MEMORY_X: usize = 130;
/// Width of the memory map in pixels if all labels are short.
const LEAST_WIDTH: usize = 300;
/// Between the columns.
const GAP: usize = 30;
/// Where the columns begin, below the title.
const TOP: usize = 70;
/// Between two banks of memory.
const BANK_GAP: usize = 12;
/// Pixels of a letter, on average and a little more. Text in SVG has no size before it is drawn, so
/// this is an estimate on the safe side.
const LETTER: usize = 7;
/// Height of a line of text.
const ROW: usize = 20;
/// The height of the smallest range, and what each doubling of 2 MiB adds.
const SMALLEST: usize = 20;
/// Enough to tell 2 MiB from 4 GiB, and small enough for a page.
const STEP: usize = 6;

/// Draws the report; the columns are as wide as their longest labels.
pub(super) fn draw(report: &Report) -> String {
    let lists = [
        ("CPUs", &report.cpus),
        ("Devices", &report.devices),
        ("Interrupts", &report.interrupts),
    ];
    let list_height: usize = lists.iter().map(|(_, list)| (list.len() + 2) * ROW).sum();
    let time_y = TOP + memory_height(report).max(list_height) + 2 * ROW;
    let (time_width, time_height) = timeline::size(report);
    let height = time_y + time_height;
    let memory_width = widest(report.memory.iter().map(|range| range_label(report, range)));
    let lists_x = MEMORY_X + memory_width + GAP;
    let items = lists.iter().flat_map(|(_, list)| list.iter());
    let width = lists_x + widest(items.map(|item| item_label(report, item))) + GAP;
    let mut svg = svg::head(width.max(time_width), height);
    text(&mut svg, 20, 30, "18", &report.title);
    text(&mut svg, MEMORY_X, TOP - 10, "14", "Memory (not to scale)");
    draw_memory(&mut svg, report, memory_width);
    draw_lists(&mut svg, report, &lists, lists_x);
    timeline::draw(&mut svg, report, time_y);
    svg + "</svg>\n"
}

/// Draws lists of items one below the other, each under its title. The three lists share a column,
/// since CPUs are few where devices are many.
fn draw_lists(svg: &mut String, report: &Report, lists: &[(&str, &Vec<Item>)], x: usize) {
    let mut y = TOP - 10;
    for (title, items) in lists {
        text(svg, x, y, "14", title);
        y += 10;
        for item in *items {
            draw_item(svg, report, item, (x, y));
            y += ROW;
        }
        y += 2 * ROW - 10;
    }
}

/// Returns the height of the memory map in pixels. Gaps between banks are as wide as others,
/// however far apart the banks are.
fn memory_height(report: &Report) -> usize {
    let ranges: usize = report.memory.iter().map(height).sum();
    let pairs = report.memory.windows(2);
    let gaps = pairs.filter(|pair| pair[0].region.end < pair[1].region.start);
    ranges + BANK_GAP * gaps.count()
}

/// Grows with the logarithm, so that 4 KiB and 4 GiB can both be seen.
fn height(range: &Range) -> usize {
    let blocks = range.region.bytes() >> 21;
    SMALLEST + STEP * (u64::BITS - blocks.leading_zeros()) as usize
}

/// Returns the width in pixels of the longest label, with the space before it. Labels decide: names
/// of VMs and devices are the manifest's.
fn widest(labels: impl Iterator<Item = String>) -> usize {
    let longest = labels.map(|label| label.chars().count()).max();
    LEAST_WIDTH.max(longest.unwrap_or(0) * LETTER + 2 * ROW)
}

/// Draws the banks from the lowest address down, as the table lists them.
fn draw_memory(svg: &mut String, report: &Report, width: usize) {
    let mut y = TOP;
    let mut end = None;
    for range in &report.memory {
        let height = height(range);
        // The machine has no memory between the two.
        if end
            .replace(range.region.end)
            .is_some_and(|end| end < range.region.start)
        {
            y += BANK_GAP;
        }
        boxed(svg, MEMORY_X, y, (width, height), colour(range.owner));
        let start = format!("{:#012x}", range.region.start);
        text(svg, MEMORY_X - 100, y + 12, "11", &start);
        let label = range_label(report, range);
        text(svg, MEMORY_X + 8, y + height / 2 + 4, "12", &label);
        y += height;
    }
}

/// Memory that is left has no use to name.
fn range_label(report: &Report, range: &Range) -> String {
    let size = bytes(range.region.bytes());
    match range.owner {
        Owner::Nobody => format!("left: {size}"),
        owner => format!("{}, {size}: {}", report.owner(owner), range.what),
    }
}

/// A square in the owner's colour, and the text behind.
fn draw_item(svg: &mut String, report: &Report, item: &Item, (x, y): (usize, usize)) {
    boxed(svg, x, y, (12, ROW - 4), colour(item.owner));
    text(svg, x + 20, y + 12, "12", &item_label(report, item));
}

/// Details in parentheses, for they are missing where there are none.
fn item_label(report: &Report, item: &Item) -> String {
    let owner = report.owner(item.owner);
    let what = match item.what.as_str() {
        "" => String::new(),
        what => format!(" ({what})"),
    };
    format!("{}: {owner}{what}", item.name)
}

/// Nobody is white: free resources look empty.
const fn colour(owner: Owner) -> &'static str {
    match owner {
        Owner::Nobody => "#ffffff",
        Owner::Firmware => "#868e96",
        Owner::Gear1 => "#a9b1b8",
        Owner::Gear2 => "#dee2e6",
        Owner::Shared => "#ffe066",
        Owner::Vm(index) => svg::COLOURS[index % svg::COLOURS.len()],
    }
}

/// Draws a rectangle with an edge, which tells neighbours of one colour apart.
fn boxed(svg: &mut String, x: usize, y: usize, (width, height): (usize, usize), fill: &str) {
    writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" stroke=\"black\"/>"
    )
    .expect("writing to a String does not fail");
}

/// Names come from manifests, hence the escapes.
fn text(svg: &mut String, x: usize, y: usize, size: &str, text: &str) {
    let text = svg::escaped(text);
    writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\">{text}</text>"
    )
    .expect("writing to a String does not fail");
}

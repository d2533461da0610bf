//! The screen of `gearctl top` on a terminal: a table of VMs or vCPUs, and the history of one.
//!
//! Knows neither GDM nor the terminal: rows and keys come in, a frame goes out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState};

use crate::command::answer::{Load, Percent};

#[cfg(test)]
mod tests;

/// Seconds of history that are kept of a row: as wide as a wide terminal.
const KEPT: usize = 600;
/// Rows of the history, with its frame.
const CHART: u16 = 6;
/// Names and widths of the table's columns.
const COLUMNS: [(&str, u16); 7] = [
    ("VCPU", 5),
    ("VM", 20),
    ("SHARE", 9),
    ("WAIT", 9),
    ("STEAL", 9),
    ("PREEMPTIONS", 11),
    ("EXITS", 10),
];
/// Fewest rows of a terminal that has room for the history.
const HIGH: u16 = 14;

const KEYS: &str = "q quit  v VMs/vCPUs  s sort  space freeze  up/down choose  r reset";

/// Order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As Gear2 numbers them.
    Number,
    Share,
    Wait,
    Exits,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Number => Self::Share,
            Self::Share => Self::Wait,
            Self::Wait => Self::Exits,
            Self::Exits => Self::Number,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Share => "share",
            Self::Wait => "wait",
            Self::Exits => "exits",
        }
    }
}

/// Effect of a key beyond the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// None.
    Stays,
    /// The program is to end.
    Quits,
}

/// Name of a row: a VM, or a vCPU of it by the number over all VMs.
type Key = (String, Option<u64>);

/// History of a row in tenths of a percent, the newest last; 0 for a real-time VM's shares.
#[derive(Clone, Debug, Default)]
struct History {
    share: VecDeque<u64>,
    exits: VecDeque<u64>,
}

/// The screen.
#[derive(Debug)]
pub(super) struct Screen {
    /// Rows by VM and by vCPU, of the last second that is shown.
    vms: Vec<Load>,
    vcpus: Vec<Load>,
    by_vcpu: bool,
    order: Order,
    /// The shown figures stay. Histories go on.
    is_frozen: bool,
    histories: BTreeMap<Key, History>,
    /// The row whose history is shown, by its name: rows change places.
    chosen: Option<Key>,
    /// Seconds since the start.
    seconds: u64,
    /// The present failure.
    trouble: Option<String>,
}

impl Screen {
    pub(super) const fn new(by_vcpu: bool) -> Self {
        Self {
            vms: Vec::new(),
            vcpus: Vec::new(),
            by_vcpu,
            order: Order::Number,
            is_frozen: false,
            histories: BTreeMap::new(),
            chosen: None,
            seconds: 0,
            trouble: None,
        }
    }

    /// Takes the figures of another second.
    pub(super) fn take(&mut self, vms: Vec<Load>, vcpus: Vec<Load>) {
        self.seconds += 1;
        self.trouble = None;
        for load in vms.iter().chain(&vcpus) {
            let history = self.histories.entry(key_of(load)).or_default();
            let tenths = load.share_percent.map_or(0.0, Percent::number) * 10.0;
            keep(&mut history.share, tenths as u64);
            keep(&mut history.exits, load.exits);
        }
        if !self.is_frozen {
            (self.vms, self.vcpus) = (vms, vcpus);
        }
    }

    /// Says what is wrong, until figures come again.
    pub(super) fn complain(&mut self, trouble: &str) {
        self.trouble = Some(trouble.to_owned());
    }

    /// Does what a key is for.
    pub(super) fn press(&mut self, key: KeyEvent) -> Effect {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Effect::Quits,
            // A terminal in raw mode makes no signal of it.
            KeyCode::Char('c') if is_control => return Effect::Quits,
            KeyCode::Char('v') => {
                self.by_vcpu = !self.by_vcpu;
                self.chosen = None;
            }
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char(' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('r') => self.histories.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            _ => {}
        }
        Effect::Stays
    }

    /// Returns the rows in their order.
    fn rows(&self) -> Vec<&Load> {
        let rows = if self.by_vcpu { &self.vcpus } else { &self.vms };
        let mut rows: Vec<&Load> = rows.iter().collect();
        let tenths = |part: Option<Percent>| part.map(|part| (part.number() * 10.0) as u64);
        match self.order {
            Order::Number => {}
            Order::Share => rows.sort_by_key(|load| Reverse(tenths(load.share_percent))),
            Order::Wait => rows.sort_by_key(|load| Reverse(tenths(load.wait_percent))),
            Order::Exits => rows.sort_by_key(|load| Reverse(load.exits)),
        }
        rows
    }

    /// Returns the place of the chosen row, the first one unless another was chosen.
    fn place(&self, rows: &[&Load]) -> usize {
        let chosen = self.chosen.as_ref();
        let place = chosen.and_then(|key| rows.iter().position(|load| key_of(load) == *key));
        place.unwrap_or(0)
    }

    /// Chooses the row above or below.
    fn choose(&mut self, step: isize) {
        let rows = self.rows();
        let place = self.place(&rows).saturating_add_signed(step);
        let place = place.min(rows.len().saturating_sub(1));
        self.chosen = rows.get(place).map(|load| key_of(load));
    }

    /// Draws all.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let chart = if area.height >= HIGH { CHART } else { 0 };
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(chart),
            Constraint::Length(1),
        ]);
        let [head, body, history, foot] = parts.areas(area);
        let rows = self.rows();
        frame.render_widget(self.head(), head);
        self.draw_table(frame, body, &rows);
        if chart > 0 {
            self.draw_history(frame, history, &rows);
        }
        frame.render_widget(self.foot(), foot);
    }

    fn head(&self) -> Paragraph<'_> {
        let what = if self.by_vcpu { "vCPUs" } else { "VMs" };
        let frozen = if self.is_frozen { ", frozen" } else { "" };
        let order = self.order.text();
        let (seconds, count) = (self.seconds, self.rows().len());
        let text = format!("gearctl top  {count} {what} by {order}, {seconds} s{frozen}");
        Paragraph::new(Line::styled(text, Modifier::BOLD))
    }

    fn foot(&self) -> Paragraph<'_> {
        Paragraph::new(match &self.trouble {
            Some(trouble) => Line::styled(trouble.as_str(), Modifier::REVERSED),
            None => Line::raw(KEYS),
        })
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect, rows: &[&Load]) {
        // A row of a VM has no number.
        let first = usize::from(!self.by_vcpu);
        let cells = rows
            .iter()
            .map(|load| Row::new(cells(load).into_iter().skip(first)));
        let names = COLUMNS.iter().map(|(name, _)| *name).skip(first);
        let widths = COLUMNS.iter().map(|(_, width)| *width).skip(first);
        let table = Table::new(cells, widths)
            .header(Row::new(names).style(Modifier::UNDERLINED))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(self.place(rows));
        frame.render_stateful_widget(table, area, &mut state);
    }

    /// Draws the history of the chosen row: its share, or of a real-time VM, whose time nobody
    /// counts, its exits. The newest second is at the right.
    fn draw_history(&self, frame: &mut Frame<'_>, area: Rect, rows: &[&Load]) {
        let Some(load) = rows.get(self.place(rows)) else {
            return;
        };
        let history = self
            .histories
            .get(&key_of(load))
            .cloned()
            .unwrap_or_default();
        let is_counted = load.share_percent.is_some();
        let figures = if is_counted {
            history.share
        } else {
            history.exits
        };
        let width = usize::from(area.width.saturating_sub(2));
        let old = figures.len().saturating_sub(width);
        let shown: Vec<u64> = figures.into_iter().skip(old).collect();
        // Several vCPUs may have more than one CPU's time.
        let most = shown.iter().copied().max().unwrap_or(0);
        let (what, top) = match is_counted {
            true => ("share, to", most.max(1000)),
            false => ("exits, to", most.max(1)),
        };
        let scale = if is_counted {
            format!("{} %", top / 10)
        } else {
            top.to_string()
        };
        let title = format!(" {}: {what} {scale}, {} s ", name_of(load), shown.len());
        let padding = width - shown.len();
        let bars = std::iter::repeat_n(0, padding).chain(shown);
        let chart = Sparkline::default()
            .block(Block::bordered().title(title))
            .max(top)
            .data(bars.collect::<Vec<u64>>());
        frame.render_widget(chart, area);
    }
}

fn key_of(load: &Load) -> Key {
    (load.vm.clone(), load.vcpu)
}

fn name_of(load: &Load) -> String {
    match load.vcpu {
        Some(vcpu) => format!("vCPU {vcpu} of {}", load.vm),
        None => load.vm.clone(),
    }
}

/// Adds a figure to a history of bounded length.
fn keep(history: &mut VecDeque<u64>, figure: u64) {
    if history.len() == KEPT {
        history.pop_front();
    }
    history.push_back(figure);
}

/// Returns the cells of a row. Figures that nobody counts are dashes.
fn cells(load: &Load) -> [String; 7] {
    let part = |part: Option<Percent>| match part {
        Some(part) => format!("{:6.1} %", part.number()),
        None => "       -".into(),
    };
    let share = match load.share_percent {
        None => " own CPU".into(),
        counted => part(counted),
    };
    let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    [
        number(load.vcpu),
        load.vm.clone(),
        share,
        part(load.wait_percent),
        part(load.steal_percent),
        format!("{:>11}", number(load.preemptions)),
        format!("{:>10}", load.exits),
    ]
}

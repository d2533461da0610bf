//! A terminal, as a program that draws on it sees it: characters and escape sequences come in, a
//! screen of cells is what a person sees.
//!
//! Knows the sequences (ECMA-48, and xterm's of the other screen) by which `gearctl top` draws;
//! colours are passed over.

use std::iter::Peekable;
use std::str::Chars;

#[cfg(test)]
mod tests;

/// How a character is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// In bold.
    pub bold: bool,
    /// With a line below.
    pub underlined: bool,
    /// With the colours of text and background exchanged.
    pub reversed: bool,
}

/// A cell of the screen.
type Cell = (char, Style);

/// A terminal. No scrolling: a program that has the screen for itself places every line.
#[derive(Clone, Debug)]
pub struct Terminal {
    rows: Vec<Vec<Cell>>,
    /// Row and column of the next character.
    at: (usize, usize),
    style: Style,
}

impl Terminal {
    /// Makes an empty terminal.
    pub fn new(columns: usize, lines: usize) -> Self {
        Self {
            rows: vec![vec![(' ', Style::default()); columns]; lines],
            at: (0, 0),
            style: Style::default(),
        }
    }

    /// Shows what a program prints.
    pub fn show(&mut self, printed: &str) {
        let mut chars = printed.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\x1b' if chars.peek() == Some(&'[') => {
                    chars.next();
                    self.obey(&mut chars);
                }
                // No other sequence is longer than its next character.
                '\x1b' => drop(chars.next()),
                // The driver of a serial line puts a carriage return before it.
                '\n' => self.at = (self.at.0 + 1, 0),
                c if c.is_control() => {}
                c => self.put(c),
            }
        }
    }

    /// Returns a row's text, without the blanks at its end.
    pub fn row(&self, row: usize) -> String {
        let cells = self.rows.get(row).map_or(&[][..], Vec::as_slice);
        let text: String = cells.iter().map(|(c, _)| c).collect();
        text.trim_end().to_owned()
    }

    /// Returns the number of rows.
    pub const fn lines(&self) -> usize {
        self.rows.len()
    }

    /// Returns a row's parts of one style each, with the column that each begins in.
    pub fn parts(&self, row: usize) -> Vec<(usize, Style, String)> {
        let mut parts: Vec<(usize, Style, String)> = Vec::new();
        for (column, (c, style)) in self.rows.get(row).into_iter().flatten().enumerate() {
            match parts.last_mut() {
                Some((_, last, text)) if last == style => text.push(*c),
                _ => parts.push((column, *style, c.to_string())),
            }
        }
        parts
    }

    /// Puts a character. One outside of the screen is lost: a program that draws there has the wrong
    /// size.
    fn put(&mut self, c: char) {
        let (row, column) = self.at;
        let cell = self.rows.get_mut(row).and_then(|row| row.get_mut(column));
        if let Some(cell) = cell {
            *cell = (c, self.style);
        }
        self.at.1 += 1;
    }

    /// Obeys a control sequence, of which the introducer has been read.
    fn obey(&mut self, chars: &mut Peekable<Chars<'_>>) {
        let mut parameters = String::new();
        let last = loop {
            match chars.next() {
                Some(c) if ('\x40'..='\x7e').contains(&c) => break c,
                Some(c) => parameters.push(c),
                None => return,
            }
        };
        let numbers: Vec<usize> = parameters
            .split(';')
            .map(|number| number.parse().unwrap_or(0))
            .collect();
        match last {
            // CUP: row and column from 1; a missing number is 1.
            'H' => {
                let number = |place: usize| {
                    numbers
                        .get(place)
                        .map_or(0, |number| number.saturating_sub(1))
                };
                self.at = (number(0), number(1));
            }
            'm' => self.set_style(&numbers),
            // The whole screen, or another one.
            'J' if numbers == [2] => self.clear(),
            'h' | 'l' if parameters == "?1049" => self.clear(),
            _ => {}
        }
    }

    /// Sets what follows to a style (ECMA-48, SGR). Numbers that are not known change nothing.
    fn set_style(&mut self, numbers: &[usize]) {
        let mut numbers = numbers.iter();
        while let Some(number) = numbers.next() {
            match number {
                0 => self.style = Style::default(),
                1 => self.style.bold = true,
                4 => self.style.underlined = true,
                7 => self.style.reversed = true,
                22 => self.style.bold = false,
                24 => self.style.underlined = false,
                27 => self.style.reversed = false,
                // A colour: one of 256, or three numbers.
                38 | 48 | 58 => {
                    let rest = if numbers.next() == Some(&2) { 3 } else { 1 };
                    numbers.nth(rest - 1);
                }
                _ => {}
            }
        }
    }

    /// Blanks all cells; the cursor stays, as ECMA-48 wants of ED.
    fn clear(&mut self) {
        for cell in self.rows.iter_mut().flatten() {
            *cell = (' ', Style::default());
        }
    }
}

//! Values of properties.
//!
//! dtc's own complaint about a value is `syntax error`, at the token behind the mistake. The parser
//! knows what people write from the habit of other formats, says what the mistake is at its own
//! place, and has a text that repairs where the meaning is certain. Where two things may be meant
//! there is a help alone.
//!
//! What is recognized, and what a message proposes in its place:
//!
//! | written | from | proposed |
//! |---|---|---|
//! | `vcpus = 2;` | TOML, libvirt | `<2>` |
//! | `image = Image;` | shells, YAML | `"Image"` |
//! | `image = 'Image';` | shells, Python | `"Image"` |
//! | `debug = true;` | YAML, systemd | `debug;`, or no line |
//! | `cpus = [0 1];` | JSON, Python | `<0 1>` |
//! | `cpus = <0, 1>;` | lists anywhere | `<0 1>` |
//! | `cpus = <0-3>;` | `isolcpus=` of Linux | `<0 1 2 3>` |
//! | `memory-mib = <1G>;` | QEMU | `<1024>` |
//! | `memory-mib = <1_024>;` | Rust, Python | `<1024>` |
//! | `budget-us = <2,000>;` | texts | `<2000>` |
//! | `memory-address = <0x140000000>;` | C | `<0x1 0x40000000>` |
//! | `priority = <08>;` | columns of one width | `<8>` |

use std::num::IntErrorKind;

use super::super::expected;
use super::Fault;
use super::lexer::{Kind, Token};
use super::parser::{Lost, Parser, Understood};

/// Words that people write for a switch. On first, see [`ON`]. Words of YAML, systemd, device trees
/// and kernel parameters.
const SWITCHES: &[&str] = &[
    "true", "yes", "on", "enabled", "false", "no", "off", "disabled",
];
/// Of numbers without brackets and of parentheses in their place: one mistake, one statement.
const NO_BRACKETS: &str = "numbers stand in angle brackets";
const NO_BRACKETS_HELP: &str = "write < and >";
/// dtc takes expressions in parentheses alone.
const ARITHMETIC: &str = "arithmetic between < and > stands in parentheses";
/// Shows the form, not this text's numbers.
const ARITHMETIC_HELP: &str = "write <(1 + 2)>";
/// Statement on a range of numbers. The lists of Linux's command line have ranges, hence the habit.
pub(super) const NO_RANGES: &str = "cells have no ranges";
/// A longer range is written by nobody who means each of its numbers. A range of more is probably
/// no list of CPUs, and writing it out would hide that.
const MOST_IN_RANGE: u64 = 32;
/// Ends of the names of properties that people write in hexadecimal.
const ADDRESSES: [&str; 3] = ["address", "ipa", "offset"];
/// How many of [`SWITCHES`] turn on. The two halves have different repairs: a switch is on by being
/// there.
const ON: usize = 4;

impl<'t> Parser<'t> {
    /// Reads the value of `name` behind `equals`, and the semicolon. A value may be several, with
    /// commas between them, of any kinds; the binding's rules judge later which kinds a property
    /// takes.
    pub(super) fn value(&mut self, name: &'t Token, equals: &'t Token) -> Understood {
        loop {
            let token = self.ahead(0).ok_or(Lost)?;
            let last = match token.kind {
                Kind::Text => {
                    self.pass(1);
                    self.quote_inside(token)?;
                    token
                }
                Kind::Reference => {
                    self.reference(token)?;
                    token
                }
                // `==`, of who compares and does not assign; the value behind it is read all the
                // same.
                Kind::Mark('=') if equals.is('=') => {
                    let fault = Self::fault(token, "one = stands before a value", "remove it");
                    self.report(fault.repaired(""))?;
                    self.pass(1);
                    continue;
                }
                Kind::Mark('<') => self.cells(name)?,
                Kind::Mark('[') => self.bytes(token)?,
                // C's parentheses without brackets: the expression is right, and only its place is
                // not.
                Kind::Mark('(') => {
                    let end = self.until(')')?;
                    let range = token.range.start..end.range.end;
                    let fault = Self::fault(token, NO_BRACKETS, NO_BRACKETS_HELP);
                    let text = format!("<{}>", self.text_at(token.file, &range));
                    self.report(Fault { range, ..fault }.repaired(text))?;
                    end
                }
                // `/bits/ 8` stands before cells; dtc judges what stands behind the others.
                Kind::Directive if self.text(token) == "/bits/" => {
                    self.pass(2);
                    continue;
                }
                // A word ends the value: what follows it on the line belongs to the same mistake.
                Kind::Word => return self.bare(name, token),
                // Two values of dtc look alike: a character in single quotes is a number.
                Kind::Character => {
                    let text = self.text(token).trim_matches('\'');
                    let what = "strings stand in double quotes";
                    let fault = Self::fault(token, what, "write double quotes");
                    self.report(fault.repaired(format!("\"{text}\"")))?;
                    self.pass(1);
                    token
                }
                // `node = { ... };`, as JSON and Nix have objects.
                Kind::Mark('{') if equals.is('=') => {
                    let what = "a node has no =";
                    let fault = Self::fault(equals, what, "remove the =");
                    self.report(fault.repaired(""))?;
                    return Err(Lost);
                }
                Kind::Mark(';') => {
                    let what = format!("{} has = and no value", self.text(name));
                    let help = "write the value, or remove the = of a switch";
                    self.report(Self::fault(equals, what, help))?;
                    self.pass(1);
                    return Ok(());
                }
                _ => return Err(Lost),
            };
            match self.ahead(0) {
                Some(next) if next.is(',') => self.pass(1),
                // Two values with a blank between them, as in a shell: what stands behind is
                // clearly a value.
                Some(next) if next.kind == Kind::Text || next.is('<') => {
                    let end = last.range.end;
                    let what = "a comma is missing between two values";
                    let fault = Fault::new(last.file, end..end, what, "write , here");
                    self.report(fault.repaired(","))?;
                }
                _ => return self.semicolon(last, "the value"),
            }
        }
    }

    /// Reports a quote within a string, which ends the string: text follows without a blank. What
    /// follows is part of a command line in most cases, whose own quotes have to be escaped.
    fn quote_inside(&mut self, text: &Token) -> Understood {
        let end = text.range.end;
        let mut next = self.ahead(0).into_iter();
        let goes_on = next.any(|next| next.kind == Kind::Word && next.range.start == end);
        if !goes_on {
            return Ok(());
        }
        let what = "this quote ends the string";
        let help = "write \\\" for a quote within a string";
        self.report(Fault::new(text.file, end - 1..end, what, help))?;
        Err(Lost)
    }

    /// Judges bytes in square brackets, which people take for a list of numbers. A list of numbers
    /// is repaired only if each word is one: `[0 1]` is clear, `[00 zz]` is not.
    fn bytes(&mut self, open: &Token) -> Result<&'t Token, Lost> {
        let end = self.until(']')?;
        let range = open.range.start..end.range.end;
        let inside = self.text_at(open.file, &(open.range.end..end.range.start));
        let mut words = inside.split_whitespace();
        let is_bytes = |word: &str| {
            word.len().is_multiple_of(2) && word.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        if words.clone().all(is_bytes) {
            return Ok(end);
        }
        let what = "square brackets hold bytes, each of two hexadecimal digits";
        let fault = Fault::new(open.file, range, what, "write numbers between < and >");
        let is_list = words.all(|word| number(word).is_some());
        let repair = is_list.then(|| format!("<{inside}>"));
        self.report(Fault { repair, ..fault })?;
        Ok(end)
    }

    /// Judges a reference: dtc refuses one to a label that nothing has, and makes a number of
    /// others. Device trees of boards are full of references, and people take them along.
    fn reference(&mut self, token: &Token) -> Understood {
        self.pass(1);
        let label = self.text(token).trim_start_matches('&');
        match label.starts_with('{') || self.has_label(label) {
            true => Ok(()),
            false => self.report(reference_fault(token)),
        }
    }

    /// Judges a word that stands where a value in brackets or quotes has to. A word may be a
    /// number, a switch or a string without quotes, each with its own repair.
    fn bare(&mut self, name: &Token, token: &'t Token) -> Understood {
        let (name, text) = (self.text(name), self.text(token));
        self.pass(1);
        let switch = SWITCHES.iter().position(|word| *word == text);
        let fault = if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            let fault = Self::fault(token, NO_BRACKETS, NO_BRACKETS_HELP);
            fault.repaired(format!("<{text}>"))
        } else if switch.is_some_and(|at| at < ON) {
            let help = format!("a switch has no value: {name};");
            Self::fault(token, "there are no words for on and off", help)
        } else if switch.is_some() {
            let help = format!("remove {name}: a switch that is not there is off");
            Self::fault(token, "there are no words for on and off", help)
        } else {
            let fault = Self::fault(token, "strings stand in double quotes", "write quotes");
            fault.repaired(format!("\"{text}\""))
        };
        self.report(fault)?;
        // A path has more than words: the whole line is the string.
        while self
            .ahead(0)
            .is_some_and(|next| !next.is(';') && !next.is('}'))
        {
            self.pass(1);
        }
        self.semicolon(token, "the value")
    }

    /// Passes over all up to `end`, which is returned. Byte strings and expressions are not judged:
    /// dtc does, and says where the mistake is.
    fn until(&mut self, end: char) -> Result<&'t Token, Lost> {
        loop {
            let token = self.ahead(0).ok_or(Lost)?;
            self.pass(1);
            if token.is(end) {
                return Ok(token);
            }
        }
    }

    /// Reads cells in angle brackets, and returns the closing one. A `;` or `}` inside shows that
    /// the bracket was forgotten: the fault is at the opening one.
    fn cells(&mut self, name: &'t Token) -> Result<&'t Token, Lost> {
        let open = self.ahead(0).ok_or(Lost)?;
        self.pass(1);
        loop {
            let token = self.ahead(0).ok_or(Lost)?;
            match token.kind {
                Kind::Mark('>') => {
                    self.pass(1);
                    return Ok(token);
                }
                // Numbers, and whatever was meant as one.
                Kind::Word => self.cell(name, token)?,
                Kind::Mark('(') => drop(self.until(')')?),
                Kind::Reference => self.reference(token)?,
                Kind::Text => {
                    let what = "a string stands without angle brackets";
                    self.report(Self::fault(
                        token,
                        what,
                        "write the string alone, without < and >",
                    ))?;
                    self.pass(1);
                }
                Kind::Mark(';' | '=' | '}' | '{') => {
                    let what = "the < is never closed";
                    self.report(Self::fault(open, what, "close the cells with >"))?;
                    return Err(Lost);
                }
                // `<25%>`: of `cap-percent`, whose name has the unit.
                Kind::Mark('%') if self.is(1, '>') => {
                    let what = "a number has no unit behind it";
                    let fault = Self::fault(token, what, "write the number alone");
                    self.report(fault.repaired(""))?;
                    self.pass(1);
                }
                // Operators of an expression: dtc wants all of it in parentheses, as a cell is one
                // number.
                Kind::Mark('|' | '^' | '%' | '/' | '!' | '~') => {
                    self.report(Self::fault(token, ARITHMETIC, ARITHMETIC_HELP))?;
                    self.pass(1);
                }
                _ => self.pass(1),
            }
        }
    }

    /// Judges one cell. A label within cells is allowed by the specification.
    fn cell(&mut self, name: &Token, token: &Token) -> Understood {
        let text = self.text(token);
        self.pass(1);
        if self.is(0, ':') {
            // A label within cells.
            self.pass(1);
            return Ok(());
        }
        match cell_fault(self.text(name), text) {
            None => Ok(()),
            Some((what, help, repair)) => {
                let fault = Self::fault(token, what, help);
                self.report(Fault { repair, ..fault })
            }
        }
    }
}

/// Says that a value refers to a node. The board's labels are in another tree, and a label of the
/// manifest's own becomes a phandle, which nothing reads. dtc would compile it to a phandle, a
/// number that no rule could tell from another.
pub(super) fn reference_fault(token: &Token) -> Fault {
    let what = "a value refers to a node by its label, which no property takes";
    let help = "write CPUs as numbers, <0 1>; VMs, pools and memory by name, \"NAME\"; and devices \
                by path, \"/pl011@9000000\"";
    Fault::new(token.file, token.range.clone(), what, help)
}

/// The message, the help, and the text that repairs. Owned texts, since some name the property.
type CellFault = (String, String, Option<String>);

/// Makes one. Most texts are literals, which the callers need not copy.
fn cell_says(what: &str, help: &str, repair: Option<String>) -> CellFault {
    (what.to_owned(), help.to_owned(), repair)
}

/// Says why `text` is no cell of the property `name`, and what may be meant. From the clearest
/// mistake to the least clear one: a comma, a range, no number, a number that is too large.
fn cell_fault(name: &str, text: &str) -> Option<CellFault> {
    if text.contains(',') {
        if let Some(whole) = thousands(name, text) {
            let what = "a number has no commas";
            return Some(cell_says(what, "remove the comma", Some(whole)));
        }
        let parts = text.split(',').filter(|part| !part.is_empty());
        let parts: Vec<&str> = parts.collect();
        let is_list = parts.iter().all(|part| number(part).is_some());
        let what = "cells are separated by blanks, not by commas";
        let repair = is_list.then(|| parts.join(" "));
        return Some(cell_says(what, "remove the comma", repair));
    }
    if let Some((first, last)) = range(text) {
        let count = last
            .checked_sub(first)
            .filter(|count| *count < MOST_IN_RANGE);
        let numbers = count.map(|_| (first..=last).map(|number| number.to_string()));
        let repair = numbers.map(|numbers| numbers.collect::<Vec<_>>().join(" "));
        return Some(cell_says(NO_RANGES, "write each number", repair));
    }
    if is_huge(text) {
        let what = "the number does not fit into a cell of 32 bits";
        return Some(cell_says(what, "write at most 0xffffffff", None));
    }
    let Some(value) = number(text) else {
        return Some(no_number(text).unwrap_or_else(|| with_unit(name, text)));
    };
    if value <= u64::from(u32::MAX) {
        return None;
    }
    let halves = format!("{:#x} {:#x}", value >> 32, value & u64::from(u32::MAX));
    let what = "the number does not fit into a cell of 32 bits";
    let help = "write an address in two cells, the upper half first";
    Some(cell_says(what, help, Some(halves)))
}

/// Tells whether `text` is a number of more than 64 bits, which no pair of cells holds either. The
/// repair cannot be two cells then.
fn is_huge(text: &str) -> bool {
    let (digits, base) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let parsed = u64::from_str_radix(digits, base);
    parsed.is_err_and(|error| *error.kind() == IntErrorKind::PosOverflow)
}

/// Returns the number that `text` is with commas between thousands. A list has commas too, and no
/// property but `cpus` takes one.
fn thousands(name: &str, text: &str) -> Option<String> {
    let mut groups = text.split(',');
    let first = groups.next()?;
    let is_group = |group: &str| group.len() == 3 && group.bytes().all(|one| one.is_ascii_digit());
    let is_first = matches!(first.len(), 1..=3) && first.bytes().all(|one| one.is_ascii_digit());
    (name != "cpus" && is_first && groups.all(is_group)).then(|| text.replace(',', ""))
}

/// Tells whether `text` is a sum or a product without its parentheses. All parts have to be
/// numbers: a MAC address or a path with a hyphen is something else. The repair adds the
/// parentheses and computes nothing: dtc does, and the author keeps the form.
fn is_arithmetic(text: &str) -> bool {
    let parts = text.split(['+', '-', '*']);
    text.contains(['+', '-', '*']) && { parts }.all(|part| number(part).is_some())
}

/// Says what keeps `text` from being a number; `None` if a unit behind the number does. The order
/// matters: `0x1g` has a unit's look, and is a hexadecimal number with a slip.
fn no_number(text: &str) -> Option<CellFault> {
    let joined = text.replace('_', "");
    let is_digit = |one: char| one.is_ascii_digit();
    let tail = text.trim_start_matches(is_digit);
    let negative = text.strip_prefix('-');
    let (what, help, repair) = if joined != text && number(&joined).is_some() {
        ("a number has no _", "remove it", Some(joined))
    } else if text.starts_with("0x") || text.starts_with("0X") {
        let help = "use the digits 0 to 9 and a to f";
        ("this is no hexadecimal number", help, None)
    } else if negative.is_some_and(|rest| number(rest).is_some()) {
        let help = "write a number from 0 on";
        ("a cell is never negative here", help, None)
    } else if matches!(text, "+" | "-" | "*") {
        (ARITHMETIC, ARITHMETIC_HELP, None)
    } else if is_arithmetic(text) {
        (ARITHMETIC, ARITHMETIC_HELP, Some(format!("({text})")))
    } else if !text.starts_with(is_digit) {
        let help = "write a number, in decimal or with 0x; macros of C are not known";
        ("a cell is a number, and this is a name", help, None)
    } else if tail.starts_with('.') {
        let help = "write a whole number, or a smaller unit";
        ("a cell has no fraction", help, None)
    } else if tail.is_empty() {
        // Digits alone, and yet no number: 08 and 09.
        let help = "a number that begins with 0 is octal: remove the 0";
        let plain = text.trim_start_matches('0').to_owned();
        ("this is no octal number", help, Some(plain))
    } else {
        return None;
    };
    Some(cell_says(what, help, repair))
}

/// Says that a unit stands behind a number. The property's name has the unit, and the number is
/// converted where that leaves no rest.
fn with_unit(name: &str, text: &str) -> CellFault {
    let tail = text.trim_start_matches(|one: char| one.is_ascii_digit());
    let head = text.strip_suffix(tail).unwrap_or(text);
    let help = match expected::unit(name) {
        Some(unit) => format!("write the number alone: {name} counts in {unit}"),
        None => "write the number alone".to_owned(),
    };
    // An address of which the 0x is missing has digits as units have letters.
    let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_hex && ADDRESSES.iter().any(|end| name.ends_with(end)) {
        let what = "a hexadecimal number begins with 0x";
        return cell_says(what, "write 0x before it", Some(format!("0x{text}")));
    }
    let repair = in_unit_of(name, head, tail).map(|value| value.to_string());
    cell_says("a number has no unit behind it", &help, repair)
}

/// Returns the ends of a range as lists of CPUs elsewhere have them: `0-3` of Linux' `isolcpus=`,
/// or `0..3` and `0..=3` of Rust.
pub(super) fn range(text: &str) -> Option<(u64, u64)> {
    let ends = text.split_once("..").or_else(|| text.split_once('-'));
    let (first, last) = ends?;
    Some((number(first)?, number(last.trim_start_matches('='))?))
}

/// Returns the value of a number that begins with 0 and is octal for that. `0` alone is the same
/// number in every base.
pub(super) fn octal(text: &str) -> Option<u64> {
    let is_octal = text.len() > 1 && text.starts_with('0');
    let digits = is_octal && text.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| number(text)).flatten()
}

/// Tells whether `text` is a number as dtc reads one.
pub(super) fn is_number(text: &str) -> bool {
    number(text).is_some()
}

/// Reads a number as dtc does: decimal, hexadecimal or octal, with C's suffixes.
fn number(text: &str) -> Option<u64> {
    let plain = text.trim_end_matches(['U', 'L', 'u', 'l']);
    match plain.strip_prefix("0x").or(plain.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if plain.len() > 1 && plain.starts_with('0') => u64::from_str_radix(plain, 8).ok(),
        None => plain.parse().ok(),
    }
}

/// Returns `number` with the unit `unit` in the unit of the property. `None` for a finer unit,
/// which would leave a rest, and for a product that overflows: rounding would change what was
/// meant.
fn in_unit_of(name: &str, number: &str, unit: &str) -> Option<u64> {
    let number: u64 = number.parse().ok()?;
    let of_name = name.rsplit('-').next()?;
    let factor = match (of_name, unit.to_ascii_lowercase().as_str()) {
        ("mib", "m" | "mb" | "mib") | ("ms", "ms" | "msec") | ("us", "us" | "usec") => 1,
        ("mib", "g" | "gb" | "gib") => 1024,
        ("ms", "s" | "sec") | ("us", "ms" | "msec") => 1000,
        ("us", "s" | "sec") => 1_000_000,
        ("ms", "min") => 60_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

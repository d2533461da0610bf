//! Texts that dtc takes without a word, and otherwise than their authors mean.
//!
//! The compiled blob no longer tells that the author was wrong: `010` is the number 8 there, and a
//! range in parentheses a difference. Therefore the source is read for them, beside dtc.

use std::path::Path;

use super::lexer::{self, Kind, Token};
use super::{Fault, Texts, include, value};

/// Properties that hold addresses or offsets, which people think of in hexadecimal.
const ADDRESSES: [&str; 7] = [
    "address",
    "load-offset",
    "memory-address",
    "memory-ipa",
    "virtio-address",
    "watchdog-address",
    "window-address",
];
/// Shortest decimal number that may be an address without its `0x`. A shorter number is below 1
/// MiB, and may well be an offset in decimal.
const ADDRESS_DIGITS: usize = 7;
/// Addresses are multiples of a page at least.
const PAGE: u64 = 4 << 10;

/// Directives that belong to device trees of machines, why they do nothing in a manifest, and the
/// repairs.
const FOR_MACHINES: [(&str, &str, &str); 2] = [
    (
        "/plugin/",
        "a manifest is no overlay, so /plugin/ has no effect",
        "remove the line",
    ),
    (
        "/memreserve/",
        "a manifest reserves no memory of the machine, so /memreserve/ has no effect",
        "remove the line; memory that VMs share is a node of shared-memory, and what firmware uses \
         is reserved in the board's own device tree",
    ),
];

/// Returns octal and decimal numbers that look like others, ranges that are subtractions,
/// references, colons for `=`, directives without effect, and comments and strings that go on too
/// far. All of them are warnings: dtc compiles the text, and its author may mean it.
pub(in super::super) fn surprises(main: &Path) -> (Texts, Vec<Fault>) {
    let (texts, tokens, mut found) = include::read(main);
    found.extend(references(&tokens));
    found.extend(
        tokens
            .windows(4)
            .filter_map(|four| colon_fault(&texts, four)),
    );
    let all = tokens.iter().enumerate();
    found.extend(all.filter_map(|(at, token)| directive_fault(&texts, &tokens, at, token)));
    let mut is_cell = false;
    let mut property = "";
    for (at, token) in tokens.iter().enumerate() {
        is_cell = match token.kind {
            Kind::Mark('<') => true,
            Kind::Mark('>') => false,
            _ => is_cell,
        };
        if tokens.get(at + 1).is_some_and(|next| next.is('=')) {
            property = texts.of(token);
        }
        let odd = octal_fault(&texts, token)
            .or_else(|| subtraction_fault(&texts, token))
            .or_else(|| decimal_fault(&texts, property, token));
        found.extend(odd.filter(|_| is_cell));
    }
    (texts, found)
}

/// Returns the references in values. One before a brace adds to a node of this manifest, and one
/// behind a directive names a node that goes away: both are what they look like.
fn references(tokens: &[Token]) -> impl Iterator<Item = Fault> {
    let places = tokens.iter().enumerate();
    let found = places.filter(|(at, token)| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let is_directed = before.is_some_and(|before| before.kind == Kind::Directive);
        let is_node = tokens.get(at + 1).is_some_and(|next| next.is('{'));
        token.kind == Kind::Reference && !is_directed && !is_node
    });
    found.map(|(_, token)| value::reference_fault(token))
}

/// Returns what is wrong with `vcpus: 2;`, as YAML has it: dtc takes the name for a label, and the
/// number for the name of a property without a value. The result would be a VM with one vCPU, and a
/// property that no rule knows by that name.
fn colon_fault(texts: &Texts, four: &[Token]) -> Option<Fault> {
    let [name, colon, number, end] = four else {
        return None;
    };
    let is_label = name.kind == Kind::Word && colon.is(':') && end.is(';');
    let text = texts.of(number);
    if !is_label || number.file != colon.file || !value::is_number(text) {
        return None;
    }
    let what = "a property's value stands behind =, not behind a colon";
    let range = colon.range.start..number.range.end;
    let fault = Fault::new(colon.file, range, what, "write = and brackets");
    Some(fault.repaired(format!(" = <{text}>")))
}

/// Returns what is wrong with a directive: one that does nothing, or that deletes nothing. A
/// deletion that finds nothing is mostly one of a misspelled name, whose node then stays.
fn directive_fault(texts: &Texts, tokens: &[Token], at: usize, token: &Token) -> Option<Fault> {
    if token.kind != Kind::Directive {
        return None;
    }
    let text = texts.of(token);
    if let Some((_, what, help)) = FOR_MACHINES.iter().find(|(name, ..)| *name == text) {
        return Some(Fault::new(token.file, token.range.clone(), *what, *help));
    }
    let is_node = match text {
        "/delete-node/" => true,
        "/delete-property/" => false,
        _ => return None,
    };
    // dtc refuses a label that does not exist by itself.
    let name = tokens.get(at + 1).filter(|next| next.kind == Kind::Word)?;
    let wanted = texts.of(name);
    let before = tokens.get(..at)?.windows(2);
    let is_it = |pair: &[Token]| match pair {
        [first, next] => texts.of(first) == wanted && is_begin(next, is_node),
        _ => false,
    };
    if before.into_iter().any(is_it) {
        return None;
    }
    let kind = if is_node { "node" } else { "property" };
    let what = format!("{text} deletes nothing: no {kind} {wanted} stands before it");
    let help = "write the name as it stands where it is made, or remove the line";
    Some(Fault::new(name.file, name.range.clone(), what, help))
}

/// Tells whether a token is what stands behind the name of a node or of a property. The name alone
/// decides nothing: a node and a property of the same name may stand in one node.
fn is_begin(token: &Token, is_node: bool) -> bool {
    match is_node {
        true => token.is('{'),
        false => token.is('=') || token.is(';'),
    }
}

/// Returns what is wrong with a range in parentheses, where dtc computes. A difference whose first
/// number is the larger one is left alone: no range runs down, so it is meant as it stands.
fn subtraction_fault(texts: &Texts, token: &Token) -> Option<Fault> {
    let text = texts.of(token);
    let (first, last) = value::range(text).filter(|(first, last)| first < last)?;
    let what = format!("{}: ({text}) is {first} less {last}", value::NO_RANGES);
    let range = token.range.clone();
    Some(Fault::new(token.file, range, what, "write each number"))
}

/// Returns what is wrong with an octal number. No property of the binding counts in octal, and
/// people write leading zeroes to have numbers of one width.
fn octal_fault(texts: &Texts, token: &Token) -> Option<Fault> {
    let text = texts.of(token);
    let value = value::octal(text)?;
    let plain = text.trim_start_matches('0');
    let what = format!("a number that begins with 0 is octal: {text} is {value}");
    let fault = Fault::new(token.file, token.range.clone(), what, "write it in decimal");
    Some(fault.repaired(if plain.is_empty() { "0" } else { plain }))
}

/// Returns what is wrong with a decimal number that is an address without its `0x`: no page begins
/// there, and one does at the same digits in hexadecimal.
fn decimal_fault(texts: &Texts, property: &str, token: &lexer::Token) -> Option<Fault> {
    let text = texts.of(token);
    let is_decimal = text.len() >= ADDRESS_DIGITS && text.bytes().all(|b| b.is_ascii_digit());
    if !is_decimal || !ADDRESSES.contains(&property) {
        return None;
    }
    let value: u64 = text.parse().ok()?;
    let meant = u64::from_str_radix(text, 16).ok()?;
    if value.is_multiple_of(PAGE) || !meant.is_multiple_of(PAGE) {
        return None;
    }
    let what = format!("a number without 0x is decimal: {text} is {value:#x}");
    let fault = Fault::new(token.file, token.range.clone(), what, "write 0x before it");
    Some(fault.repaired(format!("0x{text}")))
}

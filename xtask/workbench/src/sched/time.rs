//! Times in text.

/// Reads a time with its unit, in ticks. Units that end in another one come first: `s` would take
/// the end of `ms`.
pub fn time(text: &str) -> Option<u64> {
    let units = [
        ("ns", 1_u64),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ];
    let (number, unit) = units
        .iter()
        .find_map(|(unit, ticks)| Some((text.strip_suffix(unit)?.trim_end(), *ticks)))?;
    decimal(number, unit)
}

/// Reads a decimal number of units, in ticks. Digits below a tick are refused. Floating point would
/// make 0.1 us something else, and two runs of one trace differ.
pub(super) fn decimal(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let mut ticks = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place = place.is_multiple_of(10).then_some(place / 10)?;
        ticks = ticks.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(ticks)
}

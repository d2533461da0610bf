//! Whole numbers as people write them behind options.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a reader of whole numbers of a range. clap's own reader says "invalid digit found in
/// string" of `4k`, and the range only of a number that is out of it.
pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + Display + PartialOrd + Copy + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (first, last) = (range.start(), range.end());
        number.ok_or_else(|| format!("this is no whole number from {first} to {last}"))
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn whatever_is_no_number_is_told_the_range() {
        let read = within(1..=8_u32);
        assert_eq!([read("1"), read("8")], [Ok(1), Ok(8)]);
        for text in ["0", "9", "-1", "4k", "", "two", "1.5", "99999999999"] {
            assert_eq!(
                read(text),
                Err("this is no whole number from 1 to 8".to_owned()),
                "{text:?}"
            );
        }
    }
}

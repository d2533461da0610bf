//! The part of a value that a finding is about: one string of a list, one word of a command line.

use std::ops::Range;

use gearv_manifest::DevicePatterns;

/// Returns the string among those of `value` that stands for the node at `path`, or for one above.
/// `devices` may name a node by a pattern, of which the finding has the node's full path.
pub(super) fn pattern_of<'v>(value: &'v str, path: &str) -> Option<&'v str> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
    let nodes: Vec<&str> = ends.map(|end| &path[..end]).chain([path]).collect();
    let mut strings = value.split('"').skip(1).step_by(2);
    strings.find(|one| {
        let mut nodes = nodes.iter();
        nodes.any(|node| DevicePatterns::matches(one, node))
    })
}

/// Returns where a word of a command line, or the value of an option of it, is in `value`.
pub(super) fn word_of(value: &str, word: &str) -> Option<Range<usize>> {
    let is_end = |rest: &str| rest.starts_with(['"', ',', '\\']) || rest.starts_with(is_blank);
    let is_start = |before: &str| before.ends_with(['"', '=']) || before.ends_with(is_blank);
    let mut found = value.match_indices(word).map(|(at, _)| at..at + word.len());
    found.find(|range| is_start(&value[..range.start]) && is_end(&value[range.end..]))
}

/// Blanks divide the words of a command line.
fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::word_of;

    #[test]
    fn a_word_is_found_by_its_ends() {
        let value = "\"root=/dev/vda console=ttyAMA0,115200 quiet vda\"";
        let of = |word: &str| word_of(value, word).map(|range| &value[range.start - 1..range.end]);
        assert_eq!(of("ttyAMA0"), Some("=ttyAMA0"));
        assert_eq!(of("root=/dev/vda"), Some("\"root=/dev/vda"));
        assert_eq!(of("vda"), Some(" vda"));
        assert_eq!(of("quie"), None);
        assert_eq!(of("AMA0"), None);
    }
}

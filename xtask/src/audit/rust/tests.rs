//! Counting, on texts.

use super::{Counts, Source, percentile};

fn counts(text: &str) -> Counts {
    Counts::of(text, false)
}

#[test]
fn lines_of_code_and_of_comments_are_told_apart() {
    let text = "//! A file.

fn f() { // says nothing
    /* a comment /* within a comment */
       still */
    let text = \"// no comment
        /* nor this\";
    let raw = r#\"a \" quote // \"#;
}
";
    let found = counts(text);
    assert_eq!((found.code, found.comments), (5, 3));
    assert_eq!((found.files, found.functions), (vec![9], vec![7]));
}

#[test]
fn characters_and_lifetimes_are_no_strings() {
    let text = "fn f<'a>(x: &'a str) -> char {
    let quote = '\"';
    let other = '\\'';
    let wide = 'é';
    'label: loop { break 'label; }
    '/' // a comment
}
fn g() {}
";
    let found = counts(text);
    assert_eq!((found.code, found.functions), (8, vec![7, 1]));
    assert_eq!(counts("fn f(r#type: u8) { r#type }").functions, [1]);
}

#[test]
fn tests_are_no_code() {
    let text = "fn f() {}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[path = \"x.rs\"]
mod other {
    fn g() { panic!() }
}

#[test]
fn t() {
    assert!(true);
}

#[cfg(not(test))]
fn h() {}
";
    let found = counts(text);
    assert_eq!((found.code, found.tests), (3, 11));
    assert_eq!((found.functions, found.panics), (vec![1, 1], 0));
    assert_eq!(Counts::of(text, true).tests, 14);
}

#[test]
fn what_only_a_checking_image_has_is_no_code() {
    let text = "fn f(a: u8, #[cfg(test)] b: u8, c: u8) {
    #[cfg(feature = \"check-ghost\")]
    ghost::before(|said| {
        // A comment.
        read(said);
    });
    g();
    #[cfg(not(feature = \"check-ghost\"))]
    h();
    let x = X {
        #[cfg(test)]
        seen: (1, 2),
        y,
    };
}
";
    let found = counts(text);
    // The line of a parameter that only tests have is theirs.
    assert_eq!((found.code, found.tests), (7, 7));
    assert_eq!(found.functions, [15]);
}

#[test]
fn what_only_hosts_have_is_no_code() {
    let text = "#[cfg(feature = \"host\")]
mod inventory;
#[cfg(not(feature = \"host\"))]
fn f() {}
";
    let found = counts(text);
    assert_eq!((found.code, found.tests), (2, 2));
    for condition in ["feature = \"host\"", "any(test, feature = \"host\")"] {
        let text = format!("//! A file.\n#![cfg({condition})]\n\nfn f() {{}}\n\nfn g() {{}}\n");
        let found = counts(&text);
        assert_eq!((found.code, found.tests, found.functions.len()), (0, 3, 0));
    }
    let text = "#![cfg(not(test))]\nfn f() {}\n";
    assert_eq!(counts(text).code, 2);
}

#[test]
fn functions_are_as_long_as_from_fn_to_brace() {
    let text = "trait T {
    fn declared(&self) -> [u8; 4];
    fn given(&self) -> bool {
        true
    }
}
#[inline]
pub const fn with<
    A,
    B,
>(a: A, f: fn(u8) -> B) -> B
where
    A: Fn(),
{
    fn inner() {}
    B
}
";
    assert_eq!(counts(text).functions, [3, 10, 1]);
}

#[test]
fn public_items_and_their_documentation_are_counted() {
    let text = "/// Documented.
#[derive(Clone)]
pub struct A {
    /// No item.
    pub field: u8,
}
pub struct B;
pub(crate) fn not_public() {}
/// Documented.
#[must_use = \"because\"]
pub const fn f() {}
pub const C: u8 = 1;
pub unsafe extern \"C\" fn g() {}
pub mod elsewhere;
pub use other::D;
";
    assert_eq!(counts(text).public, [5, 2]);
}

#[test]
fn unsafe_blocks_want_an_argument() {
    let text = "fn f() {
    // SAFETY: nobody else does.
    unsafe { g() };
    let x =
        unsafe { h() };
    // SAFETY: as above,
    // on two lines.
    let y = both(unsafe { i() });
    // unsafe { not(this) }
    let z = \"unsafe { nor(this) }\";
    unsafe {
        // SAFETY: inside.
        k()
    }
}
/// # Safety
unsafe fn l() {}
";
    let found = counts(text);
    assert_eq!(found.unsafe_blocks, [4, 3]);
    assert_eq!(found.unsafe_functions, 1);
}

#[test]
fn panics_are_counted_and_names_like_them_are_not() {
    let text = "fn f() {
    x.unwrap();
    x.unwrap_or(0).expect(\"panic!\");
    debug_assert!(true);
    my_panic!();
    // panic!()
    assert_eq!(1, 1);
}
";
    assert_eq!(counts(text).panics, 3);
}

#[test]
fn doc_comments_that_open_with_a_pronoun_are_counted() {
    let text = "//! It is a file.
//! It goes on.

/// Its fields.
struct A;
/// The same.
///
/// What follows.
struct B;
/// Items; it is theirs.
struct C;
/// Whatever is no pronoun.
struct D;
/** Who knows. */
struct E;
// It is no doc comment.
fn f() {} //// Nor this.
";
    assert_eq!(counts(text).docs, [6, 4]);
}

#[test]
fn percentiles_are_values() {
    assert_eq!(percentile(&[], 50), 0);
    assert_eq!(percentile(&[7], 90), 7);
    let ten: Vec<u64> = (1..=10).rev().collect();
    assert_eq!(
        [50, 90, 100].map(|percent| percentile(&ten, percent)),
        [5, 9, 10]
    );
}

/// Text that is no Rust is counted somehow.
#[test]
fn anything_is_counted() {
    for text in [
        "",
        "\"",
        "fn",
        "fn f(",
        "#[cfg(test)]",
        "/*",
        "'",
        "r#\"",
        "}}}",
        "é\n'é",
        "#[",
    ] {
        let source = Source::new(text);
        assert_eq!(source.masked.len(), text.len());
        let _ = source.counts();
    }
}

//! Tests of the reading of what cargo prints.

use super::{Build, position};

/// As cargo 1.95 prints it with CARGO_TERM_PROGRESS_WHEN=always.
const PRINTED: &str = "   Compiling spin v0.12.3\n   \
    Building [=====>     ] 12/45: spin, gear1-core(bin)    \r   \
    Compiling gear1-core v0.1.0 (/gearv/gear1/core)\n\
    warning: unused variable: `x`\n --> src/lib.rs:1:5\n  |\n\n\
    warning: `gear1-core` (lib) generated 1 warning\n\
    warning: `gear2` (bin \"gear2\") generated 2 warnings (1 duplicate)\n   \
    Building [==========>] 44/45                             \r    \
    Finished `image` profile [optimized + debuginfo] target(s) in 12.51s\n";

#[test]
fn what_the_compiler_says_is_kept_and_nothing_else() {
    let mut build = Build::new("gear1-runtime");
    build.follow(PRINTED.as_bytes()).unwrap();
    assert!(build.step.is_some());
    let said = build.end();
    assert_eq!(
        said,
        "warning: unused variable: `x`\n --> src/lib.rs:1:5\n  |\n\n"
    );
}

#[test]
fn a_build_without_work_is_silent() {
    let mut build = Build::new("gear2");
    let fresh = "    Finished `image` profile [optimized] target(s) in 0.05s\n";
    build.follow(fresh.as_bytes()).unwrap();
    assert!(build.step.is_none());
    assert_eq!(build.end(), "");
}

#[test]
fn the_bar_tells_how_far_a_build_is() {
    for (bar, expected) in [
        (
            "Building [==>   ] 12/45: spin, gear1-core(bin)  ",
            Some("12 of 45, spin"),
        ),
        (
            "Building [      ] 0/1: hello(bin)   ",
            Some("0 of 1, hello"),
        ),
        ("Building [=====>] 44/45   ", Some("44 of 45")),
        ("Building the world", None),
        ("Compiling spin v0.12.3", None),
    ] {
        assert_eq!(position(bar).as_deref(), expected, "{bar}");
    }
}

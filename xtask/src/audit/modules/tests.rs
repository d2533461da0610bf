use super::*;

/// A crate of these files, by path below `src`.
fn of(files: &[(&str, &str)]) -> Crate {
    let files = files.to_vec();
    let read = move |path: &str| {
        let found = files.iter().find(|(name, _)| format!("src/{name}") == path);
        found.map(|(_, text)| (*text).to_owned())
    };
    Crate::read("src/main.rs", &read).unwrap()
}

/// The arrows below the root, without their places.
fn arrows(of: &Crate) -> Vec<(String, String)> {
    of.arrows()[&Vec::new()].keys().cloned().collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
    pairs.collect()
}

const TWO: &str = "mod a; mod b;";

#[test]
fn a_use_a_path_and_a_tree_are_arrows() {
    for text in [
        "use crate::b::X;",
        "use super::b;",
        "use crate::{b::{self, X}};",
        "fn f() -> crate::b::X { todo!() }",
        "use crate::b as other; fn f() { other::g() }",
        "#[path = \"other.rs\"] mod inner;",
        "mod inner { fn f() { super::super::b::g() } }",
        "fn f() { let c = '\"'; crate::b::g(\"//\") }",
        "fn f<'a>(x: &'a str) { crate::b::g(x) }",
    ] {
        let other = ("other.rs", "use crate::b;");
        let found = of(&[
            ("main.rs", TWO),
            ("a.rs", text),
            ("b.rs", "pub struct X;"),
            other,
        ]);
        assert_eq!(arrows(&found), pairs(&[("a", "b")]), "{text}");
    }
}

#[test]
fn comments_texts_tests_and_other_crates_are_none() {
    for text in [
        "// crate::b::g()\n/* crate::b::g() /* */ crate::b */",
        "const T: &str = \"crate::b::g\"; const R: &str = r#\"\" crate::b::g\"#;",
        "#[cfg(test)]\nmod tests { use crate::b::X; }",
        "#[cfg(test)]\nuse crate::{b::{X, Y}};",
        "#[cfg(test)]\n#[allow(unused)]\nfn f() { crate::b::g() }",
        "use b::X;",
        "fn f() -> impl Fn() + use<'_> { todo!() }",
        "use core::b::X; fn f() { b::g() }",
    ] {
        let found = of(&[("main.rs", TWO), ("a.rs", text), ("b.rs", "")]);
        assert_eq!(arrows(&found), [], "{text}");
    }
}

#[test]
fn a_re_export_leads_to_where_the_item_is() {
    let files = [
        ("main.rs", "mod a; mod b; mod c; pub use crate::c::Y;"),
        ("a.rs", "use crate::b::X; use super::Y;"),
        (
            "b.rs",
            "pub use self::inner::X; mod inner { pub use crate::c::X; }",
        ),
        ("c.rs", "pub struct X; pub struct Y;"),
    ];
    assert_eq!(
        arrows(&of(&files)),
        pairs(&[("a", "b"), ("a", "c"), ("b", "c")])
    );
}

#[test]
fn modules_of_one_module_are_compared_and_their_parent_is_not() {
    let files = [
        ("main.rs", "mod a;"),
        ("a.rs", "mod b; mod c; pub use c::Z; pub struct X;"),
        ("a/b.rs", "use super::{X, Z}; pub struct Y;"),
        ("a/c.rs", "use super::b::Y; pub struct Z;"),
    ];
    let found = of(&files);
    assert_eq!(arrows(&found), []);
    let inside = &found.arrows()[&vec!["a".to_owned()]];
    let circle = "b, c use each other: b uses c (src/a/b.rs:1); c uses b (src/a/c.rs:1)";
    assert_eq!(circles(inside), [circle]);
}

#[test]
fn a_module_without_a_file_is_an_error() {
    let read = |path: &str| (path == "src/main.rs").then(|| "mod gone;".to_owned());
    let error = Crate::read("src/main.rs", &read).unwrap_err().to_string();
    assert!(
        error.contains("mod gone has neither src/gone.rs nor"),
        "{error}"
    );
}

const TABLE: &str = "# A\n\n### Layers of the runtime\n\n| floor | modules | what |\n|---|---|---|\n| 2 | `b` | x |\n| 1 | `a`, `gone` | y |\n\n## C\n\n| 3 | `z` |\n";

#[test]
fn a_floor_for_each_module_and_no_arrow_up() {
    let floors = floors(TABLE).unwrap();
    let found = of(&[
        ("main.rs", "mod a; mod b; mod new;"),
        ("a.rs", "use crate::b::X;"),
        ("b.rs", "use crate::a::Y;"),
        ("new.rs", ""),
    ]);
    let arrows = &found.arrows()[&Vec::new()];
    let expected = [
        "gear1/runtime/src/main.rs: the table in docs/ARCHITECTURE.md lacks new",
        "docs/ARCHITECTURE.md: a floor for gone, which gear1/runtime/src/main.rs lacks",
        "src/a.rs:1: a on floor 1 uses b on floor 2",
    ];
    assert_eq!(up(&floors, &found.below(&[]), arrows), expected);
}

/// The workspace as it is, and the runtime with an arrow that leads from its ground floor to its
/// top.
#[test]
fn an_upward_arrow_that_is_planted_is_refused() {
    let report = check(&[]).unwrap();
    assert_eq!(report.wrong, [""; 0]);
    let root = workspace::root();
    let read = |file: &str| {
        let text = fs::read_to_string(root.join(file)).ok()?;
        let is_machine = file.ends_with("/machine.rs");
        Some(
            text + if is_machine {
                "use crate::exit as planted;\n"
            } else {
                ""
            },
        )
    };
    let found = Crate::read(LAYERED, &read).unwrap();
    let arrows = &found.arrows()[&Vec::new()];
    let floors = floors(&read(LAYERS).unwrap()).unwrap();
    let wrong = up(&floors, &found.below(&[]), arrows);
    assert!(
        wrong.len() == 1 && wrong[0].contains("machine on floor 1 uses exit"),
        "{wrong:?}"
    );
    assert_eq!(circles(arrows).len(), 1);
}

/// A method in another module's `impl`: no path leads there, a call does.
#[test]
fn a_call_of_a_method_is_an_arrow() {
    let found = of(&[
        ("main.rs", "mod kind; mod a; mod b;"),
        ("kind.rs", "pub struct X;"),
        ("a.rs", "use crate::kind::X; fn f(x: &X) { x.run() }"),
        (
            "b.rs",
            "use crate::kind::X; impl X { pub fn run(&self) { crate::a::g() } }",
        ),
    ]);
    let name = |path: &str| path.split("::").map(str::to_owned).collect();
    let call = |from, to| Call {
        from: name(from),
        to: name(to),
        place: "src/a.rs:1".to_owned(),
    };
    let mut all = found.arrows();
    assert_eq!(circles(&all[&Vec::new()]), [""; 0]);
    // Another crate's module of the same name, and a call within a module.
    let none = [
        call("other::a::f", "other::b::X::run"),
        call("own::a::f", "own::a::g"),
    ];
    found.add_calls(&mut all, "own", &none);
    assert_eq!(circles(&all[&Vec::new()]), [""; 0]);
    found.add_calls(&mut all, "own", &[call("own::a::f", "own::b")]);
    assert_eq!(
        circles(&all[&Vec::new()]),
        ["a, b use each other: a uses b (src/a.rs:1); b uses a (src/b.rs:1)"]
    );
}

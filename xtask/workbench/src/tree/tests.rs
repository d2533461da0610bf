use super::*;

#[test]
fn what_is_in_a_directory_comes_after_it() {
    let mut tree = Tree::default();
    tree.file("a/b/c", "c");
    tree.link("a.link", "a");
    assert_eq!(
        tree.paths().collect::<Vec<_>>(),
        ["a", "a.link", "a/b", "a/b/c"]
    );
    assert!(tree.contains("a/b") && !tree.contains("b"));
}

#[test]
fn a_directory_that_has_something_in_it_stays() {
    let mut tree = Tree::default();
    tree.file("a/b", "b");
    tree.directory("a");
    assert!(tree.contains("a/b"));
}

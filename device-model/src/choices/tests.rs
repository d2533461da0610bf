//! Tests of chosen media, over restarts of GDM.

use super::*;
use crate::testing::{Directory, node};

fn block_node(channel: usize, backend: &str) -> DeviceNode {
    DeviceNode {
        channel,
        kind: DeviceKind::Block,
        backend: backend.into(),
        ..node()
    }
}

#[test]
fn a_choice_is_the_next_gdms_too() {
    let directory = Directory::new("choices");
    let node = block_node(3, "/srv/disk");
    let read = || Choices::read(directory.text(), std::slice::from_ref(&node));
    let medium = |choices: &Choices| choices.apply(&node).backend;
    assert_eq!(medium(&read()), "/srv/disk");
    for chosen in ["/srv/another one", "", "/srv/disk"] {
        let choices = read();
        choices.choose(&node, chosen).unwrap();
        assert_eq!(
            (medium(&choices), medium(&read())),
            (chosen.into(), chosen.into())
        );
    }
    // The manifest's medium leaves nothing behind.
    assert_eq!(fs::read_dir(directory.text()).unwrap().count(), 0);
}

#[test]
fn a_choice_is_one_disks() {
    let directory = Directory::new("choices");
    let nodes = [block_node(3, "/srv/a"), block_node(4, "/srv/b")];
    let choices = Choices::read(directory.text(), &nodes);
    choices.choose(&nodes[0], "/srv/c").unwrap();
    assert_eq!(choices.apply(&nodes[1]).backend, "/srv/b");
}

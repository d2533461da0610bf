//! The boot archive.

use gearv_manifest::Archive;

/// Members lie in the archive, one behind the other, and are found by their names.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(archive) = Archive::new(bytes) else {
        return;
    };
    assert!(archive.end() <= bytes.len());
    let mut behind = 0;
    for member in archive.members() {
        let end = member.offset.checked_add(member.data.len());
        let end = end.expect("a member ends");
        assert!(behind <= member.offset && end <= archive.end());
        assert_eq!(bytes.get(member.offset..end), Some(member.data));
        let found = archive.find(member.name).expect("its name is known");
        assert!(found.offset <= member.offset);
        behind = end;
    }
}

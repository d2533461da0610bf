//! The boot archive.
//!
//! Gear1 copies members to where VMs run, by the offsets that the reader returns. A member that
//! ended behind the archive would take bytes of whatever lies there.

use gearv_manifest::Archive;

/// Members lie in the archive, one behind the other, and are found by their names.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(archive) = Archive::new(bytes) else {
        return;
    };
    assert!(archive.end() <= bytes.len());
    // Members that overlap would let one file of the archive change with another.
    let mut behind = 0;
    for member in archive.members() {
        let end = member.offset.checked_add(member.data.len());
        let end = end.expect("a member ends");
        assert!(behind <= member.offset && end <= archive.end());
        assert_eq!(bytes.get(member.offset..end), Some(member.data));
        let found = archive.find(member.name).expect("its name is known");
        // Of two with one name the first is found, always: init and Gear2 have to mean the same
        // file.
        assert!(found.offset <= member.offset);
        behind = end;
    }
}

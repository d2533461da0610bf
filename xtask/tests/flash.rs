//! `flash` checks its target before it builds anything.

use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn out_is_no_device() {
    let folder = std::env::temp_dir().join(format!("gearv-flash-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let out = folder.join("card");
    symlink("/dev/null", &out).unwrap();
    for board in ["qemu-virt", "rpi4", "zcu102"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let command = command.args(["flash", "--board", board, "--out"]).arg(&out);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("card is no f"), "{board}: {said}");
        assert!(!said.contains("built"), "{board}: {said}");
        assert_eq!(output.status.code(), Some(1), "{board}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

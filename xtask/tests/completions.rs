//! What `completions` writes completes `cargo xtask` in bash.

use std::process::Command;

/// Returns what bash offers for words, the last of which is being typed.
fn offered(words: &[&str]) -> Vec<String> {
    let script = "source <(\"$1\" completions bash); shift
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1))
        _cargo_or_xtask cargo \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash", env!("CARGO_BIN_EXE_xtask")]);
    let output = bash.args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(offered(&["cargo", "xtask", "new-m"]), ["new-manifest"]);
    assert_eq!(
        offered(&["cargo", "xtask", "run", "--port"]),
        ["--port-forward"]
    );
    assert_eq!(
        offered(&["cargo", "xtask", "flash", "--board", "rp"]),
        ["rpi4"]
    );
    assert_eq!(offered(&["cargo", "bu"]), [""]);
}

#[test]
fn other_shells_have_theirs() {
    for (shell, says) in [
        ("zsh", "_cargo-xtask()"),
        ("zsh", "compdef _cargo_or_xtask cargo"),
        ("fish", "complete -c cargo"),
    ] {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = xtask.args(["completions", shell]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(says), "{text}");
        assert!(text.contains("port-forward"), "{text}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = xtask.arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text.trim(),
        format!("cargo xtask {}", env!("CARGO_PKG_VERSION"))
    );
}

//! `cargo xtask completions`: what lets a shell complete the commands and options behind
//! `cargo xtask`.
//!
//! Shells complete words of a program. `cargo` is one, and its own completions know no `xtask`;
//! each shell has another way to a subcommand.

use clap::{Command, ValueEnum};
use clap_complete::{generate, shells};

/// A shell that can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// Bash: cargo xtask completions bash >
    /// ~/.local/share/bash-completion/completions/cargo-xtask.bash
    Bash,
    /// Zsh: cargo xtask completions zsh > a file that .zshrc sources behind compinit
    Zsh,
    /// Fish: cargo xtask completions fish > ~/.config/fish/completions/xtask.fish
    Fish,
}

/// Name that the shells' own functions get.
const NAME: &str = "xtask";

/// `cargo xtask` is completed as `xtask`, everything else as cargo's own completions do.
const BASH: &str = r#"
if declare -F __load_completion > /dev/null; then
    __load_completion cargo
fi
_cargo_or_xtask() {
    if [[ ${COMP_CWORD} -ge 2 && ${COMP_WORDS[1]} == xtask ]]; then
        COMP_WORDS=("${COMP_WORDS[@]:1}")
        COMP_CWORD=$((COMP_CWORD - 1))
        _xtask xtask "$2" "$3"
    elif declare -F _cargo > /dev/null; then
        _cargo "$@"
    fi
}
complete -F _cargo_or_xtask -o bashdefault -o default cargo
"#;

/// Cargo's completions call the function of this name for a subcommand that they do not know.
/// rustup installs none for zsh, so that most shells have nothing for `cargo`.
const ZSH: &str = r#"
_cargo-xtask() {
    _xtask "$@"
}
_cargo_or_xtask() {
    if [[ $CURRENT -eq 2 ]]; then
        compadd xtask
    elif [[ $words[2] == xtask ]]; then
        shift words
        (( CURRENT-- ))
        _xtask "$@"
    else
        _files
    fi
}
if (( ! $+_comps[cargo] )); then
    compdef _cargo_or_xtask cargo
fi
"#;

const FISH: &str = "\ncomplete -c cargo -n '__fish_seen_subcommand_from xtask' -f \\\n    \
    -a '(complete -C (commandline -cp | string replace -r \"^\\s*cargo\\s+xtask\" xtask))'\n";

/// Returns the text that a shell reads.
pub fn text(shell: Shell, mut command: Command) -> String {
    let mut text = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, NAME, &mut text),
        Shell::Zsh => generate(shells::Zsh, &mut command, NAME, &mut text),
        Shell::Fish => generate(shells::Fish, &mut command, NAME, &mut text),
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    text + match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    }
}

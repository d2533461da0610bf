//! A guest's keyboard and screen, as somebody at the device VM's shell has them: keys that are
//! typed into a socket, and pictures by `gearctl screenshot`.

use anyhow::{Context as _, Result};
use workbench::expect::Session;

use super::{LONG, shell_within};

/// Returns the device VM's command that types a line into an input device's socket, Enter included.
/// One `tap` a line is the language of an input device's socket (docs/device-model.md).
pub fn typing(line: &str, socket: &str) -> Result<String> {
    let keys: Vec<String> = line.chars().map(key).collect::<Result<_>>()?;
    let keys = keys.join(" ");
    Ok(format!(
        "for key in {keys} ENTER; do echo tap KEY_$key; done | socat - UNIX-CONNECT:{socket}"
    ))
}

/// Returns the name of a character's key on a keyboard of the United States, without its prefix.
/// Keys and not characters, because virtio-input sends what a keyboard has; the guest's layout
/// makes characters of them.
fn key(character: char) -> Result<String> {
    let name = match character {
        'a'..='z' | '0'..='9' => return Ok(character.to_ascii_uppercase().to_string()),
        ' ' => "SPACE",
        '/' => "SLASH",
        '-' => "MINUS",
        '.' => "DOT",
        _ => "",
    };
    let name = (!name.is_empty()).then(|| name.to_owned());
    name.with_context(|| format!("{character:?} has no key of its own"))
}

/// Takes a picture of a guest's screen in the device VM; returns the PNG. Hexadecimal digits, as
/// the console passes no bytes.
pub fn screenshot(session: &mut Session, vm: &str) -> Result<Vec<u8>> {
    let file = "/root/screen.png";
    let take = format!("gearctl screenshot {vm} {file} && xxd -p {file}");
    let printed = shell_within(session, &take, LONG)?;
    let is_hex = |line: &&str| line.len() >= 2 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits: String = printed.lines().map(str::trim).filter(is_hex).collect();
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?);
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::typing;

    #[test]
    fn a_line_is_a_key_for_each_character() {
        let command = typing("ls /mnt-2.a", "/run/keys").unwrap();
        assert_eq!(
            command,
            "for key in L S SPACE SLASH M N T MINUS 2 DOT A ENTER; do echo tap KEY_$key; done | \
             socat - UNIX-CONNECT:/run/keys"
        );
        let error = typing("a|b", "/run/keys").unwrap_err().to_string();
        assert!(error.contains("'|'"), "{error}");
    }
}

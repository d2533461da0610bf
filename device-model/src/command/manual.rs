//! Completions and the manual of `gearctl`, made of the description of its commands.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap_complete::Shell;
use clap_mangen::Man;

use super::line::description;
use super::write;
use crate::error::Error;

#[cfg(test)]
mod tests;

/// Returns the completions of a shell.
pub(super) fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut description(), "gearctl", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Prints the manual as one page, or writes a page for each command into a directory.
pub(super) fn man(directory: Option<&str>, out: &mut dyn Write) -> Result<(), Error> {
    let Some(directory) = directory else {
        return write(out, &whole(&description())?);
    };
    for (name, text) in pages(&description())? {
        let path = Path::new(directory).join(format!("{name}.1"));
        fs::write(&path, text)
            .map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Returns the manual as one page: the program, then each command with its arguments.
fn whole(program: &clap::Command) -> Result<String, Error> {
    let mut text = page(program)?;
    for (name, part) in pages(program)?.into_iter().skip(1) {
        let name = name.replace('-', " ").to_uppercase();
        // The page's own title would begin another page.
        let body = part
            .lines()
            .skip_while(|line| *line != ".SH SYNOPSIS")
            .skip(1);
        text += &format!(".SH {name}\n");
        for line in body {
            text += &line.replacen(".SH ", ".SS ", 1);
            text.push('\n');
        }
    }
    Ok(text)
}

/// Returns the pages of a command and of all below it, by their names.
fn pages(command: &clap::Command) -> Result<Vec<(String, String)>, Error> {
    let mut command = command.clone();
    command.build();
    let mut pages = Vec::new();
    let mut rest = vec![command];
    while let Some(command) = rest.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name());
        pages.push((name.to_owned(), page(&command)?));
        let below = command
            .get_subcommands()
            .filter(|below| below.get_name() != "help");
        // The last one is taken first.
        let mut below: Vec<clap::Command> = below.cloned().collect();
        below.reverse();
        rest.extend(below);
    }
    Ok(pages)
}

fn page(command: &clap::Command) -> Result<String, Error> {
    let mut text = Vec::new();
    let rendered = Man::new(command.clone()).render(&mut text);
    rendered.map_err(|error| Error::failed(format!("the manual: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

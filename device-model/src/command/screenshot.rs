//! `gearctl screenshot`: the last frame of a guest's screen, as a PNG.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use super::Command;
use crate::client::Client;
use crate::frame::{self, Picture};
use crate::json::Json;

#[cfg(test)]
mod tests;

/// Reads the words behind `screenshot`.
pub(super) fn parse(words: &[&str]) -> Option<Command> {
    let (vm, channel, file) = match words {
        [vm, file] => (vm, None, file),
        [vm, channel, file] => (vm, Some(channel.parse().ok()?), file),
        _ => return None,
    };
    Some(Command::Screenshot {
        vm: (*vm).into(),
        channel,
        file: (*file).into(),
    })
}

/// Writes the frame to a file, and says what it is.
pub(super) fn take(
    client: &mut Client,
    run_directory: &str,
    vm: &str,
    channel: Option<u64>,
    file: &str,
) -> Result<Json, String> {
    let vm = client.find(vm)?.name;
    let mut channels = channels(client, &vm)?;
    channels.retain(|each| Path::new(&frame::path(run_directory, *each)).exists());
    let channel = choose(&vm, &channels, channel)?;
    let picture = Picture::read(Path::new(&frame::path(run_directory, channel)))?;
    write(&picture, file)?;
    Ok(Json::Object(vec![
        ("vm", vm.as_str().into()),
        ("channel", channel.into()),
        ("width", u64::from(picture.width).into()),
        ("height", u64::from(picture.height).into()),
        ("file", file.into()),
    ]))
}

/// Returns the numbers of a VM's devices.
/// All of them are numbered in one row: a number alone does not tell whose device it is.
fn channels(client: &mut Client, vm: &str) -> Result<Vec<u64>, String> {
    let devices = client.devices()?.into_iter();
    let devices = devices.filter(|line| line.texts.first().is_some_and(|name| name == vm));
    let channels = devices.filter_map(|line| line.numbers.first().copied());
    Ok(channels.collect())
}

/// Chooses among the devices of a VM that have screens.
fn choose(vm: &str, channels: &[u64], wanted: Option<u64>) -> Result<u64, String> {
    match (channels, wanted) {
        (_, Some(channel)) if channels.contains(&channel) => Ok(channel),
        (_, Some(channel)) => Err(format!("channel {channel} of {vm} has no screen")),
        ([channel], None) => Ok(*channel),
        ([], None) => Err(format!("{vm} has no screen")),
        (_, None) => Err(format!(
            "{vm} has several screens, of the channels {channels:?}"
        )),
    }
}

/// Writes a picture as a PNG. A refusal leaves a file of before as it is.
fn write(picture: &Picture, file: &str) -> Result<(), String> {
    if picture.colours.is_empty() {
        return Err("the screen is off: the guest shows nothing".into());
    }
    let named = |error: &dyn std::fmt::Display| format!("{file}: {error}");
    let to = File::create(file).map_err(|error| named(&error))?;
    let mut encoder = png::Encoder::new(BufWriter::new(to), picture.width, picture.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|error| named(&error))?;
    let written = writer.write_image_data(&picture.colours);
    written.map_err(|error| named(&error))?;
    writer.finish().map_err(|error| named(&error))
}

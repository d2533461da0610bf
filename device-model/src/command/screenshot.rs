//! `gearctl screenshot`: the last frame of a guest's screen, as a PNG.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use super::answer::Screenshot;
use crate::client::Client;
use crate::error::Error;
use crate::frame::{self, Picture};

#[cfg(test)]
mod tests;

/// Writes the frame to a file, and says what it is.
pub(super) fn take(
    client: &mut Client,
    run_directory: &str,
    vm: &str,
    channel: Option<u64>,
    file: &str,
) -> Result<Screenshot, Error> {
    let vm = client.find(vm)?.name;
    let mut channels = channels(client, &vm)?;
    channels.retain(|each| Path::new(&frame::path(run_directory, *each)).exists());
    let channel = choose(&vm, &channels, channel)?;
    let picture = Picture::read(Path::new(&frame::path(run_directory, channel)));
    let picture = picture.map_err(Error::failed)?;
    write(&picture, file)?;
    Ok(Screenshot {
        vm,
        channel,
        width: picture.width.into(),
        height: picture.height.into(),
        file: file.into(),
    })
}

/// Returns the numbers of a VM's devices.
/// All of them are numbered in one row: a number alone does not tell whose device it is.
fn channels(client: &mut Client, vm: &str) -> Result<Vec<u64>, Error> {
    let devices = client.devices()?.into_iter();
    let devices = devices.filter(|device| device.vm == vm);
    let channels = devices.map(|device| device.channel);
    Ok(channels.collect())
}

/// Chooses among the devices of a VM that have screens.
fn choose(vm: &str, channels: &[u64], wanted: Option<u64>) -> Result<u64, Error> {
    match (channels, wanted) {
        (_, Some(channel)) if channels.contains(&channel) => Ok(channel),
        (_, Some(channel)) => Err(Error::not_found(format!(
            "channel {channel} of {vm} has no screen"
        ))),
        ([channel], None) => Ok(*channel),
        ([], None) => Err(Error::not_found(format!("{vm} has no screen"))),
        (_, None) => Err(Error::refused(format!(
            "{vm} has several screens, of the channels {channels:?}"
        ))),
    }
}

/// Writes a picture as a PNG. A refusal leaves a file of before as it is.
fn write(picture: &Picture, file: &str) -> Result<(), Error> {
    if picture.colours.is_empty() {
        let sentence = "the screen is off: the guest shows nothing";
        return Err(Error::refused(sentence));
    }
    let named = |error: &dyn std::fmt::Display| Error::failed(format!("{file}: {error}"));
    let to = File::create(file).map_err(|error| named(&error))?;
    let mut encoder = png::Encoder::new(BufWriter::new(to), picture.width, picture.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|error| named(&error))?;
    let written = writer.write_image_data(&picture.colours);
    written.map_err(|error| named(&error))?;
    writer.finish().map_err(|error| named(&error))
}

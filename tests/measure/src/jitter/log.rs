//! Output of init on its console, and logs of it that were captured elsewhere.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use flate2::read::GzDecoder;

use super::configuration::Configuration;
use super::setup::ROW;
use crate::report::{self, Figure, Figures, Results};

/// Messages of init, in this order. The first carries the kernel's release, the configuration and
/// the number of SGIs that the kernel has sent to its own CPUs; the third carries that number
/// again.
pub(super) const READY: &str = "JITTER-READY ";
pub(super) const BEGINS: &str = "JITTER-BEGINS";
pub(super) const MEASURED: &str = "JITTER-MEASURED ";
pub(super) const END: &str = "JITTER-END";

/// Start of each line with samples, which are in `report`'s format, compressed by gzip and encoded
/// in base64.
const PACKED: &str = "PACKED ";

/// Decodes the samples from init's output after [`MEASURED`].
pub(super) fn samples(printed: &str) -> Result<Figures> {
    let packed = printed.lines().filter_map(|line| line.split_once(PACKED));
    let packed: String = packed.map(|(_, base64)| base64.trim()).collect();
    let mut text = String::new();
    GzDecoder::new(bytes(&packed)?.as_slice())
        .read_to_string(&mut text)
        .context("the samples cannot be unpacked")?;
    Ok(report::parse(&text))
}

/// Reads base64 (RFC 4648, section 4).
fn bytes(base64: &str) -> Result<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in base64.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|one| *one == letter);
        let value = value.with_context(|| format!("{:?} is no base64", char::from(letter)))?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Ok(bytes)
}

/// Reads the measurements in logs; each log may hold several.
pub(super) fn read(logs: &[PathBuf]) -> Result<Results> {
    let mut columns = Vec::new();
    let mut kernels = Vec::new();
    for log in logs {
        let text = fs::read(log).with_context(|| log.display().to_string())?;
        let text = String::from_utf8_lossy(&text).replace('\r', "");
        let found = runs(&text).with_context(|| log.display().to_string())?;
        for (name, kernel, figures) in found {
            columns.push((name, figures));
            kernels.push(kernel);
        }
    }
    kernels.sort();
    kernels.dedup();
    Ok(Results {
        counts: Default::default(),
        guest: "not known: read from logs".to_owned(),
        conditions: [("kernel".to_owned(), kernels.join(", "))].into(),
        columns,
    })
}

/// Name of the configuration, release of its kernel, and its figures.
type Run = (String, String, Figures);

fn runs(text: &str) -> Result<Vec<Run>> {
    let runs = text.split(READY).skip(1).map(run);
    let runs = runs.collect::<Result<Vec<Run>>>()?;
    ensure!(
        !runs.is_empty(),
        "it holds no line that begins with {READY}"
    );
    Ok(runs)
}

fn run(text: &str) -> Result<Run> {
    let (first, rest) = text.split_once('\n').context("it ends too early")?;
    let mut words = first.split_whitespace();
    let kernel = words.next().unwrap_or("unknown").to_owned();
    let name = words.next().unwrap_or_default();
    let configuration = Configuration::from_str(name, false).ok();
    let name = match configuration {
        Some(configuration) => configuration.text().to_owned(),
        None => format!("unnamed {name}").trim_end().to_owned(),
    };
    let (printed, _) = rest
        .split_once(END)
        .with_context(|| format!("{name}: it has no {END}"))?;
    let figures = samples(printed).with_context(|| name.clone())?;
    let count = figures.get(ROW).map_or(0, Figure::count);
    ensure!(count > 0, "{name}: no sample is left of it");
    Ok((name, kernel, figures))
}

#[cfg(test)]
mod tests;

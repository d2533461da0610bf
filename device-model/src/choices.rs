//! Media of disks that a person has chosen instead of the manifest's.
//!
//! Owns: a file for each such disk in GDM's own directory, by which the next GDM knows the choice.
//! The device's page would not do: the process of the guest can write that page. The directory is
//! in memory: after a boot of the device VM the disks have the manifest's media again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};

use crate::board::{DeviceKind, DeviceNode};

#[cfg(test)]
mod tests;

/// The choices, by channel: the path of the medium, empty for none.
#[derive(Debug, Default)]
pub struct Choices {
    directory: String,
    chosen: Mutex<BTreeMap<usize, String>>,
}

impl Choices {
    /// Reads what an earlier GDM was told. A choice that cannot be read is forgotten, and the log
    /// says so.
    pub fn read(directory: &str, devices: &[DeviceNode]) -> Self {
        let mut chosen = BTreeMap::new();
        for node in devices.iter().filter(|node| node.kind == DeviceKind::Block) {
            let path = path_of(directory, node.channel);
            match fs::read_to_string(&path) {
                Ok(medium) => {
                    chosen.insert(node.channel, medium);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => eprintln!("gdm: {}: {path}: {error}", node.name()),
            }
        }
        Self {
            directory: directory.into(),
            chosen: Mutex::new(chosen),
        }
    }

    /// Returns the device as it is now: with the chosen medium, if there is one.
    pub fn apply(&self, node: &DeviceNode) -> DeviceNode {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut node = node.clone();
        if let Some(medium) = chosen.get(&node.channel) {
            node.backend.clone_from(medium);
        }
        node
    }

    /// Chooses a medium for a disk. The manifest's is no choice.
    pub(crate) fn choose(&self, node: &DeviceNode, medium: &str) -> io::Result<()> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path_of(&self.directory, node.channel);
        if medium == node.backend {
            chosen.remove(&node.channel);
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            };
        }
        chosen.insert(node.channel, medium.into());
        // A GDM that is killed meanwhile leaves the old choice or the new one.
        let new = format!("{path}.new");
        fs::write(&new, medium)?;
        fs::rename(&new, &path)
    }
}

fn path_of(directory: &str, channel: usize) -> String {
    format!("{directory}/medium-{channel}")
}

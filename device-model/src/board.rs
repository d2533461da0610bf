//! Facts that Gear1's init passes to the device model: `/gearv` of the device VM's device tree.
//!
//! Owns: the parser of those properties, and the layout of the window.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address::{self, Mac};

#[cfg(test)]
mod tests;

/// Offset of the first doorbell page in the window.
pub const DOORBELLS: u64 = 0x8_0000;
/// Offset of the first register page in the window.
pub const REGISTER_PAGES: u64 = 0x9_0000;
/// Bytes of a device's registers in its VM's page.
const REGISTERS: u32 = 0x200;
/// Bytes of a page of the window.
pub const PAGE: u64 = 0x1000;

/// Type of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Disk.
    Block,
    /// Network card.
    Net,
    /// Console.
    Console,
    /// Entropy.
    Rng,
    /// Keyboard, mouse and the like.
    Input,
    /// Sockets to the device VM.
    Vsock,
    /// A device whose function is another program, with the type that the guest sees.
    VhostUser(u32),
}

/// A virtio device of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// Number over all VMs.
    pub channel: usize,
    /// Name of the VM that uses the device.
    pub vm: String,
    /// Number of that VM, by which its slots are found.
    pub vm_id: usize,
    /// Type.
    pub kind: DeviceKind,
    /// Backend: a path or a name.
    pub backend: String,
    /// Queues of a device whose function is another program, or of a disk; pairs of them, of a
    /// network card.
    pub queues: usize,
    /// Bytes of that device's configuration.
    pub config_size: usize,
    /// Time after which requests fail that wait for that program; `None`: they wait.
    pub limit: Option<Duration>,
    /// Command that starts that program, if GDM does.
    pub command: Vec<String>,
    /// Files that belong to that program.
    pub files: Vec<String>,
    /// Name of a file system that another program serves, by which a guest mounts it.
    pub tag: String,
    /// Whether the guest must not write the disk.
    pub read_only: bool,
    /// MAC address of a network card; all zero for other types.
    pub mac: Mac,
    /// Name in the manifest.
    pub label: String,
    /// Serial number of a disk; empty: the end of the backend's path.
    pub serial: String,
    /// Longest packet that a network card announces; 0: it announces none.
    pub mtu: u16,
    /// Most requests and bytes a second, 0 for no limit, and the burst in milliseconds.
    pub limits: [u32; 3],
    /// Identifier of the guest among those that have sockets to the device VM; 0 for other types.
    pub cid: u32,
    /// Guest RAM: guest address, physical address, bytes.
    pub memory: [u64; 3],
    /// Register page of the VM, and offset of the device's registers in the page.
    pub registers: [u32; 2],
}

/// Configuration of GDM: all VMs and devices that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Physical address of the region shared with Gear2.
    pub control: u64,
    /// Start of the window.
    pub window: u64,
    /// The devices, by channel.
    pub devices: Vec<DeviceNode>,
    /// Whether addresses of network cards that were made up differ from those of other boards.
    pub has_identity: bool,
}

impl DeviceKind {
    /// Returns the type of a name; `device_id` is that of a device whose function is another
    /// program.
    fn from_name(name: &str, device_id: u32) -> Option<Self> {
        Some(match name {
            "block" => Self::Block,
            "net" => Self::Net,
            "console" => Self::Console,
            "rng" => Self::Rng,
            "input" => Self::Input,
            "vsock" => Self::Vsock,
            "vhost-user" => Self::VhostUser(device_id),
            _ => return None,
        })
    }

    /// Returns the manifest's name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Net => "net",
            Self::Console => "console",
            Self::Rng => "rng",
            Self::Input => "input",
            Self::Vsock => "vsock",
            Self::VhostUser(_) => "vhost-user",
        }
    }
}

impl DeviceNode {
    /// Returns the name of the device for the log.
    pub fn name(&self) -> String {
        format!("{}/{}{}", self.vm, self.kind.name(), self.channel)
    }
}

impl Board {
    /// Reads the board from a device-tree directory (`/proc/device-tree`). The error names the
    /// property.
    pub fn read(tree: &Path) -> Result<Self, String> {
        let node = Node(tree.join("gearv"));
        if !node.0.is_dir() {
            let path = node.0.display();
            return Err(format!(
                "{path} does not exist: this is not a GearV device VM"
            ));
        }
        let [control, _] = node.wide("control")?;
        let [window, _] = node.wide("window")?;
        let mut devices = read_devices(&node)?;
        let has_identity = give_addresses(&mut devices, tree);
        Ok(Self {
            has_identity,
            control,
            window,
            devices,
        })
    }
}

/// Gives each network card an address that has none by the manifest. The address
/// is derived from the board's own numbers, so that no two boards share it, and from the VM and the
/// card's place, so that other VMs in the manifest change nothing. Returns false if nothing tells
/// the board from others.
fn give_addresses(devices: &mut [DeviceNode], tree: &Path) -> bool {
    let is_without =
        |device: &&mut DeviceNode| device.kind == DeviceKind::Net && device.mac == Mac::default();
    let mut cards = devices.iter_mut().filter(is_without).peekable();
    if cards.peek().is_none() {
        return true;
    }
    let identity = address::board_identity(tree, Path::new(address::CARDS));
    let is_known = identity.is_some();
    let board = identity.unwrap_or_default();
    for card in cards {
        let [_, registers] = card.registers;
        card.mac = address::derive(&board, &card.vm, registers / REGISTERS);
    }
    is_known
}

/// Reads the devices, which are the directories below the node, in the order of their channels.
fn read_devices(node: &Node) -> Result<Vec<DeviceNode>, String> {
    let mut devices = Vec::new();
    let entries = fs::read_dir(&node.0).map_err(|error| node.error("", &error))?;
    for entry in entries.flatten() {
        // Files are the properties of `/gearv` itself.
        if entry.path().is_dir() {
            devices.push(read_device(&Node(entry.path()))?);
        }
    }
    devices.sort_by_key(|device| device.channel);
    Ok(devices)
}

/// Reads a device. Places and numbers have no defaults: without them, init and GDM are of different
/// versions.
fn read_device(node: &Node) -> Result<DeviceNode, String> {
    let kind = node.text("type")?;
    let [device_id, queues, config_size] = node.cells("vhost-user").unwrap_or_default();
    // A disk or a card of GDM's own has one, or a pair, unless the manifest gives it more.
    let [queues] = node.cells("queues").unwrap_or([queues]);
    let kind = DeviceKind::from_name(&kind, device_id)
        .ok_or_else(|| node.error("type", &format!("no backend for `{kind}`")))?;
    let [channel] = node.cells("channel")?;
    let [vm_id] = node.cells("vm-id")?;
    Ok(DeviceNode {
        channel: channel as usize,
        vm: node.text("vm")?,
        vm_id: vm_id as usize,
        kind,
        backend: node.text("backend").unwrap_or_default(),
        queues: queues as usize,
        config_size: config_size as usize,
        limit: read_limit(node)?,
        command: node.texts("command"),
        files: node.texts("files"),
        tag: node.text("tag").unwrap_or_default(),
        read_only: node.0.join("read-only").exists(),
        mac: read_mac(node)?,
        label: node.text("label").unwrap_or_default(),
        serial: node.text("serial").unwrap_or_default(),
        mtu: node.cells("mtu").map_or(0, |[mtu]: [u32; 1]| mtu as u16),
        limits: node.cells("limits").unwrap_or_default(),
        cid: read_cid(node, kind)?,
        memory: node.wide("guest-memory")?,
        registers: node.cells("register-page")?,
    })
}

/// Returns the address that the manifest gives; without, zeroes.
fn read_mac(node: &Node) -> Result<Mac, String> {
    if !node.0.join("mac").exists() {
        return Ok(Mac::default());
    }
    let bytes = node.bytes("mac")?;
    let mac = Mac::try_from(bytes);
    mac.map_err(|_| node.error("mac", &"is not 6 bytes"))
}

/// Returns the time after which requests fail that wait for a program.
fn read_limit(node: &Node) -> Result<Option<Duration>, String> {
    if !node.0.join("timeout-ms").exists() {
        return Ok(None);
    }
    let [milliseconds] = node.cells("timeout-ms")?;
    Ok(Some(Duration::from_millis(u64::from(milliseconds))))
}

/// Returns the identifier of a guest that has sockets to the device VM.
fn read_cid(node: &Node, kind: DeviceKind) -> Result<u32, String> {
    if kind != DeviceKind::Vsock {
        return Ok(0);
    }
    let [cid] = node.cells("cid")?;
    Ok(cid)
}

/// A node as the kernel shows it: a directory with a file for each property.
struct Node(PathBuf);

impl Node {
    /// Names the property of an error.
    fn error(&self, property: &str, error: &dyn std::fmt::Display) -> String {
        format!("{}: {error}", self.0.join(property).display())
    }

    /// Reads a property as the tree has it; numbers are big-endian.
    fn bytes(&self, property: &str) -> Result<Vec<u8>, String> {
        fs::read(self.0.join(property)).map_err(|error| self.error(property, &error))
    }

    /// Reads a string, which ends with a zero in the device tree.
    fn text(&self, property: &str) -> Result<String, String> {
        let bytes = self.bytes(property)?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Reads strings, each of which ends with a zero; none where the property is not there.
    fn texts(&self, property: &str) -> Vec<String> {
        let bytes = self.bytes(property).unwrap_or_default();
        let bytes = bytes.strip_suffix(&[0]).unwrap_or_default();
        let texts = bytes.split(|byte| *byte == 0);
        let texts = texts.map(|text| String::from_utf8_lossy(text).into_owned());
        texts.filter(|_| !bytes.is_empty()).collect()
    }

    /// Reads exactly `N` cells of 32 bits.
    fn cells<const N: usize>(&self, property: &str) -> Result<[u32; N], String> {
        let bytes = self.bytes(property)?;
        let (cells, rest) = bytes.as_chunks::<4>();
        let cells = <[[u8; 4]; N]>::try_from(cells);
        match (cells, rest) {
            (Ok(cells), []) => Ok(cells.map(u32::from_be_bytes)),
            (Ok(_) | Err(_), _) => Err(self.error(property, &format!("is not {N} cells"))),
        }
    }

    /// Reads exactly `N` numbers of two cells.
    fn wide<const N: usize>(&self, property: &str) -> Result<[u64; N], String> {
        let bytes = self.bytes(property)?;
        let (cells, rest) = bytes.as_chunks::<8>();
        let cells = <[[u8; 8]; N]>::try_from(cells);
        match (cells, rest) {
            (Ok(cells), []) => Ok(cells.map(u64::from_be_bytes)),
            (Ok(_) | Err(_), _) => Err(self.error(property, &format!("is not {N} pairs of cells"))),
        }
    }
}

//! MAC addresses of the guests' network cards where the manifest gives none: constant on one board
//! over all boots, and different on another board, so that two boards can be on one network.
//!
//! An address is derived from the board's identity, the VM's name and the card's position among the
//! VM's devices. Its first byte is 02: a locally administered address of one station.

use std::fs;
use std::path::Path;

#[cfg(test)]
mod tests;

/// A MAC address.
pub type Mac = [u8; 6];

/// Directory in which Linux shows the board's network cards.
pub const CARDS: &str = "/sys/class/net";
/// First byte: one station, locally administered.
const PREFIX: u8 = 0x02;
/// Bits of the first byte: several stations; locally administered.
const GROUP: u8 = 1;
/// Firmware without an address sets this bit in the one that it makes up (IEEE 802).
const LOCAL: u8 = 2;
/// Deepest node that is looked at; device trees are less deep.
const MAX_DEPTH: usize = 16;
/// Linux's `NET_ADDR_PERM`: the address is the card's own.
const PERMANENT: &str = "0";

/// Returns the identity of the board, from the first source that exists: the serial number, the
/// least of the addresses that firmware wrote into the device tree, or the least of the cards' own
/// addresses. `None`: no source exists.
pub fn board_identity(tree: &Path, cards: &Path) -> Option<Vec<u8>> {
    let serial = fs::read(tree.join("serial-number")).ok();
    let serial = serial.filter(|serial| serial.iter().any(|byte| !matches!(byte, 0 | b'0' | b' ')));
    serial
        .or_else(|| least_in_tree(tree, 0).map(|mac| mac.to_vec()))
        .or_else(|| least_of_cards(cards).map(|mac| mac.to_vec()))
}

/// Returns the address of the card in place `place` of the VM `vm`.
pub fn derive(board: &[u8], vm: &str, place: u32) -> Mac {
    // planted: every board's network cards have the same addresses
    let parts = [board, &[0], vm.as_bytes(), &[0], &place.to_le_bytes()];
    let [_, _, _, a, b, c, d, e] = hash(parts.into_iter().flatten().copied()).to_be_bytes();
    [PREFIX, a, b, c, d, e]
}

/// FNV-1a, with the last step of `MurmurHash3` behind it: each byte of the input changes all of the
/// result.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, fold);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Finds the least address of a card in the tree that is the maker's: firmware makes up a local one
/// at each boot where it knows none.
fn least_in_tree(folder: &Path, depth: usize) -> Option<Mac> {
    let names = ["mac-address", "local-mac-address"];
    let own = names.iter().filter_map(|name| {
        let mac = Mac::try_from(fs::read(folder.join(name)).ok()?).ok()?;
        // planted: a board's addresses are those that firmware made up at this boot
        (is_real(mac) && mac[0] & LOCAL == 0).then_some(mac)
    });
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = folders.filter(|_| depth < MAX_DEPTH);
    let below = below.filter_map(|entry| least_in_tree(&entry.path(), depth + 1));
    own.chain(below).min()
}

/// Finds the least address of a physical card.
fn least_of_cards(cards: &Path) -> Option<Mac> {
    let entries = fs::read_dir(cards).into_iter().flatten().flatten();
    let macs = entries.filter_map(|entry| {
        let text = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let is_card = entry.path().join("device").exists();
        let is_own = text("addr_assign_type")?.trim() == PERMANENT;
        let mac = parse(text("address")?.trim())?;
        (is_card && is_own && is_real(mac)).then_some(mac)
    });
    macs.min()
}

/// Reads six bytes in hexadecimal with colons between them, as sysfs shows an address.
fn parse(text: &str) -> Option<Mac> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

/// Returns whether the address belongs to one station.
fn is_real(mac: Mac) -> bool {
    mac[0] & GROUP == 0 && mac != [0; 6]
}

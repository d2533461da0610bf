//! Tests of the archive writer, read back by the reader that init uses.

use std::fs;
use std::path::PathBuf;

use anyhow::bail;
use gearv_manifest::{Archive, VmKind};

use super::{PAGE, Writer, build_archive};
use crate::manifest::{Compiled, FileRef, Source, VmSummary};
use crate::tools::Tools;
use crate::workspace::scratch;

#[test]
fn data_lies_on_pages() {
    let mut writer = Writer::default();
    let members: Vec<(String, Vec<u8>)> = (0..300)
        .map(|index| ("n".repeat(1 + index * 7), vec![1; index * 5]))
        .collect();
    for (name, data) in &members {
        writer.add(name, data).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let archive = Archive::new(&bytes).unwrap();
    for (member, (name, data)) in archive.members().zip(&members) {
        assert_eq!((member.name, member.data), (name.as_str(), data.as_slice()));
        assert!(
            member.offset.is_multiple_of(PAGE),
            "{name} at {:#x}",
            member.offset
        );
    }
    assert_eq!(archive.members().count(), members.len());
}

/// Builds the archive of a manifest that names the file `path` and the artifact `artifact`.
fn build(test: &str, path: &str, artifact: &str) -> anyhow::Result<Vec<u8>> {
    let folder = scratch(test);
    fs::write(folder.join("payload"), "payload")?;
    fs::write(folder.join("empty"), "")?;
    let vm = VmSummary {
        name: "linux".into(),
        kind: VmKind::Guest,
        vcpus: 1,
        memory_bytes: 2 << 20,
        may_power_off: false,
        console: None,
        address: None,
        device_tree: Some("/dts-v1/; / { };".into()),
    };
    let file = |name_in_archive: String, source| FileRef {
        name_in_archive,
        source,
    };
    let compiled = Compiled {
        dts: "manifest.dts".into(),
        privilege: gearv_manifest::Privilege::El0,
        blob: b"blob".to_vec(),
        vms: vec![vm],
        files: vec![
            file(path.into(), Source::Path(folder.join(path))),
            file(
                format!("artifact:{artifact}"),
                Source::Artifact(artifact.into()),
            ),
        ],
        cpu_count: 1,
        second_uart: false,
        boot_uart_owner: None,
        virtio_owner: None,
    };
    let resolve = |name: &str| -> anyhow::Result<PathBuf> {
        if name != "guest:x" {
            bail!("there is no artifact {name}");
        }
        Ok(folder.join("payload"))
    };
    let (gear2, out) = (folder.join("payload"), folder.join("archive.cpio"));
    let built = build_archive(&compiled, &gear2, &resolve, &Tools::prepare()?, &out);
    let bytes = built.and_then(|path| Ok(fs::read(path)?));
    fs::remove_dir_all(folder)?;
    bytes
}

#[test]
fn holds_what_the_contract_says_in_its_order() {
    let bytes = build("order", "payload", "guest:x").unwrap();
    let archive = Archive::new(&bytes).unwrap();
    let names = [
        "manifest.dtb",
        "gear2.bin",
        "payload",
        "artifact:guest:x",
        "dtb/linux",
    ];
    assert!(archive.members().map(|member| member.name).eq(names));
    assert_eq!(archive.find("artifact:guest:x").unwrap().data, b"payload");
    assert_eq!(
        archive.guest_dtb("linux").unwrap().data[..4],
        0xd00d_feed_u32.to_be_bytes()
    );
    assert_eq!(bytes, build("again", "payload", "guest:x").unwrap());
}

#[test]
fn names_the_payload_that_cannot_be_had() {
    let cases = [
        (
            "missing",
            "none",
            "guest:x",
            "the manifest names none: cannot read ",
        ),
        ("empty", "empty", "guest:x", "the manifest names empty: "),
        (
            "artifact",
            "payload",
            "y",
            "the manifest names artifact:y: there is no artifact y",
        ),
    ];
    for (test, path, artifact, start) in cases {
        let message = format!("{:#}", build(test, path, artifact).unwrap_err());
        assert!(message.starts_with(start), "{message}");
    }
}

//! Tests of manifest compilation, with the real dtc.

use std::fs;
use std::path::{Path, PathBuf};

use super::diagnostic::Diagnostic;
use super::{Aligned, Compiled, Source, compile, compile_source as compile_only, judge_source};
use crate::tools::Tools;
use crate::workspace::scratch;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Compiles `text` and returns the result and the folder that it lies in.
fn compile_source(test: &str, text: &str) -> (anyhow::Result<Compiled>, PathBuf) {
    let folder = scratch(test);
    let dts = folder.join("system.dts");
    fs::write(&dts, text).unwrap();
    (
        compile(&dts, &Tools::prepare().unwrap(), &folder.join("out")),
        folder,
    )
}

fn vm(lines: &str) -> String {
    format!(
        "/dts-v1/;\n/ {{\n\tcompatible = \"gearv,manifest\";\n\tversion = <1>;\n\tvms {{\n\
         \t\tlinux {{\n{lines}\n\t\t}};\n\t}};\n}};\n"
    )
}

#[test]
fn examples_compile() {
    let tools = Tools::prepare().unwrap();
    let folder = scratch("examples");
    let mut count = 0;
    for entry in fs::read_dir(repository("manifests")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "dts") {
            let compiled = compile(&path, &tools, &folder);
            assert!(
                compiled.is_ok(),
                "{}: {:#}",
                path.display(),
                compiled.unwrap_err()
            );
            count += 1;
        }
    }
    assert!(count >= 2);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn names_files_once_and_where_they_come_from() {
    let folder = scratch("files");
    let dts = repository("manifests/two-guests.dts");
    let compiled = compile(&dts, &Tools::prepare().unwrap(), &folder).unwrap();
    let files: Vec<_> = compiled
        .files
        .iter()
        .map(|f| (f.name_in_archive.as_str(), &f.source))
        .collect();
    let kernel = Source::Artifact("debian-kernel".into());
    let initrd = Source::Artifact("busybox-initramfs".into());
    let expected = [
        ("artifact:debian-kernel", &kernel),
        ("artifact:busybox-initramfs", &initrd),
    ];
    assert_eq!(files, expected);
    let vms: Vec<_> = compiled
        .vms
        .iter()
        .map(|vm| (vm.name.as_str(), vm.may_power_off))
        .collect();
    assert_eq!(vms, [("guest0", true), ("guest1", false)]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn paths_start_at_the_manifest() {
    let (compiled, folder) =
        compile_source("paths", &vm("memory-mib = <2>; image = \"sub/flat.bin\";"));
    let source = compiled.unwrap().files[0].source.clone();
    assert_eq!(source, Source::Path(folder.join("sub/flat.bin")));
    fs::remove_dir_all(folder).unwrap();
}

/// `check --report` judges a manifest and then builds it, which judges it again.
#[test]
fn a_warning_is_said_once() {
    let tools = Tools::prepare().unwrap();
    let folder = scratch("once");
    let dts = folder.join("system.dts");
    let text = fs::read_to_string(repository("manifests/qemu-virt.dts")).unwrap();
    fs::write(&dts, text).unwrap();
    let (dts, blob) = compile_only(&dts, &tools, &folder).unwrap();
    let mut list = Vec::new();
    let mut sink = |error: gearv_manifest::ManifestError<'_>| list.push(Diagnostic::new(&error));
    let bytes = Aligned::new(&blob);
    let judged = gearv_manifest::judge(bytes.as_slice(), None, &mut sink);
    gearv_manifest::warn(&judged.manifest.unwrap(), None, &mut sink);
    let sources = judge_source(&dts, &tools, &mut list);
    let first = sources.draw_new(&list, false);
    assert!(first.contains("warning[M-WRN-001]"), "{first}");
    assert_eq!(sources.draw_new(&list, false), "");
    assert_eq!(sources.draw(&list, false), first);
    fs::remove_dir_all(folder).unwrap();
}

/// A string of three characters is a cell of the blob: `"10s"` was a watchdog of 825,258,752 ms.
#[test]
fn a_string_is_no_number() {
    let cases = [
        (
            "watchdog-ms = \"10s\";",
            "write a number of milliseconds from 0 to 3600000, 0 for none: watchdog-ms = <60000>;",
        ),
        (
            "boot-order = \"first\";",
            "write a number from 0 to 1000: boot-order = <1>;",
        ),
        (
            "cpus = \"0\", \"1\";",
            "write numbers of CPUs, from 0 to 7: cpus = <0 1>;",
        ),
    ];
    for (line, help) in cases {
        let lines = format!("memory-mib = <64>; image = \"f\"; {line}");
        let (compiled, folder) = compile_source("strings", &vm(&lines));
        let message = compiled.unwrap_err().to_string();
        assert!(message.contains("is refused: 1 error\n"), "{message}");
        assert!(message.contains("error[M-SYN-003]: the value has the wrong type (a string)"));
        assert!(message.contains(help), "{message}");
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn errors_name_file_line_and_column() {
    let (compiled, folder) =
        compile_source("place", &vm("\t\t\tmemory-mib = <3>;\n\t\t\tvcpu = <1>;"));
    let message = compiled.unwrap_err().to_string();
    let dts = folder.join("system.dts");
    assert!(message.starts_with(&format!("{} is refused: 2 errors", dts.display())));
    for expected in [
        "error[M-SYN-001]: the binding has no such property here",
        "error[M-PAY-001]: a VM has nothing to run",
        "help: did you mean vcpus?",
        &format!("{}:8:4\n", dts.display()),
        &format!("{}:6:3\n", dts.display()),
    ] {
        assert!(message.contains(expected), "{expected}:\n{message}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn conflicts_name_both_places() {
    let text = vm("memory-mib = <2>; image = \"a\"; may-power-off;").replace(
        "\t};\n};",
        "\t\tb { memory-mib = <2>; image = \"b\"; may-power-off; };\n\t};\n};",
    );
    let (compiled, folder) = compile_source("conflict", &text);
    let message = compiled.unwrap_err().to_string();
    let expected = [
        "error[M-VM-005]",
        "system.dts:9:38\n",
        "may-power-off of /vms/b",
        "in conflict with this",
    ];
    for expected in expected {
        assert!(message.contains(expected), "{expected}:\n{message}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_dtc_refuses_is_shown() {
    let (compiled, folder) = compile_source("syntax", "/dts-v1/;\n/ { a = <1>; }\n");
    let message = compiled.unwrap_err().to_string();
    assert!(
        message.contains("system.dts:2:15") && message.contains("a ; is missing"),
        "{message}"
    );
    let missing = compile(
        &folder.join("none.dts"),
        &Tools::prepare().unwrap(),
        &folder,
    );
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("there is no manifest")
    );
    let folder_named = compile(&folder, &Tools::prepare().unwrap(), &folder);
    let said = folder_named.unwrap_err().to_string();
    assert!(
        said.contains("is a folder") && said.contains("/*.dts"),
        "{said}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn same_source_gives_same_blob() {
    let (first, folder) = compile_source("same", &vm("memory-mib = <2>; image = \"a\";"));
    let (second, _) = compile_source("same", &vm("memory-mib = <2>; image = \"a\";"));
    assert_eq!(first.unwrap().blob, second.unwrap().blob);
    fs::remove_dir_all(folder).unwrap();
}

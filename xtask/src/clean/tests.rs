//! Tests of what `clean` deletes, and of what it leaves.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use workbench::cache::Cache;
use workbench::workspace::scratch;

use super::{Options, TAG, builds, downloads, ensure_no_machine, is_own_target, size};

/// Makes files with all folders above them.
fn make(root: &Path, files: &[&str]) {
    for file in files {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, [1; 5000]).unwrap();
    }
}

const TARGET: &[&str] = &[
    TAG,
    "debug/xtask",
    "gearv/gear1.img",
    "gearv/minimal/archive.cpio",
    "gearv/qemu-virt/archive.cpio",
    "gearv/qemu-virt/kept-disk.img",
    "gearv/qemu-virt/disks/4711.img",
];

/// Returns the files below a folder, by their names from there.
fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for path in super::entries(&at) {
            match path.is_dir() && !path.is_symlink() {
                true => folders.push(path),
                false => all.push(path.strip_prefix(folder).unwrap().display().to_string()),
            }
        }
    }
    all.sort();
    all
}

fn delete(paths: &[PathBuf], options: Options) -> u64 {
    options.delete("built", Path::new("there"), paths).unwrap()
}

#[test]
fn the_workspaces_target_is_emptied_but_for_kept_disks() {
    let folder = scratch("clean-target");
    let target = folder.join("target");
    make(&target, TARGET);
    assert!(is_own_target(&target, &folder));
    let (deleted, left) = builds(&target, true, false);
    assert_eq!(left, [target.join("gearv/qemu-virt/kept-disk.img")]);
    let dry = Options {
        dry_run: true,
        ..Options::default()
    };
    let bytes = delete(&deleted, dry);
    assert!(bytes >= 6 * 5000, "{bytes}");
    assert_eq!(files(&target).len(), TARGET.len());
    assert_eq!(delete(&deleted, Options::default()), bytes);
    assert_eq!(files(&target), ["gearv/qemu-virt/kept-disk.img"]);
    let (deleted, left) = builds(&target, true, true);
    delete(&deleted, Options::default());
    assert!(left.is_empty() && files(&target).is_empty());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_target_of_others_loses_xtasks_folder_alone() {
    let folder = scratch("clean-shared");
    let shared = folder.join("shared");
    make(&shared, TARGET);
    symlink(&shared, folder.join("target")).unwrap();
    assert!(!is_own_target(&shared, &folder));
    assert!(!is_own_target(&folder.join("target"), &folder));
    let (deleted, _) = builds(&shared, false, true);
    delete(&deleted, Options::default());
    assert_eq!(files(&shared), [TAG, "debug/xtask"]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_cache_loses_what_xtask_put_there() {
    let folder = scratch("clean-cache");
    let elsewhere = folder.join("elsewhere");
    make(&elsewhere, &["precious"]);
    let root = folder.join("gearv");
    make(
        &root,
        &[
            "sets/qemu-10/usr/bin/qemu",
            "packages/00.deb",
            "apt/host/x",
            "notes.txt",
        ],
    );
    // A link in a package is deleted, and not what it leads to.
    symlink(&elsewhere, root.join("sets/qemu-10/usr/link")).unwrap();
    let cache = Cache::at(root.clone());
    delete(&downloads(&cache), Options::default());
    assert_eq!(files(&root), ["notes.txt"]);
    assert_eq!(files(&elsewhere), ["precious"]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_running_machine_keeps_its_disk() {
    let folder = scratch("clean-running");
    let program = std::env::current_exe().unwrap();
    let disk = format!("gearv/qemu-virt/disks/{}.img", std::process::id());
    make(&folder, &[&disk]);
    // This process is no program of that target directory, so the number says nothing.
    ensure_no_machine(&folder, &folder).unwrap();
    let refused = ensure_no_machine(&folder, program.parent().unwrap()).unwrap_err();
    assert!(
        refused.to_string().contains("a machine runs on"),
        "{refused}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_with_two_names_counts_once() {
    let folder = scratch("clean-links");
    make(&folder, &["one"]);
    let once = size(&folder, &mut HashSet::new());
    fs::hard_link(folder.join("one"), folder.join("two")).unwrap();
    assert_eq!(size(&folder, &mut HashSet::new()), once);
    fs::remove_dir_all(folder).unwrap();
}

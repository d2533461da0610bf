//! Tests of the options of `run`, and of what it says and passes to QEMU.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;
use workbench::manifest::{self, Compiled};
use workbench::qemu::{Format, Machine, Protocol};
use workbench::tools::Tools;
use workbench::workspace::{self, scratch};

use super::{Options, disks, greeting, judge_cpu, ports};

#[derive(Parser, Debug)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let all = ["run"].iter().chain(words);
    let parsed = Cli::try_parse_from(all).map(|cli| cli.options);
    parsed.map_err(|error| error.to_string())
}

/// Compiles an example of the repository after a change of its text.
fn compiled(example: &str, from: &str, to: &str) -> Compiled {
    let text = fs::read_to_string(workspace::root().join("manifests").join(example)).unwrap();
    assert!(text.contains(from), "{from} is not in {example}");
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = scratch(&format!("run-{count}"));
    let file = folder.join(example);
    fs::write(&file, text.replace(from, to)).unwrap();
    let compiled = manifest::compile(&file, &Tools::prepare().unwrap(), &folder);
    fs::remove_dir_all(folder).unwrap();
    compiled.unwrap()
}

fn example(name: &str) -> Compiled {
    compiled(name, "/dts-v1/", "/dts-v1/")
}

#[test]
fn values_that_cannot_be_are_refused_with_those_that_can() {
    for (words, says) in [
        (["--gic", "4"], "from 2 to 3"),
        (["--gic", "three"], "--gic"),
        (["--cpus", "0"], "from 1 to 8"),
        (["--cpus", "9"], "from 1 to 8"),
        (["--memory", "0"], "from 256 to 261120"),
        (["--qemu", "9"], "[possible values: 10, 7]"),
        (["--port-forward", "8080"], "8080:80"),
        (["--port-forward", "0:80"], "1 to 65535"),
        (["--port-forward", "80:65536"], "1 to 65535"),
        (["--port-forward", "sctp:80:81:82"], "8080:80"),
    ] {
        let said = parse(&words).unwrap_err();
        assert!(said.contains(says), "{words:?}: {said}");
    }
    let options = parse(&[
        "--cpus", "8", "--gic", "2", "--qemu", "7", "--memory", "256",
    ])
    .unwrap();
    assert_eq!((options.cpus, options.gic), (Some(8), 2));
    assert_eq!((options.qemu, options.memory), (7, Some(256)));
}

#[test]
fn qemus_own_options_stand_behind_two_dashes() {
    let options = parse(&["--disk", "a", "--disk", "b", "--", "-d", "int", "--net"]).unwrap();
    assert_eq!(options.disks, [PathBuf::from("a"), PathBuf::from("b")]);
    assert_eq!(options.options, ["-d", "int", "--net"]);
    assert!(!options.net);
    assert!(parse(&["-d", "int"]).is_err());
    // The smoke test looks at the disk after the end.
    assert!(parse(&["--smoke", "--snapshot"]).is_err());
}

#[test]
fn unknown_cpu_models_are_refused() {
    let models = ["cortex-a57", "max"].map(str::to_owned);
    judge_cpu("max,sve=off", &models).unwrap();
    let said = judge_cpu("cortex-a58", &models).unwrap_err().to_string();
    assert!(said.contains("\"cortex-a58\""), "{said}");
    assert!(said.contains("cortex-a57, max"), "{said}");
}

#[test]
fn disks_are_files_that_are_there_once_and_not_empty() {
    let folder = scratch("run-disks");
    let at = |name: &str| folder.join(name);
    fs::write(at("raw"), [0; 512]).unwrap();
    fs::write(at("qcow2"), b"QFI\xfb\0\0\0\x03").unwrap();
    fs::write(at("empty"), "").unwrap();
    symlink(at("raw"), at("link")).unwrap();
    let disks = disks::judged(&[at("raw"), at("qcow2")], false).unwrap();
    let formats: Vec<Format> = disks.iter().map(|disk| disk.format).collect();
    assert_eq!(formats, [Format::Raw, Format::Qcow2]);
    for (files, says) in [
        (vec![at("none")], "truncate -s 1G"),
        (vec![at("empty")], "the file is empty"),
        (vec![folder.clone()], "neither a file nor a block device"),
        (
            vec!["/dev/null".into()],
            "neither a file nor a block device",
        ),
        (vec![at("raw"), at("link")], "named twice"),
        (vec![at("raw"); 25], "at most 24"),
    ] {
        let said = format!("{:#}", disks::judged(&files, false).unwrap_err());
        assert!(said.contains(says), "{files:?}: {said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn ports_lead_to_vms() {
    let manifest = compiled(
        "mixed-criticality.dts",
        "root=/dev/vda",
        "root=/dev/vda gearv.ip=10.0.2.7/24",
    );
    for (text, protocol, address, port) in [
        ("8080:80", Protocol::Tcp, "10.0.2.7", 80),
        ("tcp:8080:infotainment:80", Protocol::Tcp, "10.0.2.7", 80),
        ("udp:8080:device:53", Protocol::Udp, "10.0.2.100", 53),
        ("8080:10.0.2.9:65535", Protocol::Tcp, "10.0.2.9", 65535),
    ] {
        let forward = text.parse::<ports::Wanted>().unwrap();
        let forward = forward.resolved(&manifest).unwrap();
        assert_eq!(forward.host_port, 8080);
        assert_eq!(
            (forward.protocol, forward.address.as_str(), forward.port),
            (protocol, address, port),
            "{text}"
        );
    }
    for (text, says) in [
        ("8080:other:80", "there are device, infotainment, cluster"),
        ("8080:cluster:80", "cluster has no network card"),
    ] {
        let wanted = text.parse::<ports::Wanted>().unwrap();
        let said = wanted.resolved(&manifest).unwrap_err().to_string();
        assert!(said.contains(says), "{text}: {said}");
    }
}

#[test]
fn a_port_leads_to_one_vm_alone() {
    let second = "\n\t\tsecond {\n\t\t\tmemory-mib = <64>;\n\t\t\tkernel = \"artifact:debian-kernel\";\n\
                  \t\t\tvirtio { net { type = \"net\"; backend = \"tap1\"; }; };\n\t\t};\n\n\t\tlinux {";
    let manifest = compiled("qemu-virt.dts", "\n\t\tlinux {", second);
    let wanted = "8080:80".parse::<ports::Wanted>().unwrap();
    let said = wanted.resolved(&manifest).unwrap_err().to_string();
    assert!(
        said.contains("second and linux both have the address 10.0.2.101"),
        "{said}"
    );
    assert!(said.contains("gearv.ip="), "{said}");
}

#[test]
fn ports_of_this_machine_are_free_and_named_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let wanted = |text: String| text.parse::<ports::Wanted>().unwrap();
    let said = ports::judge(&[wanted(format!("{port}:80"))]).unwrap_err();
    assert!(said.to_string().contains("is not to be had"), "{said}");
    drop(taken);
    let both = [wanted(format!("{port}:80")), wanted(format!("{port}:81"))];
    let said = ports::judge(&both).unwrap_err();
    assert!(said.to_string().contains("named twice"), "{said}");
    ports::judge(&[
        wanted(format!("{port}:80")),
        wanted(format!("udp:{port}:80")),
    ])
    .unwrap();
}

#[test]
fn devices_without_an_owner_are_refused() {
    let manifest = example("minimal.dts");
    for words in [
        &["--disk", "x"][..],
        &["--net"],
        &["--keep"],
        &["--port-forward", "1:1"],
    ] {
        let said = parse(words)
            .unwrap()
            .reach(&manifest)
            .unwrap_err()
            .to_string();
        assert!(said.contains(words[0]), "{said}");
        assert!(said.contains("/virtio_mmio@*"), "{said}");
    }
    parse(&[]).unwrap().reach(&manifest).unwrap();
    parse(&["--net", "--disk", "x"])
        .unwrap()
        .reach(&example("qemu-virt.dts"))
        .unwrap();
}

#[test]
fn the_greeting_names_the_consoles_that_there_are() {
    let said = |name: &str| greeting::text(&Machine::default(), &example(name));
    let minimal = said("minimal.dts");
    assert!(
        minimal.contains("VM 0  linux (guest), 2 vCPUs, 256 MiB\n"),
        "{minimal}"
    );
    assert!(
        minimal.contains("Ctrl-G, then 0 = console of linux, l = list VMs"),
        "{minimal}"
    );
    assert!(!minimal.contains("no VM has a console"), "{minimal}");
    // The real-time VM has a UART of the machine's, which nobody shows.
    let pair = said("bare-metal-pair.dts");
    assert!(
        pair.contains("Ctrl-G, then 1 = console of monitor, l = list VMs"),
        "{pair}"
    );
    let mixed = said("mixed-criticality.dts");
    assert!(
        mixed.contains("this terminal is the console of device"),
        "{mixed}"
    );
    assert!(mixed.contains("gearctl console infotainment "), "{mixed}");
    assert!(!mixed.contains("gearctl console cluster"), "{mixed}");
    let none = greeting::text(
        &Machine::default(),
        &compiled("minimal.dts", "console { };", ""),
    );
    assert!(
        none.contains("no VM has a console here\nkeys: Ctrl-G, then l = list VMs"),
        "{none}"
    );
}

#[test]
fn the_greeting_names_disks_and_ports() {
    let forward = "8080:80".parse::<ports::Wanted>().unwrap();
    let manifest = example("qemu-virt.dts");
    let mut machine = Machine {
        disk: Some("run/4711.img".into()),
        ..Machine::default()
    };
    machine.network.forwards = vec![forward.resolved(&manifest).unwrap()];
    let data = Path::new("data.img").to_path_buf();
    machine.more_disks.push(workbench::qemu::Disk {
        file: data,
        format: Format::Raw,
    });
    let said = greeting::text(&machine, &manifest);
    for line in [
        "  /dev/vda of device: run/4711.img, this run's alone\n",
        "  /dev/vdb of device: data.img\n",
        "  localhost:8080 (tcp) leads to 10.0.2.101:80\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
    machine.snapshot = true;
    let said = greeting::text(&machine, &manifest);
    assert!(
        said.contains("/dev/vdb of device: data.img, left as it is\n"),
        "{said}"
    );
}

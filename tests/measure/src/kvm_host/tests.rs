use super::{KvmHost, Peer};

#[test]
fn a_guest_is_described_line_by_line() {
    let host = KvmHost {
        initrd: Some("/i".into()),
        command_line: "console=ttyAMA0 quiet".to_owned(),
        cpus: vec![1, 2],
        isolate: true,
        ..KvmHost::default()
    };
    let seed = "5a".repeat(32);
    assert_eq!(
        host.arguments(),
        format!(
            "kernel=/guest/kernel\ninitrd=/guest/initrd\ncmdline=console=ttyAMA0 quiet\nmemory=256\n\
             cpus=1,2\nseed={seed}\ngic=GIC\nfifo=1\n"
        )
    );
    assert!(host.host_command_line().contains("nohz_full=1,2"));
}

#[test]
fn a_peer_is_a_group_of_its_own() {
    let host = KvmHost {
        peer: Some(Peer {
            command_line: "peer".to_owned(),
            cpus: vec![0],
        }),
        ..KvmHost::default()
    };
    let arguments = host.arguments();
    let (_, peer) = arguments.split_once("and\n").unwrap();
    assert!(peer.contains("cmdline=peer\n") && peer.contains("cpus=0\n"));
}

#[test]
fn a_disk_is_served_if_the_host_has_one() {
    let host = KvmHost {
        serves_disk: true,
        ..KvmHost::default()
    };
    assert!(host.arguments().contains("\ndisk=/dev/vda\n"));
    let refused = host.build(std::path::Path::new("/nonexistent"));
    assert!(refused.unwrap_err().to_string().contains("no disk"));
}

#[test]
fn cpu_0_is_not_isolated() {
    let host = KvmHost {
        cpus: vec![0],
        isolate: true,
        ..KvmHost::default()
    };
    let refused = host.build(std::path::Path::new("/nonexistent"));
    assert!(refused.unwrap_err().to_string().contains("CPU 0"));
}

#[test]
fn a_card_brings_its_tap_device_and_modules() {
    let host = KvmHost {
        tap: Some("tap0".to_owned()),
        has_peer: true,
        ..KvmHost::default()
    };
    assert!(host.arguments().contains("\nnet=tap0\n"));
    assert_eq!(host.modules(), ["tun", "vhost_net", "bridge", "tun"]);
    assert!(KvmHost::default().modules().is_empty());
}

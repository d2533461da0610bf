//! Agreement of the manifest with Gear1's description of the machine.

use gear1_abi::id::MAX_CPUS;
use gearv_manifest::binding::SCHEDULERS;
use gearv_manifest::{
    BINDING_VERSION, CpuList, GicMode, List, Memory, Parameters, Payload, RestartLimit, Scheduler,
    Service, VhostUser, VirtioDevice, Vm,
};

use super::*;
use crate::scheduler::POLICIES;

mod admission;

fn vm(place: usize, name: &'static str, vcpu_count: usize, cpus: &[usize]) -> Vm<'static> {
    let mut list = CpuList::default();
    cpus.iter()
        .for_each(|&cpu| assert!(list.push(CpuIndex::new(cpu).unwrap())));
    Vm {
        name,
        id: VmId::new(place).unwrap(),
        kind: VmKind::Guest,
        vcpu_count,
        cpus: list,
        pool: None,
        memory: Memory {
            bytes: 2 << 20,
            address: None,
            ipa: None,
            align: gearv_manifest::MEMORY_ALIGN,
        },
        payload: Payload::Flat {
            image: "test",
            load_offset: 0,
            entry_offset: 0,
            cmdline: "",
        },
        console: Some(Console::DEFAULT),
        rtc: None,
        may_power_off: true,
        parameters: Parameters::default(),
        digests: [None; 2],
        autostart: true,
        boot_order: 0,
        debug: false,
        pmu: false,
        pointer_auth: false,
        sve_bits: 0,
        firmware_trng: false,
        last_words: false,
        dump: false,
        restart: Restart::Never,
        restart_limit: RestartLimit::DEFAULT,
        on_give_up: gearv_manifest::OnGiveUp::Stop,
        standby: None,
        tells: None,
        watchdog_ms: 0,
        progress_ms: 0,
        dma_fault_limit: 0,
        watchdog_ipa: 0,
        gic: GicMode::Emulated,
        devices: Default::default(),
        trusts_dma: false,
        peers: Default::default(),
        window_ipa: Vm::DEFAULT_WINDOW,
        virtio_ipa: Vm::DEFAULT_VIRTIO,
    }
}

fn manifest(vms: &[Vm<'static>]) -> Manifest<'static> {
    let mut list = List::new();
    vms.iter().for_each(|vm| assert!(list.push(*vm).is_ok()));
    Manifest {
        version: BINDING_VERSION,
        vms: list,
        ..Manifest::EMPTY
    }
}

fn info(vcpu_counts: &[u16]) -> Gear2Info {
    let mut info = Gear2Info {
        magic: INFO_MAGIC,
        abi_version: ABI_VERSION,
        cpu_count: 4,
        vm_count: u32::try_from(vcpu_counts.len()).unwrap(),
        counter_hz: 62_500_000,
        manifest_size: 0,
        heap_size: 0,
        uart_kind: 1,
        uart_intid: 33,
        shared_size: 0,
        cpu_mask: 0b1111,
        mpidr: [0; MAX_CPUS],
        cluster: [0; MAX_CPUS],
        first_vcpu: [0; _],
        vcpu_count: [0; _],
        register_pages: 0,
        smmu_intid: 106,
        trace_size: 0,
    };
    let mut first = 0;
    for (place, &count) in vcpu_counts.iter().enumerate() {
        info.first_vcpu[place] = first;
        info.vcpu_count[place] = count;
        first += count;
    }
    info
}

fn cpus_of(config: &Config) -> Vec<(usize, usize)> {
    config
        .vcpus()
        .map(|(_, vcpu)| (vcpu.vm.index(), vcpu.cpu.index()))
        .collect()
}

#[test]
fn vcpus_go_where_the_manifest_says() {
    let vms = [vm(0, "a", 2, &[3, 1]), vm(1, "b", 5, &[])];
    let config = Config::from_manifest(&info(&[2, 5]), &manifest(&vms)).unwrap();
    let expected = [(0, 3), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (1, 0)];
    assert_eq!(cpus_of(&config), expected);
    assert_eq!(config.default_pool.plan.slice, 312_500, "5 ms at 62.5 MHz");
}

#[test]
fn real_time_vms_are_listed_and_left_alone() {
    let real_time = Vm {
        kind: VmKind::RealTime,
        ..vm(0, "rt", 1, &[0])
    };
    let vms = [real_time, vm(1, "b", 2, &[])];
    let config = Config::from_manifest(&info(&[1, 2]), &manifest(&vms)).unwrap();
    assert_eq!(cpus_of(&config), [(1, 1), (1, 2)]);
    assert!(!config.vms[0].autostart && !config.vms[0].scheduled);
    assert!(config.vcpu(VcpuId::new(0).unwrap()).is_none());
}

fn refused(info: &Gear2Info, manifest: &Manifest<'static>) -> String {
    Config::from_manifest(info, manifest)
        .and_then(|config| config.check_plans())
        .unwrap_err()
        .to_string()
}

#[test]
fn disagreements_are_named() {
    let one = manifest(&[vm(0, "a", 2, &[])]);
    assert_eq!(
        refused(&info(&[2, 2]), &one),
        "Gear1 and the manifest differ in VM 1"
    );
    assert_eq!(
        refused(&info(&[1]), &one),
        "Gear1 and the manifest differ in VM 0"
    );
    let mut few = info(&[2]);
    few.cpu_mask = 0b0001;
    assert_eq!(refused(&few, &one), "Gear1 and the manifest differ in VM 0");
}

#[test]
fn every_scheduler_of_a_manifest_has_a_policy() {
    let manifests: Vec<&str> = SCHEDULERS.iter().map(|(name, _)| *name).collect();
    let policies: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
    assert_eq!(manifests, policies);
    for (name, scheduler) in SCHEDULERS {
        assert_eq!(PolicyKind::of(*scheduler).name, *name);
    }
}

#[test]
fn a_policy_that_refuses_a_vcpu_says_so() {
    let parameters = Parameters {
        budget_us: Some(0),
        ..Parameters::default()
    };
    let mut manifest = manifest(&[Vm {
        parameters,
        ..vm(0, "a", 1, &[3])
    }]);
    manifest.gear2.policy.scheduler = Scheduler::Edf;
    let text = "manifest: /gear2: scheduler: CPU 3: a budget is zero or longer than its period";
    assert_eq!(refused(&info(&[1]), &manifest), text);
}

/// `check` and Gear2 have one arithmetic.
#[test]
fn what_check_refuses_is_refused_here() {
    let parameters = Parameters {
        budget_us: Some(499),
        period_us: Some(1_000),
        ..Parameters::default()
    };
    let vms = ["a", "b"].map(|name| {
        let place = usize::from(name == "b");
        Vm {
            parameters,
            ..vm(place, name, 1, &[2])
        }
    });
    let mut manifest = manifest(&vms);
    manifest.gear2.policy.scheduler = Scheduler::Edf;
    let text = "manifest: M-SCH-021: /vms/b: budget-us: the vCPUs of one CPU need more than its \
        time (CPU 2: 100.60 % asked for, which is 99.80 % of budgets and 0.80 % of two switches of \
        2 us in each period; 100.00 % there); ";
    let refused_for = refused(&info(&[1, 1]), &manifest);
    assert!(refused_for.starts_with(text), "{refused_for}");
    manifest.gear2.policy.scheduler = Scheduler::Null;
    let text = "manifest: M-SCH-022: /vms/b: cpus: ";
    assert!(refused(&info(&[1, 1]), &manifest).starts_with(text));
}

#[test]
fn each_cpu_has_the_policy_and_the_plan_of_its_pool() {
    let mut manifest = manifest(&[vm(0, "a", 1, &[]), vm(1, "b", 1, &[2])]);
    let mut cpus = CpuList::default();
    [3, 2]
        .iter()
        .for_each(|&cpu| assert!(cpus.push(CpuIndex::new(cpu).unwrap())));
    let policy = gearv_manifest::Policy {
        scheduler: Scheduler::Arinc653,
        frame_us: 1_000,
        ..gearv_manifest::Policy::DEFAULT
    };
    let pool = gearv_manifest::Pool {
        name: "control",
        cpus,
        policy,
    };
    assert!(manifest.pools.push(pool).is_ok());
    for (name, vm, start_us, length_us) in [("rest", None, 301, 699), ("b", Some("b"), 0, 301)] {
        let window = gearv_manifest::Window {
            pool: Some(0),
            name,
            vm,
            start_us,
            length_us,
        };
        assert!(manifest.windows.push(window).is_ok());
    }
    let config = Config::from_manifest(&info(&[1, 1]), &manifest).unwrap();
    let named = |cpu| {
        let pool = config.pool(CpuIndex::new(cpu).unwrap());
        (pool.name.as_str(), pool.policy.name)
    };
    assert_eq!([0, 1].map(named), [("default", "round-robin"); 2]);
    assert_eq!([2, 3].map(named), [("control", "arinc653"); 2]);
    let plan = &config.pools[0].plan;
    // 301 us are 18,812.5 ticks: the windows touch all the same.
    let window = |start, length, vm| Window { start, length, vm };
    let expected = [
        window(0, 18_812, VmId::new(1)),
        window(18_812, 43_688, None),
    ];
    assert_eq!((plan.frame, &plan.windows[..]), (62_500, &expected[..]));
    let text = "schedulers round-robin on CPUs 0 1, arinc653 on CPUs 2 3 (control)";
    assert_eq!(config.schedulers(), text);
}

#[test]
fn another_abi_is_a_clear_error() {
    let mut other = info(&[]);
    other.abi_version = 0x0007_0002;
    let [major, minor] = version(ABI_VERSION);
    let text = alloc::format!("Gear1 has ABI 7.2, Gear2 was built for ABI {major}.{minor}");
    assert_eq!(check_abi(&other).unwrap_err().to_string(), text);
    other.magic = 0;
    assert_eq!(check_abi(&other), Err(StartError::NoInfo));
}

#[test]
fn a_damaged_manifest_says_why() {
    let Err(StartError::Manifest(text)) = Config::new(&info(&[]), b"not a manifest") else {
        panic!("taken");
    };
    assert!(!text.is_empty());
}

fn device(vm: usize, index: usize) -> VirtioDevice<'static> {
    VirtioDevice {
        vm: VmId::new(vm).unwrap(),
        index,
        name: "disk",
        kind: None,
        backend: None,
        read_only: false,
        mac: None,
        service: Service::default(),
        socket: None,
        cid: None,
        vhost_user: VhostUser::default(),
    }
}

#[test]
fn virtio_devices_are_numbered_over_all_vms() {
    let device_vm = Vm {
        kind: VmKind::Device,
        ..vm(1, "device", 1, &[])
    };
    let moved = Vm {
        virtio_ipa: 0x1000_0000,
        ..vm(2, "b", 1, &[])
    };
    let mut manifest = manifest(&[vm(0, "a", 1, &[]), device_vm, moved]);
    for device in [device(0, 0), device(0, 1), device(2, 0)] {
        assert!(manifest.virtio.push(device).is_ok());
    }
    let config = Config::from_manifest(&info(&[1, 1, 1]), &manifest).unwrap();
    assert_eq!(config.device_vm, VmId::new(1));
    assert_eq!(
        (config.vcpu_count(), config.vms[2].vcpus.clone()),
        (3, 2..3)
    );
    assert_eq!(config.vms[1].virtio, None);
    let [first, second] = [0, 2].map(|vm: usize| config.vms[vm].virtio.unwrap());
    assert_eq!((first.channels(), second.channels()), (0..2, 2..3));
    let at = |page: VirtioPage, ipa, size_log2| {
        page.locate(Mmio {
            ipa,
            size_log2,
            store: None,
        })
    };
    assert_eq!(at(first, 0x0a00_0000, 2), Some((0, 0)));
    assert_eq!(at(first, 0x0a00_0370, 2), Some((1, 0x170)));
    assert_eq!(at(second, 0x1000_0101, 0), Some((2, 0x101)));
    assert_eq!(at(first, 0x0a00_0102, 2), None, "not aligned");
    assert_eq!(at(first, 0x0a00_0400, 2), None, "no such device");
    assert_eq!(at(first, 0x09ff_fffc, 2), None, "below the page");
    assert_eq!(at(second, u64::MAX - 7, 3), None);
}

#[test]
fn a_real_time_clock_takes_words_of_its_page() {
    let rtc = Some(Rtc { ipa: 0x0901_0000 });
    let at = |ipa, size_log2| {
        let store = None;
        locate_rtc(
            rtc,
            Mmio {
                ipa,
                size_log2,
                store,
            },
        )
    };
    assert_eq!(at(0x0901_0000, 2), Some((RTC_DEVICE, 0)));
    assert_eq!(at(0x0901_0ffc, 2), Some((RTC_DEVICE, 0xffc)));
    assert_eq!(at(0x0901_1000, 2), None, "behind the page");
    assert_eq!(at(0x0900_fffc, 2), None, "below the page");
    assert_eq!(at(0x0901_0002, 2), None, "not aligned");
    assert_eq!(at(0x0901_0000, 3), None, "two words");
    assert_eq!(at(0x0901_0000, 0), None, "a byte");
}

#[test]
fn parameters_become_ticks_of_each_vcpu() {
    let parameters = Parameters {
        weight: Some(300),
        cap_percent: Some(25),
        budget_us: Some(400),
        period_us: Some(2_000),
        priority: Some(31),
        latency_us: Some(100),
    };
    let rich = Vm {
        parameters,
        ..vm(0, "a", 1, &[])
    };
    let config =
        Config::from_manifest(&info(&[1, 1]), &manifest(&[rich, vm(1, "b", 1, &[])])).unwrap();
    let [id, other] = [0, 1].map(|place| VmId::new(place).unwrap());
    let budget = |ticks| {
        Some(Budget {
            ticks,
            period: 125_000,
        })
    };
    let expected = Share {
        vm: id,
        weight: 300,
        cap: budget(31_250),
        server: budget(25_000),
        priority: 31,
        latency: 6_250,
        needed: false,
    };
    assert_eq!(config.share(id), expected, "at 62.5 MHz");
    assert_eq!(config.share(other), Share::of(other));
}

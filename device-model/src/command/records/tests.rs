use super::*;

fn names() -> Names {
    let vm = |id, name: &str, first_vcpu, vcpus| Vm {
        id,
        name: name.into(),
        first_vcpu,
        vcpus,
        ..Vm::default()
    };
    Names::of(&[vm(0, "device", 0, 2), vm(1, "linux", 2, 2)])
}

fn of(id: RecordId, values: [u64; 3]) -> (String, String) {
    let record = Record {
        time: 0,
        id_and_cpu: id as u64 | 1 << 32,
        values,
    };
    (event(&record), message(&record, &names()))
}

#[test]
fn records_have_names_for_numbers() {
    let cases = [
        (
            RecordId::CpuUp,
            [0x8000_0001, 0, 0],
            "CpuUp",
            "CPU up, MPIDR 0x80000001",
        ),
        (
            RecordId::CpuFailed,
            [3, (-3_i64).cast_unsigned(), 0],
            "CpuFailed",
            "CPU 3 did not start, PSCI error DENIED",
        ),
        (
            RecordId::VmStart,
            [1, 0x4020_0000, 0],
            "VmStart",
            "VM linux started at 0x40200000",
        ),
        (RecordId::VmStop, [0, 0, 0], "VmStop", "VM device stops"),
        (
            RecordId::GuestAbort,
            [3, 0x9200_0007, 0x900_0000],
            "GuestAbort",
            "vCPU 1 of linux: abort reflected, ESR 0x92000007 (data abort), address 0x9000000",
        ),
        (
            RecordId::UnknownSysreg,
            [0, 0x0030_3022, 0x80],
            "UnknownSysreg",
            "vCPU 0 of device: system register S3_0_C12_C1_0 undefined, PC 0x80",
        ),
        (
            RecordId::SpuriousIrq,
            [33, 0, 0],
            "SpuriousIrq",
            "interrupt 33 (SPI 1) has no owner",
        ),
        (
            RecordId::SpuriousIrq,
            [27, 0, 0],
            "SpuriousIrq",
            "interrupt 27 (PPI 11) has no owner",
        ),
        (
            RecordId::VcpuFault,
            [2, 0x8200_0007, 0x80],
            "VcpuFault",
            "vCPU 0 of linux cannot go on: ESR 0x82000007 (instruction abort), PC 0x80",
        ),
        (
            RecordId::Gear2Restart,
            [1, 0x80, 0],
            "Gear2Restart",
            "Gear2 restarted: failure a loop hung, PC 0x80, ESR 0x0 (unknown instruction)",
        ),
    ];
    for (id, values, event, message) in cases {
        assert_eq!(of(id, values), (event.to_owned(), message.to_owned()));
    }
}

#[test]
fn what_has_no_name_keeps_its_number() {
    assert_eq!(of(RecordId::VmStart, [7, 1, 0]).1, "VM 0x7 started at 0x1");
    assert_eq!(
        of(RecordId::VmStop, [u64::MAX, 0, 0]).1,
        "VM 0xffffffffffffffff stops"
    );
    let newer = Record {
        time: 0,
        id_and_cpu: 99,
        values: [1, 2, 3],
    };
    assert_eq!(event(&newer), "Record99");
    assert_eq!(message(&newer, &names()), "0x1 0x2 0x3");
}

#!/bin/sh
# The init of `cargo xtask bench --apps`, everywhere: runs each workload and prints `APP <name> <ns>`. As GearV's
# guest it waits for a line before each; as GearV's device VM it runs them, then the guest's, with GDM's counters
# around each. The kernel's command line has their sizes.
. /etc/begin
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
# Without messages: a module has no device everywhere. The guests' memory is the device VM's alone.
load_modules > /dev/null 2>&1

is_warm=
option() {
    # Sizes of the warm-up.
    [ -n "$is_warm" ] || { echo 1; return; }
    sed -n "s/.*\bapps\.$1=\([^ ]*\).*/\1/p" /proc/cmdline
}
now() {
    sed -n 's/^now at \([0-9]*\) nsecs/\1/p' /proc/timer_list
}
# Prints how many operations it did.
workload() {
    case $1 in
    fio)
        fio --name=test --filename=/dev/vda --size="$(option mib)M" --bs=4k --iodepth=64 --ioengine=libaio \
            --readwrite=randrw --rwmixread=75 --direct=1 --randrepeat=1 --gtod_reduce=1 > /run/log 2>&1 || return 1
        echo $(($(option mib) * 256))
        ;;
    fio-depth-1 | fio-depth-1-cpu?)
        # As many as take much longer than the waiting around them. Linux has the disk's interrupt on CPU 0.
        cpus=
        [ "$1" = fio-depth-1 ] || cpus=--cpus_allowed=${1#fio-depth-1-cpu}
        count=$(($(option mib) * 256))
        [ $count -ge 4096 ] || count=4096
        fio --name=test --filename=/dev/vda --bs=4k --iodepth=1 --ioengine=libaio --readwrite=randread --direct=1 \
            --number_ios=$count $cpus > /run/log 2>&1 || return 1
        echo $count
        ;;
    sysbench-cpu)
        sysbench cpu --threads=2 --cpu-max-prime=2000 --events="$(option events)" --time=0 run > /run/log 2>&1 || return 1
        option events
        ;;
    sysbench-memory)
        sysbench memory --threads=2 --memory-block-size=4K --memory-total-size="$(option mib)M" --time=0 run > /run/log 2>&1 || return 1
        echo $(($(option mib) * 256))
        ;;
    hackbench)
        hackbench -g 1 -l "$(option loops)" > /run/log 2>&1 || return 1
        # 20 senders and 20 receivers: each sender sends each receiver so many messages.
        echo $((400 * $(option loops)))
        ;;
    esac
}
names="sysbench-cpu sysbench-memory hackbench"
[ -b /dev/vda ] && names="fio fio-depth-1 fio-depth-1-cpu0 fio-depth-1-cpu1 $names"
# Runs each program once. A program's first run has its pages mapped, and Linux reads CTR_EL0 for the instruction cache
# of each, which a hypervisor may trap.
warm_up() {
    for name in $names; do
        case $name in
        fio-depth-1*) ;;
        *) workload "$name" > /dev/null || echo "FAIL warm-up of $name" ;;
        esac
    done
    is_warm=1
}
# Prints the interrupts that this kernel has taken since /run/before, by kind.
interrupts() {
    awk 'BEGIN { sign = 1 }
        FNR == 1 { cpus = NF; sign = -sign; next }
        { kind = "" }
        /virtio/ { kind = "virtio" }
        /arch_timer/ { kind = "timer" }
        /Rescheduling/ { kind = "reschedule" }
        /Function call/ { kind = "call" }
        kind { for (i = 2; i <= cpus + 1; i++) count[kind] += sign * $i }
        END { for (kind in count) printf " %s=%d", kind, count[kind] }' /run/before /proc/interrupts
}
run() {
    cat /proc/interrupts > /run/before
    begin=$(now)
    if count=$(workload "$1"); then
        ns=$(($(now) - begin))
        # Printed at the end: each character on a guest's console is an exit.
        echo "TOOK $1$(interrupts)" >> /run/took
        echo "APP $1 $ns $count"
    else
        echo "FAIL $1: $(tail -n 3 /run/log | tr '\n' ' ')"
    fi
}
counters() {
    echo "COUNTERS $1 $(gearctl stats --json)"
}

if [ -d /proc/device-tree/gearv ]; then
    gdm > /run/gdm.log 2>&1 &
    until gearctl version > /dev/null 2>&1; do sleep 0.2; done
    mkfifo /run/to-guest
    sleep 1000000 > /run/to-guest &
    gearctl console guest < /run/to-guest > /run/guest &
    says() {
        until grep -q "$1" /run/guest; do sleep 2; done
    }
    says "READY fio"
    warm_up
    echo "WHERE device VM"
    for name in $names; do
        counters "$name"
        run "$name"
        counters "$name"
    done
    cat /run/took
    echo "WHERE guest"
    for name in $names; do
        says "READY $name"
        sleep 1
        counters "$name"
        echo > /run/to-guest
        says "APP $name \|FAIL $name:"
        sleep 1
        counters "$name"
        grep "APP $name \|FAIL $name:" /run/guest
    done
    says DONE
    grep TOOK /run/guest
else
    warm_up
    for name in $names; do
        case $(tr -d '\0' < /proc/device-tree/model) in
        "GearV VM "*)
            echo "READY $name"
            read -r _
            ;;
        *)
            sleep 4
            echo "START $name"
            ;;
        esac
        run "$name"
    done
    # Behind the last look at the counters.
    sleep 4
    cat /run/took
fi
sleep 4
echo DONE
[ -d /proc/device-tree/gearv ] || sleep 1000000
poweroff -f

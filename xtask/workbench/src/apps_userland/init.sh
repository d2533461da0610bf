#!/bin/sh
# The init of `cargo xtask bench --apps`, everywhere: runs each workload in its least size, then in
# the size that is asked for, and prints `APP <name> <ns> <operations> <operations in the least
# size>`. As GearV's guest it waits for a line before each run; as GearV's device VM it runs them,
# then the guest's, with GDM's counters around each run that is no least one. The kernel's command
# line has names and sizes.
. /etc/begin
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
# Without messages: a module has no device everywhere. The guests' memory is the device VM's alone.
load_modules > /dev/null 2>&1
# The least and the full size of a workload must have the same page faults: where a buffer lies
# decides whether it gets a huge page.
echo 0 > /proc/sys/kernel/randomize_va_space
echo never > /sys/kernel/mm/transparent_hugepage/enabled

setting() {
    sed -n "s/.*\bapps\.$1=\([^ ]*\).*/\1/p" /proc/cmdline
}
names=$(setting names | tr , ' ')
uses_network=$(setting names | grep -E 'tcp-|nginx|memcached')
# `least` or `full`.
size=least
# Sizes of a workload that the least size has not.
option() {
    [ $size = full ] || { echo 1; return; }
    setting "$1"
}
now() {
    sed -n 's/^now at \([0-9]*\) nsecs/\1/p' /proc/timer_list
}
# Runs a program, between marks unless it is warming up.
marked=
program() {
    $marked "$@" > /run/log 2>&1
}
# The network. The peer is a process of the kernel that serves the measured card, so that no time
# outside of the machine is waited for: idle CPUs would tick, and TCP would repeat what it has sent.
# Where no card is served, the measured programs are in a network of their own, whose card is the
# end of a pair: what the host has for containers.
peer=10.9.0.1
client=
network() {
    taps=
    if [ -d /proc/device-tree/gearv ]; then
        taps=$(gdm --make-taps)
    else
        case $(tr -d '\0' < /proc/device-tree/model) in
        "GearV VM "* | "KVM guest") card eth0 3; return ;;
        esac
    fi
    peer veth0 $taps > /run/peer 2>&1 &
    unshare -n sleep 1000000 &
    until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
    client="nsenter -t $! -n"
    ip link add card type veth
    ip link set card netns $!
    card card 2
}
# Sets a card up, with this address.
card() {
    $client sh -c "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
    $client ip address add "10.9.0.$2/24" dev "$1"
    $client ip link set "$1" up
    tries=20
    until $client workload with $peer rr 1 2> /run/log; do
        [ $tries -gt 0 ] || { echo "FAIL network: $(cat /run/log /run/peer 2> /dev/null | tr '\n' ' ')"; break; }
        tries=$((tries - 1))
        sleep 0.2
    done
}
# Starts what workloads need that are named, before any is measured.
needed() {
    for name in $names; do
        case $name in
        nginx)
            head -c 4096 /dev/zero | tr '\0' x > /srv/page
            $client nginx -c /etc/nginx.conf
            wait_for_port 80
            ;;
        memcached)
            $client memcached -d -u root -t 2 -m 16 -l 0.0.0.0 -o no_modern
            wait_for_port 11211
            ;;
        compile)
            files=$(workload sources /tmp/tree)
            tar -czf /tmp/tree.tgz -C /tmp/tree .
            ;;
        esac
    done
}
wait_for_port() {
    until $client netstat -ltn | grep -q ":$1 "; do sleep 0.2; done
}
# Prints how many operations it did. Where the kernels of `workload` have sizes, both threads count.
# A name may end with `+` and the number of a repetition, which is no part of the workload.
work() {
    set -- "${1%+*}"
    case $1 in
    fio)
        program fio --name=test --filename=/dev/vda --size="$(option mib)M" --bs=4k --iodepth=64 --ioengine=libaio \
            --readwrite=randrw --rwmixread=75 --direct=1 --randrepeat=1 --gtod_reduce=1 || return 1
        echo $(($(option mib) * 256))
        ;;
    fio-depth-1 | fio-depth-1-cpu?)
        # Linux has the disk's interrupt on CPU 0.
        cpus=
        [ "$1" = fio-depth-1 ] || cpus=--cpus_allowed=${1#fio-depth-1-cpu}
        requests=$(($(option mib) * 256))
        program fio --name=test --filename=/dev/vda --bs=4k --iodepth=1 --ioengine=libaio --readwrite=randread \
            --direct=1 --number_ios=$requests $cpus || return 1
        echo $requests
        ;;
    sysbench-cpu)
        program sysbench cpu --threads=2 --cpu-max-prime=2000 --events="$(option events)" --time=0 run || return 1
        option events
        ;;
    sysbench-memory)
        program sysbench memory --threads=2 --memory-block-size=4K --memory-total-size="$(option mib)M" --time=0 run ||
            return 1
        echo $(($(option mib) * 256))
        ;;
    hackbench | hackbench-*)
        groups=1
        [ "$1" = hackbench ] || groups=${1#hackbench-}
        program hackbench -g "$groups" -l "$(option loops)" || return 1
        # 20 senders and 20 receivers in a group: each sender sends each receiver so many messages.
        echo $((400 * groups * $(option loops)))
        ;;
    tcp-rr)
        program $client workload with $peer rr "$(option requests)" || return 1
        option requests
        ;;
    nginx | memcached)
        traffic=$1
        [ "$1" = memcached ] || traffic=web
        program $client workload with $peer "$traffic" "$(option requests)" || return 1
        option requests
        ;;
    unpack)
        rm -rf /tmp/unpacked
        mkdir /tmp/unpacked
        trees=$((4 * $(option trees)))
        program sh -c "for tree in \$(seq $trees); do
            mkdir /tmp/unpacked/\$tree && tar -xzf /tmp/tree.tgz -C /tmp/unpacked/\$tree || exit 1
        done" || return 1
        echo $((files * trees))
        ;;
    compile)
        trees=$(option trees)
        program sh -c "cd /tmp/tree && for tree in \$(seq $trees); do
            ls *.c | xargs -P 2 -n 1 tcc -c || exit 1
        done" || return 1
        echo $((files * trees))
        ;;
    tcp-stream | tcp-maerts)
        kib=$(($(option mib) * 1024))
        program $client workload with $peer "${1#tcp-}" $kib || return 1
        echo $kib
        ;;
    dhrystone)
        program workload $((10000 * $(option times))) dhrystone || return 1
        echo $((20000 * $(option times)))
        ;;
    stream)
        # What the start costs differs by some hundred thousand instructions. So many passes make
        # that a thousandth of the figure.
        passes=$((16 * $(option times)))
        program workload $passes stream "$(setting elements)" || return 1
        echo $((2 * $(setting elements) * passes))
        ;;
    copy | modify)
        # As for stream.
        passes=$((32 * $(option times)))
        program workload $passes "$1" "$(setting kib)" || return 1
        echo $((2 * passes * $(setting kib)))
        ;;
    esac
}
# Runs each program once. A program's first run has its pages mapped, and Linux reads CTR_EL0 for
# the instruction cache of each, which a hypervisor may trap.
warm_up() {
    for name in $names; do
        case $name in
        fio-depth-1* | *+*) ;;
        *) work "$name" > /dev/null || echo "FAIL warm-up of $name" ;;
        esac
    done
    marked="workload count"
}
# Runs the least size, whose instructions are subtracted: a program's start is none of its
# operations.
least() {
    size=least
    work "$1" > /run/least || echo "FAIL least $1"
    size=full
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
# Prints the receive errors that the driver of a VM's card has counted. TCP goes on behind lost
# frames, so that a workload alone does not fail.
receive_errors() {
    [ -n "$uses_network" ] && [ -z "$client" ] &&
        grep -v '^0$' /sys/class/net/eth0/statistics/rx_*errors
}
run() {
    cat /proc/interrupts > /run/before
    begin=$(now)
    if count=$(work "$1"); then
        ns=$(($(now) - begin))
        # Printed at the end: each character on a guest's console is an exit.
        echo "TOOK $1$(interrupts)" >> /run/took
        echo "APP $1 $ns $count $(cat /run/least)"
    else
        echo "FAIL $1: $(tail -n 3 /run/log | tr '\n' ' ')"
    fi
    errors=$(receive_errors) && echo "FAIL $1: frames were lost: $errors"
}
counters() {
    echo "COUNTERS $1 $(gearctl stats --json)"
}

if [ -d /proc/device-tree/gearv ]; then
    [ -z "$uses_network" ] || network
    needed
    gdm > /run/gdm.log 2>&1 &
    until gearctl version > /dev/null 2>&1; do sleep 0.2; done
    mkfifo /run/to-guest
    sleep 1000000 > /run/to-guest &
    gearctl console guest < /run/to-guest > /run/guest &
    says() {
        until grep -q "$1" /run/guest || grep "FAIL " /run/guest; do sleep 2; done
    }
    says READY
    warm_up
    echo "WHERE device VM"
    for name in $names; do
        least "$name"
        counters "$name"
        run "$name"
        counters "$name"
    done
    cat /run/took
    echo "WHERE guest"
    for name in $names; do
        says "READY $name\."
        echo > /run/to-guest
        says "LEAST $name\."
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
    [ -z "$uses_network" ] || network
    needed
    warm_up
    for name in $names; do
        case $(tr -d '\0' < /proc/device-tree/model) in
        "GearV VM "*)
            # A name may be the beginning of another one.
            echo "READY $name."
            read -r _
            least "$name"
            echo "LEAST $name."
            read -r _
            ;;
        *)
            least "$name"
            sleep 4
            echo "START $name"
            ;;
        esac
        run "$name"
        # The host of KVM prints the count of exits once a second. The first one behind a workload
        # must not have those of the next one's least size.
        sleep 2
    done
    # Behind the last look at the counters.
    sleep 4
    cat /run/took
fi
sleep 4
echo DONE
[ -d /proc/device-tree/gearv ] || sleep 1000000
poweroff -f

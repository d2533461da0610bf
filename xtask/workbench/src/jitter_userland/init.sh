#!/bin/sh
# The init of the guest that measures, and of the one that loads the machine: what the command line says.
#
#   jitter.loops=N   measures so many periods, says what it found and turns itself off
#   jitter.name=TEXT says so, for who reads the log
#   jitter.settle=N  sleeps so many seconds before it measures and afterwards; counters can be read then
#   jitter.slack=N   has cyclictest's other thread wake up to so many milliseconds late
#   jitter.cpu=N     measures on this CPU, and keeps the load off it
#   jitter.load=KIND works without end: cpu, disk or all
. /etc/begin
export HOME=/root
mount -t debugfs debug /sys/kernel/debug
mkdir -p /tmp
mount -t tmpfs tmpfs /tmp

option() {
    tr ' ' '\n' < /proc/cmdline | sed -n "s/^jitter\.$1=//p"
}
loops=$(option loops)
load=$(option load)
cpu=$(option cpu)
settle=$(option settle)
slack=$(option slack)

case $load in
disk | all) load_modules ;;
esac
if [ -n "$load" ] && [ -z "$loops" ]; then
    echo "JITTER-LOAD $load"
    exec load "$load"
fi

# What people set up for real-time work: no reserve of time for ordinary tasks, which costs timers of
# its own.
echo -1 > /proc/sys/kernel/sched_rt_runtime_us
for server in /sys/kernel/debug/sched/fair_server/cpu*; do
    [ -d "$server" ] && echo 0 > "$server/runtime"
done

# Memory for the samples is there before the measurement, which has no page to look for then.
dd if=/dev/zero of=/tmp/samples bs=64k count=$((loops / 1500 + 4)) 2>/dev/null
exec 3<>/tmp/samples
if [ -n "$load" ]; then
    taskset $((((1 << $(nproc)) - 1) & ~(1 << cpu))) load "$load" > /dev/null 2>&1 &
fi

# The interrupts that this system has sent itself.
own_interrupts() {
    awk '/^IPI/ { for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts
}

echo "JITTER-READY $(uname -r) $(option name) $(own_interrupts)"
sleep "${settle:-3}"
echo "JITTER-BEGINS"
# cyclictest's other thread, which prints, wakes every 10 ms. If that is just before a period, the measuring thread finds a lock
# of the kernel's taken by it and waits for it, 11 us. So that one's timer may be late by as much as all periods take, and a start
# at a full second; or by 15 s, since cyclictest keeps 16384 samples.
slack=${slack:-$((loops < 13000 ? loops + 2000 : 15000))}
measure() {
    echo "${slack}000000" > /proc/self/timerslack_ns
    exec cyclictest "$@" >&3
}
# The periods begin half a millisecond off the kernel's tick, wherever it is turned on.
(measure -N -m -p95 -i1000 -l"$loops" -v --secaligned=500 ${cpu:+-t1 -a$cpu})
echo "JITTER-MEASURED $(own_interrupts)"
sleep "${settle:-0}"
# A character costs a guest of KVM's in an emulated machine some ms: they are packed.
tr -d '\0 ' < /tmp/samples | awk -F: '
    function out() { if (n) { line = line " " last (n > 1 ? "x" n : ""); if (++words == 240) flush() } }
    function flush() { if (words) print "RAW latency" line; line = ""; words = 0 }
    NF == 3 && $1 == 0 { if ($3 == last) n++; else { out(); last = $3; n = 1 } }
    END { out(); flush() }' | gzip -9 | base64 | sed 's/^/PACKED /'
echo "JITTER-END"
# The kernel does not wait for its serial port when it powers off: what has not left the port by then is
# lost. Changing a terminal's settings does wait until all of it has been sent (TCSADRAIN).
stty -echo < /dev/console
poweroff -f

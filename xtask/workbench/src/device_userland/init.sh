#!/bin/sh
# The init of GearV's device VM: the devices' modules, the guests' network, the device model for as
# long as the machine runs, and a shell on the console.
. /etc/begin
export HOME=/root TERM=vt100 ENV=/etc/profile
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs run /run
hostname device
load_modules

# One network for all: the board's card and a tap device for each guest's, on one bridge.
ip link set lo up
brctl addbr br0
echo 0 > /sys/class/net/br0/bridge/forward_delay
join() {
    ip link set "$1" up && brctl addif br0 "$1"
}
for card in /sys/class/net/*/device; do
    [ -e "$card" ] && join "$(basename "$(dirname "$card")")"
done
for tap in $(gdm --make-taps); do
    join "$tap"
done
ip address add 10.0.2.100/24 dev br0
ip link set br0 up
# Where `run --net` has its way out; elsewhere nobody answers there.
ip route add default via 10.0.2.2

# The device model is started again whenever it ends, and /run/gdm.hold is not there; guests wait for
# it meanwhile. A device model that ends soon after its start waits longer each time, up to 1 s, so
# that it takes neither the CPU nor the log from the rest.
seconds_up() {
    cut -d. -f1 /proc/uptime
}
tenths=2
while :; do
    while [ -e /run/gdm.hold ]; do
        sleep 0.2
    done
    started=$(seconds_up)
    gdm
    echo "init: gdm ended with status $?"
    [ "$(($(seconds_up) - started))" -lt 10 ] || tenths=2
    sleep "$((tenths / 10)).$((tenths % 10))"
    tenths=$((tenths * 2))
    [ "$tenths" -le 10 ] || tenths=10
done >> /run/gdm.log 2>&1 < /dev/null &

# Whoever types first finds the device model there, unless it does not start at all.
tenths=100
until [ -S /run/gearv/control ] || [ "$tenths" -eq 0 ]; do
    sleep 0.1
    tenths=$((tenths - 1))
done

cd /root
echo "GearV device VM: shell ready"
while :; do
    setsid cttyhack sh
done

#!/bin/sh
# The init on the guest's disk: a shell on the console, again and again, one on the virtio console
# if that is another one, and one on the screen if there is one.
mount() { busybox mount "$@"; }
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
busybox mkdir -p /dev/pts /dev/shm /run/busybox
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
# Not on the disk, which only who uses it shall change.
busybox --install -s /run/busybox
export PATH=/usr/sbin:/usr/bin:/run/busybox HOME=/root TERM=vt100 ENV=/etc/profile
unset -f mount
dmesg -n 4
name=$(tr -d '\0' < /proc/device-tree/model | sed -n 's/^GearV VM //p')
hostname "${name:-native}"
ip link set lo up
address=$(sed -n 's/.*gearv\.ip=\([^ ]*\).*/\1/p' /proc/cmdline)
ip address add "${address:-10.0.2.101/24}" dev eth0 2>/dev/null
ip link set eth0 up 2>/dev/null
# Where `run --net` has its way out.
ip route add default via 10.0.2.2 2>/dev/null

# What poweroff and reboot tell init: the file system is left as one that needs no repair.
down() {
    trap '' TERM USR1 USR2
    kill -TERM -1
    sleep 0.2
    kill -KILL -1
    sync
    mount -o remount,ro / || echo "the file system stays busy"
    "$1" -f
}
trap 'down halt' USR1
trap 'down poweroff' USR2
trap 'down reboot' TERM

# Linux refreshes a watchdog by itself until a program opens it: from here on a userland that hangs
# is found, too.
[ -c /dev/watchdog ] && watchdog -t 1 /dev/watchdog

# systemd's logind does so for the power button of a board. The guest may have none.
for event in /sys/class/input/event*; do
    grep -q gearv,power-button "$event/device/device/of_node/compatible" 2>/dev/null || continue
    (dd if="/dev/input/${event##*/}" of=/dev/null bs=24 count=1 2>/dev/null && kill -USR2 1) &
done

cd /root
if [ -c /dev/hvc0 ] && ! grep -qw hvc0 /sys/class/tty/console/active; then
    while :; do
        setsid sh -c 'exec sh < /dev/hvc0 > /dev/hvc0 2>&1'
        sleep 1
    done &
fi
if [ -c /dev/fb0 ]; then
    while :; do
        setsid sh -c 'exec sh < /dev/tty1 > /dev/tty1 2>&1'
        sleep 1
    done &
fi
echo "GearV guest $(hostname): shell ready"
while :; do
    # In the background, since a shell that waits for a program heeds no signal before its end.
    setsid cttyhack sh &
    wait $!
done

#!/bin/sh
# The init of GearV's Linux guests: a shell on the console, again and again.
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=vt100 ENV=/etc/profile
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
# Kernel messages below warnings would tear the lines of whoever types.
dmesg -n 4
if [ -e /etc/modules ]; then
    while read -r module; do
        insmod "$module" || echo "$module cannot be loaded"
    done < /etc/modules
fi
# A guest's device tree names its VM in the model; without GearV it is another machine's.
name=$(tr -d '\0' < /proc/device-tree/model | sed -n 's/^GearV VM //p')
hostname "${name:-native}"
cd /root
echo "GearV guest $(hostname): shell ready"
while :; do
    setsid cttyhack sh
done

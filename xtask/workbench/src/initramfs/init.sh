#!/bin/sh
# The init of GearV's Linux guests: a shell on the console, again and again.
. /etc/begin
export HOME=/root TERM=vt100 ENV=/etc/profile
load_modules
# A guest's device tree names its VM in the model; without GearV it is another machine's.
name=$(tr -d '\0' < /proc/device-tree/model | sed -n 's/^GearV VM //p')
hostname "${name:-native}"
cd /root
echo "GearV guest $(hostname): shell ready"
while :; do
    setsid cttyhack sh
done

#!/bin/sh
# The init of `cargo xtask bench --wake`: measures, prints a line a figure, and is done. In a device VM
# it measures what a guest causes, elsewhere what the machine does by itself.
. /etc/begin
mount -t tmpfs run /run
load_modules

served() {
    gdm "$@" > /run/gdm.log 2>&1 &
    until gearctl version > /dev/null 2>&1; do sleep 0.2; done
    sleep 1
}
if [ -d /proc/device-tree/gearv ]; then
    # Both ends of a line are read in different VMs, by virtual counts of their own.
    served
    later=$(wake later)
    kill -9 $!
    sleep 1
    wake line wake_line "$later"
    served
    wake request request_gdm
    kill -9 $!
    sleep 1
    served --poll
    wake request request_gdm_poll
else
    # QEMU's device for exercises; its driver is told, since nobody else asks for it.
    echo 1234 11e8 > /sys/bus/pci/drivers/uio_pci_generic/new_id
    wake native-line wake_line
    wake native-uio wake_uio
fi
echo DONE
sleep 1000000

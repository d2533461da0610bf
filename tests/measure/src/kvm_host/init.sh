#!/bin/sh
# The init of the KVM host: runs the VMM with the arguments it finds, says how that ended and turns
# the machine off.
. /etc/begin
# Threads of a real-time class may take all of a CPU that nothing else runs on.
echo -1 > /proc/sys/kernel/sched_rt_runtime_us
if [ -s /guest/halt-poll ]; then
    cat /guest/halt-poll > /sys/module/kvm/parameters/halt_poll_ns
fi
# The guest's interrupt controller is of the machine's version.
gic=2
if grep -q GICv3 /proc/interrupts; then gic=3; fi
set --
while read -r argument; do
    [ "$argument" = gic=GIC ] && argument=gic=$gic
    set -- "$@" "$argument"
done < /guest/arguments
load_modules
/guest/background > /dev/null 2>&1 &
sleep 1
echo "KVM host: guest starts"
if [ -x /guest/script ]; then
    /guest/script "$gic"
else
    kvm-vmm "$@"
fi
echo "KVM host: guest ended $?"
# Waits until all of it has been sent (TCSADRAIN), which powering off does not.
stty -echo < /dev/console
poweroff -f

#!/bin/sh
# The peer of the network's workloads: a process of the kernel that serves the measured card, at the
# address of a bridge. Arguments: the network devices that the bridge joins, which may appear later.
for scope in all default; do
    # Without solicitations of routers, which would be a part of whatever is measured at that time.
    echo 1 > /proc/sys/net/ipv6/conf/$scope/disable_ipv6
done
brctl addbr br0
echo 0 > /sys/class/net/br0/bridge/forward_delay
echo 0 > /sys/class/net/br0/bridge/multicast_snooping
ip address add 10.9.0.1/24 dev br0
ip link set br0 up
for device; do
    until brctl addif br0 "$device" 2> /dev/null; do sleep 0.2; done
    ip link set "$device" up
done
exec workload peer

#!/bin/sh
# Load without end. cpu: computes, copies through pipes, starts programs. disk: writes, past the page cache.
compute() {
    while :; do
        dd if=/dev/zero bs=64k count=16 2>/dev/null | sha256sum
        ls -l /proc/self/fd | sort | grep -c .
    done > /dev/null 2>&1
}
write() {
    while :; do
        dd if=/dev/zero of=/dev/vda bs=64k count=256 oflag=direct conv=notrunc
    done > /dev/null 2>&1
}
case $1 in
cpu) compute & compute & ;;
disk) write & write & ;;
all) compute & write & ;;
esac
wait

#!/bin/sh
# The initramfs of a guest with a disk: loads what reaches it, and goes there.
. /etc/begin
load_modules
root=$(sed -n 's/.*\broot=\([^ ]*\).*/\1/p' /proc/cmdline)
root=${root:-/dev/vda}
mkdir -p /mnt
# Whoever serves the disk may come up later than this guest.
while ! mount -t ext4 "$root" /mnt 2>/dev/null; do
    count=$((count + 1))
    [ $((count % 20)) = 0 ] && echo "still no file system on $root"
    [ "$count" = 600 ] && exec setsid cttyhack sh
    sleep 0.1
done
umount /proc /sys
exec switch_root /mnt /sbin/init

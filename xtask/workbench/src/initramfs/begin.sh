# The beginning of every init: busybox's programs by name, and the file systems that they need. An
# init of an initramfs reads this file first, by `. /etc/begin`.
/bin/busybox --install -s 2>/dev/null
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
# A kernel with CONFIG_DEVTMPFS_MOUNT has mounted it, unless it came from an initramfs.
mount -t devtmpfs dev /dev 2>/dev/null
# Kernel messages below warnings would tear the lines of whoever types, or of what a test reads.
dmesg -n 4

# Loads the modules that the initramfs was made with, in the order of their dependencies.
# A line has the module's path and its parameters.
load_modules() {
    [ -e /etc/modules ] || return 0
    while read -r module options; do
        insmod "$module" $options || echo "$module cannot be loaded"
    done < /etc/modules
}

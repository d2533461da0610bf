#!/bin/sh
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=vt100
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/shm /tmp; mount -t tmpfs tmpfs /tmp
dmesg -n 4
echo READY
read go
sleep 3
echo START; cat /proc/uptime
case $mode in
q) cyclictest -N -m -p95 -i1000 -l$go -h60000 -q > /tmp/samples
echo END
awk '/^[0-9]/ && $2>0 {n=$2+0; if(!m)m=$1; last3=last2;last2=last; last=$1 "x" n; t+=n; s+=n*$1; if($1>8800)printf "%s ", last}END{print "";print "min",m,"avg",s/t,"n",t,"max",last,last2,last3}' /tmp/samples; grep '^#' /tmp/samples | head -30;;
p) dd if=/dev/zero of=/tmp/samples bs=1M count=3 2>/dev/null
cyclictest -N -m -p95 -i1000 -l$go -v 1<>/tmp/samples
echo END
tr -d '\0' < /tmp/samples > /tmp/s1
sort -n -k3 -t: /tmp/s1 | tr -d ' ' > /tmp/s2
tail -25 /tmp/s2 | tr '\n' ' '; grep '0:.*:' /tmp/s2 | head -12 | tr '\n' ' '; echo
awk -F: 'NF==3{$1=$3;NN++;a[NN]=$1;s+=$1}END{NR=NN;print "min",a[1],"avg",s/NR,"p50",a[int(NR/2)],"p99",a[int(NR*.99)],"p999",a[int(NR*.999)],"max",a[NR],a[NR-1],a[NR-2],a[NR-3],a[NR-4]}' /tmp/s2;;
s) dd if=/dev/zero of=/tmp/samples bs=1M count=3 2>/dev/null
exec 3<>/tmp/samples
echo ${slack:-2000000} > /proc/$$/timerslack_ns; cat /proc/self/timerslack_ns
cyclictest -N -m -p95 -i1000 -l$go -v $xo >&3
echo END
tr -d '\0' < /tmp/samples | grep ' 0:.*:' > /tmp/s1
wc -l /tmp/s1
sort -n -k3 -t: /tmp/s1 | tr -d ' ' > /tmp/s2
tail -25 /tmp/s2 | tr '\n' ' '; grep '0:.*:' /tmp/s2 | head -12 | tr '\n' ' '; echo
awk -F: 'NF==3{$1=$3;NN++;a[NN]=$1;s+=$1}END{NR=NN;print "min",a[1],"avg",s/NR,"p50",a[int(NR/2)],"p99",a[int(NR*.99)],"p999",a[int(NR*.999)],"max",a[NR],a[NR-1],a[NR-2],a[NR-3],a[NR-4]}' /tmp/s2;;
esac
echo ALL; cat /proc/uptime
poweroff -f

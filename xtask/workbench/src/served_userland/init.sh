#!/bin/sh
# The init of the device VM of `tests/manifests/bench-gdm.dts`: serves the guest `bench` with a GDM that
# waits, and once more with one that polls, and repeats what the guest printed.
. /etc/begin
mount -t tmpfs run /run
load_modules

serve() {
    gdm "$@" > /run/gdm.log 2>&1 &
    gdm=$!
    until gearctl version > /dev/null 2>&1; do sleep 0.1; done
}
# Waits for the guest's end number $1. Its console is read when nothing is measured.
finished() {
    until [ "$(gearctl list | grep -c "bench.*stopped")" = 1 ]; do sleep 1; done
    sleep 1000 | gearctl console bench > /run/printed &
    until [ "$(grep -c ^DONE /run/printed)" = "$1" ]; do sleep 0.2; done
    kill $!
}
serve
finished 1
grep -E "^(BENCH|RAW) |FAIL " /run/printed
kill -9 $gdm
sleep 0.5
serve --poll
gearctl start bench > /dev/null || echo "FAIL start"
finished 2
sed -n '1,/^DONE/d; /FAIL /p
    s/mmio_user_write_asleep /mmio_user_write_poll /p
    s/mmio_user_answer_asleep /mmio_user_answer_poll /p' /run/printed
echo DONE
sleep 1000000

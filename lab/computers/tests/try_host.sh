# shellcheck disable=SC2016 # a script for another shell
# unspin-lab try, with the module loaded before. Sourced after inside.sh.
TRIED=/tmp/try
has() { grep -q "$1" $TRIED/try.json || { head -c 600 $TRIED/try.json; false; }; }
count() { grep -c "$1" $TRIED/try.json; }
mkdir -p /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup 2> /dev/null
groups() { find /sys/fs/cgroup -mindepth 1 -type d | sort; }
insmod /modules/unspin.ko
echo observe > $D/mode
before=$(cat $D/*; groups)
tried() {
	unspin-lab try --quiet --out $TRIED --window-ms 100 --rounds 2 > /tmp/said 2>&1
	[ $? -le 1 ] && [ -s $TRIED/try.json ] || { tail -n 5 /tmp/said; false; }
}
check "it is tried" tried
check "there is a page" [ -s $TRIED/report.html ]
check "and a file to send back" has '"schema": 1'
check "which says how the module sets windows" has '"window_control": "'
check "a verdict" has '"verdict": "\(passed\|failed\|incomplete\)"'
check "gains in the kernel: $(count '"spins_in": "kernel"')" [ "$(count '"spins_in": "kernel"')" = 9 ]
check "and in user space: $(count '"spins_in": "user"')" [ "$(count '"spins_in": "user"')" = 2 ]
for what in victim escape billing rollback; do check "check $what" has "\"check\": \"$what\""; done
check "each is said" grep -q 'rollback: longest time without a CPU' /tmp/said
same() {
	[ "$before" = "$(cat $D/*; groups)" ] || { echo "$before became"; cat $D/*; groups; false; }
}
check "settings and cgroups are as before" same
check "and no VM is left" [ -z "$(ls $U/vms)" ]
rmmod unspin

# shellcheck disable=SC2016 # a script for another shell
# Sourced after inside.sh. The result of an experiment is a line for tests/ab.rs, which judges it.
P=/sys/module/kvm/parameters/halt_poll_ns
ab() { unspin diagnose --seconds 1 --rounds 2 --json "$@" 2> /tmp/said || cat /tmp/said; }
cpus() { for tid in $(vcpus $1); do grep Cpus_allowed_list /proc/$tid/status; done; }

unspin-inside switches 360000 1000 > /tmp/sleeper &
vm=$!
check "one that sleeps is there" settle has_vcpus $vm 2
sleep 0.3
was=$(cat $P)
say "ab idle-switch $(ab $vm --ab idle-switch)"
check "polling is as before" is $P "$was"
check "the journal is empty" test ! -s /run/unspin/journal

unspin diagnose $vm --ab idle-switch --seconds 60 --rounds 2 > /dev/null 2>/tmp/said &
ab=$!
sleep 0.5
want='is changing settings of this host'
check "a second one is told so" says unspin diagnose --put-back
kill $ab
check "a signal ends it" fails 1 wait $ab

unspin diagnose $vm --ab idle-switch --seconds 3 --rounds 2 > /dev/null 2>/tmp/said &
ab=$!
check "B is set" settle is $P 0
kill -9 $ab
check "its guard puts back" settle is $P "$was"

want='the module is not loaded'
check "without the module there is no window" says unspin diagnose $vm --ab spin-switch
check "and it cannot" fails 77 unspin diagnose $vm --ab spin-switch
check "the sleeper works" kill $vm
wait $vm

# CPUs 0 and 1 as if of another last-level cache than 2 and 3.
for c in 0 1 2 3; do
	dir=/tmp/sys/devices/system/cpu/cpu$c/cache/index3
	mkdir -p $dir
	echo 3 > $dir/level
	echo $((c / 2 * 2))-$((c / 2 * 2 + 1)) > $dir/shared_cpu_list
done
rm -f /tmp/stop
unspin-inside vm 2 --until /tmp/stop > /tmp/vm &
vm=$!
check "one that computes is there" settle has_vcpus $vm 2
before=$(cpus $vm)
say "ab cache $(ab $vm --ab cache --sys /tmp/sys)"
check "its CPUs are as before" test "$(cpus $vm)" = "$before"
touch /tmp/stop
check "it worked" wait $vm

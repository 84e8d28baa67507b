# Sourced after module.sh on a kernel that checks itself: what only such a kernel can say of the
# module, and that it would have said it.
LEAKS=/sys/kernel/debug/kmemleak

# Allocations nothing points to, seen by two scans; they must be older than 5 s to be told.
leaked() {
	sleep 6
	echo scan > $LEAKS
	echo scan > $LEAKS
	cat $LEAKS
}

# --- each allocation fails in turn ---
check "loading, whichever allocation fails" \
	unspin-inside fail load /modules/unspin.ko force_pause_intercept=1 fail_at=1
say "$(cat /tmp/check)"
check "leaves nothing" gone
unspin-inside vm 2 --until /tmp/stop-failing > /tmp/vm &
vm=$!
load
settle [ -e $U/vms/$vm-0 ]
check "switching from off to apples, whichever allocation fails" unspin-inside fail write $D/mode apples
say "$(cat /tmp/check)"
check "the mode is as before" is $D/mode off
echo apples > $D/mode
check "making a VM, whichever allocation fails" unspin-inside fail vm
say "$(cat /tmp/check)"
touch /tmp/stop-failing
check "the VM beside it worked" wait $vm
check "its state went with it" settle no_objects
rmmod unspin
check "and the module after it" gone

# --- nothing was found ---
leaked > /tmp/leaked
check "no leak" [ ! -s /tmp/leaked ]
[ -s /tmp/leaked ] && say "$(head -n 40 /tmp/leaked | tr '\n' ';')"
dmesg | grep 'objects left' > /tmp/left
check "no unload left an object" [ ! -s /tmp/left ]
# Where memory is refused the kernel shows whom: KVM's calls too, and no fault of anybody's.
dmesg | sed '/allocation failed, mode:/,/Call Trace/d' | grep -E "$SPLAT" > /tmp/splats
check "no splat before the faults" [ ! -s /tmp/splats ]
[ -s /tmp/splats ] && say "$(head -n 5 /tmp/splats | tr '\n' ';')"

# --- and would have been ---
finds() {
	dmesg -c > /dev/null
	insmod /modules/faulty.ko fault=$1 || return 1
	rmmod faulty
	dmesg > /tmp/found
	grep -q "$2" /tmp/found || { grep -v '^ ' /tmp/found; return 1; }
	grep -qE "$SPLAT" /tmp/found || { echo "not among the splats"; return 1; }
}
check "a sleep with preemption off is found" finds sleep "sleeping function called from invalid context"
check "a freed timer that is pending is found" finds timer "ODEBUG: free active"
check "a read without rcu_read_lock() is found" finds rcu "suspicious RCU usage"
# lockdep stops at the first cycle it finds, so it has found none before.
check "locks taken in both orders are found" finds order "possible circular locking dependency"
check "a read after free is found" finds free "KASAN: \(slab-\)*use-after-free"
check "a read out of bounds is found" finds bounds "KASAN: slab-out-of-bounds"
insmod /modules/faulty.ko fault=leak
rmmod faulty
leaked > /tmp/leaked
check "a leak is found" grep -q 'unreferenced object' /tmp/leaked
unspin-inside say --end $passed $failed
poweroff -f

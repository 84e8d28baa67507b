# AMD's pause filter against its definition, on one CPU, where a PAUSE takes one tick as any
# instruction does. The first PAUSE of a loop fills the count, those after it each take one away, and the one
# that takes it below zero exits: a filter of N lets loops of N + 1 PAUSEs pass. A PAUSE more than the
# threshold after the one before begins a new loop. At every privilege level. The entry into the guest
# counts as a PAUSE, so that the first loop of all may exit one PAUSE earlier.
# Sourced after inside.sh.
SPINS=50
# A timer tick in a spin may cost it its exit.
MOST=$((SPINS - 3))
P=/sys/module/kvm_amd/parameters

# Spins of so many PAUSEs at that distance and level: exits from LOW to HIGH.
exits() {
	found=$(unspin-inside ple $SPINS "$3" "$4" "$5") || { echo "$found"; return 1; }
	echo "$found exits of $SPINS spins"
	say "$(cat $P/pause_filter_count) and $(cat $P/pause_filter_thresh), $3 PAUSEs $4 apart, CPL $5: $found exits of $SPINS spins"
	[ "$found" -ge "$1" ] && [ "$found" -le "$2" ]
}

check "the processor's filter is 3000 PAUSEs" is $P/pause_filter_count 3000
check "its threshold is 128 ticks" is $P/pause_filter_thresh 128
guests_lose_their_cpu 8000

insmod /modules/unspin.ko crowded_ok=1
echo observe > $D/mode
check "the window is the module's to set" is $U/window_control svm
check "APLE starts from the same window as on Intel" is $D/window_init_cycles 8192
check "kvm_amd with a filter of 3000 that does not grow" vendor_with pause_filter_count_grow=0
check "a loop as long as the usual filter lets pass" exits 0 1 3001 4 0
check "one PAUSE more" exits $MOST $SPINS 3002 4 0
check "kvm_amd with a filter of 100" vendor_with pause_filter_count=100 pause_filter_count_grow=0
check "window control is back" is $U/window_control svm
check "a loop as long as the filter lets pass" exits 0 1 101 10 0
check "one PAUSE more takes an exit" exits $MOST $SPINS 102 10 0
check "at CPL 3 too" exits $MOST $SPINS 102 10 3
check "and one less does not" exits 0 1 101 10 3
check "a loop twice as long takes two, the second loop begins with the exit" \
	exits $((2 * MOST)) $((2 * SPINS + 3)) 203 10 0
check "PAUSEs as far apart as the threshold" exits $MOST $SPINS 102 128 0
check "PAUSEs one tick farther apart" exits 0 0 1000 129 0
check "kvm_amd with a threshold of 64" \
	vendor_with pause_filter_count=100 pause_filter_count_grow=0 pause_filter_thresh=64
check "PAUSEs as far apart as that threshold" exits $MOST $SPINS 102 64 0
check "PAUSEs one tick farther apart than it" exits 0 0 1000 65 0
check "kvm_amd without a threshold" \
	vendor_with pause_filter_count=100 pause_filter_count_grow=0 pause_filter_thresh=0
check "then KVM lets guests spin" exits 0 0 1000 10 0

# The module's windows are cycles, a whole number of them for each PAUSE.
check "kvm_amd as it was" vendor_with
echo 0 > $D/delta_cycles
echo aple > $D/mode
cycles=
for per in 1 2 3 4 5 6; do
	set_window $D $((100 * per))
	found=$(unspin-inside ple $SPINS 102 10 0)
	less=$(unspin-inside ple $SPINS 101 10 0)
	[ "$found" -ge $MOST ] && [ "$less" -le 1 ] && cycles=$per && break
done
say "the module takes a PAUSE for $cycles cycles"
check "a window of 100 PAUSEs is exact" [ -n "$cycles" ]
set_window $D $((64 * cycles))
check "so is one of 64" exits 0 1 65 10 0
check "and one PAUSE more" exits $MOST $SPINS 66 10 0
rmmod unspin
finish

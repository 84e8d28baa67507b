#!/bin/bash
# usage: verify/run.sh [--livelock] MODEL [DEFINE...]: checks one model; quiet and 0 if every check
# holds, else the name of the one that failed. DEFINEs as -DN=4. VERIFY_DIR says where the checker is
# built, and VERIFY_MEMORY_MB (default 6000) how much memory it may use. States are kept as they are, in a
# quarter of that; a search that needs more is made again with states compressed, which takes twice as long,
# and one that still does not end with a bit a state (Holzmann, "An analysis of bitstate hashing", FMSD 1998):
# it may miss states, says so on a line that begins with its name and `bitstate`, and rejects what it finds
# all the same.
# With --livelock the one check is that no run goes on for ever in which whoever can make a step makes
# one some time. That search has twice the states and takes six times as long.
set -eu
kind=(-DSAFETY)
options=()
if [ "${1:-}" = --livelock ]; then
	kind=(-DNP)
	options=(-l -f)
	shift
fi
model=$1
shift
# A wrong lock (-DM_...) is rejected soon: optimizing its checker takes longer than the search.
optimize=-O1
case " $* " in *" -DM_"*) optimize=-O0 ;; esac
source=$(cd "$(dirname "$0")" && pwd)
dir=${VERIFY_DIR:-$(mktemp -d)}
memory=${VERIFY_MEMORY_MB:-6000}
mkdir -p "$dir"
cd "$dir"
fail() { echo "$model: $*"; exit 1; }
search() { # how wide the table of states is, flags of the compiler
	local width=$1
	shift
	cc "$optimize" -w "${kind[@]}" -DVECTORSZ=2048 "$@" -o pan pan.c || exit 2
	./pan "${options[@]}" -m100000 "-w$width" > pan.log 2>&1 || { cat pan.log; exit 2; }
}

spin -a "$@" "$source/$model.pml" > spin.log 2>&1 || { cat spin.log; exit 2; }
too_large() { grep -q 'errors: 0' pan.log && grep -q 'Search not completed' pan.log; }
search 22 "-DMEMLIM=$((memory / 4))"
if too_large; then search 22 -DCOLLAPSE "-DMEMLIM=$memory"; fi
said=
if too_large; then
	search 33 -DBITSTATE
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
	said="$model: bitstate, $states states"
fi
if grep -q '^error: max search depth' pan.log; then fail "the search was cut off"; fi
if grep -q 'errors: 0' pan.log; then
	if grep -q 'Search not completed' pan.log; then echo "$model: not completed"; exit 2; fi
	[ -z "$said" ] || echo "$said"
	exit 0
fi
if grep -q 'assertion violated' pan.log; then
	fail "$(sed -n 's/.*assertion violated \([a-z_]*\).*/\1/p' pan.log)"
fi
if grep -q '^pan:.*: invalid end state' pan.log; then fail progress; fi
if grep -q '^pan:.*: non-progress cycle' pan.log; then fail livelock; fi
cat pan.log
exit 2

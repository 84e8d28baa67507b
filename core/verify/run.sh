#!/bin/bash
# usage: verify/run.sh MODEL [DEFINE...]: checks one model with SPIN; quiet and 0 if every check holds, else the
# name of the one that failed. DEFINEs as -DTURNS=6. VERIFY_DIR says where the checker is built.
set -eu
model=$1
shift
source=$(cd "$(dirname "$0")" && pwd)
dir=${VERIFY_DIR:-$(mktemp -d)}
mkdir -p "$dir"
cd "$dir"
fail() { echo "$model: $*"; exit 1; }

spin -a "$@" "$source/$model.pml" > spin.log 2>&1 || { cat spin.log; exit 2; }
cc -O1 -w -DSAFETY -o pan pan.c || exit 2
./pan -m100000 > pan.log 2>&1 || { cat pan.log; exit 2; }
if grep -q '^error: max search depth' pan.log; then fail "the search was cut off"; fi
if grep -q 'errors: 0' pan.log && ! grep -q 'Search not completed' pan.log; then exit 0; fi
if grep -q 'assertion violated' pan.log; then
	fail "$(sed -n 's/.*assertion violated \([a-z_]*\).*/\1/p' pan.log)"
fi
if grep -q '^pan:.*: invalid end state' pan.log; then fail progress; fi
cat pan.log
exit 2

# policy/ as BPF: each policy's programs are loaded and run by the test's own program $BPF. Sourced
# after inside.sh.
verified() {
	env UNSPIN_BPF_POLICY=$1 $BPF --exact inside --ignored --nocapture > /tmp/bpf 2>&1 || {
		grep -v -e '^running' -e '^$' /tmp/bpf
		false
	}
}
for policy in $POLICIES; do
	check "$policy: the verifier accepts what it should, and decisions are the processor's" verified $policy
done
finish

# unspin-lab model --record: VMs of 4 vCPUs on 4 CPUs, one after the other. An iteration takes 16 ns of a CPU, and
# the CPUs compute in turns: what all compute takes four times as long. Sourced after inside.sh.
P=/tmp/profile.toml
said() { grep -q "$1" /tmp/said || { cat /tmp/said; false; }; }
recorded() {
	unspin-lab model --record pid:$vm --for 1 -o $P > /tmp/said 2>&1 || { cat /tmp/said; false; }
}
# What its vCPUs compute before they meet.
record() {
	rm -f /tmp/stop $P
	unspin-inside meet 4 $1 --until /tmp/stop > /tmp/vm &
	vm=$!
	check "a VM of 4 vCPUs is there" settle has_vcpus $vm 4
	sleep 0.2
	check "it is recorded" recorded
	while read -r line; do say "$1: $line"; done < /tmp/said
	check "what was recorded is a profile" unspin-lab model $P
	touch /tmp/stop
	check "the VM worked" wait $vm
}
check "without a VM it says so" fails 1 unspin-lab model --record web1
record 1250000
check "who meets seldom is of type 1" said "^type 1: "
record 6000
check "who meets often is not" fails 1 said "^type 1: "

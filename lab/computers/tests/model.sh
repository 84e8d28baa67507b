# unspin-lab model --record: VMs of 4 vCPUs on 4 CPUs, one after the other. An iteration takes 16 ns of a CPU, and
# the CPUs compute in turns: what all compute takes four times as long. Sourced after inside.sh.
P=/tmp/profile.toml
fails() { code=$1; shift; "$@"; [ $? = "$code" ]; }
said() { grep -q "$1" /tmp/said || { cat /tmp/said; false; }; }
has_vcpus() { [ "$(grep -l 'CPU ./KVM' /proc/$vm/task/*/comm | wc -l)" = 4 ]; }
recorded() {
	unspin-lab model --record pid:$vm --for 1 -o $P > /tmp/said 2>&1 || { cat /tmp/said; false; }
}
# The type; what all compute together, and then one of them alone.
record() {
	rm -f /tmp/stop $P
	unspin-inside fork-join 4 $2 $3 --until /tmp/stop > /tmp/vm &
	vm=$!
	settle has_vcpus
	say "type $1: a VM of 4 vCPUs is there"
	sleep 0.2
	check "type $1 is recorded" recorded
	while read -r line; do say "type $1: $line"; done < /tmp/said
	check "what it recorded is a profile" unspin-lab model $P
	touch /tmp/stop
	check "the VM worked: type $1" wait $vm
}
check "without a VM it says so" fails 1 unspin-lab model --record web1
record 1 1250000 62000
check "type 1 is named" said "^type 1: "
record 4 800000 9400000
check "type 4 is named" said "^type 4: "
check "who works alone is always the same" said "mostly the same one"
# The emulator is slow where a guest halts often.
record 2 6000 62000
check "type 2 is named" said "^type 2: "
record 3 60000 600

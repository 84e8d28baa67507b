#!/bin/bash
# The package's units under systemd, on an emulated computer: .ci/test-deb boots a root with this as its last
# unit. Says a line per check, and `the end`; then the computer is switched off.
# Functions are called through check, in processes of their own.
# shellcheck disable=SC2317
set -u
# The first serial port is the console.
exec </dev/null >/dev/ttyS1 2>&1
trap 'echo "the end"; systemctl poweroff --force --force' EXIT

check() {
	local what=$1 said
	shift
	if said=$("$@" 2>&1); then echo "ok $what"; else echo "FAILED $what: $said"; fi
}

# Until it is so, for at most a minute of this computer's slow time.
settle() {
	local said
	for _ in {1..120}; do
		said=$("$@" 2>&1) && return
		sleep 0.5
	done
	echo "$said"
	return 1
}

is_active() { systemctl is-active --quiet "$1" || { systemctl status --no-pager -l "$1"; false; }; }
has_ended() { ! is_active "$1" >/dev/null && [ "$(systemctl show -p Result --value "$1")" = success ]; }

# A VM as libvirt lays one out: a scope of its own, and a cgroup per vCPU.
vm_starts() {
	systemd-run --quiet --scope --unit=machine-qemu-1-web --slice=machine -p Delegate=yes \
		bash -c 'exec -a qemu-system-x86_64 unspin-inside vm 2 --until /tmp/stop -name guest=web,debug-threads=on' \
		>/tmp/vm 2>&1 &
	settle vcpus_are 2 || return
	local scope=/sys/fs/cgroup/machine.slice/machine-qemu-1-web.scope tid index=0
	mkdir $scope/libvirt || return
	# KVM's own thread of the VM is there, too.
	while read -r tid; do
		echo "$tid" >$scope/libvirt/cgroup.procs
	done <<<"$(cat $scope/cgroup.procs)"
	echo +cpu >$scope/cgroup.subtree_control
	for tid in $(vcpus); do
		mkdir $scope/libvirt/vcpu$index && echo threaded >$scope/libvirt/vcpu$index/cgroup.type || return
		index=$((index + 1))
	done
	echo +cpu >$scope/libvirt/cgroup.subtree_control || return
	index=0
	for tid in $(vcpus); do
		echo "$tid" >$scope/libvirt/vcpu$index/cgroup.threads || return
		taskset -pc $index "$tid"
		index=$((index + 1))
	done
}
vcpus() { grep -l 'CPU ./KVM' /proc/[0-9]*/task/*/comm | cut -d/ -f5 | sort -n; }
vcpus_are() { [ "$(vcpus | wc -l)" = "$1" ]; }
weights() { cat /sys/fs/cgroup/machine.slice/machine-*.scope/{,libvirt/vcpu*/}cpu.weight | tr '\n' ' '; }
# The kernel's default: unspin-shape may have set others before they could be read.
own='100 100 100 '
are_set() { [ "$(weights)" != "$own" ]; }
are_own() {
	[ "$(weights)" = "$own" ] && [ ! -s /run/unspin/journal ] && return
	echo "weights are $(weights), were $own; the journal has $(cat /run/unspin/journal)"
	false
}

scrapes() {
	exec 3<>/dev/tcp/127.0.0.1/19455 || return
	printf 'GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n' >&3
	cat <&3 >/tmp/metrics
	grep -q "$1" /tmp/metrics || { head -n 20 /tmp/metrics; false; }
}

starts() { systemctl start "$1" || { journalctl --no-pager -q -o cat -u "$1" | tail -n 12; false; }; }
check "the exporter starts" starts unspin-export
check "it serves" settle scrapes unspin_exporter_build
check "shaping starts where there is no VM" starts unspin-shape
check "and waits" is_active unspin-shape
check "a VM is there" vm_starts
check "the exporter sees it" settle scrapes 'unspin_vcpu_seconds_total{.*web'
# A task of the host beside the first vCPU, or there is nothing to share out.
taskset -c 0 bash -c 'until [ -e /tmp/stop ]; do :; done' &
check "it is shaped" settle are_set
check "status shows what is set" sh -c "unspin status | grep web"
systemctl kill --kill-whom=main -s KILL unspin-shape
check "killed, it is put back" settle are_own
check "and started again" settle are_set
check "and active" is_active unspin-shape
check "it stops" systemctl stop unspin-shape
check "which puts back" are_own
check "it has ended well" has_ended unspin-shape

check "settings are applied" starts unspin
check "by a module that is loaded" test -e /sys/module/unspin/default/mode
check "the VM has a mode" settle sh -c 'grep -q . /sys/module/unspin/vms/*-0/mode'
check "the exporter has its counters" settle scrapes 'unspin_vm_ple_exits_total{.*web'
check "a file is read again" systemctl reload unspin
check "settings stop" systemctl stop unspin
check "which takes the module out" test ! -e /sys/module/unspin
check "the exporter goes on" is_active unspin-export
check "and stops" systemctl stop unspin-export
check "and has ended well" has_ended unspin-export
touch /tmp/stop
for unit in unspin unspin-export unspin-shape; do
	journalctl --no-pager -q -o cat -u $unit | tail -n 12 | sed "s/^/$unit: /"
done

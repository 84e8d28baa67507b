# Sourced by the init: say whether KVM and the module came up.
passed=0
failed=0
found() { passed=$((passed + 1)); unspin-agent say "$*"; }
missing() { failed=$((failed + 1)); unspin-agent say "FAILED $*"; }

unspin-agent say "kernel $(uname -r), $(grep -c ^processor /proc/cpuinfo) CPUs,$(grep -m 1 '^model name' /proc/cpuinfo | cut -d : -f 2)"
if [ -c /dev/kvm ]; then
	found "kvm: $(lsmod | grep -o '^kvm_[a-z]*')"
else
	missing "kvm: $(dmesg | tail -n 3)"
fi
if load; then
	control=$(cat /sys/module/unspin/window_control)
	case $control in
	vmx | svm) found "module: loaded, window_control $control" ;;
	*) missing "module: loaded, but window_control $control" ;;
	esac
else
	missing "module: $(dmesg | tail -n 3)"
fi
unspin-agent say --end "$passed" "$failed"
poweroff -f

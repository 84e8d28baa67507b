#!/bin/bash
# run.sh KERNEL_TREE KERNEL_VERSION UNSPIN_KO: boots that kernel in QEMU and tests the module there.
# KEEP=DIR copies console and verdict there; CYCLES and TIMEOUT (seconds) as below.
# KERNEL_TREE holds an unpacked linux-image package. Exit code: 0 pass, 1 fail, 77 cannot be run here, 124 hung.
set -euo pipefail
tree=$1 version=$2 module=$3
here=$(cd "$(dirname "$0")" && pwd)
timeout=${TIMEOUT:-900}
for tool in qemu-system-x86_64 busybox cpio gcc; do
	command -v $tool > /dev/null || { echo "SKIP: no $tool"; exit 77; }
done
work=$(mktemp -d)
qemu=
cleanup() {
	[ -z "$qemu" ] || kill "$qemu" 2> /dev/null || true
	[ -z "${KEEP:-}" ] || cp "$work/console" "$work/verdict" "$KEEP" || true
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 124' TERM INT
root=$work/root
mkdir -p "$root"/{bin,lib,proc,sys,dev,tmp}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
for name in virt/lib/irqbypass arch/x86/kvm/kvm arch/x86/kvm/kvm-amd; do
	file=$tree/lib/modules/$version/kernel/$name.ko
	if [ -e "$file" ]; then cp "$file" "$root/lib/"; else xz -dc "$file.xz" > "$root/lib/${name##*/}.ko"; fi
done
cp "$module" "$root/lib/unspin.ko"
gcc -O2 -Wall -Wextra -static -pthread -o "$root/bin/vmm" "$here/vmm.c" "$here/guest.S"
gcc -O2 -Wall -Wextra -static -o "$root/bin/tool" "$here/tool.c"
sed "s/\${CYCLES:-10}/${CYCLES:-10}/g" "$here/init.sh" > "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd"

# One thread: with several, TCG sooner or later trips over the kernel patching its own code.
status=0
timeout "$timeout" qemu-system-x86_64 -accel tcg,thread=single -cpu qemu64,+svm,+npt -smp 4 -m 1024 \
	-display none -no-reboot -serial "file:$work/console" -debugcon "file:$work/verdict" \
	-kernel "$tree/boot/vmlinuz-$version" -initrd "$work/initrd" \
	-append "console=ttyS0 mitigations=off panic=1 oops=panic" < /dev/null &
qemu=$!
wait "$qemu" || status=$?
qemu=
grep -a "^FAIL" "$work/verdict" || true
good=$(grep -ac "^ok" "$work/verdict" || true)
bad=$(grep -ac "^FAIL" "$work/verdict" || true)
if [ $status = 124 ]; then echo "HUNG after $good checks"; tail -5 "$work/console"; exit 124; fi
if [ "$(tail -n 1 "$work/verdict")" != end ] || grep -aqE "Kernel panic|Oops" "$work/console"; then
	echo "FAIL: the computer died after $good checks"; tail -40 "$work/console"; exit 1
fi
echo "$version: $good checks passed, $bad failed"
[ "$bad" = 0 ]

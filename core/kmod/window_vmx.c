// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pause-loop-exit window on Intel: KVM's own vcpu_vmx.ple_window and its
 * dirty flag, set in the kvm_entry probe. KVM writes a dirty window to the VMCS
 * right after that tracepoint (vmx_vcpu_run), so the right VMCS gets it even if
 * another one is loaded by then. The PLE enable bit is never touched.
 */
#include <linux/err.h>
#include <linux/kvm_host.h>
#include <linux/moduleparam.h>
#include <asm/vmx.h>

#include "btf.h"
#include "compat/compat.h"
#include "window_ops.h"

static u32 window_offset, dirty_offset;

static u32 *window_of(struct kvm_vcpu *vcpu)
{
	return (u32 *)((char *)vcpu + window_offset);
}

static bool *dirty_of(struct kvm_vcpu *vcpu)
{
	return (bool *)((char *)vcpu + dirty_offset);
}

/*
 * Reads a field of the loaded VMCS. False: there is no current VMCS (KVM on Hyper-V keeps
 * an enlightened one), or the CPU is not in VMX operation (the instruction faults).
 */
static bool vmcs_read(unsigned long field, unsigned long *value)
{
	bool ok = false;

	asm volatile("1: vmread %[field], %[value]\n\t"
		     "seta %[ok]\n"
		     "2:\n\t"
		     _ASM_EXTABLE(1b, 2b)
		     : [ok] "+qm" (ok), [value] "=&r" (*value)
		     : [field] "r" (field)
		     : "cc");
	return ok;
}

static enum unspin_window_check vmx_check(struct kvm_vcpu *vcpu, const char **why)
{
	unsigned long loaded, controls;
	u8 dirty;

	/* The vCPU of a TDX guest is another structure, and KVM does not control its window. */
	if (compat_pause_in_guest(vcpu->kvm) || compat_is_tdx(vcpu->kvm))
		return UNSPIN_CHECK_NONE;
	if (!vmcs_read(SECONDARY_VM_EXEC_CONTROL, &controls) || !vmcs_read(PLE_WINDOW, &loaded)) {
		*why = "the VMCS cannot be read here";
		return UNSPIN_CHECK_BROKEN;
	}
	if (!(controls & SECONDARY_EXEC_PAUSE_LOOP_EXITING))
		return UNSPIN_CHECK_NONE;
	dirty = *(u8 *)dirty_of(vcpu);
	if (dirty > 1) {
		*why = "vcpu_vmx.ple_window_dirty is not where BTF says";
		return UNSPIN_CHECK_BROKEN;
	}
	if (dirty)
		return UNSPIN_CHECK_LATER;
	return (u32)loaded == READ_ONCE(*window_of(vcpu)) ? UNSPIN_CHECK_GOOD : UNSPIN_CHECK_MISMATCH;
}

static u32 vmx_get(struct kvm_vcpu *vcpu)
{
	return READ_ONCE(*window_of(vcpu));
}

/*
 * If the vCPU runs nested guests, KVM may have written the window to the VMCS of one of them. Then the
 * vCPU's own VMCS has another window than KVM keeps.
 */
static u32 vmx_set(struct kvm_vcpu *vcpu, u32 window_cycles)
{
	if (READ_ONCE(*window_of(vcpu)) != window_cycles || compat_may_nest(vcpu)) {
		WRITE_ONCE(*window_of(vcpu), window_cycles);
		WRITE_ONCE(*dirty_of(vcpu), true);
	}
	return window_cycles;
}

static struct unspin_window_ops vmx_ops;

/*
 * The window is stored before the flag, and KVM clears the flag before it reads the window. So
 * KVM sees this change or, in the worst case, leaves the module's window in the VMCS until its
 * own next change, a PLE exit later.
 */
static void vmx_restore_remote(struct kvm_vcpu *vcpu)
{
	WRITE_ONCE(*window_of(vcpu), vmx_ops.default_cycles);
	smp_store_release(dirty_of(vcpu), true);
}

static bool vmx_where(struct kvm_vcpu *vcpu, struct unspin_where *where)
{
	unsigned long address, stack_rights;

	if (compat_is_tdx(vcpu->kvm) || !vmcs_read(GUEST_RIP, &address) ||
	    !vmcs_read(GUEST_SS_AR_BYTES, &stack_rights))
		return false;
	where->address = address;
	where->cpl = VMX_AR_DPL(stack_rights);
	return true;
}

static struct unspin_window_ops vmx_ops = {
	.name = "vmx",
	.where = vmx_where,
	.check = vmx_check,
	.get = vmx_get,
	.set = vmx_set,
	.restore_remote = vmx_restore_remote,
};

static int offsets_find(void)
{
	struct unspin_btf_want want[] = {
		{ .member = "ple_window", .size = sizeof(u32) },
		{ .member = "ple_window_dirty", .size = sizeof(bool) },
	};
	struct unspin_btf *btf = unspin_btf_open("kvm_intel");
	int err;

	if (IS_ERR(btf))
		return PTR_ERR(btf);
	err = unspin_btf_members(btf, "vcpu_vmx", want, ARRAY_SIZE(want));
	unspin_btf_close(btf);
	window_offset = want[0].offset;
	dirty_offset = want[1].offset;
	return err;
}

struct unspin_window_ops *unspin_window_vmx_init(struct module *vendor, const char **why)
{
	const unsigned int *window = unspin_window_param(vendor, "ple_window", &param_ops_uint);
	const unsigned int *gap = unspin_window_param(vendor, "ple_gap", &param_ops_uint);

	if (!window || !gap) {
		*why = "kvm_intel has no parameters ple_gap and ple_window";
		return NULL;
	}
	if (!*gap) {
		*why = "the processor has no pause-loop exiting, or ple_gap=0";
		return NULL;
	}
	if (offsets_find()) {
		*why = "kvm_intel's type information does not describe vcpu_vmx.ple_window";
		return NULL;
	}
	if (window_offset < sizeof(struct kvm_vcpu) || dirty_offset < sizeof(struct kvm_vcpu)) {
		*why = "vcpu_vmx overlaps struct kvm_vcpu of the headers built against";
		return NULL;
	}
	vmx_ops.default_cycles = *window;
	return &vmx_ops;
}

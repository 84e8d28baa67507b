// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pause filter on AMD: vmcb.control.pause_filter_count, 16 bits, counts PAUSE
 * instructions at every privilege level. So a window in cycles is a count times the
 * cycles of one PAUSE on this processor. The vCPU's thread writes it in the kvm_entry
 * probe; KVM enters with this VMCB right after. It is always vmcb01, the vCPU's own:
 * the one of a nested guest belongs to its hypervisor, and may be freed.
 */
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/kvm_host.h>
#include <linux/moduleparam.h>
#include <asm/svm.h>

#include "btf.h"
#include "compat/compat.h"
#include "testing.h"
#include "window_ops.h"

#define PAUSE_COUNT_MAX 65535u
#define CLEAN_INTERCEPTS BIT(0)	/* VMCB clean bit 0 covers intercepts and the pause filter: APM 2, 15.15.3 */
#define CALIBRATION_RUNS 8
#define CALIBRATION_PAUSES 256

static u32 vmcb01_offset;
static u32 cycles_per_pause;
static struct unspin_window_ops svm_ops;

static struct vmcb_control_area *control_of(struct kvm_vcpu *vcpu)
{
	struct vmcb *vmcb = *(struct vmcb **)((char *)vcpu + vmcb01_offset);

	return vmcb ? &vmcb->control : NULL;
}

static u16 count_of(u32 window_cycles)
{
	return clamp(DIV_ROUND_CLOSEST(window_cycles, cycles_per_pause), 1u, PAUSE_COUNT_MAX);
}

static enum unspin_window_check svm_check(struct kvm_vcpu *vcpu, const char **why)
{
	struct vmcb_control_area *control = control_of(vcpu);

	if (compat_pause_in_guest(vcpu->kvm) && !unspin_force_pause_intercept)
		return UNSPIN_CHECK_NONE;
	if (!control || !PAGE_ALIGNED(control)) {
		*why = "vcpu_svm.vmcb01 is not where BTF says";
		return UNSPIN_CHECK_BROKEN;
	}
	/* KVM always sets these for such a VM. Otherwise this is no VMCB, or it has no filter. */
	if (!unspin_force_pause_intercept &&
	    !(control->intercepts[INTERCEPT_PAUSE / 32] & BIT(INTERCEPT_PAUSE % 32)))
		return UNSPIN_CHECK_NONE;
	return UNSPIN_CHECK_GOOD;
}

static u32 svm_get(struct kvm_vcpu *vcpu)
{
	return READ_ONCE(control_of(vcpu)->pause_filter_count) * cycles_per_pause;
}

static u32 svm_set(struct kvm_vcpu *vcpu, u32 window_cycles)
{
	struct vmcb_control_area *control = control_of(vcpu);
	u16 count = count_of(window_cycles);

	if (control->pause_filter_count != count) {
		control->pause_filter_count = count;
		control->clean &= ~CLEAN_INTERCEPTS;
	}
	return count * cycles_per_pause;
}

#ifdef UNSPIN_TEST
/* Emulators without a pause filter still honour the intercept. */
static void svm_force_pause(struct kvm_vcpu *vcpu, bool on)
{
	struct vmcb_control_area *control = control_of(vcpu);
	u32 *word = &control->intercepts[INTERCEPT_PAUSE / 32];
	u32 bit = BIT(INTERCEPT_PAUSE % 32);

	if (!(*word & bit) != on)
		return;
	if (on)
		compat_pause_not_in_guest(vcpu->kvm);	/* otherwise KVM warns about unexpected exits */
	*word ^= bit;
	control->clean &= ~CLEAN_INTERCEPTS;
}
#endif

/*
 * Only this side is atomic. KVM clears other clean bits of this word with plain instructions, and
 * losing one of those would be worse than losing this one.
 */
static void svm_restore_remote(struct kvm_vcpu *vcpu)
{
	struct vmcb_control_area *control = control_of(vcpu);

	if (!control)
		return;
	WRITE_ONCE(control->pause_filter_count, count_of(svm_ops.default_cycles));
	if (unspin_force_pause_intercept)
		clear_bit(INTERCEPT_PAUSE, (unsigned long *)control->intercepts);
	asm volatile(LOCK_PREFIX "andl %1, %0"
		     : "+m" (control->clean) : "ir" (~CLEAN_INTERCEPTS) : "cc", "memory");
}

static bool svm_where(struct kvm_vcpu *vcpu, struct unspin_where *where)
{
	const struct vmcb_control_area *control = control_of(vcpu);
	const struct vmcb_save_area *save;

	if (!control)
		return false;
	save = &container_of(control, struct vmcb, control)->save;
	where->address = save->rip;
	where->cpl = save->cpl;
	return true;
}

static struct unspin_window_ops svm_ops = {
	.name = "svm",
	.where = svm_where,
	.check = svm_check,
	.get = svm_get,
	.set = svm_set,
	.restore_remote = svm_restore_remote,
#ifdef UNSPIN_TEST
	.force_pause = svm_force_pause,
#endif
};

/* The least of several runs, because interrupts below the kernel only add cycles. */
static u32 pause_calibrate(void)
{
	u64 best = U64_MAX, start, spent;
	unsigned long flags;
	u32 run, i;

	for (run = 0; run < CALIBRATION_RUNS; run++) {
		local_irq_save(flags);
		start = rdtsc_ordered();
		for (i = 0; i < CALIBRATION_PAUSES; i++)
			cpu_relax();
		spent = rdtsc_ordered() - start;
		local_irq_restore(flags);
		best = min(best, spent);
	}
	return clamp_t(u64, best / CALIBRATION_PAUSES, 1, 10000);
}

static int offsets_find(u32 *vmcb_offset)
{
	struct unspin_btf_want want[] = { { .member = "vmcb" },
					  { .member = "vmcb01", .size = UNSPIN_BTF_STRUCT } };
	struct unspin_btf_want info[] = { { .member = "ptr" } };
	struct unspin_btf *btf = unspin_btf_open("kvm_amd");
	int err;

	if (IS_ERR(btf))
		return PTR_ERR(btf);
	err = unspin_btf_members(btf, "vcpu_svm", want, ARRAY_SIZE(want)) ?:
	      unspin_btf_members(btf, "kvm_vmcb_info", info, ARRAY_SIZE(info));
	unspin_btf_close(btf);
	*vmcb_offset = want[0].offset;
	vmcb01_offset = want[1].offset + info[0].offset;
	return err;
}

struct unspin_window_ops *unspin_window_svm_init(struct module *vendor, const char **why)
{
	const unsigned short *count = unspin_window_param(vendor, "pause_filter_count", &param_ops_ushort);
	u32 vmcb_offset;

	if (!count) {
		*why = "kvm_amd has no parameter pause_filter_count";
		return NULL;
	}
	if (!*count && !unspin_force_pause_intercept) {
		*why = "the processor has no pause filter, or pause_filter_count=0";
		return NULL;
	}
	if (offsets_find(&vmcb_offset)) {
		*why = "kvm_amd's type information does not describe vcpu_svm.vmcb01.ptr";
		return NULL;
	}
	if (vmcb_offset != sizeof(struct kvm_vcpu)) {
		*why = "vcpu_svm.vmcb does not follow struct kvm_vcpu of the headers built against";
		return NULL;
	}
	cycles_per_pause = pause_calibrate();
	svm_ops.default_cycles = (*count ?: 3000) * cycles_per_pause;
	return &svm_ops;
}

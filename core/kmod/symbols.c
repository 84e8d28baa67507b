// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kprobes.h>
#include <linux/module.h>
#include <asm/cpufeature.h>
#ifdef CONFIG_X86_KERNEL_IBT
#include <asm/ibt.h>
#endif

#include "state.h"
#include "symbols.h"

struct unspin_symbols unspin_symbols;

/* For a kprobe, the address of a function is behind its ENDBR64. */
#define ENDBR_BYTES 4

/* A kprobe that is never armed resolves a name (a filter by name is slow). */
static unsigned long function_address(const char *name)
{
	struct kprobe probe = { .symbol_name = name, .flags = KPROBE_FLAG_DISABLED };
	unsigned long address;

	if (register_kprobe(&probe))
		return 0;
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	return address;
}

#ifdef CONFIG_X86_KERNEL_IBT
/*
 * Turns an address that was looked up into one that may be called through a pointer, or logs an error.
 * For a kprobe a function begins behind its ENDBR64, but a processor with indirect branch tracking requires
 * the call to land on it. The kernel overwrites the ENDBR64 of functions that it never calls through a pointer.
 */
static int make_callable(unsigned long *address, const char *name)
{
	const u32 *at = (const u32 *)*address, *begin = at - 1;

	if (*at == gen_endbr())
		return 0;
	if (*begin == gen_endbr() ||
	    (*begin == gen_endbr_poison() && !cpu_feature_enabled(X86_FEATURE_IBT))) {
		*address = (unsigned long)begin;
		return 0;
	}
	pr_err("not loading: %s has %s (CONFIG_X86_KERNEL_IBT): it cannot be called by address\n",
	       name, *begin == gen_endbr_poison() ? "a sealed ENDBR64" : "no ENDBR64");
	return -ENOEXEC;
}
#else
static int make_callable(unsigned long *address, const char *name)
{
	return 0;
}
#endif

bool unspin_is_vm_release(const void *release)
{
	unsigned long address = (unsigned long)release;

	return address && (address == unspin_symbols.vm_release ||
			   address + ENDBR_BYTES == unspin_symbols.vm_release);
}

static const struct {
	const char *name;
	unsigned long *address;
	bool of_kernel;
	bool is_called;
} functions[] = {
	{ "kvm_vcpu_on_spin", &unspin_symbols.on_spin },
	{ "kvm_arch_vcpu_create", &unspin_symbols.vcpu_create },
	{ "kvm_arch_destroy_vm", &unspin_symbols.destroy_vm },
	{ "kvm_vm_release", &unspin_symbols.vm_release },
	{ "kvm_read_guest_virt", &unspin_symbols.read_guest, .is_called = true },
	{ "xfer_to_guest_mode_handle_work", &unspin_symbols.handle_work, .of_kernel = true },
};

static const struct {
	const char *name;
	struct tracepoint **tp;
} tracepoints[] = {
	{ "sched_switch", &unspin_symbols.sched_switch },	/* these two are the kernel's, the others kvm's */
	{ "sched_wakeup", &unspin_symbols.sched_wakeup },
	{ "kvm_entry", &unspin_symbols.kvm_entry },
	{ "kvm_hypercall", &unspin_symbols.kvm_hypercall },
};

static void tracepoint_note(struct tracepoint *tp, void *unused)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(tracepoints); i++)
		if (!strcmp(tp->name, tracepoints[i].name))
			*tracepoints[i].tp = tp;
}

/* Called at once for every module that has tracepoints, kvm.ko among them. */
static int tracepoints_notify(struct notifier_block *nb, unsigned long state, void *data)
{
	struct tp_module *tp_mod = data;
	int i;

	if (state != MODULE_STATE_COMING || strcmp(tp_mod->mod->name, "kvm"))
		return NOTIFY_DONE;
	unspin_symbols.kvm = tp_mod->mod;
	for (i = 0; i < tp_mod->mod->num_tracepoints; i++)
		tracepoint_note(tracepoint_ptr_deref(&tp_mod->mod->tracepoints_ptrs[i]), NULL);
	return NOTIFY_OK;
}

static int missing(const char *what, const char *of)
{
	pr_err("not loading: cannot find %s in %s\n", what, of);
	return -ENOENT;
}

int unspin_symbols_init(void)
{
	static struct notifier_block nb = { .notifier_call = tracepoints_notify };
	u32 i;
	int err;

	for_each_kernel_tracepoint(tracepoint_note, NULL);
	err = register_tracepoint_module_notifier(&nb);
	if (err)
		return err;
	unregister_tracepoint_module_notifier(&nb);
	if (!unspin_symbols.kvm)
		return missing("kvm", "the modules with tracepoints");
	for (i = 0; i < ARRAY_SIZE(tracepoints); i++)
		if (!*tracepoints[i].tp)
			return missing(tracepoints[i].name, "the tracepoints");
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		*functions[i].address = function_address(functions[i].name);
		if (functions[i].of_kernel ? !*functions[i].address :
		    !within_module_core(*functions[i].address, unspin_symbols.kvm))
			return missing(functions[i].name, functions[i].of_kernel ? "the kernel" : "kvm");
		if (functions[i].is_called && make_callable(functions[i].address, functions[i].name))
			return -ENOEXEC;
	}
	return 0;
}

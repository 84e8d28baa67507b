// SPDX-License-Identifier: GPL-2.0-only
/*
 * Falls back to KVM's own behaviour.
 */
#include "fail_open.h"

atomic64_t unspin_fail_open_total = ATOMIC64_INIT(0);

void unspin_fail_open_part(struct unspin_vm *vm, const char *what)
{
	atomic64_inc(&unspin_fail_open_total);
	atomic64_inc(&vm->fail_open_events);
	pr_warn_ratelimited("VM %d-%u: %s\n", vm->pid, vm->number, what);
}

void unspin_fail_open(struct unspin_vm *vm, const char *why)
{
	atomic64_inc(&unspin_fail_open_total);
	if (!vm) {
		pr_warn_ratelimited("falling back to KVM's own behaviour: %s\n", why);
		return;
	}
	vm->fail_open = 1;
	atomic64_inc(&vm->fail_open_events);
	pr_warn_ratelimited("VM %d-%u falls back to KVM's own behaviour: %s\n", vm->pid, vm->number, why);
}

// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "asym.c"
#include "program.h"

#define VCPUS 8
#define CORES 4

struct {
	struct asym_vcpu vcpus[VCPUS];
	struct asym_core cores[CORES];
	struct asym_params params;
	pol_u64 vm_ns, switch_ns;
	pol_u32 vcpu, core, moved, reserved;
	int wrong;
} io;

PROGRAM(init)
{
	io.wrong = asym_params_check(&io.params);
	asym_vcpu_init(&io.vcpus[io.vcpu & (VCPUS - 1)], &io.params, io.core);
	return 0;
}

PROGRAM(latency)
{
	asym_latency(io.vcpus, VCPUS, &io.params);
	return 0;
}

PROGRAM(allocate)
{
	asym_allocate(io.vcpus, VCPUS, &io.params, io.vm_ns, io.switch_ns);
	return 0;
}

PROGRAM(resolve_time)
{
	io.moved = asym_resolve_time(io.vcpus, VCPUS, io.cores, CORES, &io.params);
	return 0;
}

PROGRAM(resolve_urgency)
{
	io.moved = asym_resolve_urgency(io.vcpus, VCPUS, io.cores, CORES, &io.params);
	return 0;
}

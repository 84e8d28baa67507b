// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "credit.c"
#include "program.h"

#define VCPUS 4
#define VMS 2
#define PCPUS 2

struct {
	struct credit_vcpu vcpus[VCPUS];
	struct credit_vm vms[VMS];
	struct credit_pcpu pcpus[PCPUS];
	struct credit_params params;
	struct credit_decision decision;
	pol_u64 ran_us;
	pol_u32 pcpu, last, moved, vcpu;
	pol_u8 may_raise;
	int wrong;
} io;

/* The verifier follows pointers in memory on the stack only. */
#define HOST { io.vcpus, io.vms, io.pcpus, &io.params, VCPUS, VMS, PCPUS, 0 }

PROGRAM(assign)
{
	struct credit_host host = HOST;

	io.moved = credit_assign(&host);
	return 0;
}

PROGRAM(pick)
{
	struct credit_host host = HOST;

	credit_pick(&host, io.pcpu, io.last, io.may_raise, &io.decision);
	return 0;
}

PROGRAM(charge)
{
	io.wrong = credit_params_check(&io.params);
	credit_charge(&io.vcpus[io.vcpu & (VCPUS - 1)], &io.params, io.ran_us);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "gang_account.c"
#include "program.h"

#define VMS 4
#define VCPUS 8
#define CPUS 4

struct {
	struct gang_vm vms[VMS];
	struct gang_vcpu vcpus[VCPUS];
	struct gang_cpu cpus[CPUS];
	pol_u32 order[VMS];
	pol_u64 free[GANG_WORDS(CPUS)];
	struct gang_pool pools[GANG_POOLS_MAX];
	pol_u32 turn;
	pol_u64 length;
} io;

/* The verifier follows pointers in memory on the stack only. */
#define HOST { io.vms, io.vcpus, io.cpus, io.order, io.free, io.pools, VMS, VCPUS, CPUS, io.turn, 0, 0 }

PROGRAM(account)
{
	struct gang_host host = HOST;

	gang_account(&host, io.length);
	return 0;
}

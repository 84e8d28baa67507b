/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_WEIGHT_H
#define UNSPIN_WEIGHT_H

#include "state.h"

/* The weight of a vCPU whose cgroup is unknown: weight 100, nice 0. */
#define UNSPIN_WEIGHT_DEFAULT 8192u

struct unspin_btf;

/* Finds where this kernel keeps the weights of cgroups. Call once, while the module loads. */
void unspin_weights_learn(const struct unspin_btf *btf);

/*
 * Allocates room for the cgroups of this many vCPUs, or frees it. 0 or -ENOMEM. The planner of
 * turns must not run.
 */
int unspin_weights_begin(u32 vcpus_max);
void unspin_weights_end(void);

/*
 * The planner: reads the weights of these vCPUs into their slots. A VM's vCPUs follow each other.
 * Takes one step for each vCPU and each cgroup above it. Under RCU.
 */
void unspin_weights_read(struct unspin_slot *const *slots, u32 count);

#endif

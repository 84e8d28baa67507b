/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_WEIGHT_H
#define UNSPIN_WEIGHT_H

#include "state.h"

/* What a vCPU counts for where nothing is known of its cgroup: weight 100, nice 0. */
#define UNSPIN_WEIGHT_DEFAULT 8192u

struct unspin_btf;

/* Learns where this kernel keeps weights of cgroups, once, while the module loads. */
void unspin_weights_learn(const struct unspin_btf *btf);
/* Reads the weights of all VMs that are in turns, into their slots. unspin_mutex held. */
void unspin_weights_read(void);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_GUEST_REPORT_H
#define UNSPIN_GUEST_REPORT_H

#include "state.h"

/* The guest of a VM that is heard made the hypercall; own thread, preemption off. */
void unspin_guest_report(struct unspin_slot *slot, unsigned long level, unsigned long us);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef UNSPIN_GUEST_REPORT_H
#define UNSPIN_GUEST_REPORT_H

#include "state.h"

/* Handles the hypercall of a guest whose reports count; own thread, preemption off. */
void unspin_guest_report(struct unspin_slot *slot, unsigned long level, unsigned long us);

#endif

// SPDX-License-Identifier: MIT OR Apache-2.0
/* The constants of core/locks/, from the headers themselves, for the model of these locks. */

#include "preemptable.h"
#include "pv_preemptable.h"
#include "pv_ticket.h"
#include "oticket.h"
#include "pv_queued.h"
#include "lease.h"

const unsigned long long unspin_lock_tau_ns = UNSPIN_PREEMPTABLE_TAU_NS;
const unsigned long long unspin_lock_tau_code_ns = UNSPIN_PREEMPTABLE_TAU_CODE_NS;
const unsigned long long unspin_lock_pv_preemptable_halt_ns = UNSPIN_PV_PREEMPTABLE_HALT_NS;
const unsigned long long unspin_lock_pv_ticket_spin_ns = UNSPIN_PV_TICKET_SPIN_NS;
const unsigned long long unspin_lock_pv_ticket_spin_max_ns = UNSPIN_PV_TICKET_SPIN_MAX_NS;
const unsigned int unspin_lock_oticket_wakeup_ncpu = UNSPIN_OTICKET_WAKEUP_NCPU;
const unsigned int unspin_lock_iticket_doublings_max = UNSPIN_ITICKET_DOUBLINGS_MAX;
const unsigned long long unspin_lock_pv_queued_spin_ns = UNSPIN_PV_QUEUED_SPIN_NS;
const unsigned long long unspin_lock_lease_ns = UNSPIN_LEASE_NS;
const unsigned long long unspin_lock_lease_watch_ns = UNSPIN_LEASE_WATCH_NS;
const unsigned int unspin_lock_lease_busy_uses = UNSPIN_LEASE_BUSY_USES;
const unsigned long long unspin_lock_lease_wish_ns = UNSPIN_LEASE_WISH_NS;
/* VEE'13 section 3: a wait of more iterations than these is a stall. */
const unsigned long long unspin_lock_stall_ns = UNSPIN_LOCK_ITERATIONS_NS(2048);

unsigned long long unspin_lock_oticket_spin_ns(unsigned int ahead)
{
	return unspin_oticket_spin_ns(ahead);
}

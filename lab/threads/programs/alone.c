// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Rules of single locks, each shown by one thread (see hooked_env.h). Prints those that are broken. */
#include <string.h>

#define UNSPIN_LOCK_ENV_HEADER "hooked_env.h"
#include "lease.h"
#include "preemptable.h"
#include "pv_preemptable.h"
#include "pv_queued.h"
#include "tas_nap.h"
#include "expect.h"

static struct unspin_pv_queued_lock queued;
static bool stolen;

static void release_and_steal(void)
{
	unspin_pv_queued_unlock(&queued);
	stolen = unspin_pv_queued_trylock(&queued) || unspin_pv_queued_steal(&queued);
	if (stolen)
		unspin_pv_queued_unlock(&queued);
}

static void release_when_the_time_is_over(void)
{
	unspin_pv_queued_unlock(&queued);
	now_us += 1000000;
}

static void look_at_the_clock_again(void)
{
	on_clock = release_when_the_time_is_over;
}

static void pv_queued(void)
{
	unspin_pv_queued_lock(&queued);
	on_turn = release_and_steal;
	unspin_pv_queued_lock(&queued);
	expect(!stolen, "pv_queued: a newcomer takes the lock although the head spins for it");

	/* The budget's first reading of the clock is at its start. */
	on_clock = look_at_the_clock_again;
	unspin_pv_queued_lock(&queued);
	wakes = 0;
	unspin_pv_queued_unlock(&queued);
	expect(!wakes, "pv_queued: a head that got the lock by itself is kicked");
	expect(!unspin_pv_queued_is_locked(&queued), "pv_queued: it is not free");
}

/* Threads that asked and ended, as many as bring the numbers round. */
#define ENDED 0x7fffu

static void preemptable(void)
{
	struct unspin_preemptable_lock lock = UNSPIN_PREEMPTABLE_LOCK_INIT;
	struct unspin_pv_preemptable_lock pv = UNSPIN_PV_PREEMPTABLE_LOCK_INIT;

	unspin_preemptable_lock(&lock);
	atomic_fetch_add(&lock.both, ENDED * UNSPIN_PREEMPTABLE_NEXT_ONE);
	expect(!unspin_preemptable_trylock(&lock), "preemptable: trylock takes a held lock");
	expect(unspin_preemptable_is_locked(&lock), "preemptable: a held lock seems free");
	unspin_pv_preemptable_lock(&pv);
	atomic_fetch_add(&pv.both, ENDED * UNSPIN_PV_PREEMPTABLE_NEXT_ONE);
	expect(!unspin_pv_preemptable_trylock(&pv), "pv_preemptable: trylock takes a held lock");
	expect(unspin_pv_preemptable_is_locked(&pv), "pv_preemptable: a held lock seems free");
}

static struct unspin_lease_lock busy;
static unsigned int naps;

/* The lock is taken once per us. The first nap ends at once. */
static void nap(void)
{
	if (naps++) {
		now_us += 100;
		atomic_fetch_add(&busy.uses, 2 * 100);
	}
	on_halt = nap;
}

static void lease(void)
{
	unsigned long long began_us = now_us;

	on_halt = nap;
	unspin_lease_sit_out(&busy, 0);
	on_halt = 0;
	expect(now_us - began_us >= UNSPIN_LEASE_NS / 1000, "lease: a short nap ends the lease");
}

static struct unspin_tas_nap_lock napping;

static void let_50_us_pass(void)
{
	now_us += 50;
	on_halt = let_50_us_pass;
}

static void release_napping(void)
{
	unspin_tas_nap_unlock(&napping);
}

static void release_busy(void)
{
	unspin_lease_unlock(&busy);
}

static void release_busy_after_a_lease(void)
{
	now_us += UNSPIN_LEASE_NS / 1000;
	on_halt = release_busy;
}

static void timed(void)
{
	unsigned long long began_us = now_us;

	memset(&busy, 0, sizeof(busy));
	expect(unspin_lease_lock_for(&busy, 0), "lease: a free lock is not taken in no time");
	expect(unspin_tas_nap_lock_for(&napping, 0), "tas_nap: a free lock is not taken in no time");
	on_halt = let_50_us_pass;
	expect(!unspin_lease_lock_for(&busy, 1000000), "lease: a held lock is taken");
	expect(now_us - began_us >= 1000, "lease: it gives up too early");
	began_us = now_us;
	expect(!unspin_tas_nap_lock_for(&napping, 1000000), "tas_nap: a held lock is taken");
	expect(now_us - began_us >= 1000, "tas_nap: it gives up too early");
	on_halt = release_busy;
	expect(unspin_lease_lock_for(&busy, 1000000), "lease: a lock that gets free is not taken");
	on_halt = release_napping;
	expect(unspin_tas_nap_lock_for(&napping, 1000000), "tas_nap: a lock that gets free is not taken");
}

static void timed_beside_an_heir(void)
{
	memset(&busy, 0, sizeof(busy));
	/* The heir holds the lock, and nobody is in line behind it. */
	atomic_store(&busy.uses, 1);
	atomic_store(&busy.wish, UNSPIN_LEASE_PASSING);
	atomic_store(&busy.line, UNSPIN_LEASE_NEXT_ONE);
	wakes = 0;
	on_halt = release_busy_after_a_lease;
	expect(unspin_lease_lock_for(&busy, 1000000), "lease: a lock that the heir releases is not taken");
	expect(wakes == 1, "lease: the release of an heir wakes no thread with a limit");
	expect(atomic_load(&busy.line) == UNSPIN_LEASE_NEXT_ONE + 1, "lease: an heir's release does not end its turn");
	unspin_lease_unlock(&busy);
	expect(unspin_lease_trylock(&busy), "lease: a thread that got the lock leaves its wish");
}

int main(void)
{
	pv_queued();
	preemptable();
	lease();
	timed();
	timed_beside_an_heir();
	return failures != 0;
}

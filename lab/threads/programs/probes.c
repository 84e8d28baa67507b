// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * ROUNDS times a thread finds a lock taken and halts, and is woken. So `contended` fires as often, the others at
 * least as often. The probes are the program's own with UNSPIN_LOCK_USDT, and those of the library of
 * core/locks/interpose with PRELOADED; the library then has UNSPIN_LOCK=pv_preemptable.
 */
#ifdef PRELOADED
#include "pv_preemptable.h"
#else
#include "pv_ticket.h"
#endif
#include <pthread.h>
#include <stddef.h>

#ifdef PRELOADED
static pthread_spinlock_t lock;
#define MAKE() pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE)
#define LOCK() pthread_spin_lock(&lock)
#define UNLOCK() pthread_spin_unlock(&lock)
#define HALTED() (lock & UNSPIN_PV_PREEMPTABLE_HALTED)
#else
static struct unspin_pv_ticket_lock lock = UNSPIN_PV_TICKET_LOCK_INIT;
#define MAKE() 0
#define LOCK() unspin_pv_ticket_lock(&lock)
#define UNLOCK() unspin_pv_ticket_unlock(&lock)
#define HALTED() (atomic_load(&lock.both) & UNSPIN_PV_TICKET_HALTED)
#endif

static void *take(void *unused)
{
	LOCK();
	UNLOCK();
	return unused;
}

int main(void)
{
	int round;

	if (MAKE())
		return 1;
	for (round = 0; round < ROUNDS; round++) {
		pthread_t waiter;

		LOCK();
		if (pthread_create(&waiter, NULL, take, NULL))
			return 1;
		while (!HALTED())
			unspin_lock_yield();
		UNLOCK();
		pthread_join(waiter, NULL);
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * With UNSPIN_LOCK_USDT. ROUNDS times a thread finds a lock taken and halts, and is woken. So `contended` and `wake`
 * fire as often, `wait` and `waited` at least as often.
 */
#include "pv_ticket.h"
#include <pthread.h>
#include <stddef.h>

static struct unspin_pv_ticket_lock lock = UNSPIN_PV_TICKET_LOCK_INIT;

static void *take(void *unused)
{
	unspin_pv_ticket_lock(&lock);
	unspin_pv_ticket_unlock(&lock);
	return unused;
}

int main(void)
{
	int round;

	for (round = 0; round < ROUNDS; round++) {
		pthread_t waiter;

		unspin_pv_ticket_lock(&lock);
		if (pthread_create(&waiter, NULL, take, NULL))
			return 1;
		while (!(atomic_load(&lock.both) & UNSPIN_PV_TICKET_HALTED))
			unspin_lock_yield();
		unspin_pv_ticket_unlock(&lock);
		pthread_join(waiter, NULL);
	}
	return 0;
}

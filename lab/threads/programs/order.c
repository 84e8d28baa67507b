// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The fairness rules of VEE 2013, section 4.3, for the preemptable locks, played step by step with
 * simulated time. Built with -DLOCK(op)=..., LOCK_HEADER and -DNUMBERS(word)=..., which gives the
 * requests made, modulo 2^15.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNSPIN_LOCK_ENV_HEADER "scripted_env.h"
#include LOCK_HEADER

#define WAITERS_MAX 8
#define TAU_US 2

static struct LOCK(lock) lock;
static struct unspin_preemptable_class class;
static int failures;
static const char *playing;

struct waiter {
	pthread_t thread;
	struct scripted_vcpu vcpu;
	atomic_bool waits;
	atomic_bool may_release;
	atomic_bool holds;
	atomic_bool gone;
};

static struct waiter waiters[WAITERS_MAX];

/* Waits until every running waiter has seen the lock and the clock as they are now. */
static void settle(void)
{
	int i;

	for (i = 0; i < WAITERS_MAX; i++) {
		struct waiter *w = &waiters[i];
		unsigned long turns = atomic_load(&w->vcpu.turns);

		while (atomic_load(&w->waits) && !atomic_load(&w->vcpu.preempted) &&
		       atomic_load(&w->vcpu.turns) < turns + 2 * UNSPIN_PREEMPTABLE_TURNS_A_LOOK)
			sched_yield();
	}
}

static void expect(bool is, const char *what)
{
	if (is)
		return;
	printf("%s: %s\n", playing, what);
	failures++;
}

static void *wait_once(void *argument)
{
	struct waiter *self = argument;

	scripted_self = &self->vcpu;
	LOCK(lock_class)(&lock, &class);
	atomic_store(&self->holds, true);
	atomic_store(&self->waits, false);
	while (!atomic_load(&self->may_release))
		sched_yield();
	atomic_store(&self->holds, false);
	LOCK(unlock)(&lock);
	atomic_store(&self->gone, true);
	return NULL;
}

static unsigned int requests(void)
{
	return NUMBERS(*(volatile unsigned int *)&lock) & 0x7fff;
}

/* Starts waiter @i and lets it draw its number before it returns. */
static void arrive(int i)
{
	unsigned int before = requests();

	memset(&waiters[i], 0, sizeof(waiters[i]));
	atomic_store(&waiters[i].waits, true);
	pthread_create(&waiters[i].thread, NULL, wait_once, &waiters[i]);
	while (requests() == before)
		sched_yield();
	settle();
}

static bool holds(int i)
{
	return atomic_load(&waiters[i].holds);
}

static void preempt(int i)
{
	atomic_store(&waiters[i].vcpu.stands, false);
	atomic_store(&waiters[i].vcpu.preempted, true);
	while (!atomic_load(&waiters[i].vcpu.stands))
		sched_yield();
}

static void reschedule(int i)
{
	atomic_store(&waiters[i].vcpu.preempted, false);
	settle();
}

static void release(int i)
{
	if (!holds(i)) {
		printf("%s: waiter %d should hold the lock\n", playing, i);
		exit(1);
	}
	atomic_store(&waiters[i].may_release, true);
	while (!atomic_load(&waiters[i].gone))
		sched_yield();
	pthread_join(waiters[i].thread, NULL);
	settle();
}

static void pass_us(unsigned int us)
{
	atomic_fetch_add(&scripted_now_us, us);
	settle();
}

static void begin(const char *name, unsigned long long tau_us)
{
	playing = name;
	atomic_store(&class.tau_ns, tau_us * 1000);
	expect(!LOCK(is_locked)(&lock), "the lock is free before");
	expect(LOCK(trylock)(&lock), "a free lock can be tried");
	LOCK(unlock)(&lock);
}

/* No reordering among waiters that have not timed out. */
static void play_in_order(void)
{
	int i;

	begin("in order", TAU_US);
	for (i = 0; i < 4; i++)
		arrive(i);
	for (i = 0; i < 4; i++) {
		expect(holds(i), "the lock goes round in the order of the requests");
		/*
		 * The lock is held for a long time, but n changes each time before n * tau is over.
		 */
		pass_us(TAU_US - 1);
		release(i);
	}
}

/* Figure 1: N1 holds, N2 is preempted, N3 passes it by, N2 returns and precedes N4. */
static void play_figure_1(void)
{
	begin("figure 1", TAU_US);
	arrive(0);
	arrive(1);
	arrive(2);
	arrive(3);
	preempt(1);
	release(0);
	expect(!holds(2), "N3 may not pass N2 before its time is over");
	pass_us(TAU_US);
	expect(holds(2), "N3 passes N2 by after tau");
	expect(!holds(3), "N4 waits for longer than N3");
	reschedule(1);
	expect(!holds(1), "N2 waits while N3 holds the lock");
	release(2);
	expect(holds(1), "N2, rescheduled, has the lock before N4, which has not timed out");
	release(1);
	expect(holds(3), "N4 is the last");
	release(3);
}

/* While a waiter is preempted, every later acquisition passes it by, each after tau. */
static void play_every_later_one(void)
{
	int i;

	begin("every later one", TAU_US);
	arrive(0);
	arrive(1);
	preempt(1);
	release(0);
	for (i = 2; i < 6; i++) {
		arrive(i);
		expect(!holds(i), "not before tau");
		expect(!LOCK(trylock)(&lock), "trylock does not pass waiters by");
		pass_us(TAU_US);
		expect(holds(i), "after tau");
		release(i);
	}
	reschedule(1);
	expect(holds(1), "the preempted waiter competes at once when it runs again");
	release(1);
}

/* n * tau, from the time n last changed. */
static void play_proportional(void)
{
	begin("proportional", TAU_US);
	arrive(0);
	arrive(1);
	arrive(2);
	arrive(3);
	preempt(1);
	preempt(2);
	release(0);
	pass_us(2 * TAU_US - 1);
	expect(!holds(3), "with 2 preempted waiters before it N4 waits 2 tau");
	pass_us(1);
	expect(holds(3), "and no longer");
	reschedule(1);
	reschedule(2);
	release(3);
	expect(holds(1) != holds(2), "one of the two that were preempted is next");
	release(holds(1) ? 1 : 2);
	expect(holds(1) != holds(2), "then the other");
	release(holds(1) ? 1 : 2);
}

/* The time before the first change of n counts for n as drawn. */
static void play_from_the_draw(void)
{
	begin("from the draw", TAU_US);
	arrive(0);
	arrive(1);
	arrive(2);
	preempt(1);
	pass_us(2 * TAU_US - 1);
	release(0);
	expect(!holds(2), "N3 had not timed out when n changed");
	pass_us(TAU_US);
	expect(holds(2), "N3 passes N2 by");
	reschedule(1);
	release(2);
	release(1);
}

/* tau = 0 gives a test-and-set lock, infinite tau a ticket lock (section 4.2). */
static void play_extremes(void)
{
	begin("tau 0", 0);
	arrive(0);
	arrive(1);
	arrive(2);
	preempt(1);
	release(0);
	expect(holds(2), "nobody waits for its turn");
	release(2);
	reschedule(1);
	release(1);

	begin("tau for ever", 1);
	atomic_store(&class.tau_ns, UNSPIN_PREEMPTABLE_TAU_NS_FOREVER);
	arrive(0);
	arrive(1);
	arrive(2);
	preempt(1);
	release(0);
	pass_us(1000000000);
	expect(!holds(2), "nobody passes a preempted waiter by");
	reschedule(1);
	release(1);
	expect(holds(2), "it was its turn");
	release(2);
}

int main(void)
{
	int turn;

	alarm(600);
	/*
	 * The counters continue from play to play. In the second turn they start close to their
	 * end, and wrap.
	 */
	for (turn = 0; turn < 2; turn++) {
		play_in_order();
		play_figure_1();
		play_every_later_one();
		play_proportional();
		play_from_the_draw();
		play_extremes();
		for (unsigned int i = 0; !turn && requests() < 0x7ff0; i++) {
			LOCK(lock)(&lock);
			LOCK(unlock)(&lock);
		}
	}
	return failures != 0;
}

// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Runs a lock's clients in orders drawn from a seed, so that each run is the same on every
 * computer, busy or not (see played_env.h). See client.h for the build.
 *
 * usage: played SEEDS [START]
 *
 * Each seed gives another order. START is the initial value of the lock's counters. The program
 * prints the seed and exits with 1 if two clients hold the lock at once, if all halt and none can
 * wake them, or if no client gets the lock within a bounded number of steps.
 */
#include <ucontext.h>

#define UNSPIN_LOCK_ENV_HEADER "played_env.h"
#include "client.h"

#define CLIENTS 5
#define ROUNDS 12
#define STACK_BYTES (64 * 1024)
/* One acquisition takes some hundred steps of all clients. */
#define STEPS_MAX 200000

struct client {
	ucontext_t at;
	bool halts, gone;
	const atomic_uint *word;
	unsigned int key;
	unsigned long long until_ticks;
};

static struct LOCK(lock) lock;
static struct client clients[CLIENTS];
static char stacks[CLIENTS][STACK_BYTES] __attribute__((aligned(64)));
static ucontext_t outside;
static int self;
static unsigned long long drawn;
static unsigned long seed, steps, made;
static int holders;

static void fail(const char *what)
{
	printf("seed %lu, after %lu acquisitions: %s\n", seed, made, what);
	exit(1);
}

/* Random numbers by Marsaglia's xorshift. */
static unsigned int draw(unsigned int below)
{
	drawn ^= drawn << 13;
	drawn ^= drawn >> 7;
	drawn ^= drawn << 17;
	return (unsigned int)(drawn >> 32) % below;
}

static bool is_ready(struct client *client)
{
	if (client->halts && client->until_ticks <= played_ticks)
		client->halts = false;
	return !client->halts && !client->gone;
}

/* All clients halt: advances the time to the first time limit. Returns whether there was one. */
static bool pass_time(void)
{
	unsigned long long first = PLAYED_FOREVER;
	int i;

	for (i = 0; i < CLIENTS; i++)
		if (clients[i].halts && clients[i].until_ticks < first)
			first = clients[i].until_ticks;
	if (first == PLAYED_FOREVER)
		return false;
	played_ticks = first;
	return true;
}

/* A client that can continue; -1: all have ended. */
static int next(void)
{
	int ready[CLIENTS], count, gone, i;

	do {
		for (i = count = gone = 0; i < CLIENTS; i++) {
			if (is_ready(&clients[i]))
				ready[count++] = i;
			gone += clients[i].gone;
		}
		if (count)
			return ready[draw((unsigned int)count)];
		if (gone == CLIENTS)
			return -1;
	} while (pass_time());
	fail("all halt, and nobody is left to wake them");
	return -1;
}

static void switch_to(int other)
{
	int before = self;

	if (other == before)
		return;
	self = other;
	swapcontext(&clients[before].at, other < 0 ? &outside : &clients[other].at);
}

void played_step(void)
{
	/* Steps before and after a play belong to no client. */
	if (self < 0)
		return;
	if (++steps > STEPS_MAX)
		fail("nobody gets the lock");
	/* The running client continues for some steps, as on a CPU. */
	if (!draw(3))
		switch_to(next());
}

void played_halt(atomic_uint *word, unsigned int seen, unsigned int key, unsigned long long until_ticks)
{
	struct client *client = &clients[self];

	played_step();
	if (atomic_load(word) != seen)
		return;
	client->word = word;
	client->key = key;
	client->until_ticks = until_ticks;
	client->halts = true;
	switch_to(next());
}

/* Uses only the word's address, because its memory may be freed. */
void played_wake(atomic_uint *word, unsigned int key, bool all)
{
	int i;

	played_step();
	for (i = 0; i < CLIENTS; i++)
		if (clients[i].halts && clients[i].word == word && (all || clients[i].key == key))
			clients[i].halts = false;
}

static void take(void)
{
	DECLARE_NODE;

	/* A quarter of the acquisitions try first, so that both entry points are tested. */
	if (draw(4) || !LOCK(trylock)(&lock NODE))
		LOCK(lock)(&lock NODE);
	if (holders++)
		fail("two hold the lock");
	made++;
	steps = 0;
	played_step();
	if (!LOCK(is_locked)(&lock))
		fail("is_locked denies a holder");
	/* Now and then, hold long enough for the others to time out and halt. */
	if (!draw(4)) {
		unsigned int turns = draw(200);

		while (turns--)
			played_step();
	}
	holders--;
	LOCK(unlock)(&lock NODE);
}

static void run(void)
{
	int round;

	for (round = 0; round < ROUNDS; round++)
		take();
	clients[self].gone = true;
	switch_to(next());
}

static void play(unsigned int start)
{
	int i;

	start_lock(&lock, start);
	memset(clients, 0, sizeof(clients));
	drawn = (seed + 1) * 0x9e3779b97f4a7c15ULL;
	steps = made = 0;
	for (i = 0; i < CLIENTS; i++) {
		getcontext(&clients[i].at);
		clients[i].at.uc_stack.ss_sp = stacks[i];
		clients[i].at.uc_stack.ss_size = STACK_BYTES;
		makecontext(&clients[i].at, run, 0);
	}
	self = 0;
	swapcontext(&outside, &clients[0].at);
	if (made != CLIENTS * ROUNDS || LOCK(is_locked)(&lock))
		fail("the lock is not free after all have released it");
}

int main(int argc, char **argv)
{
	unsigned long seeds = argc > 1 ? number(argv[1]) : 100;

	self = -1;
	for (seed = 0; seed < seeds; seed++)
		play(argc > 2 ? (unsigned int)number(argv[2]) : 0);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the checked threads do with a lock: LOCK_HEADER, LOCK(name) for its functions, TIMED if it has
 * lock_for(), START(v) for a free one with counters at v. DOORWAY is the member whose first update gives a
 * thread its place in the line, CLOSED is model_closed, CLAIM model_claim.
 */
#include LOCK_HEADER

#ifndef WITH_NODE
#define NODE (void)0
#define NODE_ARG
#else
#define NODE struct LOCK(node) node
#define NODE_ARG , &node
#endif
#ifndef START
#define START(v) 0
#endif

static struct LOCK(lock) lock __attribute__((aligned(64)));
const void *const model_lock = &lock;
const unsigned int model_lock_bytes = sizeof(lock);
#ifdef DOORWAY
const int model_doorway = __builtin_offsetof(struct LOCK(lock), DOORWAY);
#else
const int model_doorway = -1;
#endif
#ifndef CLOSED
#define CLOSED 0
#endif
const unsigned int model_closed = CLOSED;
#ifndef CLAIM
#define CLAIM 0
#endif
const unsigned int model_claim = CLAIM;
unsigned int model_threads, model_rounds, model_tries, model_timed;
bool model_looks;

/* A free lock whose counters are at @v. */
void model_start(uint64_t v)
{
	uint64_t word = START(v);

	(void)v;
	__builtin_memcpy(&lock, &word, sizeof(lock) < sizeof(word) ? sizeof(lock) : sizeof(word));
}

/* Any limit does: the clock says when it is over. */
#define LIMIT_NS 1000

void model_thread(unsigned int index)
{
	unsigned int round;
	NODE;

	for (round = 0; round < model_rounds; round++) {
		unsigned int bit = 1u << (round * model_threads + index);
		bool got = true;

		says(MODEL_ASK, 0);
		if (model_tries & bit)
			got = LOCK(trylock)(&lock NODE_ARG);
#ifdef TIMED
		else if (model_timed & bit)
			got = LOCK(lock_for)(&lock, LIMIT_NS);
#endif
		else
			LOCK(lock)(&lock NODE_ARG);
		if (!got) {
			says(MODEL_GIVE_UP, 0);
			continue;
		}
		says(MODEL_ENTER, 0);
		if (model_looks && !LOCK(is_locked)(&lock))
			says(MODEL_FAIL, "is_locked_while_held");
		says(MODEL_LEAVE, 0);
		LOCK(unlock)(&lock NODE_ARG);
		says(MODEL_RELEASED, 0);
	}
	says(MODEL_END, 0);
}

/* Runs when all others have ended. */
void model_last_thread(void)
{
	NODE;

	says(MODEL_JOIN, 0);
	if (LOCK(is_locked)(&lock) || !LOCK(trylock)(&lock NODE_ARG))
		says(MODEL_FAIL, "free_at_the_end");
	LOCK(unlock)(&lock NODE_ARG);
	says(MODEL_END, 0);
}

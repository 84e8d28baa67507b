/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What a lock's code asks of the checker. Every request is one step of a thread. */
#ifndef UNSPIN_VERIFY_MODEL_H
#define UNSPIN_VERIFY_MODEL_H

#include <stdint.h>

enum model_order { MODEL_RELAXED = 0, MODEL_ACQUIRE = 1, MODEL_RELEASE = 2, MODEL_ACQ_REL = 3 };

enum model_kind {
	/* Of an atomic object. */
	MODEL_LOAD,
	MODEL_STORE,
	MODEL_ADD,
	MODEL_OR,
	MODEL_AND,
	MODEL_EXCHANGE,
	MODEL_CAS,
	/* Of the environment. */
	MODEL_WAIT,
	MODEL_WAKE,
	MODEL_CLOCK,
	MODEL_RATE,	/* of the clock; asked right after the time at which a budget begins */
	/* Of the client. */
	MODEL_ASK,	/* it calls lock(), trylock() or lock_for() */
	MODEL_ENTER,	/* it has the lock, and writes the data that the lock protects */
	MODEL_GIVE_UP,	/* trylock() or lock_for() failed */
	MODEL_LEAVE,	/* it is about to release the lock */
	MODEL_RELEASED,	/* unlock() has returned */
	MODEL_FAIL,	/* a check named by `file` does not hold */
	MODEL_JOIN,	/* waits for the end of all other threads */
	MODEL_END,
};

struct model_op {
	uint8_t kind, size, order, failure;	/* size: of the object, in bytes */
	uint8_t timed, unused[3];
	uint32_t line, key;
	const char *file;
	const void *word;
	uint64_t value, expected;
};

struct model_result {
	uint64_t value;	/* what was read */
	uint64_t done;	/* whether a compare-and-exchange wrote */
};

#ifdef __cplusplus
extern "C" {
#endif

struct model_result model_do(const struct model_op *op);

/* The client: how many threads take the lock, and how often each. */
extern unsigned int model_threads, model_rounds;
/* Bit r * model_threads + t: round r of thread t uses trylock(), or lock_for(). */
extern unsigned int model_tries, model_timed;
extern bool model_looks;	/* is_locked() is called while the lock is held */

extern const void *const model_lock;
extern const unsigned int model_lock_bytes;
/* Where in the lock the first update of a thread gives it its place in the line; -1: nowhere. */
extern const int model_doorway;
/* Bits of the lock's first word; while one is set, only threads in line may get the lock. */
extern const unsigned int model_closed;
/* Bits of it; while one is set, a thread outside the line gets the lock at most once. */
extern const unsigned int model_claim;
void model_start(uint64_t counters);
void model_thread(unsigned int index);
void model_last_thread(void);

#ifdef __cplusplus
}
#else
/* One step that has no object. */
static inline void says(uint8_t kind, const char *check)
{
	struct model_op op = { .kind = kind, .file = check };

	model_do(&op);
}
#endif

#endif

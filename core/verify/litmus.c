/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Litmus tests of the checker's memory: small programs that ask whether one outcome can be. The counters'
 * start is the number of the program. If a search breaks the check `reached`, the outcome can be.
 */
#include <stdatomic.h>

#define W(object, value, order) atomic_store_explicit(&(object), value, memory_order_##order)
#define R(object, order) atomic_load_explicit(&(object), memory_order_##order)
#define BOTH(one, then) (first = (one), 10 * first + (then))
#define ADD(object, value, order) atomic_fetch_add_explicit(&(object), value, memory_order_##order)

const void *const model_lock;
const unsigned int model_lock_bytes, model_closed, model_claim;
const int model_doorway = -1;
unsigned int model_threads, model_rounds, model_tries, model_timed;
bool model_looks;

static atomic_uint x, y, saw[4];
static union {
	atomic_uint whole;
	struct {
		atomic_ushort low, high;
	};
} word;
static unsigned int program;

void model_start(uint64_t number)
{
	program = number;
}

/* What thread @t of each program does; the result is what it saw. */
static unsigned int run(unsigned int t)
{
	unsigned int first = 0;

	switch (program) {
	case 0:		/* message passing */
		return t ? BOTH(R(y, acquire), R(x, relaxed)) : (W(x, 1, relaxed), W(y, 1, release), 0);
	case 1:		/* without acquire */
		return t ? BOTH(R(y, relaxed), R(x, relaxed)) : (W(x, 1, relaxed), W(y, 1, release), 0);
	case 2:		/* without release */
		return t ? BOTH(R(y, acquire), R(x, relaxed)) : (W(x, 1, relaxed), W(y, 1, relaxed), 0);
	case 3:		/* store buffering */
		return t ? (W(y, 1, release), R(x, acquire)) : (W(x, 1, release), R(y, acquire));
	case 4:		/* load buffering */
		first = t ? R(y, relaxed) : R(x, relaxed);
		W(*(t ? &x : &y), 1, relaxed);
		return first;
	case 5:		/* two writers of two words, in opposite order */
		t ? (W(y, 1, relaxed), W(x, 2, relaxed)) : (W(x, 1, relaxed), W(y, 2, relaxed));
		return 0;
	case 6:		/* two reads of one word */
		return t ? BOTH(R(x, relaxed), R(x, relaxed)) : (W(x, 1, relaxed), 0);
	case 7:		/* two updates */
		return ADD(x, 1, relaxed);
	case 8:		/* a release that an update passes on */
		return t == 0 ? (W(x, 1, relaxed), W(y, 1, release), 0) :
		       t == 1 ? ADD(y, 1, relaxed) : BOTH(R(y, acquire), R(x, relaxed));
	case 9:		/* a release that a store ends */
		return t == 0 ? (W(x, 1, relaxed), W(y, 1, release), 0) :
		       t == 1 ? (R(y, relaxed) == 1 ? W(y, 2, relaxed) : (void)0, 0) :
				BOTH(R(y, acquire), R(x, relaxed));
	case 10:	/* two writers, two readers that see them in opposite order */
		return t == 0 ? (W(x, 1, release), 0) : t == 1 ? (W(y, 1, release), 0) :
		       t == 2 ? BOTH(R(x, acquire), R(y, acquire)) : BOTH(R(y, acquire), R(x, acquire));
	case 11:	/* a word that is written and read whole, and has halves */
		return t ? R(word.whole, relaxed) : (W(word.low, 0, relaxed), W(word.whole, 0x10001, relaxed), 0);
	case 12:	/* two halves, written in order */
		return t ? BOTH(R(word.high, relaxed), R(word.low, relaxed)) :
			   (W(word.low, 1, relaxed), W(word.high, 1, relaxed), 0);
	case 13:	/* a half that is released, and the word updated */
		return t == 0 ? (W(x, 1, relaxed), W(word.low, 1, release), 0) :
		       t == 1 ? ADD(word.whole, 0x10000, relaxed) :
				BOTH(R(word.low, acquire), R(x, relaxed));
	case 14:	/* own half is seen early */
		return t ? (W(word.high, 1, relaxed), R(word.whole, relaxed)) :
			   (W(word.low, 1, relaxed), R(word.whole, relaxed));
	case 15:	/* a store to a half, and an update of the whole word */
		return t ? ADD(word.whole, 0x10000, relaxed) : (W(word.low, 1, relaxed), 0);
	default:
		return 0;
	}
}

static bool is_reached(const unsigned int *seen)
{
	switch (program) {
	case 3:
		return !seen[0] && !seen[1];
	case 4:
		return seen[0] && seen[1];
	case 5:
		return R(x, relaxed) == 1 && R(y, relaxed) == 1;
	case 7:
		return R(x, relaxed) != 2;
	case 8:
	case 9:
		return seen[2] == 20;
	case 10:
		return seen[2] == 10 && seen[3] == 10;
	case 11:
		return seen[1] == 1 || seen[1] == 0x10000;
	case 13:
		return seen[2] == 10;
	case 14:
		return seen[0] == 1 && seen[1] == 0x10000;
	case 15:
		return R(word.whole, relaxed) != 0x10001;
	default:
		return seen[1] == 10;
	}
}

void model_thread(unsigned int index)
{
	W(saw[index], run(index), relaxed);
	says(MODEL_END, 0);
}

void model_last_thread(void)
{
	unsigned int seen[4] = { 0 }, t;

	says(MODEL_JOIN, 0);
	for (t = 0; t < model_threads; t++)
		seen[t] = R(saw[t], relaxed);
	if (is_reached(seen))
		says(MODEL_FAIL, "reached");
	says(MODEL_END, 0);
}

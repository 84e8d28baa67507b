/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The steps of the threads, and the checks of each step:
 *
 *	mutual_exclusion	two threads have the lock
 *	visible			a thread that has the lock may miss what was written under it before
 *	order			a thread gets the lock before one that drew a place in its line earlier
 *	overtaking		a thread outside the line gets the lock twice while the first in line claims it, if
 *				reads see the last write: C11 sets no time by which a claim is seen
 *	is_locked_while_held, free_at_the_end	by what is_locked() and trylock() say
 *	touched_when_done	unlock() uses the lock's memory when another thread may have freed it
 *	undefined		a value is read that was never written, or a null pointer is followed
 */
#ifndef UNSPIN_VERIFY_MACHINE_H
#define UNSPIN_VERIFY_MACHINE_H

#include <vector>
#include "memory.h"

/* Whether a budget is over when it is looked at: at any time, never, always. */
enum ClockMode { ANY, NEVER, SPENT };

/*
 * Who may enter while threads are in line.
 * IN_LINE: of those in line only the first; others, too.
 * STRICT:  only the first.
 * IN_TIME: also one in line whose turn has come by number, one whose budget was over, and one that was
 *          passed by a later one (VEE 2013, section 4.3).
 */
enum Order { NONE, IN_LINE, STRICT, IN_TIME };

/* A step and where it leads. */
struct Next {
	State state;
	unsigned int thread;
	bool spurious;	/* a wait that ends without a reason */
	const char *broken;	/* the check that the step breaks; null: none */
};

class Machine {
public:
	Memory memory;
	ClockMode clock = ANY;
	unsigned int spurious = 0;	/* waits that may end without a reason */
	Order order = NONE;

	State first();
	/* All steps of a state. */
	void steps(const State &state, std::vector<Next> &to);
	bool is_done(const State &state) const;

private:
	std::vector<Next> *found = nullptr;
	/* Before the step: see model_closed and model_claim. */
	bool closed = false, claimed = false;

	unsigned int last() const { return model_threads; }
	bool is_local(const State &state, unsigned int thread) const;
	void steps_of(const State &state, unsigned int thread);
	void atomic(const State &state, unsigned int thread, const model_op &op);
	void look_at_clock(const State &state, unsigned int thread);
	void join(const State &state, unsigned int thread);
	void halt(const State &state, unsigned int thread, const model_op &op);
	void wake(const State &state, unsigned int thread, const model_op &op);
	void resume(State &state, unsigned int thread, const model_result &result);
	void settle(State &state, unsigned int thread);
	uint64_t reads_clock(State &state, unsigned int thread, bool late) const;
	bool may_enter(const State &state, unsigned int thread) const;
	void count_entry(State &state, unsigned int thread) const;
	void enter(State &state, unsigned int thread);
	void leave_line(State &state, unsigned int thread);
	void draw(State &state, unsigned int thread, const model_op &op);
	template <typename Change> void step(const State &state, unsigned int thread, Change change,
					     bool spurious = false);
};

#endif

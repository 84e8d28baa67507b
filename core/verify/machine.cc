/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The steps of machine.h. */
#include "machine.h"
#include "threads.h"
#include <algorithm>

/* Addresses below are of members of what a null pointer points to. */
constexpr uintptr_t NULL_BYTES = 4096;

/* So that budgets, which are rounded down, are not zero. */
constexpr uint64_t TICKS_PER_US = 1000;

/* A check does not hold. */
struct Rejected {
	const char *check;
};

State Machine::first()
{
	State state;

	memory.threads = model_threads + 1;
	memory.start(state);
	state.spurious_left = spurious;
	for (unsigned int t = 0; t <= last(); t++) {
		state.frame[t] = thread_start(t);
		settle(state, t);
	}
	memory.tidy(state);
	return state;
}

bool Machine::is_done(const State &state) const
{
	return state.status[last()] == ENDED;
}

/* Makes a copy of @state with one step of @thread. */
template <typename Change>
void Machine::step(const State &state, unsigned int thread, Change change, bool spurious_return)
{
	found->push_back({ state, thread, spurious_return, nullptr });
	Next &next = found->back();
	uint8_t bit = 1 << thread;
	bool claims = model_claim && memory.writes_max == 1;
	uint64_t word = model_closed || claims ? memory.latest(state, model_lock) : 0;

	closed = word & model_closed;
	claimed = claims && (word & model_claim);
	try {
		if (!claimed)
			next.state.overtook = 0;
		if (next.state.leaves & bit) {
			next.state.leaves &= ~bit;
			next.state.inside = 0;
		}
		change(next.state);
		memory.tidy(next.state);
	} catch (const Rejected &rejected) {
		next.broken = rejected.check;
	}
}

/* Whether only this thread's own state changes, so that the others' steps may come later. */
bool Machine::is_local(const State &state, unsigned int thread) const
{
	return state.status[thread] == RUNS && thread_op(state.frame[thread]).kind == MODEL_CLOCK;
}

void Machine::steps(const State &state, std::vector<Next> &to)
{
	to.clear();
	found = &to;
	for (unsigned int t = 0; t <= last(); t++)
		if (is_local(state, t))
			return steps_of(state, t);
	for (unsigned int t = 0; t <= last(); t++)
		steps_of(state, t);
}

void Machine::steps_of(const State &state, unsigned int t)
{
	const model_op &op = thread_op(state.frame[t]);

	if (state.status[t] == HALTED_FOR_A_TIME)
		step(state, t, [=](State &to) { resume(to, t, {}); });
	if (state.status[t] == HALTED && state.spurious_left)
		step(state, t, [=](State &to) { to.spurious_left--; resume(to, t, {}); }, true);
	if (state.status[t] == JOINS)
		return join(state, t);
	if (state.status[t] != RUNS)
		return;
	if (op.kind != MODEL_CLOCK && (uintptr_t)op.word < NULL_BYTES)
		return step(state, t, [](State &) { throw Rejected{ "undefined" }; });
	switch (op.kind) {
	case MODEL_CLOCK:
		return look_at_clock(state, t);
	case MODEL_WAIT:
		return halt(state, t, op);
	case MODEL_WAKE:
		return wake(state, t, op);
	default:
		return atomic(state, t, op);
	}
}

void Machine::join(const State &state, unsigned int t)
{
	for (unsigned int other = 0; other < t; other++)
		if (state.status[other] != ENDED)
			return;
	step(state, t, [=](State &to) {
		to.freed = false;
		memory.see_all(to, t);
		resume(to, t, {});
	});
}

/* Which of its two times a budget begins at makes no difference. */
void Machine::look_at_clock(const State &state, unsigned int t)
{
	bool begins = thread_op(thread_next(t, state.frame[t], {})).kind == MODEL_RATE;

	step(state, t, [=](State &to) {
		if (begins)
			to.clock &= ~(1 << t);
		resume(to, t, { reads_clock(to, t, false), 0 });
	});
	if (!begins)
		step(state, t, [=](State &to) { resume(to, t, { reads_clock(to, t, true), 0 }); });
}

static uint64_t updated(const model_op &op, uint64_t old)
{
	switch (op.kind) {
	case MODEL_ADD:
		return old + op.value;
	case MODEL_OR:
		return old | op.value;
	case MODEL_AND:
		return old & op.value;
	default:
		return op.value;
	}
}

void Machine::atomic(const State &state, unsigned int t, const model_op &op)
{
	Access access = memory.access(op.word, op.size);
	uintptr_t offset = (uintptr_t)op.word - (uintptr_t)model_lock;

	if (state.freed && t != last() && offset < model_lock_bytes)
		return step(state, t, [](State &) { throw Rejected{ "touched_when_done" }; });
	if (op.kind == MODEL_STORE) {
		for (const Source &place : memory.places(state, t, access))
			step(state, t, [=](State &to) {
				memory.store(to, t, access, place, op.value, op.order);
				resume(to, t, {});
			});
		return;
	}
	uint64_t bits = mask(op.size);
	for (const Source &source : memory.sources(state, t, access, nullptr)) {
		bool fails = op.kind == MODEL_CAS && source.value != (op.expected & bits);

		if (source.undefined)
			step(state, t, [](State &) { throw Rejected{ "undefined" }; });
		else if (op.kind == MODEL_LOAD || fails)
			step(state, t, [=](State &to) {
				memory.load(to, t, access, source, fails ? op.failure : op.order);
				resume(to, t, { source.value, 0 });
			});
		else if (memory.may_update(state, access, source))
			step(state, t, [=](State &to) {
				memory.update(to, t, access, source, updated(op, source.value) & bits, op.order);
				draw(to, t, op);
				resume(to, t, { source.value, 1 });
			});
	}
}

/* A place in the line is drawn by the first update of the doorway. */
void Machine::draw(State &state, unsigned int t, const model_op &op)
{
	uint8_t bit = 1 << t;
	intptr_t offset = (intptr_t)op.word - (intptr_t)model_lock;

	if (order == NONE || t == last() || offset != model_doorway || !(state.asks & bit) || (state.drew & bit))
		return;
	state.drew |= bit;
	if (order == IN_TIME)
		state.before[t] = state.line_length;
	state.line[state.line_length++] = t;
}

void Machine::leave_line(State &state, unsigned int t)
{
	unsigned int i = 0;

	while (state.line[i] != t)
		i++;
	for (state.line_length--; i < state.line_length; i++)
		state.line[i] = state.line[i + 1];
	state.line[state.line_length] = 0;
	state.drew &= ~(1 << t);
	state.late &= ~(1 << t);
	state.passed &= ~(1 << t);
	state.before[t] = 0;
}

/* A wait compares the word with what it was seen to be, and misses no change before a past wake-up. */
void Machine::halt(const State &state, unsigned int t, const model_op &op)
{
	Access access = memory.access(op.word, op.size);

	for (const Source &source : memory.sources(state, t, access, state.woken))
		step(state, t, [=](State &to) {
			memory.load(to, t, access, source, MODEL_RELAXED);
			if (source.value == op.value)
				to.status[t] = op.timed ? HALTED_FOR_A_TIME : HALTED;
			else
				resume(to, t, {});
		});
}

void Machine::wake(const State &state, unsigned int t, const model_op &op)
{
	Access access = memory.access(op.word, op.size);

	step(state, t, [=](State &to) {
		for (unsigned int p = access.first; p < access.first + access.parts; p++)
			to.woken[p] = std::max(to.woken[p], to.view[t][p]);
		for (unsigned int other = 0; other < last(); other++) {
			const model_op &wait = thread_op(to.frame[other]);

			if ((to.status[other] == HALTED || to.status[other] == HALTED_FOR_A_TIME) &&
			    wait.word == op.word && wait.key == op.key)
				resume(to, other, {});
		}
		resume(to, t, {});
	});
}

void Machine::resume(State &state, unsigned int t, const model_result &result)
{
	state.status[t] = RUNS;
	state.frame[t] = thread_next(t, state.frame[t], result);
	settle(state, t);
}

/* Of a search with all times, the clock is kept only where the order depends on it. */
uint64_t Machine::reads_clock(State &state, unsigned int t, bool late) const
{
	uint8_t bit = 1 << t;

	if (order == IN_TIME && bool(state.clock & bit) != late)
		state.late |= bit;
	if (order == IN_TIME || clock != ANY)
		state.clock = late ? state.clock | bit : state.clock & ~bit;
	return uint64_t(late) << 63;
}

bool Machine::may_enter(const State &state, unsigned int t) const
{
	uint8_t bit = 1 << t;

	if (!(state.drew & bit))
		return !closed && (order == IN_LINE || !state.line_length);
	return state.line[0] == t ||
	       (order == IN_TIME && (((state.late | state.passed) & bit) || !state.before[t]));
}

/* The threads before @t in line are passed, and for all others one more has entered. */
void Machine::count_entry(State &state, unsigned int t) const
{
	bool before = state.drew & 1 << t;

	for (unsigned int i = 0; i < state.line_length; i++) {
		unsigned int other = state.line[i];

		before = before && other != t;
		if (before)
			state.passed |= 1 << other;
		if (state.before[other])
			state.before[other]--;
	}
}

void Machine::enter(State &state, unsigned int t)
{
	uint8_t bit = 1 << t;

	if (state.inside)
		throw Rejected{ "mutual_exclusion" };
	if (state.view[t][0] != 1)
		throw Rejected{ "visible" };
	if (order != NONE && !may_enter(state, t))
		throw Rejected{ "order" };
	if (claimed && !(state.drew & bit)) {
		if (state.overtook & bit)
			throw Rejected{ "overtaking" };
		state.overtook |= bit;
	}
	if (order == IN_TIME)
		count_entry(state, t);
	if (state.drew & bit)
		leave_line(state, t);
	memory.write_data(state, t);
	state.inside = 1 + t;
	state.asks &= ~bit;
	state.entered++;
	if (state.entered == model_threads * model_rounds)
		state.latest = 1 + t;
}

/* Answers what needs no other thread. */
void Machine::settle(State &state, unsigned int t)
{
	uint8_t bit = 1 << t;

	for (;;) {
		const model_op &op = thread_op(state.frame[t]);
		model_result result = {};

		switch (op.kind) {
		case MODEL_CLOCK:
			if (clock == ANY)
				return;
			result.value = reads_clock(state, t, bool(state.clock & bit) != (clock == SPENT));
			break;
		case MODEL_RATE:
			result.value = TICKS_PER_US;
			break;
		case MODEL_ASK:
			state.asks |= bit;
			break;
		case MODEL_GIVE_UP:
			state.asks &= ~bit;
			if (state.drew & bit)
				leave_line(state, t);
			break;
		case MODEL_ENTER:
			enter(state, t);
			break;
		case MODEL_LEAVE:
			state.leaves |= bit;
			break;
		case MODEL_RELEASED:
			state.freed = state.latest == 1 + t;
			break;
		case MODEL_FAIL:
			throw Rejected{ op.file };
		case MODEL_JOIN:
			state.status[t] = JOINS;
			return;
		case MODEL_END:
			state.status[t] = ENDED;
			return;
		default:
			return;
		}
		state.frame[t] = thread_next(t, state.frame[t], result);
	}
}

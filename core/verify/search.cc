/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Searches all runs of a lock's client for one that breaks a check of machine.h, or `progress`: from some
 * state on, a thread waits for ever, whatever the others do. The states that can be reached are kept, so
 * a search ends although threads wait in loops.
 *
 * Options are NAME=NUMBER: threads, rounds, tries, timed, looks (model.h), order, spurious (machine.h), writes
 * (memory.h), start (of the counters), states and seconds (limits of the search), trace
 * (prints the run that breaks a check); and clock=any, never, spent.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <unordered_map>
#include "machine.h"
#include "threads.h"

static struct {
	uint64_t start = 0;
	unsigned long states_max = 20000000;
	unsigned int seconds_max = 600;
	bool trace = false;
} options;

static const auto began = std::chrono::steady_clock::now();

static double seconds()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

struct Hash {
	uint64_t high, low;
	bool operator==(const Hash &other) const { return high == other.high && low == other.low; }
};
struct HashOf {
	size_t operator()(const Hash &hash) const { return hash.low; }
};

/* Two hashes of 64 bits: that two states of a search share both is out of all likelihood. */
static Hash hash_of(const std::string &bytes)
{
	uint64_t a = 0x243f6a8885a308d3, b = 0x13198a2e03707344, word;
	size_t i;

	auto mix = [&](uint64_t w) {
		a = (a ^ w) * 0x9e3779b97f4a7c15;
		a ^= a >> 29;
		b = (b + w) * 0xd6e8feb86659fd93;
		b ^= b >> 32;
	};
	for (i = 0; i + 8 <= bytes.size(); i += 8) {
		memcpy(&word, bytes.data() + i, 8);
		mix(word);
	}
	word = 0;
	memcpy(&word, bytes.data() + i, bytes.size() - i);
	mix(word);
	mix(bytes.size());
	return { a, b };
}

class Search {
public:
	explicit Search(Machine &of) : machine(of) {}
	int run();

private:
	Machine &machine;
	struct From {
		uint32_t state;
		uint32_t step;
	};
	std::unordered_map<Hash, uint32_t, HashOf> index;
	std::vector<From> from;			/* how each state was reached first */
	std::vector<std::pair<uint32_t, uint32_t>> edges;	/* but those of spurious returns */
	std::vector<uint32_t> done;
	std::deque<std::pair<uint32_t, std::string>> open;
	unsigned long steps = 0;

	bool add(const State &state, uint32_t parent, uint32_t step, uint32_t &number);
	int reject(const char *check, uint32_t state, long step);
	bool hangs(uint32_t &state) const;
	void trace(uint32_t state, long step);
};

bool Search::add(const State &state, uint32_t parent, uint32_t step, uint32_t &number)
{
	std::string bytes = machine.memory.pack(state);
	auto found = index.emplace(hash_of(bytes), index.size());

	number = found.first->second;
	if (!found.second)
		return false;
	from.push_back({ parent, step });
	if (machine.is_done(state))
		done.push_back(number);
	else
		open.emplace_back(number, std::move(bytes));
	return true;
}

static void print_step(const State &state, unsigned int thread)
{
	static const char *const kinds[] = { "load", "store", "add", "or", "and", "exchange", "cas",
					     "wait", "wake", "clock" };
	const model_op &op = thread_op(state.frame[thread]);
	const char *file = op.file ? strrchr(op.file, '/') : nullptr;

	fprintf(stderr, "thread %u: %s +%ld %llx (%s:%u)%s\n", thread,
		op.kind < sizeof(kinds) / sizeof(kinds[0]) ? kinds[op.kind] : "client",
		op.word ? long((intptr_t)op.word - (intptr_t)model_lock) : 0,
		(unsigned long long)op.value, file ? file + 1 : "", op.line,
		state.status[thread] == RUNS ? "" : " returns");
}

void Search::trace(uint32_t state, long step)
{
	std::vector<uint32_t> path;
	std::vector<Next> next;
	State at = machine.first();

	for (uint32_t s = state; s; s = from[s].state)
		path.push_back(from[s].step);
	for (size_t i = path.size(); i--;) {
		machine.steps(at, next);
		print_step(at, next[path[i]].thread);
		at = next[path[i]].state;
	}
	if (step >= 0) {
		machine.steps(at, next);
		print_step(at, next[step].thread);
		return;
	}
	for (unsigned int t = 0; t <= model_threads; t++)
		if (at.status[t] != ENDED) {
			fprintf(stderr, "stays: ");
			print_step(at, t);
		}
}

int Search::reject(const char *check, uint32_t state, long step)
{
	printf("rejected: %s, %zu states\n", check, index.size());
	if (options.trace)
		trace(state, step);
	return 1;
}

/* The first state from which the end cannot be reached. */
bool Search::hangs(uint32_t &state) const
{
	std::vector<uint32_t> start(index.size() + 1), into(edges.size()), ends(done);
	std::vector<bool> ends_well(index.size());

	for (const auto &edge : edges)
		start[edge.second + 1]++;
	for (size_t i = 1; i < start.size(); i++)
		start[i] += start[i - 1];
	std::vector<uint32_t> at(start.begin(), start.end() - 1);
	for (const auto &edge : edges)
		into[at[edge.second]++] = edge.first;
	for (uint32_t end : ends)
		ends_well[end] = true;
	while (!ends.empty()) {
		uint32_t end = ends.back();

		ends.pop_back();
		for (uint32_t i = start[end]; i < start[end + 1]; i++)
			if (!ends_well[into[i]]) {
				ends_well[into[i]] = true;
				ends.push_back(into[i]);
			}
	}
	for (state = 0; state < ends_well.size(); state++)
		if (!ends_well[state])
			return true;
	return false;
}

int Search::run()
{
	std::vector<Next> next;
	State state;
	uint32_t number;

	add(machine.first(), 0, 0, number);
	while (!open.empty()) {
		uint32_t at = open.front().first;
		bool ends = true;

		machine.memory.unpack(state, open.front().second);
		open.pop_front();
		machine.steps(state, next);
		for (size_t i = 0; i < next.size(); i++) {
			steps++;
			if (next[i].broken)
				return reject(next[i].broken, at, i);
			add(next[i].state, at, i, number);
			if (next[i].spurious)
				continue;
			ends = false;
			if (number != at)
				edges.emplace_back(at, number);
		}
		if (ends)
			return reject("progress", at, -1);
		if (index.size() > options.states_max || seconds() > options.seconds_max) {
			printf("incomplete: %zu states, %lu steps, %.1f s, ended by the limit of %s\n", index.size(), steps,
			       seconds(), index.size() > options.states_max ? "states" : "time");
			return 3;
		}
	}
	if (hangs(number))
		return reject("progress", number, -1);
	printf("ok: %zu states, %lu steps, %lu frames, %lu cut, %.1f s\n", index.size(), steps,
	       thread_frames(), machine.memory.cut, seconds());
	return 0;
}

/* Sets an option. */
static void set(Machine &machine, const std::string &name, const char *value)
{
	const struct {
		const char *name;
		std::function<void(unsigned long)> set;
	} numbers[] = {
		{ "threads", [](unsigned long n) { model_threads = n; } },
		{ "rounds", [](unsigned long n) { model_rounds = n; } },
		{ "tries", [](unsigned long n) { model_tries = n; } },
		{ "timed", [](unsigned long n) { model_timed = n; } },
		{ "looks", [](unsigned long n) { model_looks = n; } },
		{ "order", [&](unsigned long n) { machine.order = Order(n); } },
		{ "spurious", [&](unsigned long n) { machine.spurious = n; } },
		{ "writes", [&](unsigned long n) { machine.memory.writes_max = n; } },
		{ "start", [](unsigned long n) { options.start = n; } },
		{ "states", [](unsigned long n) { options.states_max = n; } },
		{ "seconds", [](unsigned long n) { options.seconds_max = n; } },
		{ "trace", [](unsigned long n) { options.trace = n; } },
	};

	if (name == "clock") {
		machine.clock = value[0] == 'n' ? NEVER : value[0] == 's' ? SPENT : ANY;
		return;
	}
	for (const auto &number : numbers)
		if (name == number.name)
			return number.set(strtoul(value, nullptr, 0));
	fprintf(stderr, "no option %s\n", name.c_str());
	exit(2);
}

int main(int argc, char **argv)
{
	Machine machine;

	model_threads = 2;
	model_rounds = 1;
	for (int i = 1; i < argc; i++) {
		const char *equals = strchr(argv[i], '=');

		if (!equals)
			return 2;
		set(machine, std::string(argv[i], equals - argv[i]), equals + 1);
	}
	if (model_threads + 1 > THREADS_MAX || machine.memory.writes_max >= WRITES_MAX)
		return 2;
	model_start(options.start);
	for (;;) {
		Search search{ machine };

		try {
			return search.run();
		} catch (const Again &) {
		}
	}
}

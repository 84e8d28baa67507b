/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The memory of a run: what each thread may read, and where each write may go.
 *
 * Model: release and acquire of C11 as repaired by RC11 (Lahav, Vafeiadis, Kang, Hur, Dreyer, PLDI 2017),
 *        in the operational form with views (Kang, Hur, Lahav, Vafeiadis, Dreyer, POPL 2017, without
 *        promises). The writes to a part of memory have an order, which need not be that of their
 *        execution: a store goes anywhere behind what its thread has seen, but not between an atomic
 *        update and the write that it read. A load reads anything that is not older than what its thread
 *        has seen. A load cannot read a store that comes later in program order on a cycle with others.
 * Halves: a word of which a half is accessed has two parts. An access to the whole reads or writes both at
 *        once: all writes to the whole have one order (their epochs), and a read of the whole takes both
 *        parts from between the same two of them. A thread may read its own store to a half early.
 */
#ifndef UNSPIN_VERIFY_MEMORY_H
#define UNSPIN_VERIFY_MEMORY_H

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>
#include "model.h"

constexpr unsigned THREADS_MAX = 5;	/* the last one looks at the lock when the others have ended */
constexpr unsigned PARTS_MAX = 16;
constexpr unsigned WRITES_MAX = 9;

/* All bits of an object of so many bytes. */
inline uint64_t mask(unsigned int bytes)
{
	return bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;
}

/* For each part, the oldest write that may be read, as its place in the order. Part 0 is the data. */
using View = uint8_t[PARTS_MAX];

struct Write {
	uint64_t value;
	View view;		/* what an acquire learns */
	uint8_t epoch;		/* writes to the whole word up to this one */
	uint8_t own;		/* 1 + thread, of a plain store to a half */
	bool update;		/* reads the write before it */
	bool undefined;		/* no write yet */
};

struct Part {
	uint8_t count;
	Write writes[WRITES_MAX];

	const Write &last() const { return writes[count - 1]; }
};

/* The last thread joins the others when they have ended. */
enum Status : uint8_t { RUNS, HALTED, HALTED_FOR_A_TIME, JOINS, ENDED };

struct State {
	uint32_t frame[THREADS_MAX];
	Status status[THREADS_MAX];
	View view[THREADS_MAX];
	View woken;		/* what lock_wake() has made visible to lock_wait() */
	/* Of the checks. */
	uint8_t inside;		/* 1 + the thread that has the lock */
	uint8_t entered, latest;	/* times that the lock was taken; 1 + the thread that took it last */
	uint8_t asks, drew, leaves, clock;	/* a bit for each thread */
	uint8_t line_length, line[THREADS_MAX];	/* the threads that drew a place, in their order */
	/* Of IN_TIME: a bit for each thread, and how many more must enter before its turn. */
	uint8_t late, passed, before[THREADS_MAX];
	uint8_t spurious_left;
	uint8_t overtook;	/* a bit for each thread that got the lock outside the line, during one claim */
	bool freed;
	Part part[PARTS_MAX];
};

/* A word of memory that the lock's code uses: parts from `first`. */
struct Word {
	uintptr_t address;
	unsigned int bytes, parts, first;
};

/* Raised when a word of memory, or a half of one, is used for the first time: begin again. */
struct Again {};

/* The writes that a load reads, by part of what it accesses. */
struct Source {
	unsigned int at[2];
	uint64_t value;
	bool undefined;
};

/* What an operation accesses. */
struct Access {
	const Word *word;
	unsigned int first, parts;	/* of the memory */
};

class Memory {
public:
	unsigned int threads = 0;	/* with the last one */
	unsigned int writes_max = 6;	/* of a part, kept */
	unsigned long cut = 0;		/* times that an older write was given up */

	/* Throws Again if the object was not known. */
	Access access(const void *object, unsigned int bytes);
	void start(State &state) const;
	/* Forgets what no thread can read, and writes equal states alike. */
	void tidy(State &state);
	std::string pack(const State &state) const;
	void unpack(State &state, const std::string &bytes) const;

	/* @floor: what must be seen besides what the thread has seen; may be null. */
	std::vector<Source> sources(const State &state, unsigned int thread, const Access &access,
				    const uint8_t *floor) const;
	bool may_update(const State &state, const Access &access, const Source &source) const;
	void load(State &state, unsigned int thread, const Access &access, const Source &source,
		  unsigned int order) const;
	void update(State &state, unsigned int thread, const Access &access, const Source &source,
		    uint64_t value, unsigned int order) const;
	/* Where a store may go: the place of each part. */
	std::vector<Source> places(const State &state, unsigned int thread, const Access &access) const;
	void store(State &state, unsigned int thread, const Access &access, const Source &place,
		   uint64_t value, unsigned int order) const;
	/* The last value of a word of 32 bits. */
	uint64_t latest(const State &state, const void *object);
	void write_data(State &state, unsigned int thread) const;
	void see_all(State &state, unsigned int thread) const;

private:
	std::vector<Word> words;
	unsigned int parts = 1;
	Write initial[PARTS_MAX];

	void find(uintptr_t address, unsigned int bytes, bool halved);
	void first_value(const Word &word);
	void insert(State &state, unsigned int part, unsigned int at, const Write &write) const;
	void put(State &state, unsigned int thread, const Access &access, const Source &place,
		 uint64_t value, unsigned int order, const Write *read) const;
	void drop(State &state, unsigned int part, unsigned int count) const;
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who ran while vCPUs were ready: how long any vCPU of a VM had a CPU, and which processes had a
 * CPU recently; and how many vCPUs of a VM want a CPU. It calls no kernel functions, so tests
 * compile it too.
 */
#ifndef UNSPIN_PROBE_READY_H
#define UNSPIN_PROBE_READY_H

enum {
	/* Number of recorded stretches per CPU. */
	RUNS = 32,
};

/* Value of `ran_before`: no wait has begun, or its beginning is unknown. */
#define NO_WAIT (-1ULL)

/* Clocks of two CPUs differ by less than this, in ns. */
#define SLACK (1LL << 27)

enum {
	/* From this number on, numbers of vCPUs that want a CPU are counted together. */
	WANTING_MAX = 64,
};

/*
 * The vCPUs of a VM that have a CPU. CPUs that change both fields at the same time need no lock:
 * how long something lasted is the sum of the times at which it ended, minus the sum of those at
 * which it began.
 */
struct together {
	__u64 on;  /* how many */
	__u64 ran; /* for how long it was one or more: a sum */
	__u64 unused[6]; /* a cache line of its own */
};

/* A process and its name, in the kernel's 16 bytes. 0: the CPU is idle. */
struct process {
	__u64 tgid;
	__u64 command[2];
};

/* A stretch in which threads of one process had a CPU. */
struct run {
	__u64 begin, end;
	struct process whose;
};

/* Who had a CPU. Only its own switches write. */
struct runs {
	__u64 ended;	      /* number of finished changes; first, so that it is read first */
	__u64 since;	      /* who has it now has had it since then */
	struct process whose; /* who that is */
	__u64 next;	      /* how many stretches have ended: the next is kept at this % RUNS */
	struct run last[RUNS];
	__u64 unused;	      /* the next CPU begins a cache line */
	__u64 begun;	      /* number of started changes; last. If it equals `ended`, the copy is consistent */
};

/*
 * The value of a sum at `now`, in ns. While the thing lasts, its present end is missing, so the sum
 * is negative. Other CPUs may not have added their latest ends or beginnings yet.
 */
static __always_inline __u64 sum_at(__u64 sum, __u64 now)
{
	__s64 time = sum;

	if (time < -SLACK) {
		time += now;
		if (time < -SLACK)
			time += now;
	} else if (time > (__s64)now - SLACK) {
		time -= now;
	}
	return time < 0 ? 0 : time;
}

/*
 * How long at least one vCPU of a VM has been on a CPU until `now`. From now on `by` more are. A
 * waiting vCPU is not among them, so the growth of this value during its wait is its co-stop.
 */
static __always_inline __u64 ran_until(struct together *vm, int by, __u64 now)
{
	__u64 on;

	if (by) {
		on = __sync_fetch_and_add(&vm->on, (__u64)by);
		if (!on)
			__sync_fetch_and_add(&vm->ran, -now);
		else if (!(on + by))
			__sync_fetch_and_add(&vm->ran, now);
	}
	return sum_at(*(volatile __u64 *)&vm->ran, now);
}

/*
 * The index at which a number of vCPUs is counted. A number that is negative for a moment counts as
 * 0.
 */
static __always_inline __u64 counted_at(__u64 many)
{
	if (many >> 63)
		return 0;
	return many < WANTING_MAX ? many : WANTING_MAX;
}

/* From now on `by` more vCPUs of a VM want a CPU. `time` has a sum for each number of vCPUs. */
static __always_inline void want(__u64 *wanting, __u64 *time, int by, __u64 now)
{
	__u64 many = __sync_fetch_and_add(wanting, (__u64)by);
	__u64 from = counted_at(many), to = counted_at(many + by);

	if (from == to)
		return;
	__sync_fetch_and_add(&time[from], now);
	__sync_fetch_and_add(&time[to], -now);
}

/* From now on a process has the CPU, or it is idle. */
static __always_inline void run_begins(struct runs *cpu, struct process *whose, __u64 now)
{
	struct run *run = &cpu->last[(cpu->next - 1) % RUNS];

	cpu->begun++;
	barrier();
	/* Consecutive threads of one process are one stretch. */
	if (cpu->whose.tgid && run->whose.tgid == cpu->whose.tgid && run->end == cpu->since) {
		run->end = now;
	} else if (cpu->whose.tgid) {
		run = &cpu->last[cpu->next % RUNS];
		run->begin = cpu->since;
		run->end = now;
		run->whose = cpu->whose;
		cpu->next++;
	}
	cpu->whose = *whose;
	cpu->since = now;
	barrier();
	cpu->ended = cpu->begun;
}

/* The part of a stretch between two times. */
static __always_inline __u64 part(__u64 from, __u64 to, __u64 begin, __u64 end)
{
	from = from > begin ? from : begin;
	to = to < end ? to : end;
	return to > from ? to - from : 0;
}

/* Counts that a process had the CPU while a vCPU of a VM waited. The including file defines it. */
static void took(__u32 vm, struct process *who, __u64 time);
/* Counts that a process of which nothing is known had it. The including file defines it. */
static void not_named(__u32 vm, __u64 time);

static __always_inline __u64 took_at_most(__u32 vm, struct process *who, __u64 time, __u64 left)
{
	time = time < left ? time : left;
	if (time)
		took(vm, who, time);
	return left - time;
}

/*
 * A vCPU of a VM waited for a CPU between two times. Counts who had the CPU meanwhile, latest
 * first, up to `left` in all; the rest of `left` was idle. If there were more stretches than are
 * recorded, or the CPU switches meanwhile, the earlier ones are unknown.
 */
static __always_inline void count_takers(struct runs *cpu, __u32 vm, __u64 begin, __u64 end, __u64 left)
{
	__u64 ended = *(volatile __u64 *)&cpu->ended, since, next;
	struct process whose;
	struct run run = {};
	__u32 i;

	barrier();
	since = cpu->since;
	next = cpu->next;
	whose = cpu->whose;
	barrier();
	if (cpu->begun != ended) {
		not_named(vm, left);
		return;
	}
	if (whose.tgid)
		left = took_at_most(vm, &whose, part(since, end, begin, end), left);
	for (i = 1; i <= RUNS && left; i++) {
		run = cpu->last[(next - i) % RUNS];
		barrier();
		if (*(volatile __u64 *)&cpu->begun != ended) {
			not_named(vm, left);
			return;
		}
		if (run.end <= begin)
			return;
		left = took_at_most(vm, &run.whose, part(run.begin, run.end, begin, end), left);
	}
	if (left && run.begin > begin) {
		since = part(begin, run.begin, begin, end);
		not_named(vm, since < left ? since : left);
	}
}

#endif

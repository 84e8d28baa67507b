/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who ran while vCPUs were ready: for how long any vCPU of a VM had a CPU, and which processes had a CPU
 * last; and how many vCPUs of a VM want a CPU. It calls nothing of the kernel's, so tests compile it too.
 */
#ifndef UNSPIN_PROBE_READY_H
#define UNSPIN_PROBE_READY_H

enum {
	/* Stretches of a CPU that are kept. */
	RUNS = 32,
};

/* Of `ran_before`: no wait has begun, or it is unknown when. */
#define NO_WAIT (-1ULL)

/* Clocks of two CPUs disagree by less, in ns. */
#define SLACK (1LL << 27)

enum {
	/* So many vCPUs of a VM that want a CPU, or more, are counted as one number. */
	WANTING_MAX = 64,
};

/*
 * The vCPUs of a VM that have a CPU. CPUs that change both at once need no lock: a time that something
 * lasted is a sum of the times at which it ended, less those at which it began.
 */
struct together {
	__u64 on;  /* how many */
	__u64 ran; /* for how long it was one or more: a sum */
	__u64 unused[6]; /* a cache line of its own */
};

/* A process, and what it is called, as the kernel has it in 16 bytes. 0: the CPU is idle. */
struct process {
	__u64 tgid;
	__u64 command[2];
};

/* A stretch in which threads of one process had a CPU. */
struct run {
	__u64 begin, end;
	struct process whose;
};

/* Who had a CPU; only its own switches write. */
struct runs {
	__u64 ended;	      /* changes that have ended: first, so that it is read first */
	__u64 since;	      /* who has it now has had it since then */
	struct process whose; /* who that is */
	__u64 next;	      /* how many stretches have ended: the next is kept at this % RUNS */
	struct run last[RUNS];
	__u64 unused;	      /* the next CPU begins a cache line */
	__u64 begun;	      /* changes that have begun: last; as many where what was read is of one time */
};

/*
 * A sum of times at `now`, in ns: while it lasts, it is negative without its present end. Other CPUs may have
 * yet to add one of several ends or begins.
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
 * For how long until `now` at least one vCPU of a VM has been on a CPU. `by` more are from now on. A vCPU
 * that waits is none of them, so what this grows by while it waits is its co-stop.
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

/* Where a number of vCPUs is counted. One that is negative for a moment is 0. */
static __always_inline __u64 counted_at(__u64 many)
{
	if (many >> 63)
		return 0;
	return many < WANTING_MAX ? many : WANTING_MAX;
}

/* `by` more vCPUs of a VM want a CPU from now on. `time` has a sum for each number of them. */
static __always_inline void want(__u64 *wanting, __u64 *time, int by, __u64 now)
{
	__u64 many = __sync_fetch_and_add(wanting, (__u64)by);
	__u64 from = counted_at(many), to = counted_at(many + by);

	if (from == to)
		return;
	__sync_fetch_and_add(&time[from], now);
	__sync_fetch_and_add(&time[to], -now);
}

/* A process has the CPU from now on, or nobody. */
static __always_inline void run_begins(struct runs *cpu, struct process *whose, __u64 now)
{
	struct run *run = &cpu->last[(cpu->next - 1) % RUNS];

	cpu->begun++;
	barrier();
	/* Threads of one process that follow each other are one stretch. */
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

/* How much of a stretch lies between two times. */
static __always_inline __u64 part(__u64 from, __u64 to, __u64 begin, __u64 end)
{
	from = from > begin ? from : begin;
	to = to < end ? to : end;
	return to > from ? to - from : 0;
}

/* Counts for a process that it had the CPU while a vCPU of a VM waited; whoever includes this has it. */
static void took(__u32 vm, struct process *who, __u64 time);
/* Counts that somebody had it of whom nothing is known any more; likewise. */
static void not_named(__u32 vm, __u64 time);

static __always_inline __u64 took_at_most(__u32 vm, struct process *who, __u64 time, __u64 left)
{
	time = time < left ? time : left;
	if (time)
		took(vm, who, time);
	return left - time;
}

/*
 * A vCPU of a VM waited for a CPU between two times. Who had it meanwhile is counted, latest first, up to
 * `left` together; what is left then nobody had. Where more followed each other than are kept, or the CPU
 * switches while it is looked at, nothing is known of the earlier ones.
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

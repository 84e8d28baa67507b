/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who ran while vCPUs were ready: for how long any vCPU of a VM had a CPU, and which processes had a CPU
 * last. It calls nothing of the kernel's, so tests compile it too.
 */
#ifndef UNSPIN_PROBE_READY_H
#define UNSPIN_PROBE_READY_H

enum {
	/* Stretches of a CPU that are kept. */
	RUNS = 32,
};

/* Of `ran_before`: no wait has begun. */
#define NO_WAIT (-1ULL)

struct bpf_spin_lock {
	__u32 val;
};

/* The vCPUs of a VM that have a CPU. */
struct together {
	struct bpf_spin_lock lock;
	__u32 on;    /* how many */
	__u64 since; /* all before is counted */
	__u64 ran;   /* for how long it was one or more, in ns */
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
	__u64 since;	      /* who has it now has had it since then */
	struct process whose; /* who that is */
	__u64 next;	      /* how many stretches have ended: the next is kept at this % RUNS */
	struct run last[RUNS];
};

/*
 * For how long until `now` at least one vCPU of a VM has been on a CPU. `by` more are from now on. A vCPU
 * that waits is none of them, so what this grows by while it waits is its co-stop.
 */
static __always_inline __u64 ran_until(struct together *vm, int by, __u64 now)
{
	if (now > vm->since) {
		if (vm->on)
			vm->ran += now - vm->since;
		vm->since = now;
	}
	vm->on += by;
	return vm->ran;
}

/* A process has the CPU from now on, or nobody. */
static __always_inline void run_begins(struct runs *cpu, struct process *whose, __u64 now)
{
	struct run *run = &cpu->last[(cpu->next - 1) % RUNS];

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

/*
 * A vCPU of a VM waited for a CPU between two times. Who had it meanwhile is counted, latest first, up to
 * `left` together. Where more followed each other than are kept, what the first had goes to nobody.
 */
static __always_inline void count_takers(struct runs *cpu, __u32 vm, __u64 begin, __u64 end, __u64 left)
{
	__u64 time = cpu->whose.tgid ? part(cpu->since, end, begin, end) : 0;
	__u32 i;

	time = time < left ? time : left;
	left -= time;
	if (time)
		took(vm, &cpu->whose, time);
	for (i = 1; i <= RUNS && left; i++) {
		struct run *run = &cpu->last[(cpu->next - i) % RUNS];

		if (run->end <= begin)
			break;
		time = part(run->begin, run->end, begin, end);
		time = time < left ? time : left;
		left -= time;
		if (time)
			took(vm, &run->whose, time);
	}
}

#endif

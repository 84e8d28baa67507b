/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The traced build of the scheduler (host/schedule/bpf/) as functions. Its decisions are kept in memory. */
#define TRACED 1
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_RB_NO_WAKEUP 1
#define bpf_probe_read_kernel(to, size, from) __builtin_memcpy(to, from, size)

#define TOLD_MAX (1 << 16)

static char told[TOLD_MAX];
static unsigned long long told_bytes, told_max;

/* Each decision after its size. */
static long bpf_ringbuf_output(void *ring, void *data, unsigned long long size, unsigned long long flags)
{
	if (told_bytes + sizeof(size) + size > told_max)
		return -1;
	__builtin_memcpy(told + told_bytes, &size, sizeof(size));
	__builtin_memcpy(told + told_bytes + sizeof(size), data, size);
	told_bytes += sizeof(size) + size;
	return 0;
}

#include "schedule.c"

/* "vm_count" VMs without ready units, "cpu_count" idle CPUs, and "room" bytes for decisions. */
EXPORT void begin_state(u32 vm_count, u32 cpu_count, u64 room)
{
	u32 i;

	told_bytes = 0;
	told_max = room < TOLD_MAX ? room : TOLD_MAX;
	lost = 0;
	vnow = planned_at = turn_end = 0;
	parts_anywhere = late_vms = 0;
	config.turn_ns = 6 * MS;
	config.cpu_count = ours = cpu_count;
	settings.count = vm_count;
	for (i = 0; i < VMS_MAX; i++) {
		vms[i] = (struct vm){ 0 };
		settings.vms[i] = (struct setting){ 0 };
	}
	for (i = 0; i < VMS_MAX * UNITS; i++)
		unit_of(i)->planned = unit_of(i)->next = NOBODY;
	for (i = 0; i < CPUS_MAX; i++) {
		cpus[i] = (struct cpu){ .is_ours = i < cpu_count };
		cpus[i].id = cpus[i].planned = cpus[i].next = cpus[i].held = cpus[i].prefer = cpus[i].spinner = NOBODY;
		config.cpus[i] = i;
	}
}

/* Its vCPUs of a set wait, those of another set run; those of a third set are owed time by themselves. */
EXPORT void set_vm(u32 vm, u64 vt, u32 gang, u64 waits, u64 runs, u64 owed)
{
	vms[vm].vt = vt;
	vms[vm].gang = gang;
	vms[vm].waits = waits;
	vms[vm].runs = runs;
	vms[vm].owed = owed;
	settings.vms[vm].gang = gang ? GANG_ALWAYS : GANG_NEVER;
	settings.vms[vm].vcpus = 4;
}

/* It may use one CPU only, or all. */
EXPORT void set_vcpu(u32 vm, u32 unit, u64 vt, s64 owed, u32 only, u32 category)
{
	struct unit *u = unit_of(id_of(vm, unit));

	u->vt = u->off_at = vt;
	u->owed = owed;
	u->category = category;
	u->cpu = only == NOBODY ? 0 : only;
	may_use_all(u);
	if (only != NOBODY) {
		u->choices = 1;
		u->mask[0] = bit(only);
	}
}

EXPORT u32 next_on(u32 cpu, u32 before, u64 now)
{
	vnow = now;
	return pick(cpu, before);
}

EXPORT u32 sibling_for(u32 cpu, u32 id, u64 but)
{
	return choice(id, cpu, but);
}

EXPORT void plan_at(u64 now)
{
	plan(now);
}

EXPORT u64 told_so_far(void *to)
{
	__builtin_memcpy(to, told, told_bytes);
	return told_bytes;
}

EXPORT u64 lost_so_far(void)
{
	return lost;
}

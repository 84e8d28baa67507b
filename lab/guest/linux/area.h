/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The shared area: 64 KiB of a Linux guest's physical memory that the host maps. The host tells the
 * guest's runner there what to run, and programs count their work there. The host reads counts with
 * plain loads of its own mapping, so that no vCPU leaves the guest for it.
 *
 * The guest's kernel leaves the area alone because its command line says AREA_RESERVE. In the file
 * behind the guest's memory it begins at offset AREA_ADDR.
 *
 * Little-endian, every number at its own size's alignment. Each word has one writer, but for slots and
 * next_slot. Texts end with a zero byte and fill up with zeroes.
 */
#ifndef UNSPIN_LINUX_AREA_H
#define UNSPIN_LINUX_AREA_H

#include <stddef.h>
#include <stdint.h>
#include "response_bucket.h"

#define AREA_ADDR 0x800000ul
#define AREA_BYTES 0x10000ul
#define AREA_RESERVE "memmap=64K$0x800000"
#define AREA_MAGIC 0x6165726170736e75ull	/* "unsparea" */
#define AREA_VERSION 3u
/* A word of the command line that has the runner load unspin-guest, and with which parameters. */
#define AREA_MODULE_ENV "UNSPIN_GUEST_MODULE"
#define AREA_SLOTS 960u			/* all but the first page, a cache line each */
#define AREA_NAME_BYTES 64u
#define AREA_TEXT_BYTES 64u
#define AREA_ERROR_BYTES 256u

/* area.state: what the runner does. */
enum area_state {
	AREA_NOTHING = 0,	/* no runner has started */
	AREA_READY = 1,		/* no program runs */
	AREA_RUNS = 2,
	AREA_FAILED = 3,	/* the program ended with another status than 0, or cannot be started */
	AREA_ENDED = 4,		/* it ended with status 0, but having counted nothing or again and again at
				 * once: it is not started any more */
};

/* Written by the runner. The host reads `answered` first, because what it confirms is written before it. */
struct area_guest {
	uint64_t magic;		/* AREA_MAGIC once everything else is written */
	uint32_t version;	/* AREA_VERSION */
	uint32_t state;		/* enum area_state */
	uint32_t answered;	/* `serial` of the last command that was carried out, or failed */
	uint32_t exit_status;	/* of the last end: the status, or 128 + the signal */
	uint32_t starts;	/* how often the program was started since the command */
	uint32_t pids;		/* 0: no process of a program is left; else there may be some */
	uint32_t boots;		/* how often a runner started in this memory; more than 1: the guest rebooted */
	uint32_t online;	/* vCPUs the kernel has brought up */
	uint32_t pad[6];
};

/* The host writes. */
struct area_host {
	uint64_t seed;		/* of the program, as $seed */
	uint32_t serial;	/* one higher, when the rest of the command is in place */
	uint32_t pad[13];
	char program[AREA_NAME_BYTES];	/* directory below /programs; empty: end what runs, and idle */
};

/* Written by the runner, before `magic`: what the kernel reports to use. */
struct area_found {
	char kernel[AREA_TEXT_BYTES];		/* release */
	char lock[AREA_TEXT_BYTES];		/* as guest_lock in scenarios */
	char ipis[AREA_TEXT_BYTES];		/* "pv" or "apic" */
	char tlb_flush[AREA_TEXT_BYTES];	/* "pv" or "ipi" */
	char sched_yield[AREA_TEXT_BYTES];	/* "pv" (KVM_HC_SCHED_YIELD) or "none" */
	char clocksource[AREA_TEXT_BYTES];	/* as in /sys */
	char module[AREA_TEXT_BYTES];		/* version of unspin-guest (vcrd/), empty: not loaded */
};

/* Counts the units of one thread, or of several if there are more threads than slots. */
struct area_slot {
	uint64_t units;		/* only grows, by `lock inc` */
	uint64_t pad[7];
};

/* Times that a program notes: of its answers, or of an operation. Added with `lock add`; they only grow. */
struct area_responses {
	uint64_t count;
	uint64_t cycles;	/* sum of all, TSC cycles */
	uint64_t hist[GUEST_RESPONSE_BUCKETS];
};

struct area {
	struct area_guest guest;
	struct area_host host;
	char pad0[0x40];
	char error[AREA_ERROR_BYTES];	/* the runner: why AREA_FAILED or AREA_ENDED */
	struct area_found found;
	char pad1[0x40];
	uint32_t next_slot;		/* threads take slots in turn: fetch-and-add, modulo AREA_SLOTS */
	char pad2[0x3c];
	struct area_responses responses;
	char pad3[0x1000 - 0xe50];
	struct area_slot slot[AREA_SLOTS];
};

_Static_assert(offsetof(struct area, guest.state) == 0x00c, "layout");
_Static_assert(offsetof(struct area, guest.answered) == 0x010, "layout");
_Static_assert(offsetof(struct area, guest.online) == 0x024, "layout");
_Static_assert(offsetof(struct area, host.seed) == 0x040, "layout");
_Static_assert(offsetof(struct area, host.serial) == 0x048, "layout");
_Static_assert(offsetof(struct area, host.program) == 0x080, "layout");
_Static_assert(offsetof(struct area, error) == 0x100, "layout");
_Static_assert(offsetof(struct area, found.kernel) == 0x200, "layout");
_Static_assert(offsetof(struct area, found.clocksource) == 0x340, "layout");
_Static_assert(offsetof(struct area, found.module) == 0x380, "layout");
_Static_assert(offsetof(struct area, next_slot) == 0x400, "layout");
_Static_assert(offsetof(struct area, responses) == 0x440, "layout");
_Static_assert(offsetof(struct area, slot) == 0x1000, "layout");
_Static_assert(sizeof(struct area_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct area) == AREA_BYTES, "the area is full");

#endif

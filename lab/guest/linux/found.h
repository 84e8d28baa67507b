/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the guest's kernel uses on a hypervisor, from its boot messages and /sys. The messages are
 * those of arch/x86/kernel/kvm.c, 6.1 to 7.3, and of lab/guest/kernel.
 */
#ifndef UNSPIN_LINUX_FOUND_H
#define UNSPIN_LINUX_FOUND_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "area.h"

/*
 * The kernel's spin lock, from its log and the flags in /proc/cpuinfo. Without pv-unhalt it takes
 * test-and-set wherever there is a hypervisor; every other reason not to halt leads to the queued lock.
 */
static const char *lock_of(const char *log, const char *cpuinfo)
{
	if (strstr(log, "PV spinlocks enabled"))
		return "pv";
	if (strstr(log, "PV spinlocks disabled, no host support"))
		return "test-and-set";
	if (strstr(log, "PV spinlocks disabled"))
		return "queued";
	return strstr(cpuinfo, " hypervisor") ? "test-and-set" : "queued";
}

/* What a kernel with the locks of core/locks logs before the lock's name. */
#define FOUND_SPINLOCKS "unspin: spin locks: "

static void find_lock(const char *log, const char *cpuinfo, char *text, size_t size)
{
	const char *own = strstr(log, FOUND_SPINLOCKS);

	own = own ? own + strlen(FOUND_SPINLOCKS) : lock_of(log, cpuinfo);
	snprintf(text, size, "%.*s", (int)strcspn(own, "\n"), own);
}

/* The start of a file; empty if it cannot be read. */
static void read_start(const char *file, char *text, size_t size)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? 0 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[length > 0 ? length : 0] = 0;
}

/* The first line of a file. */
static void read_text(const char *file, char *text, size_t size)
{
	read_start(file, text, size);
	text[strcspn(text, "\n")] = 0;
}

static void found_fill(struct area_found *found)
{
	static char log[1 << 18], cpuinfo[4096];
	struct utsname name;
	int length = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, log, sizeof(log) - 1);

	log[length > 0 ? length : 0] = 0;
	/* The flags of the first CPU are in the first page. */
	read_start("/proc/cpuinfo", cpuinfo, sizeof(cpuinfo));
	uname(&name);
	snprintf(found->kernel, sizeof(found->kernel), "%.63s", name.release);
	find_lock(log, cpuinfo, found->lock, sizeof(found->lock));
	strcpy(found->ipis, strstr(log, "setup PV IPIs") ? "pv" : "apic");
	strcpy(found->tlb_flush, strstr(log, "pv remote TLB flush") ? "pv" : "ipi");
	strcpy(found->sched_yield, strstr(log, "setup PV sched yield") ? "pv" : "none");
	read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource",
		  found->clocksource, sizeof(found->clocksource));
	read_text("/sys/module/unspin_guest/version", found->module, sizeof(found->module));
}

#endif

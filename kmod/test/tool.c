// SPDX-License-Identifier: GPL-2.0-only
/* tool say TEXT: a line on port 0xE9. tool hog CPU: spin there in real time, above every vCPU. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>

int main(int argc, char **argv)
{
	struct sched_param param = { .sched_priority = 50 };
	cpu_set_t cpus;
	const char *c;

	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "say")) {
		if (ioperm(0xe9, 1, 1))
			return 1;
		for (c = argv[2]; *c; c++)
			outb(*c, 0xe9);
		outb('\n', 0xe9);
		return 0;
	}
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[2]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) || sched_setscheduler(0, SCHED_FIFO, &param))
		return 1;
	for (;;)
		__asm__ volatile("" ::: "memory");
}

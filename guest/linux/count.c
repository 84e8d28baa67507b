// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * libunspin-count.so, preloaded: counts the calls that a program makes of the libc functions named in
 * UNSPIN_COUNT ("write,send"), one unit each, in the shared area.
 *
 * Every function of `FUNCTIONS` is replaced by a few instructions that pass all arguments on as they
 * are, so that no prototype is needed and variadic functions work, too. A counted call takes
 * 8 instructions more than one without the library, a call of the others 3.
 * Nothing on that way locks or allocates.
 *
 * A thread takes its slot at its first counted call. So does the child of a fork. Calls that libc makes
 * of its own functions inside do not count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include "units.h"

#define COUNT_ENV "UNSPIN_COUNT"

/* Index and name: indexes go up by one from 0. */
#define FUNCTIONS(X) \
	X(0, accept) X(1, access) X(2, close) X(3, connect) X(4, creat) X(5, epoll_wait) \
	X(6, execv) X(7, execve) X(8, execvp) X(9, fcntl) X(10, fork) X(11, fstat) X(12, fsync) \
	X(13, ftruncate) X(14, fdatasync) X(15, getdents64) X(16, ioctl) X(17, link) X(18, lseek) \
	X(19, lstat) X(20, madvise) X(21, mkdir) X(22, mmap) X(23, mprotect) X(24, mremap) \
	X(25, msgrcv) X(26, msgsnd) X(27, munmap) X(28, nanosleep) X(29, open) X(30, open64) \
	X(31, openat) X(32, openat64) X(33, pipe) X(34, poll) X(35, posix_spawn) X(36, pread) \
	X(37, pread64) X(38, pthread_barrier_wait) X(39, pthread_cond_signal) \
	X(40, pthread_cond_wait) X(41, pthread_create) X(42, pthread_mutex_lock) \
	X(43, pthread_mutex_unlock) X(44, pwrite) X(45, pwrite64) X(46, read) X(47, recv) \
	X(48, recvfrom) X(49, recvmsg) X(50, rename) X(51, rmdir) X(52, sched_yield) X(53, select) \
	X(54, semop) X(55, send) X(56, sendmsg) X(57, sendto) X(58, shmat) X(59, shmdt) \
	X(60, socketpair) X(61, stat) X(62, statfs) X(63, symlink) X(64, syscall) X(65, unlink) \
	X(66, unlinkat) X(67, usleep) X(68, utime) X(69, waitpid) X(70, write) X(71, writev) \
	X(72, mmap64) X(73, lseek64) X(74, stat64) X(75, fstat64) X(76, lstat64) X(77, ftruncate64)

#define NAME(index, name) [index] = #name,
static const char *const names[] = { FUNCTIONS(NAME) };
#define FUNCTION_COUNT (sizeof(names) / sizeof(names[0]))

/* The assembly below reads and calls these. `hidden`: they are addressed without the GOT. */
#define INTERNAL __attribute__((visibility("hidden"), used))

INTERNAL unsigned char unspin_counted[FUNCTION_COUNT];
/* The thread's; NULL until it first counts. Initial-exec: two instructions, no call. */
INTERNAL __thread uint64_t *unspin_slot __attribute__((tls_model("initial-exec")));
INTERNAL void *unspin_find(size_t index);
INTERNAL void unspin_take_slot(void);

static struct area *area;

/*
 * unspin_real: where each function is; at first, the code that finds it out, for libraries may call
 * before this one's constructor has run. %r11 is free at a call, and %rax, %r10 may hold arguments.
 */
#define ENTRY(index, name) \
	".globl " #name "\n.type " #name ", @function\n" #name ":\n" \
	"	cmpb $0, unspin_counted+" #index "(%rip)\n" \
	"	je 1f\n" \
	"	mov unspin_slot@gottpoff(%rip), %r11\n" \
	"	mov %fs:(%r11), %r11\n" \
	"	test %r11, %r11\n" \
	"	je 2f\n" \
	"	lock incq (%r11)\n" \
	"1:	jmp *unspin_real+8*" #index "(%rip)\n" \
	"2:	push $" #index "\n" \
	"	jmp unspin_first_count\n" \
	".size " #name ", .-" #name "\n" \
	"unspin_look_up_" #name ":\n" \
	"	push $" #index "\n" \
	"	jmp unspin_look_up\n"
#define REAL(index, name) "	.quad unspin_look_up_" #name "\n"

/* The functions in C keep off vector registers, so these are all that hold arguments. */
#define SAVE \
	"	push %rdi\n	push %rsi\n	push %rdx\n	push %rcx\n	push %r8\n" \
	"	push %r9\n	push %rax\n	push %r10\n	push %rbx\n" \
	"	mov %rsp, %rbx\n	mov 72(%rsp), %rdi\n	and $-16, %rsp\n"
#define RESTORE \
	"	mov %rbx, %rsp\n	pop %rbx\n	pop %r10\n	pop %rax\n" \
	"	pop %r9\n	pop %r8\n	pop %rcx\n	pop %rdx\n	pop %rsi\n	pop %rdi\n"

__asm__(".text\n"
	FUNCTIONS(ENTRY)
	"unspin_look_up:\n"
	SAVE
	"	call unspin_find\n"
	"	mov %rax, %r11\n"
	RESTORE
	"	add $8, %rsp\n"
	"	jmp *%r11\n"
	"unspin_first_count:\n"
	SAVE
	"	call unspin_take_slot\n"
	RESTORE
	"	pop %r11\n"
	"	push %rax\n"
	"	lea unspin_real(%rip), %rax\n"
	"	mov (%rax,%r11,8), %r11\n"
	"	pop %rax\n"
	"	jmp *%r11\n"
	".data\n.balign 8\n.hidden unspin_real\nunspin_real:\n"
	FUNCTIONS(REAL)
	".text\n");

extern void *unspin_real[FUNCTION_COUNT] __attribute__((visibility("hidden")));

void *unspin_find(size_t index)
{
	void *found = dlsym(RTLD_NEXT, names[index]);

	if (!found)
		units_refuse("unspin: the C library has no %s", names[index]);
	__atomic_store_n(&unspin_real[index], found, __ATOMIC_RELAXED);
	return found;
}

/* The first counted call of a thread is counted here. */
void unspin_take_slot(void)
{
	unspin_slot = units_slot(area);
	units_count(unspin_slot);
}

/* The parent goes on with the slot. */
static void child_of_fork(void)
{
	unspin_slot = NULL;
}

static void count_calls_of(const char *name, size_t length)
{
	for (size_t i = 0; i < FUNCTION_COUNT; i++) {
		if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) {
			unspin_find(i);
			unspin_counted[i] = 1;
			return;
		}
	}
	units_refuse("unspin: " COUNT_ENV " names %.*s, which guest/linux/count.c cannot count",
		     (int)length, name);
}

__attribute__((constructor)) static void count_init(void)
{
	const char *list = getenv(COUNT_ENV);

	if (!list || !*list)
		units_refuse("unspin: " COUNT_ENV " names no function to count");
	area = units_area();
	if (pthread_atfork(NULL, NULL, child_of_fork) != 0)
		units_refuse("unspin: no room to follow forks");
	for (;;) {
		size_t length = strcspn(list, ",");

		count_calls_of(list, length);
		if (!list[length])
			return;
		list += length + 1;
	}
}

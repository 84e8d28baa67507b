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
	X(0, accept) X(1, accept4) X(2, access) X(3, bind) X(4, calloc) X(5, chmod) \
	X(6, clock_nanosleep) X(7, close) X(8, closedir) X(9, connect) X(10, creat) \
	X(11, creat64) X(12, dup) X(13, dup2) X(14, epoll_ctl) X(15, epoll_wait) X(16, execv) \
	X(17, execve) X(18, execvp) X(19, execvpe) X(20, fallocate) X(21, fallocate64) \
	X(22, fcntl) X(23, fdatasync) X(24, fgetxattr) X(25, fork) X(26, free) X(27, fstat) \
	X(28, fstat64) X(29, fstatat) X(30, fstatat64) X(31, fstatfs) X(32, fsync) \
	X(33, ftruncate) X(34, ftruncate64) X(35, getdents64) X(36, getppid) X(37, getxattr) \
	X(38, ioctl) X(39, kill) X(40, link) X(41, listen) X(42, lseek) X(43, lseek64) \
	X(44, lstat) X(45, lstat64) X(46, madvise) X(47, malloc) X(48, mkdir) X(49, mkdirat) \
	X(50, mmap) X(51, mmap64) X(52, mprotect) X(53, mremap) X(54, msgrcv) X(55, msgsnd) \
	X(56, msync) X(57, munmap) X(58, nanosleep) X(59, open) X(60, open64) X(61, openat) \
	X(62, openat64) X(63, opendir) X(64, pipe) X(65, pipe2) X(66, poll) X(67, posix_spawn) \
	X(68, posix_spawnp) X(69, pread) X(70, pread64) X(71, pthread_barrier_wait) \
	X(72, pthread_cond_broadcast) X(73, pthread_cond_signal) X(74, pthread_cond_timedwait) \
	X(75, pthread_cond_wait) X(76, pthread_create) X(77, pthread_join) \
	X(78, pthread_mutex_lock) X(79, pthread_mutex_unlock) X(80, pthread_rwlock_rdlock) \
	X(81, pthread_rwlock_wrlock) X(82, pthread_spin_lock) X(83, pthread_yield) \
	X(84, pwrite) X(85, pwrite64) X(86, read) X(87, readahead) X(88, readdir) \
	X(89, readdir64) X(90, readlink) X(91, readv) X(92, realloc) X(93, recv) \
	X(94, recvfrom) X(95, recvmsg) X(96, rename) X(97, renameat2) X(98, rmdir) \
	X(99, sched_setaffinity) X(100, sched_yield) X(101, select) X(102, semop) \
	X(103, semtimedop) X(104, send) X(105, sendfile) X(106, sendfile64) X(107, sendmsg) \
	X(108, sendto) X(109, setxattr) X(110, shmat) X(111, shmdt) X(112, shutdown) \
	X(113, socket) X(114, socketpair) X(115, stat) X(116, stat64) X(117, statfs) \
	X(118, statfs64) X(119, statvfs) X(120, statvfs64) X(121, statx) X(122, symlink) \
	X(123, syscall) X(124, unlink) X(125, unlinkat) X(126, usleep) X(127, utime) \
	X(128, vfork) X(129, wait) X(130, wait4) X(131, waitid) X(132, waitpid) X(133, write) \
	X(134, writev)

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

	/* Functions that only old programs use have only the name of their first version. */
	if (!found)
		found = dlvsym(RTLD_NEXT, names[index], "GLIBC_2.2.5");
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

/* The parent keeps the slot. */
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

// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The first process of a Linux guest: runs the programs that the host asks for in the shared area
 * (area.h), one at a time.
 *
 * A program is a directory below /programs:
 *	command	what to run again and again, for /bin/sh
 *	counts	libc functions whose calls are counted, "write,send"; empty: the program counts by itself
 *	prepare	run once before the first time, for /bin/sh; may be empty
 * Their environment has vcpus, seed (31 bits) and data, a directory that stays as long as the guest
 * does. They run in /tmp, which is emptied once all of a program's processes are gone.
 *
 * Started by anybody else than the kernel, it mounts nothing and serves the area in the file named
 * by UNSPIN_AREA, with programs below UNSPIN_PROGRAMS, until it gets SIGTERM: for tests.
 */
#define _GNU_SOURCE
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include "found.h"
#include "units.h"

#define LOOK_EVERY_MS 20
/* How long a program may take to end when it is asked to. */
#define GRACE_MS 200
/* A program that ends this often in a row, each time this soon, is not started any more. */
#define SOON_MS 50
#define SOON_ENDS_MAX 20

/* What every program takes as a seed. */
#define SEED_MAX 0x7fffffffull

enum phase { IDLE, PREPARES, RUNS };

static struct {
	struct area *area;
	const char *programs;
	bool is_init;
	enum phase phase;
	uint32_t obeyed;	/* serial of the command that is being carried out, or was */
	pid_t leader;		/* the program's first process; 0 once it has ended */
	pid_t session;		/* of the program's processes; 0: there are none */
	char name[AREA_NAME_BYTES];
	uint64_t seed;
	uint64_t started_ms;
	uint64_t units_at_start;
	unsigned int soon_ends;
	int output;		/* output of the program */
	int log;		/* output of the runner: the console */
} runner;

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

static void set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	dprintf(runner.log, "runner: ");
	vdprintf(runner.log, format, args);
	dprintf(runner.log, "\n");
	va_end(args);
}

/* The guest is of no use: its kernel panics, which the host sees. */
__attribute__((noreturn)) static void give_up(const char *what)
{
	say("%s: %s", what, strerror(errno));
	exit(1);
}

static uint64_t units_sum(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < AREA_SLOTS; i++)
		sum += __atomic_load_n(&runner.area->slot[i].units, __ATOMIC_RELAXED);
	return sum;
}

/* The end of the program's output, in one line. */
static void last_words(char *text, size_t size)
{
	off_t length = lseek(runner.output, 0, SEEK_END);
	ssize_t got;

	while (length > 0) {
		char last = 0;

		if (pread(runner.output, &last, 1, length - 1) != 1 || (last != '\n' && last != ' '))
			break;
		length--;
	}
	got = length < (off_t)size - 1 ? length : (off_t)size - 1;
	got = pread(runner.output, text, got, length - got);
	text[got > 0 ? got : 0] = 0;
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
}

/* Nothing runs any more, and this is why. */
__attribute__((format(printf, 2, 3))) static void fail(enum area_state state, const char *format, ...)
{
	struct area *area = runner.area;
	char text[AREA_ERROR_BYTES] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(area->error, text, sizeof(text));
	say("%s: %s", runner.name, text);
	runner.phase = IDLE;
	set(&area->guest.state, state);
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *at)
{
	(void)stat;
	/* Keep mounted directories, and the directory itself. */
	if (at->level > 0)
		(void)(type == FTW_DP ? rmdir(path) : unlink(path));
	return 0;
}

static void empty_directory(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Reap processes that have ended; false if none is left. `status` is set if the leader is among them. */
static bool reap(bool *leader_ended, int *status)
{
	for (;;) {
		int found;
		pid_t pid = waitpid(-1, &found, WNOHANG);

		if (pid < 0)
			return false;
		if (pid == 0)
			return true;
		if (pid == runner.leader) {
			*leader_ended = true;
			*status = found;
			runner.leader = 0;
		}
	}
}

static void wait_for_child(uint64_t ms)
{
	struct timespec timeout = { ms / 1000, ms % 1000 * 1000000 };
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigtimedwait(&child, NULL, &timeout);
}

/* The first process of a computer may signal all others; elsewhere it is the program's session. */
static void signal_all(int signal)
{
	if (runner.is_init)
		kill(-1, signal);
	else if (runner.session)
		kill(-runner.session, signal);
}

/* Kill all other processes, and return when they are gone. */
static void end_all(void)
{
	uint64_t deadline = now_ms() + GRACE_MS;
	bool leader_ended;
	int status;

	signal_all(SIGTERM);
	while (reap(&leader_ended, &status)) {
		/* Again and again: a process may have forked while it was killed. */
		if (now_ms() >= deadline)
			signal_all(SIGKILL);
		wait_for_child(LOOK_EVERY_MS);
	}
	set(&runner.area->guest.pids, 0);
	runner.leader = 0;
	runner.session = 0;
	runner.phase = IDLE;
	if (runner.is_init) {
		empty_directory("/tmp");
		empty_directory("/dev/shm");
	}
}

/* In the child: become the program. */
__attribute__((noreturn)) static void become(const char *script, const char *counts)
{
	static char seed[24], vcpus[12], data[AREA_NAME_BYTES + 16];
	sigset_t none;

	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(runner.output, STDOUT_FILENO);
	dup2(runner.output, STDERR_FILENO);
	/* Semaphores and shared memory go with the program. */
	if (runner.is_init && (unshare(CLONE_NEWIPC) != 0 || chdir("/tmp") != 0))
		_exit(127);
	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)(runner.seed & SEED_MAX));
	snprintf(vcpus, sizeof(vcpus), "%u", runner.area->guest.online);
	snprintf(data, sizeof(data), "%s/%s", runner.is_init ? "/data" : "/tmp", runner.name);
	setenv("seed", seed, 1);
	setenv("vcpus", vcpus, 1);
	setenv("data", data, 1);
	if (*counts) {
		setenv("UNSPIN_COUNT", counts, 1);
		setenv("LD_PRELOAD", getenv("UNSPIN_PRELOAD") ? getenv("UNSPIN_PRELOAD") :
							       "/lib/libunspin-count.so", 1);
	}
	execl("/bin/sh", "sh", script, NULL);
	dprintf(STDERR_FILENO, "/bin/sh: %s\n", strerror(errno));
	_exit(127);
}

/* Start /programs/NAME/FILE in its own session. */
static void start(enum phase phase)
{
	char script[512], counts_file[512], counts[512];

	snprintf(script, sizeof(script), "%s/%s/%s", runner.programs, runner.name,
		 phase == PREPARES ? "prepare" : "command");
	snprintf(counts_file, sizeof(counts_file), "%s/%s/counts", runner.programs, runner.name);
	read_text(counts_file, counts, sizeof(counts));
	if (ftruncate(runner.output, 0) != 0)
		give_up("emptying the program's output");
	if (phase == RUNS) {
		runner.units_at_start = units_sum();
		runner.started_ms = now_ms();
		set(&runner.area->guest.starts, runner.area->guest.starts + 1);
	}
	runner.leader = fork();
	if (runner.leader == 0)
		become(script, phase == RUNS ? counts : "");
	if (runner.leader < 0) {
		runner.leader = 0;
		fail(AREA_FAILED, "cannot be started: %s", strerror(errno));
		return;
	}
	runner.session = runner.leader;
	runner.phase = phase;
	set(&runner.area->guest.pids, 1);
	if (phase == RUNS)
		set(&runner.area->guest.state, AREA_RUNS);
}

/* Whether the program's `prepare` is done: empty, or it has left its mark. */
static bool is_prepared(char *mark, size_t size)
{
	char script[512];
	struct stat stat_of;

	snprintf(script, sizeof(script), "%s/%s/prepare", runner.programs, runner.name);
	snprintf(mark, size, "%s/%s/.prepared", runner.is_init ? "/data" : "/tmp", runner.name);
	return stat(script, &stat_of) != 0 || stat_of.st_size == 0 || access(mark, F_OK) == 0;
}

/* Carry out the command in the area. */
static void obey(void)
{
	struct area *area = runner.area;
	char file[512], mark[512], data[512];

	end_all();
	runner.soon_ends = 0;
	set(&area->guest.starts, 0);
	set(&area->guest.exit_status, 0);
	memset(area->error, 0, sizeof(area->error));
	memcpy(runner.name, area->host.program, sizeof(runner.name) - 1);
	runner.seed = area->host.seed;
	if (!runner.name[0]) {
		set(&area->guest.state, AREA_READY);
		return;
	}
	snprintf(file, sizeof(file), "%s/%s/command", runner.programs, runner.name);
	if (strchr(runner.name, '/') || access(file, R_OK) != 0) {
		fail(AREA_FAILED, "the guest's image has no program of this name");
		return;
	}
	snprintf(data, sizeof(data), "%s/%s", runner.is_init ? "/data" : "/tmp", runner.name);
	mkdir(data, 0755);
	start(is_prepared(mark, sizeof(mark)) ? RUNS : PREPARES);
}

/* The program's first process has ended. */
static void ended(int status)
{
	struct area *area = runner.area;
	int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	enum phase phase = runner.phase;
	bool is_soon = now_ms() - runner.started_ms < SOON_MS;
	char words[128], mark[512];

	end_all();
	set(&area->guest.exit_status, code);
	last_words(words, sizeof(words));
	if (code != 0) {
		fail(AREA_FAILED, "%s ended with status %d: %s",
		     phase == PREPARES ? "its preparation" : "it", code, words);
		return;
	}
	if (phase == PREPARES) {
		is_prepared(mark, sizeof(mark));
		close(open(mark, O_CREAT | O_WRONLY, 0644));
		start(RUNS);
		return;
	}
	runner.soon_ends = is_soon ? runner.soon_ends + 1 : 0;
	if (units_sum() == runner.units_at_start)
		fail(AREA_ENDED, "it ended without having counted a unit: %s", words);
	else if (runner.soon_ends == SOON_ENDS_MAX)
		fail(AREA_ENDED, "it ended %d times in a row within %d ms of its start: %s",
		     SOON_ENDS_MAX, SOON_MS, words);
	else
		start(RUNS);
}

static volatile sig_atomic_t stop;

static void on_stop(int signal)
{
	(void)signal;
	stop = 1;
}

static void serve(void)
{
	struct area *area = runner.area;

	while (!stop) {
		bool leader_ended = false;
		int status = 0;
		uint32_t serial = __atomic_load_n(&area->host.serial, __ATOMIC_ACQUIRE);

		if (serial != runner.obeyed) {
			obey();
			runner.obeyed = serial;
		}
		reap(&leader_ended, &status);
		if (leader_ended)
			ended(status);
		/* A command is answered when the program runs or has failed, or when none was given. */
		if (runner.phase != PREPARES)
			set(&area->guest.answered, runner.obeyed);
		if (!leader_ended)
			wait_for_child(LOOK_EVERY_MS);
	}
	end_all();
}

static void mount_all(void)
{
	static const struct { const char *type, *at; } mounts[] = {
		{ "devtmpfs", "/dev" }, { "proc", "/proc" }, { "sysfs", "/sys" },
		{ "tmpfs", "/tmp" }, { "tmpfs", "/dev/shm" },
	};

	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		mkdir(mounts[i].at, 0755);
		if (mount(mounts[i].type, mounts[i].at, mounts[i].type, 0, NULL) != 0)
			give_up(mounts[i].at);
	}
	mkdir("/data", 0755);
	runner.log = open("/dev/console", O_WRONLY | O_CLOEXEC);
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
	setenv("PATH", "/bin:/usr/bin:/sbin:/usr/sbin", 1);
}

/* Unknown words of the kernel's command line are the first process's environment. */
static void load_module(void)
{
	const char *parameters = getenv(AREA_MODULE_ENV);
	struct utsname name;
	char file[128];
	int fd;

	if (!parameters)
		return;
	uname(&name);
	snprintf(file, sizeof(file), "/modules/%s/unspin-guest.ko", name.release);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, parameters, 0) != 0)
		give_up(file);
	close(fd);
}

static void come_up(void)
{
	struct area *area = runner.area;
	bool was_up = area->guest.magic == AREA_MAGIC;

	area->guest.version = AREA_VERSION;
	set(&area->guest.boots, was_up ? area->guest.boots + 1 : 1);
	set(&area->guest.online, get_nprocs());
	found_fill(&area->found);
	set(&area->guest.state, AREA_READY);
	__atomic_store_n(&area->guest.magic, AREA_MAGIC, __ATOMIC_RELEASE);
	say("ready: %s, %u vCPUs, %s locks, IPIs by %s, TLB flushes by %s, clock %s",
	    area->found.kernel, area->guest.online, area->found.lock, area->found.ipis,
	    area->found.tlb_flush, area->found.clocksource);
}

int main(void)
{
	struct sigaction on_term = { .sa_handler = on_stop };
	sigset_t child;
	const char *file = getenv(AREA_ENV) ? getenv(AREA_ENV) : AREA_MEMORY;

	runner.is_init = getpid() == 1;
	runner.log = STDERR_FILENO;
	runner.programs = getenv("UNSPIN_PROGRAMS") ? getenv("UNSPIN_PROGRAMS") : "/programs";
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	sigaction(SIGTERM, &on_term, NULL);
	if (runner.is_init) {
		mount_all();
		load_module();
	} else {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	}
	runner.output = memfd_create("output", MFD_CLOEXEC);
	runner.area = area_map(file);
	if (runner.output < 0 || !runner.area)
		give_up("mapping the shared area (the kernel must be started with " AREA_RESERVE ")");
	fcntl(runner.output, F_SETFL, O_APPEND);
	come_up();
	serve();
	return 0;
}

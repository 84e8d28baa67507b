// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * exim-mails config: prints a configuration of exim, for mail to local users.
 * exim-mails EXIM CLIENTS SEED: threads that give mails to exim by SMTP, each to its own user. Each mail has
 * 20 bytes, and each exim takes 10, as in MOSBENCH.
 *
 * One unit is a mail that exim has accepted. It delivers it before it takes the next one (-odi), so no
 * queue grows.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "units.h"

#define CLIENTS_MAX 64
#define MAILS 10	/* for one exim */

/* `deliver_drop_privilege`: the process that accepted a mail forks to deliver it and executes nothing. */
static const char config[] =
	"primary_hostname = guest\n"
	"spool_directory = /tmp/spool\n"
	"log_file_path = /tmp/log-%s\n"
	"deliver_drop_privilege\n"
	"keep_environment =\n"
	"acl_smtp_rcpt = takes_all\n"
	"begin acl\n"
	"takes_all:\n"
	"  accept\n"
	"begin routers\n"
	"users:\n"
	"  driver = accept\n"
	"  transport = mailbox\n"
	"  local_parts = nobody";
static const char config_end[] = "\n"
	"begin transports\n"
	"mailbox:\n"
	"  driver = appendfile\n"
	"  file = /tmp/mail/$local_part_data\n";

static struct area *area;
static char *program;

/* exim forms a file's name only from names that its configuration has. */
static bool print_config(void)
{
	fputs(config, stdout);
	for (int i = 0; i < CLIENTS_MAX; i++)
		printf(" : user%d", i);
	fputs(config_end, stdout);
	return fflush(stdout) == 0;
}

/* An exim of its own that takes mails at its standard input, as an inetd would start it. */
static FILE *exim_started(pid_t *pid)
{
	char *command[] = { program, "-bs", "-odi", NULL };
	posix_spawn_file_actions_t actions;
	int ends[2], error;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		units_refuse("exim-mails: no socket: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	error = posix_spawnp(pid, command[0], &actions, NULL, command, environ);
	if (error)
		units_refuse("exim-mails: %s: %s", program, strerror(error));
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	return fdopen(ends[0], "r+");
}

/* Send a line, if there is one, and take the answer, which must begin with `digit`. */
static void talk(FILE *exim, const char *line, char digit)
{
	char answer[512];

	if (line)
		dprintf(fileno(exim), "%s\r\n", line);
	do {
		if (!fgets(answer, sizeof(answer), exim))
			units_refuse("exim-mails: exim ended after %s", line ? line : "its start");
	} while (answer[3] == '-');
	if (answer[0] != digit)
		units_refuse("exim-mails: exim answers %s to %s", answer, line ? line : "its start");
}

/* Start an exim, and give it its mails. */
static void give(unsigned int user, unsigned int *random, uint64_t *slot)
{
	char to[64], text[64];
	pid_t pid;
	FILE *exim = exim_started(&pid);

	snprintf(to, sizeof(to), "RCPT TO:<user%u@guest>", user);
	talk(exim, NULL, '2');
	talk(exim, "HELO guest", '2');
	for (int i = 0; i < MAILS; i++) {
		snprintf(text, sizeof(text), "\r\n%018u\r\n.", rand_r(random));
		talk(exim, "MAIL FROM:<user@guest>", '2');
		talk(exim, to, '2');
		talk(exim, "DATA", '3');
		talk(exim, text, '2');
		units_count(slot);
	}
	talk(exim, "QUIT", '2');
	fclose(exim);
	waitpid(pid, NULL, 0);
}

static void *client(void *number)
{
	uint64_t *slot = units_slot(area);
	unsigned int random = (uintptr_t)number;

	for (;;)
		give((uintptr_t)number % CLIENTS_MAX, &random, slot);
	return NULL;
}

int main(int count, char **arguments)
{
	int clients = count == 4 ? atoi(arguments[2]) : 0;
	unsigned int first = 0;

	if (count == 2 && strcmp(arguments[1], "config") == 0)
		return !print_config();
	if (clients < 1 || clients > CLIENTS_MAX)
		units_refuse("usage: exim-mails config, or exim-mails EXIM CLIENTS SEED, with 1 to %d clients",
			     CLIENTS_MAX);
	program = arguments[1];
	area = units_area();
	/* The first one makes exim's directories alone: others would find them before they may use them. */
	give(0, &first, units_slot(area));
	units_run_threads("exim-mails", clients, client, arguments[3], CLIENTS_MAX);
}

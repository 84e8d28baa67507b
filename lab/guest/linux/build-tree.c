// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * build-tree DIRECTORY: writes a small tree of C files and the Makefile that compiles them by tcc.
 *
 * Each file is a module with its own table, sort and parser, some 250 lines; the Makefile compiles
 * every one of them `ROUNDS` times, with another definition each time, so that a run of make
 * is long against its start and its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MODULES 16
#define ROUNDS 64
#define FUNCTIONS 8		/* of each kind, per module */

static const char header[] =
	"#ifndef TREE_H\n#define TREE_H\n"
	"typedef unsigned long size_t;\n"
	"#define NULL ((void *)0)\n"
	"#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))\n"
	"#define MIN(a, b) ((a) < (b) ? (a) : (b))\n"
	"struct item { int key; int value; struct item *next; const char *name; };\n"
	"struct table { struct item *slot[64]; size_t count; };\n"
	"void *memset(void *, int, size_t);\nint strcmp(const char *, const char *);\n"
	"size_t strlen(const char *);\n"
	"#endif\n";

/* %1$d: module, %2$d: function. */
static const char functions[] =
	"static int hash_%1$d_%2$d(int key)\n"
	"{\n"
	"	unsigned int h = key * 2654435761u + ROUND;\n\n"
	"	for (int i = 0; i < %2$d + 1; i++)\n"
	"		h ^= (h << 13) ^ (h >> 17) ^ (h << 5);\n"
	"	return h %% ARRAY_SIZE(((struct table *)0)->slot);\n"
	"}\n\n"
	"struct item *find_%1$d_%2$d(struct table *table, int key, const char *name)\n"
	"{\n"
	"	struct item *item = table->slot[hash_%1$d_%2$d(key)];\n\n"
	"	while (item && (item->key != key || strcmp(item->name, name) != 0))\n"
	"		item = item->next;\n"
	"	return item;\n"
	"}\n\n"
	"void sort_%1$d_%2$d(int *values, size_t count)\n"
	"{\n"
	"	for (size_t i = 1; i < count; i++) {\n"
	"		int value = values[i];\n"
	"		size_t j = i;\n\n"
	"		for (; j > 0 && values[j - 1] > value; j--)\n"
	"			values[j] = values[j - 1];\n"
	"		values[j] = value + %2$d;\n"
	"	}\n"
	"}\n\n"
	"int parse_%1$d_%2$d(const char *text)\n"
	"{\n"
	"	int sum = 0, sign = 1;\n\n"
	"	for (size_t i = 0; i < MIN(strlen(text), 64); i++) {\n"
	"		switch (text[i]) {\n"
	"		case '-': sign = -sign; break;\n"
	"		case '+': break;\n"
	"		case '0': case '1': case '2': case '3': case '4':\n"
	"			sum = sum * 10 + sign * (text[i] - '0');\n"
	"			break;\n"
	"		default: return sum ^ %2$d;\n"
	"		}\n"
	"	}\n"
	"	return sum;\n"
	"}\n\n";

static FILE *create(const char *directory, const char *name)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	if (!file) {
		perror(path);
		exit(1);
	}
	return file;
}

static void finish(FILE *file)
{
	if (ferror(file) | fclose(file)) {
		perror("build-tree");
		exit(1);
	}
}

static void write_modules(const char *directory)
{
	for (int module = 0; module < MODULES; module++) {
		char name[32];
		FILE *file;

		snprintf(name, sizeof(name), "module%d.c", module);
		file = create(directory, name);
		fputs("#include \"tree.h\"\n\n", file);
		for (int function = 0; function < FUNCTIONS; function++)
			fprintf(file, functions, module, function);
		finish(file);
	}
}

/* Objects are written over and over: the tree does not grow. */
static void write_makefile(const char *directory)
{
	FILE *file = create(directory, "Makefile");

	fputs("all:", file);
	for (int round = 0; round < ROUNDS; round++)
		for (int module = 0; module < MODULES; module++)
			fprintf(file, " r%d-%d", round, module);
	fputs("\n", file);
	for (int round = 0; round < ROUNDS; round++)
		for (int module = 0; module < MODULES; module++)
			fprintf(file, "r%d-%d: ; @$(CC) -DROUND=%d -c -o %d-%d.o module%d.c\n", round,
				module, round, round % 8, module, module);
	finish(file);
}

int main(int count, char **arguments)
{
	FILE *file;

	if (count != 2) {
		fputs("usage: build-tree DIRECTORY\n", stderr);
		return 1;
	}
	file = create(arguments[1], "tree.h");
	fputs(header, file);
	finish(file);
	write_modules(arguments[1]);
	write_makefile(arguments[1]);
	return 0;
}

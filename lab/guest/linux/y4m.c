// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * y4m WIDTH HEIGHT SEED: prints a video without end, in YUV4MPEG2: a smooth texture that moves, with a
 * brighter square that moves otherwise, and noise. So an encoder finds motion, and leaves something over.
 */
#include <stdio.h>
#include <stdlib.h>

#define SQUARE 32
#define NOISE 8		/* of 256 levels */

/* From 0 to 127, with a period of 64 pixels. */
static int wave(int at)
{
	int part = at & 63;

	return (part < 32 ? part : 63 - part) * 4;
}

static int bright(int x, int y, int frame, int width, int height)
{
	int left = frame * 3 % width, top = frame * 2 % height;
	int is_square = x >= left && x < left + SQUARE && y >= top && y < top + SQUARE;

	return wave(x + frame) / 2 + wave(y * 2 + x / 2 - frame) / 2 + (is_square ? 80 : 16);
}

int main(int count, char **arguments)
{
	int width = count == 4 ? atoi(arguments[1]) : 0;
	int height = count == 4 ? atoi(arguments[2]) : 0;
	unsigned int random;

	if (width < 16 || height < 16 || width % 2 || height % 2) {
		fputs("usage: y4m WIDTH HEIGHT SEED, with even numbers from 16\n", stderr);
		return 1;
	}
	random = strtoul(arguments[3], NULL, 10);
	printf("YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n", width, height);
	for (int frame = 0; !ferror(stdout); frame++) {
		puts("FRAME");
		for (int y = 0; y < height; y++)
			for (int x = 0; x < width; x++) {
				random = random * 1103515245u + 12345u;
				putchar_unlocked(bright(x, y, frame, width, height) + (random >> 16) % NOISE);
			}
		for (int i = 0; i < width * height / 2; i++)
			putchar_unlocked(128);
	}
	return 1;
}

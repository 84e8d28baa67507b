/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The threads whose steps are searched. Each runs the client's code as it was compiled, up to its next
 * request to the checker. What it is then is a frame: its stack, its thread-local variables and its
 * request. The same frame and the same answer lead to the same next frame, so that each is run once.
 */
#ifndef UNSPIN_VERIFY_THREADS_H
#define UNSPIN_VERIFY_THREADS_H

#include <cstdint>
#include "model.h"

/* Frame of a thread at its first request. Number model_threads runs after the others. */
uint32_t thread_start(unsigned int thread);
/* The request of a frame. */
const struct model_op &thread_op(uint32_t frame);
/* The frame after its request was answered. */
uint32_t thread_next(unsigned int thread, uint32_t frame, const struct model_result &result);
bool is_on_a_stack(uintptr_t address);
unsigned long thread_frames();

#endif

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Threads that can be put back to any earlier point: see threads.h. */
#include "threads.h"
#include "memory.h"
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <deque>

#ifndef __x86_64__
#error "the checker switches stacks of x86-64; the locks it checks are those of every processor"
#endif

constexpr size_t STACK_BYTES = 32768;
/* Below a thread's stack pointer. Cleared, so that what is left there does not tell frames apart. */
constexpr size_t CLEAR_BYTES = 2048;

/* Saves the registers that a call keeps and the stack pointer, and goes on with another stack. */
extern "C" void model_switch(char **save, char *to);
asm(R"(
	.text
	.globl model_switch
model_switch:
	push %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	mov %rsp, (%rdi)
	mov %rsi, %rsp
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	ret
)");
constexpr size_t SAVED_BYTES = 7 * 8;

struct Frame {
	size_t stack_bytes;
	std::string memory;	/* the stack, then the thread's own variables */
	struct model_op op;
};

/* The client's thread-local variables, if it has any. */
extern "C" __attribute__((weak)) char __start_model_locals[], __stop_model_locals[];

static std::string locals()
{
	return std::string(__start_model_locals, __stop_model_locals);
}

alignas(64) static char stacks[THREADS_MAX][STACK_BYTES];
static std::deque<Frame> frames;
static std::unordered_map<std::string, uint32_t> frame_of;
struct Answer {
	uint32_t frame;
	uint64_t value, done;
	bool operator==(const Answer &other) const
	{
		return frame == other.frame && value == other.value && done == other.done;
	}
};
struct AnswerHash {
	size_t operator()(const Answer &answer) const
	{
		return (answer.value * 0x9e3779b97f4a7c15 ^ answer.frame * 0xff51afd7ed558ccd) + answer.done;
	}
};
static std::unordered_map<Answer, uint32_t, AnswerHash> next_of;

static char *checker_sp, *thread_sp;
static const struct model_op *asked;
static struct model_result answered;
static unsigned int running;

struct model_result model_do(const struct model_op *op)
{
	asked = op;
	model_switch(&thread_sp, checker_sp);
	return answered;
}

static void first_steps()
{
	if (running < model_threads)
		model_thread(running);
	else
		model_last_thread();
	abort();	/* a thread that has ended is not run */
}

bool is_on_a_stack(uintptr_t address)
{
	return address - (uintptr_t)stacks < sizeof(stacks);
}

unsigned long thread_frames()
{
	return frames.size();
}

/* Runs a thread from @sp to its next request. */
static uint32_t run(unsigned int thread, char *sp)
{
	char *top = stacks[thread] + STACK_BYTES;

	running = thread;
	memset(sp - CLEAR_BYTES, 0, CLEAR_BYTES);
	model_switch(&checker_sp, sp);
	if (thread_sp < stacks[thread] + CLEAR_BYTES)
		abort();

	Frame frame = { size_t(top - thread_sp), std::string(thread_sp, top) + locals(), *asked };
	std::string key = frame.memory;
	key.append((const char *)&frame.op, sizeof(frame.op));
	key.push_back(thread);
	auto found = frame_of.emplace(key, frames.size());
	if (found.second)
		frames.push_back(frame);
	return found.first->second;
}

uint32_t thread_start(unsigned int thread)
{
	char *sp = stacks[thread] + STACK_BYTES - 8 - SAVED_BYTES;
	void (*first)() = first_steps;
	static const std::string first_locals = locals();

	memset(stacks[thread], 0, STACK_BYTES);
	memcpy(__start_model_locals, first_locals.data(), first_locals.size());
	memcpy(sp + SAVED_BYTES - 8, &first, sizeof(first));
	return run(thread, sp);
}

const struct model_op &thread_op(uint32_t frame)
{
	return frames[frame].op;
}

uint32_t thread_next(unsigned int thread, uint32_t frame, const struct model_result &result)
{
	Answer answer = { frame, result.value, result.done };
	auto found = next_of.find(answer);

	if (found != next_of.end())
		return found->second;
	const Frame &from = frames[frame];
	char *sp = stacks[thread] + STACK_BYTES - from.stack_bytes;
	memcpy(sp, from.memory.data(), from.stack_bytes);
	memcpy(__start_model_locals, from.memory.data() + from.stack_bytes,
	       from.memory.size() - from.stack_bytes);
	answered = result;
	uint32_t next = run(thread, sp);
	next_of.emplace(answer, next);
	return next;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints. Each carries the whole input of a decision, so that user space can run the same
 * policy on it and must get the same answer.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM unspin

#if !defined(UNSPIN_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define UNSPIN_TRACE_H

#include <linux/tracepoint.h>
#include "state.h"

/* before: the state during the epoch; if the window does not adapt, window_cycles is the mean in force. */
TRACE_EVENT(unspin_epoch,
	TP_PROTO(const struct unspin_vm *vm, u64 epoch, u32 mode_window, const struct aple_state *before,
		 u32 window_cycles, const struct aple_epoch *spent, u64 ppm, u32 next_cycles),
	TP_ARGS(vm, epoch, mode_window, before, window_cycles, spent, ppm, next_cycles),
	TP_STRUCT__entry(
		__field(u64, generation)
		__field(u64, epoch)
		__field(u64, ple_exits)
		__field(u64, spin_cycles)
		__field(u64, switch_cycles)
		__field(u64, cpu_cycles)
		__field(u64, ppm)
		__field(s32, pid)
		__field(u32, number)
		__field(u32, adapts)
		__field(u32, phase)
		__field(u32, window_cycles)
		__field(u32, desired_cycles)
		__field(u32, step_cycles)
		__field(s32, moved)
		__field(u32, next_cycles)
		__field(u32, window_init_cycles)
		__field(u32, window_min_cycles)
		__field(u32, window_max_cycles)
		__field(u32, delta_cycles)
		__field(u32, delta_max_cycles)
		__field(u32, epoch_ple_exits)
	),
	TP_fast_assign(
		__entry->generation = vm->generation;
		__entry->epoch = epoch;
		__entry->ple_exits = spent->ple_exits;
		__entry->spin_cycles = spent->spin_cycles;
		__entry->switch_cycles = spent->switch_cycles;
		__entry->cpu_cycles = spent->cpu_cycles;
		__entry->ppm = ppm;
		__entry->pid = vm->pid;
		__entry->number = vm->number;
		__entry->adapts = mode_window;
		__entry->phase = before->phase;
		__entry->window_cycles = window_cycles;
		__entry->desired_cycles = before->desired_cycles;
		__entry->step_cycles = before->step_cycles;
		__entry->moved = before->moved;
		__entry->next_cycles = next_cycles;
		__entry->window_init_cycles = vm->params.window_init_cycles;
		__entry->window_min_cycles = vm->params.window_min_cycles;
		__entry->window_max_cycles = vm->params.window_max_cycles;
		__entry->delta_cycles = vm->params.delta_cycles;
		__entry->delta_max_cycles = vm->params.delta_max_cycles;
		__entry->epoch_ple_exits = vm->params.epoch_ple_exits;
	),
	TP_printk("vm=%d-%u gen=%llu epoch=%llu adapts=%u phase=%u window=%u desired=%u step=%u moved=%d exits=%llu spin=%llu switch=%llu cpu=%llu ppm=%llu next=%u init=%u min=%u max=%u delta=%u delta_max=%u epoch_exits=%u",
		  __entry->pid, __entry->number, __entry->generation, __entry->epoch,
		  __entry->adapts, __entry->phase, __entry->window_cycles, __entry->desired_cycles,
		  __entry->step_cycles, __entry->moved, __entry->ple_exits, __entry->spin_cycles, __entry->switch_cycles,
		  __entry->cpu_cycles, __entry->ppm, __entry->next_cycles,
		  __entry->window_init_cycles, __entry->window_min_cycles,
		  __entry->window_max_cycles, __entry->delta_cycles,
		  __entry->delta_max_cycles, __entry->epoch_ple_exits)
);

/* slots: the struct hvs_slot[count] that the decision used, shown as hexadecimal bytes. */
TRACE_EVENT(unspin_pick,
	TP_PROTO(const struct unspin_vm *vm, u32 caller, u32 flags, u64 excluded,
		 const struct hvs_slot *slots, u32 count, s32 pick, int outcome),
	TP_ARGS(vm, caller, flags, excluded, slots, count, pick, outcome),
	TP_STRUCT__entry(
		__field(u64, generation)
		__field(u64, excluded)
		__field(s32, pid)
		__field(u32, number)
		__field(u32, caller)
		__field(u32, flags)
		__field(s32, pick)
		__field(s32, outcome)
		__field(u32, count)
		__dynamic_array(u8, slots, count * sizeof(struct hvs_slot))
	),
	TP_fast_assign(
		__entry->generation = vm->generation;
		__entry->excluded = excluded;
		__entry->pid = vm->pid;
		__entry->number = vm->number;
		__entry->caller = caller;
		__entry->flags = flags;
		__entry->pick = pick;
		__entry->outcome = outcome;
		__entry->count = count;
		memcpy(__get_dynamic_array(slots), slots, count * sizeof(struct hvs_slot));
	),
	TP_printk("vm=%d-%u gen=%llu caller=%u flags=%u excluded=0x%llx pick=%d outcome=%d count=%u slots=%s",
		  __entry->pid, __entry->number, __entry->generation, __entry->caller,
		  __entry->flags, __entry->excluded, __entry->pick, __entry->outcome,
		  __entry->count,
		  __print_hex_str(__get_dynamic_array(slots), __get_dynamic_array_len(slots)))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

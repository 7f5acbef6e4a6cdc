/*
 * Host work: what a framework's Python and C++ do to issue a kernel of a plan, in nanoseconds.
 *
 * A kernel of a plan represents one or some calls of the framework. host_work.c counts them, in kinds
 * that each cost the same wherever they occur (issue.*_ns of machine.h): entering a module, an autograd
 * node, an eager operator, a check around a library's call, a compiled region, an expert of a
 * grouped product, a parameter's gradient hook, a parameter's part of the optimizer step.
 *
 * The counts are those of Megatron-LM d98e8a64 with Transformer Engine 2.13, read from its code and
 * from traces of two models on an H200. A machine's costs follow from its host's single-thread speed.
 */
#ifndef OFFSIM_SIM_MACHINE_HOST_WORK_H
#define OFFSIM_SIM_MACHINE_HOST_WORK_H

#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* Host time to issue the call, launch included. Without framework (all costs of the framework 0) it is
 * issue.kernel_ns. */
int64_t host_call_ns(const machine *m, const plan_call *c);

/* Host time when ops of another module follow: a module is entered in forward, a node of autograd
 * in backward; nothing outside of both. */
int64_t host_entry_ns(const machine *m, mark_kind phase);

/* Host time at the beginning of a phase of the iteration. */
int64_t host_phase_ns(const machine *m, mark_kind phase);

/* The machine as seen by a model of plain PyTorch modules, whose every kernel costs issue.eager_ns. */
machine host_without_megatron(const machine *m);

/* The machine as seen by offsim's own executor: launches, events, copies and allocations alone. */
machine host_without_framework(const machine *m);

#endif

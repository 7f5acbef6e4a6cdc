/*
 * The offload systems: one row each. The choices of offload.system, the table of policies
 * (sim/offload/systems.c: NAME_policy) and the documentation come from it.
 *
 *   name   scope   implementation   description
 *
 * scope: what the model marks as a group (sim/model/graph.h), so that the policy's hooks see it
 *   NOTHING   no activation moves
 *   MODULES   calls of the modules that offload_modules names
 *   LAYERS    every layer
 *   STEP      everything between the embedding and the loss: each layer, and what stands around
 * them EXPERTS   the grouped MLP of every mixture-of-experts layer
 * implementation: whose modules it works on, MEGATRON (te, local), HF, or ANY
 */
#ifndef OFFSIM_SIM_CONFIG_OFFLOAD_SYSTEMS_H
#define OFFSIM_SIM_CONFIG_OFFLOAD_SYSTEMS_H

/* clang-format off */
#define OFFLOAD_SYSTEMS(X)                                                                                              \
  X(none,                    NOTHING, ANY,      "nothing moves")                                                        \
  X(megatron,                MODULES, MEGATRON, "Megatron-LM's fine-grained activation offloading")                     \
  X(megatron_pr1752,         MODULES, MEGATRON, "its first version, as Megatron-LM pull request #1752 measured it")     \
  X(te_v1,                   LAYERS,  MEGATRON, "Transformer Engine's first engine: double-buffered layers")            \
  X(te_v2,                   LAYERS,  MEGATRON, "Transformer Engine's second engine: large tensors of the first layers")
/* clang-format on */

typedef enum offload_scope {
  OFFLOAD_NOTHING,
  OFFLOAD_MODULES,
  OFFLOAD_LAYERS,
  OFFLOAD_STEP,
  OFFLOAD_EXPERTS
} offload_scope;

typedef enum offload_host { OFFLOAD_ON_ANY, OFFLOAD_ON_MEGATRON, OFFLOAD_ON_HF } offload_host;

typedef struct offload_system {
  const char *name, *description;
  offload_scope scope;
  offload_host implementation;
} offload_system;

extern const offload_system offload_systems[]; /* ends with a NULL name */

/* The row of a name that is one of the choices of offload.system. */
const offload_system *offload_system_find(const char *name);

/* "|none|megatron|...": for the key's row. */
#define OFFLOAD_SYSTEM_CHOICE(name, ...) "|" #name

#endif

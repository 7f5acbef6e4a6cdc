/*
 * The offload systems, a row for each, with what settings need to know of it. The choices of
 * offload.system, the table of descriptors (NAME_system, sim/offload/systems.h) and the
 * documentation follow from it.
 *
 *   name   scope   implementation   description
 *
 * scope: what the model marks as a group (sim/graph/graph.h), so that the policy's hooks see it
 *   NOTHING   no activation moves
 *   MODULES   calls of the modules that offload_modules names
 *   LAYERS    every layer
 *   STEP      everything between the embedding and the loss: each layer, and what is around them
 *   EXPERTS   the grouped MLP of every mixture-of-experts layer
 *
 * implementation: whose modules it works on, MEGATRON (te, local), HF, or ANY
 */
#ifndef OFFSIM_SIM_CONFIG_OFFLOAD_SYSTEMS_H
#define OFFSIM_SIM_CONFIG_OFFLOAD_SYSTEMS_H

/* clang-format off */
#define OFFLOAD_SYSTEMS(X)                                                                                              \
  X(none,                    NOTHING, ANY,      "nothing moves")                                                        \
  X(megatron,                MODULES, MEGATRON, "Megatron-LM's fine-grained activation offloading")                     \
  X(megatron_pr1752,         MODULES, MEGATRON, "its first version, as Megatron-LM pull request #1752 measured it")     \
  X(paged_stash,             EXPERTS, MEGATRON, "Megatron-LM's paged stash: what grouped experts save, packed on the device without its padding") \
  X(te_v1,                   LAYERS,  MEGATRON, "Transformer Engine's first engine: double-buffered layers")            \
  X(te_v2,                   LAYERS,  MEGATRON, "Transformer Engine's second engine: large tensors of the first layers") \
  X(axolotl_disk,            STEP,    HF,       "Axolotl's disk, as designed: inputs of checkpointed layers go to files") \
  X(hidden_states,           STEP,    HF,       "Axolotl's hidden_states with non-reentrant checkpoints: inputs of checkpointed layers") \
  X(hidden_states_reentrant, STEP,    HF,       "... with reentrant ones, after ALST: fetched one layer ahead") \
  X(deepspeed,               STEP,    HF,       "DeepSpeed's cpu_checkpointing, for programs that call its own checkpoints: inputs of layers") \
  X(selective_checkpointing, STEP,    HF,       "Axolotl's selective checkpointing with offload: outputs of attention that checkpoints keep") \
  X(trl,                     STEP,    HF,       "TRL's OffloadActivations, also Axolotl's `true`: every saved tensor, on a stream of its own") \
  X(trl_sync,                STEP,    HF,       "... without the stream, also Axolotl's `legacy`")                     \
  X(save_on_cpu,             STEP,    HF,       "PyTorch's save_on_cpu with pinned memory: parameters that are saved too") \
  X(planned,                 STEP,    ANY,      "offsim's own: saved storages leave in order, so that the others fit a number of bytes of each device") \
  X(transformers,            STEP,    HF,       "transformers' checkpoints with offload: their inputs, by save_on_cpu")                \
  X(verl,                    LAYERS,  HF,       "verl's activation offload: all layers but the last, double-buffered") \
  X(veomni,                  STEP,    HF,       "VeOmni's custom_save_on_cpu, also with verl: every larger saved tensor but trained weights, to memory that is not page-locked") \
  X(layer_offloading,        NOTHING, HF,       "Axolotl's layer_offloading: frozen weights visit the device layer by layer")
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

#define COUNTED(...) +1
enum { OFFLOAD_SYSTEM_COUNT = 1 OFFLOAD_SYSTEMS(COUNTED) }; /* with SYSTEM_EMPTY */
#undef COUNTED

/* By the constants of offload.system, SYSTEM_NAME; SYSTEM_EMPTY has no name. */
extern const offload_system offload_systems[OFFLOAD_SYSTEM_COUNT];

/* For the key's row. */
#define OFFLOAD_SYSTEM_WORD(name, ...) WORD(SYSTEM_##name, #name)

#endif

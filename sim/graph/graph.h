/*
 * The autograd graph of one model chunk (one virtual stage) for one micro-batch.
 *
 * The model code records a chunk as Megatron's modules run it: tensors, operators (autograd nodes) in
 * execution order, and markers between them. Markers say where a module call that may be offloaded begins,
 * ends and commits, which operators are recomputed, and where a Python frame drops a tensor. sim/compile
 * lowers the graph to a forward and a backward program by PyTorch's rules:
 *
 *   - a tensor's storage lives as long as something refers to it: a Python frame, autograd, or a view;
 *   - the frame's reference ends after the last operator that takes the tensor (or any view of it) as
 *     input, or at the last graph_keep that names it, whichever comes later;
 *   - an operator's saved tensors live until its backward has run;
 *   - backward runs the operators in reverse; a gradient lives until the operator that consumes it has
 *     run; a second gradient for the same tensor is added to the first in place;
 *   - what an operator needs in addition (temporaries), it declares itself: see emitter.h.
 *
 * Handles are indexes; 0 is "none". The graph lives in its arena.
 */
#ifndef OFFSIM_SIM_GRAPH_GRAPH_H
#define OFFSIM_SIM_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/config/settings.h"
#include "sim/plan/plan.h"

typedef uint32_t tensor_id;
typedef uint32_t node_id;
typedef uint32_t region_id;
typedef uint32_t group_id;
typedef uint32_t part_id;

enum {
  NODE_INPUTS = 10,
  NODE_OUTPUTS = 8,
  NODE_SAVED = 16,
  NODE_DIMS = 11,
  NODE_SCALARS = 4,
  REGION_OUTPUTS = 4,
  REGION_CACHED = 24,
  PART_OUTPUTS = 8,
  PART_DETACHED = 2,
  PART_FREED = 2
};

typedef struct graph_tensor {
  const char *name; /* within its module: "query" */
  uint32_t site;    /* index into graph.sites */
  uint8_t dtype;    /* dtype of plan.h */
  uint8_t rank;
  bool parameter; /* lives outside the chunk's programs */
  bool requires_grad;
  bool contiguous;        /* false: a view that is not contiguous */
  bool not_offloadable;   /* marked by the framework, or its parent does not save it */
  bool transposed_weight; /* t() of a weight, or of a copy of it */
  bool companion;         /* belongs to a parameter, such as its scales, but is no nn.Parameter */
  bool callers; /* the model's caller refers to it until the micro-batch's backward is done */
  int64_t shape[4];
  int64_t offset_elements; /* of a view, into its storage */
  plan_view view;   /* not contiguous: its layout in the storage (graph_strides); rank 0: unknown */
  tensor_id base;   /* a view: the tensor that owns the storage; else itself */
  tensor_id parent; /* a view made by graph_view: the tensor viewed, which gets its gradient; else 0
                        * (an operator's output may be a view too: set base, leave parent 0) */
} graph_tensor;

/* A parameter among those of the rank (rank_parameters.h), and its layout in the buffers that hold it. */
#define NO_ROW UINT32_MAX
typedef struct graph_place {
  uint32_t row,
      count; /* in the rank's list; NO_ROW: unknown. Grouped experts: a row for each expert */
  plan_view weight, gradient;
} graph_place;

struct operator_kind; /* a row of the operator table, sim/operators/operators.h */

typedef struct graph_node {
  const struct operator_kind *kind;
  uint32_t site;
  int32_t flags;                 /* the operator kind's own */
  int64_t dims[NODE_DIMS];       /* the operator kind's own */
  double scalars[NODE_SCALARS];  /* ... too */
  tensor_id inputs[NODE_INPUTS]; /* activations and parameters */
  tensor_id outputs[NODE_OUTPUTS];
  tensor_id saved[NODE_SAVED]; /* in the order in which autograd packs them */
  /* a parameter or an input that the node refers to as an attribute of a custom function's context:
   * neither hooks nor checkpoints pack it */
  tensor_id held;
  /* layer + 1 of a module that keeps an output with its autograd graph until the module runs again; 0: none.
   * Inside a checkpoint the graph ends in the checkpoint's inputs: they stay, with their gradients. */
  uint32_t leaves_graph;
  bool structured; /* its products are torch.matmul's, a structured operator of ATen */
} graph_node;

/*
 * Recomputation.
 *   CHECKPOINT  torch.utils.checkpoint and its relatives: inside, forward saves nothing; the region's
 *               inputs are saved (in order, through the hooks that are active where the region begins);
 *               backward runs the region's forward again, saving, and then its backward.
 *   DISCARD     Megatron's CheckpointWithoutOutput: forward of the region saves only its inputs; at
 *               graph_discard the outputs' storages are emptied. Upstream that call sets a hook on a tensor
 *               just made, which backward reaches at the same place: when all that follows is done, and
 *               before what precedes it, markers of groups included. There the region's forward runs
 *               again, into the same tensors.
 */
typedef enum region_kind { REGION_CHECKPOINT, REGION_DISCARD } region_kind;

typedef struct graph_region {
  region_kind kind;
  tensor_id inputs[NODE_INPUTS]; /* saved for the recomputation */
  uint32_t closed_over; /* CHECKPOINT: a closure holds the first `closed_over` inputs: hooks do not
                                  * see them */
  bool stops_early;     /* CHECKPOINT: the recomputation ends when everything is saved again */
  tensor_id outputs[REGION_OUTPUTS]; /* DISCARD: tensors whose storage is emptied */
  tensor_id cached[REGION_CACHED];   /* CHECKPOINT: saved in forward (selective checkpointing); the
                                    * operators that make them do not run again */
} graph_region;

/* One call of an offloadable module, or one layer. */
typedef struct graph_group {
  const char *name; /* "core_attn" */
  int32_t layer;
  tensor_id released[4]; /* storages emptied at commit although other references remain */
} graph_group;

/*
 * Parts: a schedule alternates the parts of two micro-batches (Megatron-LM's combined 1F1B; ScheduleNode in
 * pipeline_parallel/utils.py, TransformerLayerNode in models/common/utils.py). The parts cover the whole
 * graph, or there are none. Autograd sees each part alone: a part keeps the tensors that it hands over, and
 * backward passes their gradients from part to part.
 */
typedef enum part_kind {
  PART_PREPROCESS,     /* data and embedding */
  PART_PRE_DISPATCH,   /* per layer: attention, norm, shared experts, router, permutation */
  PART_POST_ATTENTION, /* ... earlier releases: from the norm on, MoE layers only */
  PART_DISPATCH,       /* ... exchange of tokens; MoE layers only */
  PART_MLP,            /* ... dense MLP, or the local experts */
  PART_COMBINE,        /* ... exchange back, residual; MoE layers only */
  PART_MTP_POST,       /* ... the end of a prediction layer */
  PART_POSTPROCESS     /* output layer and loss */
} part_kind;

typedef struct graph_part {
  part_kind kind;
  tensor_id outputs[PART_OUTPUTS]; /* kept until the part's backward is done */
  /* handed over aside: kept until the layer's backward is done */
  tensor_id detached[PART_DETACHED];
  tensor_id freed[PART_FREED]; /* inputs whose storage is emptied when the part has run */
  /* a module refers to a result until the part runs again for another micro-batch: the input in the
   * result's autograd graph stays, with its gradient */
  bool leaves_graph;
  int32_t layer; /* ... whose part it is */
} graph_part;

typedef enum item_kind {
  ITEM_NODE,            /* index: node */
  ITEM_KEEP,            /* index: tensor; its frame reference lasts at least to here */
  ITEM_GROUP_START,     /* index: group; the start marker, and the hooks become active */
  ITEM_GROUP_HOOKS_END, /* index: group; the module call returns */
  ITEM_GROUP_COMMIT,    /* index: group; the commit marker */
  ITEM_REGION_BEGIN,    /* index: region */
  ITEM_REGION_END,
  ITEM_DISCARD,     /* index: region */
  ITEM_LAYER_BEGIN, /* index: layer (0-based over the model; MTP layers follow) */
  ITEM_LAYER_END,
  ITEM_PART /* index: part; it begins, and the one before ends */
} item_kind;

typedef struct graph_item {
  uint8_t kind; /* item_kind */
  uint32_t index;
} graph_item;

typedef struct graph_tensor_array {
  graph_tensor *items;
  uint32_t count, capacity;
} graph_tensor_array;
typedef struct graph_node_array {
  graph_node *items;
  uint32_t count, capacity;
} graph_node_array;
typedef struct graph_region_array {
  graph_region *items;
  uint32_t count, capacity;
} graph_region_array;
typedef struct graph_group_array {
  graph_group *items;
  uint32_t count, capacity;
} graph_group_array;
typedef struct graph_part_array {
  graph_part *items;
  uint32_t count, capacity;
} graph_part_array;
typedef struct graph_item_array {
  graph_item *items;
  uint32_t count, capacity;
} graph_item_array;

/* The tensors of a micro-batch. */
enum { BATCH_TOKENS, BATCH_POSITIONS, BATCH_LABELS, BATCH_LOSS_MASK, BATCH_MASK, BATCH_TENSORS };

typedef struct graph {
  graph_tensor_array tensors;     /* [0] is none */
  graph_node_array nodes;         /* [0] is none */
  graph_region_array regions;     /* [0] is none */
  graph_group_array groups;       /* [0] is none */
  graph_part_array parts;         /* [0] is none */
  graph_item_array items;         /* the chunk in execution order */
  site_array sites;               /* [0] is nowhere */
  tensor_id input;                /* hidden states from the previous stage, 0 on the first */
  tensor_id output;               /* hidden states for the next stage, or the loss */
  tensor_id batch[BATCH_TENSORS]; /* from the data loader, 0 = none: see sim/compile/frames.h */
  graph_place *places; /* by tensor, of parameters; NULL: they have buffers of their own */
  uint32_t attributes; /* of modules, that refer to tensors: emit_attribute */
  bool ends_in_loss;   /* the output is the loss: its gradient starts here */
  int32_t layer;       /* the builder's current layer, and its site */
  uint32_t site;
  arena *memory;
} graph;

void graph_release(graph *g); /* frees the arrays; the caller owns the arena */

/* ---- building: graph.c ---------------------------------------------------------------------- */

graph *graph_new(arena *a);

/* Operators and tensors that follow belong to `module` of the current layer. */
void graph_site(graph *g, const char *module);

/* A tensor that an operator is going to produce. Unused dimensions after the first are 0; a tensor
 * of no rows has no elements. requires_grad is on. */
tensor_id graph_tensor_new(graph *g, const char *name, dtype type, int64_t d0, int64_t d1,
                           int64_t d2, int64_t d3);
/* The same with the shape of `like`. */
tensor_id graph_tensor_like(graph *g, const char *name, dtype type, tensor_id like);
/* A tensor without a gradient, such as an index. */
tensor_id graph_constant(graph *g, const char *name, dtype type, int64_t d0, int64_t d1);
/* A parameter of the current module. */
tensor_id graph_parameter(graph *g, const char *name, dtype type, int64_t d0, int64_t d1);
/* A view of `base` (itself possibly a view); no kernel, no memory, gradient passes as a view too. */
tensor_id graph_view(graph *g, const char *name, tensor_id base, bool contiguous, int64_t d0,
                     int64_t d1, int64_t d2, int64_t d3);

/* The layout of a tensor that is not contiguous: `offset` and `strides` in elements. */
void graph_strides(graph *g, tensor_id t, int64_t offset, uint32_t rank, const int64_t *shape,
                   const int64_t *strides);
/* Kernels see only the first `rows` rows of `t`, which owns its storage, and of its gradient. */
void graph_uses_rows(graph *g, tensor_id t, int64_t rows);

/* Appends an operator; fill inputs, outputs, saved, dims through the pointer before the next call. */
graph_node *graph_add(graph *g, const struct operator_kind *kind);

/* A Python frame refers to `t` at least up to here. */
void graph_keep(graph *g, tensor_id t);

/* Sites and groups that follow belong to this layer; outside layers the layer is -1. */
void graph_layer_begin(graph *g, int32_t layer);
void graph_layer_end(graph *g);

/* From start to end of the hooks, what is saved belongs to the group; `name` must outlive the graph. */
group_id graph_group_start(graph *g, const char *name);
void graph_group_hooks_end(graph *g, group_id group);
/* The storage of `t` is emptied at the group's commit although other references remain. */
void graph_group_release(graph *g, group_id group, tensor_id t);
void graph_group_commit(graph *g, group_id group);

/* What is between begin and end runs again in backward, from `inputs`. A REGION_DISCARD may have further
 * outputs; of a REGION_CHECKPOINT, operators whose results are cached do not run again. */
region_id graph_region_begin(graph *g, region_kind kind, const tensor_id *inputs, uint32_t count);
void graph_region_end(graph *g, region_id region, tensor_id output);
void graph_region_output(graph *g, region_id region, tensor_id another);
void graph_region_cache(graph *g, region_id region, tensor_id t);
void graph_discard(graph *g, region_id region); /* once */

part_id graph_part_begin(graph *g, part_kind kind); /* parts.h fills it in */

static inline dtype type_of(const graph *g, tensor_id t)
{
  return (dtype)g->tensors.items[t].dtype;
}
int64_t tensor_elements(const graph *g, tensor_id t);
int64_t tensor_bytes(const graph *g, tensor_id t);     /* of the tensor, not of a view's base */
tensor_id tensor_storage(const graph *g, tensor_id t); /* the tensor that owns the storage */

#endif

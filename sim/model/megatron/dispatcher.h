/*
 * Token dispatchers: from the router's choice to rows in the order of the local experts, and back.
 *
 * Megatron-LM (d98e8a64) core/transformer/moe/token_dispatcher.py, moe_utils.py (permute,
 * unpermute, sort_chunks_by_idxs), fused_a2a.py; Transformer Engine (d0067d0d)
 * pytorch/permutation.py and pytorch/triton/permutation.py for the fused kernels.
 */
#ifndef OFFSIM_SIM_MODEL_MEGATRON_DISPATCHER_H
#define OFFSIM_SIM_MODEL_MEGATRON_DISPATCHER_H

#include "sim/model/megatron/moe.h"

/* moe_token_dispatcher_type: how tokens travel to the experts and back. */
typedef struct moe_dispatcher {
  moe_dispatch (*dispatch)(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                           tensor_id x, moe_routing routing);
  tensor_id (*combine)(graph *g, const settings *s, const moe_sizes *m, const moe_dispatch *d,
                       tensor_id y);
} moe_dispatcher;

extern const moe_dispatcher moe_alltoall_dispatcher;  /* dispatcher_alltoall.c */
extern const moe_dispatcher moe_allgather_dispatcher; /* dispatcher_allgather.c */
extern const moe_dispatcher moe_flex_dispatcher;      /* dispatcher_flex.c: DeepEP, HybridEP */

/* ---- permutation.c --------------------------------------------------------------------------- */

/* Rows on their way: tokens and the probability of each row. */
typedef struct row_pair {
  tensor_id tokens, probs;
} row_pair;

typedef struct permutation {
  int64_t tokens, experts, rows, width;
  bool padded;
  bool slotted; /* each expert has an equal part of the rows */
} permutation;

/* Rows in the order of experts; `restore` is the index that restores their order. Probabilities are
 * those of the cells of the map, or 0. */
row_pair moe_permute(graph *g, const settings *s, const permutation *p, row_pair from,
                     tensor_id map, tensor_id *restore);
tensor_id moe_unpermute(graph *g, const settings *s, const char *name, tensor_id rows,
                        tensor_id restore, int64_t tokens, int64_t width);

/* The probability of each row: the chosen cells of the columns. */
tensor_id moe_selected_probs(graph *g, const permutation *p, tensor_id probs, tensor_id map);

/* Without fusion: the cells of the map in the order of experts, and each row's token. */
tensor_id moe_sorted_cells(graph *g, const permutation *p, tensor_id map, tensor_id *indices);

/* With fusion: the row of each cell. */
tensor_id moe_row_map(graph *g, const permutation *p, tensor_id map);

/* ---- dispatcher.c ---------------------------------------------------------------------------- */

/* Whether tokens leave their rank. */
bool moe_exchanges(const moe_sizes *m);

/* The host copies counts of tokens from the device before the last operator. */
void moe_host_waits(graph *g);
/* The host waits for counts that a kernel writes to page-locked memory: no copy. */
void moe_host_polls(graph *g);

/* The experts' outputs `y` times their probabilities, if these did not weigh the activations. */
tensor_id moe_weighted_rows(graph *g, const permutation *p, const moe_dispatch *d, tensor_id y);

/* The last operator, a gather or a reduce-scatter, has a list of equal parts. */
void moe_lists_parts(graph *g);

/* The sum over ranks that share an expert; `listed`: of a list of equal parts. */
tensor_id moe_scatter(graph *g, const moe_sizes *m, comm_group group, bool listed, int64_t rows,
                      tensor_id y);

#endif

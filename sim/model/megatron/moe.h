/*
 * The sizes of a mixture-of-experts layer on this rank, and the tensors that router, dispatcher
 * and experts hand over.
 *
 * Sources: Megatron-LM core/transformer/moe at d98e8a64; Transformer Engine pytorch at d0067d0d.
 */
#ifndef OFFSIM_SIM_MODEL_MEGATRON_MOE_H
#define OFFSIM_SIM_MODEL_MEGATRON_MOE_H

#include "sim/graph/graph.h"
#include "sim/model/megatron/modules.h"

typedef struct moe_sizes {
  int64_t tokens; /* of this rank where the router sees them: the residual region */
  int64_t hidden;
  int64_t experts, local_experts, topk;
  int64_t ep, etp;
  int64_t capacity;    /* rows of an expert from one rank; 0 = dropless */
  int64_t sent;        /* rows after the permutation of this rank's tokens */
  int64_t received;    /* rows after the exchange among EP ranks */
  int64_t rows;        /* rows of the local experts, gathered over ETP, without fp8's padding */
  int64_t computed;    /* rows with a token; the others are the rest of a static buffer */
  int64_t ffn;         /* width of an expert on this rank, not doubled */
  int64_t fc1_outputs; /* doubled when the activation is gated */
  bool padded;         /* drop-and-pad: every count is known to the host */
  bool slotted;        /* each expert has an equal part of the rows that a rank permutes */
  bool is_static;      /* buffers for a rank's whole capacity: the host needs no counts */
  dtype type;          /* of activations */
  dtype router;        /* of logits and probabilities */
} moe_sizes;

moe_sizes moe_sizes_of(const settings *s);

/* The tensors that Python frames of MoELayer and its dispatcher refer to until the layer
 * returns. */
enum { FRAME_TENSORS = 16 };
typedef struct moe_frame {
  tensor_id held[FRAME_TENSORS];
  uint32_t count;
} moe_frame;

void moe_hold(moe_frame *f, tensor_id t);
void moe_release(graph *g, moe_frame *f); /* the frame ends here */
/* `self.probs = probs`: it stays until the layer's next forward. */
void moe_attribute(graph *g, tensor_id t);
/* The last operator's output is such an attribute, and a part of autograd's graph. */
void moe_keeps_graph(graph *g);

/* The ranks that a rank's tokens go to, and the numbers of rows (sim/operators/moe.h). */
typedef struct moe_handle {
  tensor_id source, sent;
  int64_t copies, tokens; /* rows that go to ranks, of as many tokens */
} moe_handle;

/* ---- building, moe_build.c ------------------------------------------------------------------- */

/* A node of one kernel each way (sim/operators/moe.h), with its inputs, up to three, and its
 * output. */
graph_node *moe_step(graph *g, kernel_kind forward, kernel_kind backward, tensor_id a, tensor_id b,
                     tensor_id output);
/* Sets the tensor of row owners that the last operator reads (moe_dispatch.rows_of); 0: none. */
void moe_reads_rows(graph *g, tensor_id rows_of);
/* The same elements in another type; `t` itself when it has the type already. */
tensor_id moe_cast(graph *g, const char *name, tensor_id t, dtype type);
/* A collective over `group`: forward `kind`, backward its transpose. */
tensor_id moe_exchange(graph *g, const char *name, tensor_id t, collective_kind kind,
                       comm_group group, int64_t rows);
/* Kernels see only a static buffer's rows with a token: applies to all tensors from `first` on
 * with as many rows. */
void moe_uses_computed_rows(graph *g, const moe_sizes *m, tensor_id first);
/* The last operator is an exchange of rows by a handle (sim/operators/moe.h, EXCHANGE_TABLE): a row
 * for each expert of a token, or `once` for each rank. */
void moe_goes_by(graph *g, const moe_handle *handle, bool once, bool back);
/* The last operator is an exchange of rows that find their experts, or `back` from them, by
 * `restore`. */
void moe_finds_experts(graph *g, const moe_sizes *m, tensor_id restore, bool back);

/* core/tensor_parallel/mappings.py, _gather_along_last_dim: gathered by rank, then joined along the
 * last dimension. Backward: a collective, or COLLECTIVE_KINDS: the own part. */
tensor_id gathered_over_tp(graph *g, const settings *s, tensor_id x, collective_kind backward);

/* ---- router.c, dispatcher.c, experts.c ------------------------------------------------------- */

typedef struct moe_routing {
  tensor_id probs; /* [tokens, experts], type of the router */
  tensor_id map;   /* [tokens, experts], one byte each */
} moe_routing;

moe_routing moe_route(graph *g, const settings *s, const moe_sizes *m, tensor_id x);

/* From dispatch to combine. */
typedef struct moe_dispatch {
  tensor_id tokens;           /* [rows, hidden], in the order of the local experts */
  tensor_id probs;            /* [rows]; 0: the outputs are weighted, not the activations */
  moe_routing weights;        /* by these, if so; the map in the order of the permutation */
  tensor_id restore;          /* index that the last unpermutation needs */
  tensor_id restore_received; /* flex: index that restores the received rows */
  tensor_id rows_of;          /* the index of row owners; 0: all experts have equally many rows */
  moe_handle handle;          /* flex */
  int64_t received;           /* flex: rows received, each token once */
  region_id norm;             /* in parts: the layer's norm, discarded with the experts' output */
} moe_dispatch;

/* The layer's parts (parts.h): the frame of one ends where the next begins. */
void moe_begin_dispatch(graph *g, const settings *s, moe_frame *f, tensor_id tokens,
                        tensor_id probs);
void moe_begin_experts(graph *g, const settings *s, moe_frame *f, tensor_id tokens,
                       tensor_id probs);
void moe_begin_combine(graph *g, const settings *s, moe_frame *f, const moe_dispatch *d,
                       tensor_id y);

moe_dispatch moe_dispatch_tokens(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                 tensor_id x, moe_routing routing);
/* Returns [tokens, hidden]. */
tensor_id moe_combine_tokens(graph *g, const settings *s, const moe_sizes *m, const moe_dispatch *d,
                             tensor_id expert_output);

/* The local experts: [rows, hidden] -> [rows, hidden]. */
tensor_id moe_experts(graph *g, const settings *s, const moe_sizes *m, int32_t layer,
                      const moe_dispatch *d);

#endif

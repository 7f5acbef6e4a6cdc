/*
 * The time of kernels and collectives on a machine, from their sizes, in whole picoseconds.
 *
 * GEMM         max(arithmetic, memory) + fixed part. Arithmetic counts tiles: each of the GPU's
 *              multiprocessors works on one tile at a time, so the last wave is as long as a full
 *              one. Of the tile shapes 128 x 256, 256 x 128 and 128 x 128 (at its own, lower rate)
 *              the fastest is taken, as libraries' heuristics do. Grouped products fill tiles
 *              expert by expert, and half of each expert's last one is empty on average. What is
 *              added to in fp32 is read and written after each wave; the next one hides a part of
 *              it, so that it counts where few tokens meet large weights.
 * attention    operations / (rate * length / (length + half length)), the shape of measured
 *              curves; of small heads, operations of larger ones: the exponentials take as long.
 *              Kernels skip blocks of scores that no row sees, so a window takes the share of the
 *              causal time that its blocks are of the causal ones.
 *              Multiprocessors work on blocks of a head's rows, and the last block ends one
 *              block's mean time late, which counts where tensor parallelism leaves few heads.
 *              Dropout adds the time of a random number for each score.
 * memory       bytes / reached rate + fixed part.
 * collectives  NCCL's algorithms and protocols (nccl_time.h); of machines without the latency of a
 *              step, fixed part + bytes * factor / bus bandwidth, with the factors of nccl-tests.
 */
#ifndef OFFSIM_SIM_MACHINE_ROOFLINE_H
#define OFFSIM_SIM_MACHINE_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

typedef enum roofline_dtype {
  ROOFLINE_BF16, /* and fp16 */
  ROOFLINE_FP8,
  ROOFLINE_TF32,
  ROOFLINE_FP32,
} roofline_dtype;

/* `batch` products (m, k) x (k, n) -> (m, n) in one kernel. Sizes of 0 take the fixed part only. */
typedef struct gemm_shape {
  int64_t m, n, k, batch;
  /* 0: unchanged. The products of this many experts, whose rows (m, or k of gradients of weights) come
   * one after the other and are theirs in unequal parts. */
  int64_t experts;
  bool splits_k; /* by experts: each has a product of m x n */
  bool adds;     /* to what is there, in fp32 */
  /* One of as many equal products in a row, whose tiles fill each other's last wave; 0: it is alone. */
  int64_t parts;
} gemm_shape;

int64_t roofline_gemm_ps(const machine *mc, roofline_dtype type, const gemm_shape *s);

/* One fused attention kernel. Causal: query i sees kv_len - q_len + i + 1 keys; with a window the last
 * `window` of them. */
typedef struct attention_shape {
  int64_t batch, heads; /* query heads */
  int64_t kv_heads;     /* 0: as many */
  int64_t q_len, kv_len;
  int64_t qk_dim, v_dim;
  bool causal;
  int64_t window; /* causal; 0: none */
  bool backward;
  bool drops; /* dropout of scores */
} attention_shape;

int64_t roofline_attention_ps(const machine *mc, roofline_dtype type, const attention_shape *s);

/* FLOPs of that kernel: two products forward, five backward (scores are recomputed). */
int64_t attention_flops(const attention_shape *s);

/* A memory-bound kernel that reads and writes `bytes` in total. */
int64_t roofline_memory_ps(const machine *mc, int64_t bytes);

/* Arithmetic of the host's processor that reads and writes `bytes` of host memory. */
int64_t host_arithmetic_ps(const machine *mc, int64_t bytes);

/* As roofline_memory_ps, if threads compute the address or convert the type of each of `elements` results, no
 * more than `rate` in a microsecond (0: no limit): PyTorch's elementwise kernels on operands of
 * different layouts, shapes or types; concatenations. */
int64_t roofline_elements_ps(const machine *mc, int64_t rate, int64_t elements, int64_t bytes);

/* `bytes` as in a plan's call: one rank's part for an all-gather or a shift, else one rank's whole buffer.
 * Each domain of NVLink has `ranks_joined` of the group's `group_size` ranks (equal: one domain has
 * all). A group of one takes no time. */
int64_t collective_ps(const machine *mc, collective_kind kind, int64_t bytes, int64_t group_size,
                      int64_t ranks_joined);

/* The bytes of that collective that each rank sends to others. */
int64_t collective_sent_bytes(collective_kind kind, int64_t bytes, int64_t group_size);

/* An all-to-all. With `once_bytes` above 0, `bytes` are copies of that many bytes of tokens, one for
 * each rank that gets them: a token goes once to a domain of NVLink, where its rank passes it on
 * (DeepEP, HybridEP; in the rates that they publish, a token's own domain counts). NVLink and
 * network work at the same time. */
int64_t exchange_ps(const machine *mc, int64_t bytes, int64_t once_bytes, int64_t group_size,
                    int64_t ranks_joined);

/* A copy between a GPU and page-locked memory, alone on the link; `out`: to the host. */
int64_t host_copy_ps(const machine *mc, int64_t bytes, bool out);

/* A message from one GPU to another; `joined`: by NVLink. */
int64_t transfer_ps(const machine *mc, int64_t bytes, bool joined);

#endif

#include "sim/machine/roofline.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/machine/nccl_time.h"

/* ---- GEMM ---- */

enum { FP32_BYTES = 4, HIDDEN_PART = 8 };

static int64_t gemm_gflops(const machine *mc, roofline_dtype type)
{
  switch (type) {
  case ROOFLINE_BF16: return mc->compute.gemm_bf16_gflops;
  case ROOFLINE_FP8: return mc->compute.gemm_fp8_gflops;
  case ROOFLINE_TF32: return mc->compute.gemm_tf32_gflops;
  case ROOFLINE_FP32: return mc->compute.gemm_fp32_gflops;
  }
  assert(0 && "no such type");
  return 1;
}

static int64_t element_bytes(roofline_dtype type)
{
  static const int64_t bytes[] = {
    [ROOFLINE_BF16] = 2, [ROOFLINE_FP8] = 1, [ROOFLINE_TF32] = 4, [ROOFLINE_FP32] = 4
  };
  return bytes[type];
}

static int64_t hbm_ps(const machine *mc, int64_t bytes)
{
  assert(bytes >= 0 && mc->compute.hbm_bytes_per_us > 0 && mc->compute.hbm_reached_permille > 0);
  return capped_muldiv_up(bytes, PS_PER_US * 1000,
                          mc->compute.hbm_bytes_per_us * mc->compute.hbm_reached_permille);
}

typedef struct tile {
  int64_t rows, columns;
  bool small;
} tile;

/* On average, half of each expert's last tile of rows is used. */
static int64_t tiles_of(const tile *t, const gemm_shape *s)
{
  int64_t columns = ceil_div(s->n, t->columns);
  if (s->experts > 0 && !s->splits_k)
    return capped_mul(ceil_div(min_i64(s->m, CAP) + capped_mul(s->experts, t->rows) / 2, t->rows),
                      capped_mul(columns, s->batch));
  return capped_mul(capped_mul(ceil_div(s->m, t->rows), columns),
                    capped_mul(s->batch, max_i64(1, s->experts)));
}

static int64_t depth_of(const gemm_shape *s)
{
  return s->splits_k && s->experts > 0 ? ceil_div(s->k, s->experts) : s->k;
}

/* The accumulator is read and written; the next wave's products hide an eighth of their time
 * (fitted to cuBLAS products of depth 2048 to 16384 on an H200). */
static int64_t adding_ps(const machine *mc, const tile *t, int64_t wave_ps)
{
  int64_t bytes = 2 * FP32_BYTES * t->rows * t->columns * mc->gpu.sm_count;
  return max_i64(0, hbm_ps(mc, bytes) - wave_ps / HIDDEN_PART);
}

/* The time of the product's tiles on all multiprocessors, or of all products of which it is a part. */
static int64_t tiled_ps(const machine *mc, int64_t gflops, const tile *t, const gemm_shape *s)
{
  int64_t tiles = capped_mul(tiles_of(t, s), max_i64(1, s->parts));
  int64_t waves = ceil_div(tiles, mc->gpu.sm_count);
  int64_t permille = t->small ? mc->compute.gemm_small_tile_permille : 1000;
  if (s->experts > 0) permille = muldiv_i64(permille, mc->compute.gemm_grouped_permille, 1000);
  int64_t wave_flops = capped_mul(2 * t->rows * t->columns * mc->gpu.sm_count, depth_of(s));
  int64_t work_ps = capped_muldiv_up(capped_mul(waves, wave_flops), 1000 * 1000, gflops * permille);
  int64_t between_ps = mc->compute.gemm_wave_ns * PS_PER_NS;
  if (s->adds && between_ps > 0) between_ps += adding_ps(mc, t, work_ps / waves);
  return work_ps + capped_mul(waves, between_ps);
}

static int64_t arithmetic_ps(const machine *mc, roofline_dtype type, const gemm_shape *s)
{
  static const tile tiles[] = { { 128, 256, false }, { 256, 128, false }, { 128, 128, true } };
  int64_t gflops = gemm_gflops(mc, type), best = INT64_MAX;
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
    best = min_i64(best, tiled_ps(mc, gflops, &tiles[i], s));
  return ceil_div(best, max_i64(1, s->parts));
}

int64_t roofline_gemm_ps(const machine *mc, roofline_dtype type, const gemm_shape *s)
{
  int64_t fixed_ps = mc->compute.gemm_fixed_ns * PS_PER_NS;

  assert(s->m >= 0 && s->n >= 0 && s->k >= 0 && s->batch >= 0);
  if (s->m == 0 || s->n == 0 || s->k == 0 || s->batch == 0) return fixed_ps;
  int64_t elements = capped_mul(s->m, s->k) + capped_mul(s->k, s->n) + capped_mul(s->m, s->n);
  int64_t moved_ps = hbm_ps(mc, capped_mul(elements, capped_mul(element_bytes(type), s->batch)));
  return max_i64(arithmetic_ps(mc, type, s), moved_ps) + fixed_ps;
}

/* ---- attention ---- */

/* 1 + 2 + .. + n */
static int64_t triangle(int64_t n)
{
  return n <= 0 ? 0 : capped_mul(n, n + 1) / 2;
}

/* The scores that queries see, of all heads. */
static int64_t scores_of(const attention_shape *s)
{
  int64_t q = s->q_len, kv = s->kv_len, hidden = s->causal ? triangle(q - 1) : 0;
  assert(s->window == 0 || s->causal);
  if (s->window > 0) hidden += triangle(kv - s->window) - triangle(kv - s->window - q);
  return capped_mul(capped_mul(s->batch, s->heads), max_i64(capped_mul(q, kv) - hidden, 0));
}

/* Those that the kernel computes. Blocks at the edges of a window, of which rows see a part, count whole. Of
 * causal attention the rate counts what rows see, so the blocks give a share of that. */
static int64_t computed_scores(const machine *mc, const attention_shape *s)
{
  int64_t rows = mc->compute.attention_block_rows;
  if (s->window == 0 || rows == 0) return scores_of(s);
  attention_shape causal = *s, blocks = *s, causal_blocks;
  blocks.q_len = ceil_div(s->q_len, rows);
  blocks.kv_len = ceil_div(s->kv_len, rows);
  blocks.window = ceil_div(s->window - 1, rows) + 1;
  causal_blocks = blocks;
  causal.window = causal_blocks.window = 0;
  int64_t share =
      capped_muldiv_up(scores_of(&causal), scores_of(&blocks), scores_of(&causal_blocks));
  return max_i64(share, scores_of(s));
}

/* Of each score: two products forward, five backward (scores are recomputed). */
static int64_t flops_of_scores(const attention_shape *s, int64_t scores)
{
  int64_t qk = min_i64(s->qk_dim, CAP / 8), v = min_i64(s->v_dim, CAP / 8);
  return capped_mul(scores, 2 * (s->backward ? 3 * qk + 2 * v : qk + v));
}

int64_t attention_flops(const attention_shape *s)
{
  return flops_of_scores(s, scores_of(s));
}

static int64_t attention_bytes(const attention_shape *s, int64_t element)
{
  int64_t width = min_i64(s->qk_dim, CAP) + min_i64(s->v_dim, CAP);
  int64_t rows = min_i64(s->q_len, CAP) + min_i64(s->kv_len, CAP);
  int64_t heads = capped_mul(s->batch, s->heads);

  return capped_mul(capped_mul(heads, capped_mul(rows, width)), (s->backward ? 2 : 1) * element);
}

/* What the last block adds to `even_ps`, the time of all blocks evenly split. */
static int64_t last_block_ps(const machine *mc, const attention_shape *s, int64_t even_ps)
{
  int64_t rows = mc->compute.attention_block_rows, length = s->backward ? s->kv_len : s->q_len;
  if (rows == 0 || even_ps == 0) return 0;
  int64_t blocks = capped_mul(capped_mul(s->batch, s->heads), ceil_div(length, rows));
  return capped_muldiv(even_ps, mc->gpu.sm_count, blocks);
}

/* Dropout draws a random number for each score, in backward again. cuDNN on an H100: 0.91 -> 1.97 and 2.66 ->
 * 3.23 ms for 32 heads of 8192 tokens, 0.102 -> 0.242 and 0.313 -> 0.398 for 64 of 2048 and half the head
 * size: 1.0 and 0.6 ps a score. */
static int64_t drawing_ps(const machine *mc, const attention_shape *s)
{
  int64_t drawn_per_ns = s->backward ? mc->compute.attention_backward_drawn_per_ns
                                     : mc->compute.attention_forward_drawn_per_ns;
  assert(drawn_per_ns >= 0);
  return !s->drops || drawn_per_ns == 0 ? 0
                                        : capped_muldiv_up(scores_of(s), PS_PER_NS, drawn_per_ns);
}

/* Backward forms gradients of key and value for each head; with grouped queries more kernels add up those
 * of a group (cuDNN's fmha_reduce_head: two of 22 us for 8192 tokens and 32 heads, 8 of keys, on an H200). */
static int64_t reduced_bytes(const attention_shape *s, int64_t element)
{
  int64_t heads = min_i64(s->heads, CAP), kv_heads = min_i64(s->kv_heads, CAP);
  if (!s->backward || kv_heads == 0 || kv_heads >= heads) return 0;
  int64_t rows = capped_mul(s->batch, min_i64(s->kv_len, CAP));
  int64_t width = min_i64(s->qk_dim, CAP) + min_i64(s->v_dim, CAP);
  return capped_mul(capped_mul(rows, heads + kv_heads), capped_mul(width, element));
}

int64_t roofline_attention_ps(const machine *mc, roofline_dtype type, const attention_shape *s)
{
  int64_t gflops =
      s->backward ? mc->compute.attention_backward_gflops : mc->compute.attention_forward_gflops;
  int64_t half = s->backward ? mc->compute.attention_backward_half_length
                             : mc->compute.attention_forward_half_length;
  attention_shape timed = *s;
  timed.qk_dim = max_i64(s->qk_dim, mc->compute.attention_least_dim);
  timed.v_dim = max_i64(s->v_dim, mc->compute.attention_least_dim);
  int64_t flops = flops_of_scores(&timed, computed_scores(mc, s));

  assert(gflops > 0 && half >= 0 && flops >= attention_flops(s));
  /* fp8 attention runs at the bf16 rate; wider types slow down as their GEMMs do. */
  if (type == ROOFLINE_TF32 || type == ROOFLINE_FP32)
    gflops = max_i64(1, muldiv_i64(gflops, gemm_gflops(mc, type), mc->compute.gemm_bf16_gflops));
  int64_t ideal_ps = capped_muldiv_up(flops, 1000, gflops), length = min_i64(s->kv_len, CAP);
  int64_t even_ps = length == 0 ? 0 : capped_muldiv_up(ideal_ps, length + half, length);
  int64_t real_ps = min_i64(CAP, even_ps + last_block_ps(mc, s, even_ps) + drawing_ps(mc, s));
  int64_t moved_ps = hbm_ps(mc, attention_bytes(s, element_bytes(type)));
  int64_t reduced_ps = hbm_ps(mc, reduced_bytes(s, element_bytes(type)));
  return max_i64(real_ps, moved_ps) + reduced_ps + mc->compute.kernel_fixed_ns * PS_PER_NS;
}

/* ---- the rest ---- */

int64_t roofline_memory_ps(const machine *mc, int64_t bytes)
{
  assert(bytes >= 0);
  return hbm_ps(mc, bytes) + mc->compute.kernel_fixed_ns * PS_PER_NS;
}

int64_t host_arithmetic_ps(const machine *mc, int64_t bytes)
{
  assert(bytes >= 0);
  return capped_muldiv_up(bytes, PS_PER_US, mc->host.arithmetic_bytes_per_us);
}

int64_t roofline_elements_ps(const machine *mc, int64_t rate, int64_t elements, int64_t bytes)
{
  assert(elements >= 0 && rate >= 0);
  int64_t addresses_ps = rate == 0 ? 0 : capped_muldiv_up(elements, PS_PER_US, rate);
  return max_i64(hbm_ps(mc, bytes), addresses_ps) + mc->compute.kernel_fixed_ns * PS_PER_NS;
}

/* The slowest link on the path of each rank's share, within a domain of NVLink or between them. */
static int64_t collective_rate(const machine *mc, int64_t ranks_joined, bool between_domains)
{
  if (!between_domains) return mc->nvlink.bus_bytes_per_us;
  /* Every rank of the domain brings its own NIC to the ring. */
  return min_i64(mc->nvlink.bus_bytes_per_us,
                 muldiv_i64(mc->network.nic_bytes_per_us, ranks_joined, 1));
}

static int64_t link_latency_ps(const machine *mc, bool between_domains)
{
  return (between_domains ? mc->network.latency_ns : mc->nvlink.latency_ns) * PS_PER_NS;
}

/* The bytes that cross the bus, times group_size (factors of nccl-tests). */
static int64_t bus_bytes(collective_kind kind, int64_t bytes, int64_t group_size)
{
  switch (kind) {
  case COLLECTIVE_ALL_REDUCE:
  case COLLECTIVE_ALL_REDUCE_MAX: return capped_mul(2 * (group_size - 1), bytes);
  case COLLECTIVE_ALL_GATHER: return capped_mul(capped_mul(group_size - 1, group_size), bytes);
  case COLLECTIVE_REDUCE_SCATTER:
  case COLLECTIVE_ALL_TO_ALL: return capped_mul(group_size - 1, bytes);
  case COLLECTIVE_SHIFT: return capped_mul(group_size, bytes);
  case COLLECTIVE_KINDS: break;
  }
  assert(0 && "no such collective");
  return 0;
}

int64_t collective_sent_bytes(collective_kind kind, int64_t bytes, int64_t group_size)
{
  assert(bytes >= 0 && group_size >= 1);
  return ceil_div(bus_bytes(kind, bytes, group_size), group_size);
}

/* How many of `domains` get a token that `copies` of their ranks get, in thousandths: of drawn ranks, each
 * misses a domain with probability 1 - 1 / domains. */
static int64_t domains_reached(int64_t domains, int64_t copies_permille)
{
  enum { MILLION = 1000000 };
  int64_t miss = MILLION;
  while (copies_permille >= 1000 && miss > 0) {
    miss = miss * (domains - 1) / domains;
    copies_permille -= 1000;
  }
  miss -= miss * min_i64(copies_permille, 1000) / (1000 * domains);
  return domains * (MILLION - miss) / 1000;
}

int64_t exchange_ps(const machine *mc, int64_t bytes, int64_t once_bytes, int64_t group_size,
                    int64_t ranks_joined)
{
  assert(bytes >= 0 && once_bytes >= 0 && group_size >= 1);
  assert(ranks_joined >= 1 && ranks_joined <= group_size);
  if (group_size == 1) return 0;
  int64_t crossing = capped_muldiv_up(bytes, group_size - 1, group_size), ramp_ps = 0;
  if (once_bytes == 0 && ranks_joined == group_size && mc->nvlink.step_ns > 0) {
    ramp_ps = nccl_ramp_ps(mc->nvlink.ramp_ns, crossing);
    crossing = nccl_exchanged_bytes(crossing, group_size);
  }
  int64_t joined_ps = capped_muldiv_up(crossing, PS_PER_US, mc->nvlink.all_to_all_bytes_per_us);
  if (ranks_joined == group_size) return joined_ps + ramp_ps + link_latency_ps(mc, false);
  int64_t leaving = capped_muldiv_up(bytes, group_size - ranks_joined, group_size);
  if (once_bytes > 0) {
    int64_t copies = capped_muldiv(bytes, 1000, once_bytes);
    leaving =
        capped_muldiv_up(once_bytes, domains_reached(group_size / ranks_joined, copies), 1000);
  }
  int64_t network_ps = capped_muldiv_up(leaving, PS_PER_US, mc->network.all_to_all_bytes_per_us);
  return max_i64(ranks_joined > 1 ? joined_ps : 0, network_ps) + link_latency_ps(mc, true);
}

/* A copy engine copies at the rate of the link, beside products too: 33.5 MB from each of four H100s to the
 * next one take 98 to 123 us. */
static int64_t shift_ps(const machine *mc, int64_t bytes, bool between_domains)
{
  int64_t rate = between_domains ? mc->network.nic_bytes_per_us : mc->nvlink.one_way_bytes_per_us;
  return capped_muldiv_up(bytes, PS_PER_US, rate) + link_latency_ps(mc, between_domains);
}

int64_t collective_ps(const machine *mc, collective_kind kind, int64_t bytes, int64_t group_size,
                      int64_t ranks_joined)
{
  if (kind == COLLECTIVE_ALL_TO_ALL) return exchange_ps(mc, bytes, 0, group_size, ranks_joined);
  assert(bytes >= 0 && group_size >= 1 && ranks_joined >= 1 && ranks_joined <= group_size);
  if (group_size == 1) return 0;
  bool between_domains = ranks_joined < group_size;
  if (kind == COLLECTIVE_SHIFT) return shift_ps(mc, bytes, between_domains);
  int64_t rate = collective_rate(mc, ranks_joined, between_domains);
  int64_t crossing = collective_sent_bytes(kind, bytes, group_size);
  if (mc->nvlink.step_ns == 0)
    return capped_muldiv_up(crossing, PS_PER_US, rate) + link_latency_ps(mc, between_domains);
  return nccl_ps(&(nccl_call){ .all_reduce = kind == COLLECTIVE_ALL_REDUCE ||
                                             kind == COLLECTIVE_ALL_REDUCE_MAX,
                               .crossing_bytes = crossing,
                               .bytes = bytes,
                               .ranks = group_size,
                               .domains = ceil_div(group_size, ranks_joined),
                               .bus_bytes_per_us = rate,
                               .step_ns = mc->nvlink.step_ns,
                               .network_step_ns = mc->network.step_ns,
                               .ramp_ns = mc->nvlink.ramp_ns });
}

int64_t host_copy_ps(const machine *mc, int64_t bytes, bool out)
{
  int64_t rate = out ? mc->link.d2h_bytes_per_us : mc->link.h2d_bytes_per_us;
  int64_t latency_ns = out ? mc->link.d2h_latency_ns : mc->link.h2d_latency_ns;
  assert(bytes >= 0 && rate > 0);
  return capped_muldiv_up(bytes, PS_PER_US, rate) + latency_ns * PS_PER_NS;
}

int64_t transfer_ps(const machine *mc, int64_t bytes, bool joined)
{
  int64_t rate = joined ? mc->nvlink.one_way_bytes_per_us : mc->network.nic_bytes_per_us;
  assert(bytes >= 0 && rate > 0);
  int64_t ramp_ps = joined ? nccl_ramp_ps(mc->nvlink.ramp_ns, bytes) : 0;
  return capped_muldiv_up(bytes, PS_PER_US, rate) + ramp_ps + link_latency_ps(mc, !joined);
}

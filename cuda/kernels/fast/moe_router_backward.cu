/* Gradients of the logits of routers. */
#include "cuda/kernels/fast/moe_router.cuh"

static __device__ inline float score_slope(router_score s, float y)
{
  return s == ROUTER_SIGMOID ? y * (1 - y) : -expm1f(-(y * y)) / (2 * y);
}

/* g, the gradient of probabilities, becomes that of the logits; y: scores. */
template <int PER>
static __device__ inline void find_gradient(const router &r, uint32_t chosen, const float *y,
                                            float *g)
{
  float sum = 0, dot = 0;
#pragma unroll
  for (int j = 0; j < PER; j++) {
    if (!(chosen >> j & 1)) g[j] = 0;
    sum += chosen >> j & 1 ? y[j] : 0;
    dot += g[j] * y[j];
  }
  dot = warp_sum(dot);
  sum = warp_sum(sum) + 1e-20f;
#pragma unroll
  for (int j = 0; j < PER; j++) {
    float normalised = r.l.k > 1 ? g[j] / sum - dot / (sum * sum) : g[j];
    if (is_softmax(r.score))
      g[j] = y[j] * (g[j] - dot);
    else
      g[j] = chosen >> j & 1 ? normalised * score_slope(r.score, y[j]) : 0;
  }
}

/* Without a map all experts are chosen. */
template <int PER, bool MAP>
__global__ void __launch_bounds__(CHOICE_THREADS) backward_kernel(router r)
{
  int32_t token = own_token();
  if (token >= r.l.tokens) return;
  uint32_t own = own_experts<PER>(r.l), chosen = MAP ? 0 : own;
  float g[PER], y[PER];
  load_scores<PER>(r, r.in[0], token, own, g);
  load_scores<PER>(r, r.in[MAP ? 2 : 1], token, own, y);
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (MAP && own >> j & 1) {
      uint32_t cell = (uint32_t)(token * r.l.experts + own_lane() + j * 32);
      chosen |= (uint32_t)(index_at(r.in[1], cell) != 0) << j;
    }
  find_gradient<PER>(r, chosen, y, g);
  store_scores<PER>(r, r.out[0], token, own, g);
}

static bool backward_of(const exec_call *c, bool map, router *r)
{
  *r = router_of(c, 1, -1);
  r->score = (router_score)c->call->scalars[SCORE];
  int64_t cells = (int64_t)r->l.tokens * r->l.experts;
  bool suits = limits_suit(r->l) && cells < INT32_MAX &&
               numbers_suit(c->reads[0], cells, &r->in[0]) &&
               numbers_suit(c->reads[map ? 2 : 1], cells, &r->in[map ? 2 : 1]) &&
               numbers_suit(c->writes[0], cells, &r->out[0]) &&
               (!map || indices_suit(c->reads[1], cells, &r->in[1]));
  r->l.k = map ? small_dim(c, TOPK) : r->l.experts;
  return suits;
}

KERNEL_SUITS(router_backward)
{
  router r;
  return backward_of(c, true, &r);
}

KERNEL_LAUNCH(router_backward)
{
  router r;
  backward_of(c->of, true, &r);
  with_experts(r.l.experts, [&](auto each) {
    backward_kernel<decltype(each)::PER, true>
        <<<choice_blocks(r.l), CHOICE_THREADS, 0, stream_of(c)>>>(r);
  });
  launched(c);
}

KERNEL_SUITS(router_aux_backward)
{
  router r;
  return backward_of(c, false, &r);
}

KERNEL_LAUNCH(router_aux_backward)
{
  router r;
  backward_of(c->of, false, &r);
  with_experts(r.l.experts, [&](auto each) {
    backward_kernel<decltype(each)::PER, false>
        <<<choice_blocks(r.l), CHOICE_THREADS, 0, stream_of(c)>>>(r);
  });
  launched(c);
}

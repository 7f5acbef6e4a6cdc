/* Routers by one kernel, the scores of the balancing loss, and the choice alone. */
#include "cuda/kernels/fast/moe_router.cuh"

static __device__ inline float score_of(router_score s, float x)
{
  if (s == ROUTER_SIGMOID) return 1.0f / (1.0f + expf(-x));
  float tail = log1pf(expf(-fabsf(x)));
  return sqrtf(x > 0 ? x + tail : tail);
}

/* Those of the lane's numbers whose bits are set become their softmax, the others 0. */
template <int PER> static __device__ inline void softmax(float *x, uint32_t some)
{
  float largest = -FLT_MAX, sum = 0;
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (some >> j & 1) largest = fmaxf(largest, x[j]);
  largest = warp_largest(largest);
#pragma unroll
  for (int j = 0; j < PER; j++) {
    x[j] = some >> j & 1 ? expf(x[j] - largest) : 0;
    sum += x[j];
  }
  sum = warp_sum(sum);
#pragma unroll
  for (int j = 0; j < PER; j++)
    x[j] /= sum;
}

/* Those become what they are of their sum, the others 0. */
template <int PER> static __device__ inline void normalise(float *x, uint32_t some)
{
  float sum = 0;
#pragma unroll
  for (int j = 0; j < PER; j++)
    sum += some >> j & 1 ? x[j] : 0;
  sum = warp_sum(sum) + 1e-20f;
#pragma unroll
  for (int j = 0; j < PER; j++)
    x[j] = some >> j & 1 ? x[j] / sum : 0;
}

template <int PER>
static __device__ inline void store_map(const router &r, const layout &to, int32_t token,
                                        uint32_t own, uint32_t chosen)
{
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (own >> j & 1)
      store_index(to, (uint32_t)(token * r.l.experts + own_lane() + j * 32), chosen >> j & 1);
}

template <int PER> __global__ void __launch_bounds__(CHOICE_THREADS) router_kernel(router r)
{
  int32_t token = own_token();
  if (token >= r.l.tokens) return;
  uint32_t own = own_experts<PER>(r.l);
  float scores[PER], probs[PER];
  load_scores<PER>(r, r.in[0], token, own, scores);
  if (r.score == ROUTER_PRE_SOFTMAX) softmax<PER>(scores, own);
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (!is_softmax(r.score)) scores[j] = score_of(r.score, scores[j]);
  uint32_t chosen = choose<PER>(r.l, token, scores, take_nothing{});
#pragma unroll
  for (int j = 0; j < PER; j++)
    probs[j] = chosen >> j & 1 ? scores[j] : 0;
  if (r.score == ROUTER_SOFTMAX) softmax<PER>(probs, chosen);
  if (!is_softmax(r.score) && r.l.k > 1) normalise<PER>(probs, chosen);
  store_scores<PER>(r, r.out[0], token, own, probs);
  store_map<PER>(r, r.out[1], token, own, chosen);
  store_scores<PER>(r, r.out[2], token, own, r.score == ROUTER_SOFTMAX ? probs : scores);
}

template <int PER> __global__ void __launch_bounds__(CHOICE_THREADS) balance_kernel(router r)
{
  int32_t token = own_token();
  if (token >= r.l.tokens) return;
  uint32_t own = own_experts<PER>(r.l);
  float scores[PER], probs[PER];
  load_scores<PER>(r, r.in[0], token, own, scores);
  if (is_softmax(r.score)) softmax<PER>(scores, own);
#pragma unroll
  for (int j = 0; j < PER; j++) {
    if (!is_softmax(r.score)) scores[j] = score_of(r.score, scores[j]);
    probs[j] = scores[j];
  }
  if (!is_softmax(r.score)) normalise<PER>(probs, own);
  store_scores<PER>(r, r.out[0], token, own, probs);
  store_map<PER>(r, r.out[1], token, own, choose<PER>(r.l, token, scores, take_nothing{}));
  store_scores<PER>(r, r.out[2], token, own, scores);
}

/* The choice alone: scores and experts, the largest first. */
template <int PER> __global__ void __launch_bounds__(CHOICE_THREADS) topk_kernel(router r)
{
  int32_t token = own_token(), kept = 0;
  if (token >= r.l.tokens) return;
  float scores[PER];
  load_scores<PER>(r, r.in[0], token, own_experts<PER>(r.l), scores);
  (void)choose<PER>(r.l, token, scores, [&](int32_t j, int32_t e) {
    if (own_lane() == j) kept = e;
  });
  if (own_lane() >= r.l.k) return;
  uint32_t to = (uint32_t)(token * r.l.k + own_lane());
  store_one(r.out[0], place_of(r.out[0], to),
            number_at(r.in[0], (uint32_t)(token * r.l.experts + kept)));
  store_index(r.out[1], to, kept);
}

/* Reads logits; writes probabilities, map, scores. */
static bool forward_of(const exec_call *c, int first, router *r)
{
  *r = router_of(c, small_dim(c, TOPK), first);
  r->score = (router_score)c->call->scalars[SCORE];
  int64_t cells = (int64_t)r->l.tokens * r->l.experts;
  return limits_suit(r->l) && cells < INT32_MAX && numbers_suit(c->reads[0], cells, &r->in[0]) &&
         numbers_suit(c->writes[0], cells, &r->out[0]) &&
         indices_suit(c->writes[1], cells, &r->out[1]) &&
         numbers_suit(c->writes[2], cells, &r->out[2]);
}

static bool topk_of(const exec_call *c, router *r)
{
  uint32_t last = c->write_count - 1;
  *r = router_of(c, small_dim(c, TOPK), 0);
  int64_t cells = (int64_t)r->l.tokens * r->l.experts, choices = (int64_t)r->l.tokens * r->l.k;
  return limits_suit(r->l) && cells < INT32_MAX && numbers_suit(c->reads[0], cells, &r->in[0]) &&
         numbers_suit(c->writes[last - 1], choices, &r->out[0]) &&
         indices_suit(c->writes[last], choices, &r->out[1]);
}

KERNEL_SUITS(router_forward)
{
  router r;
  return forward_of(c, GROUPS, &r);
}

KERNEL_LAUNCH(router_forward)
{
  router r;
  forward_of(c->of, GROUPS, &r);
  with_experts(r.l.experts, [&](auto each) {
    router_kernel<decltype(each)::PER><<<choice_blocks(r.l), CHOICE_THREADS, 0, stream_of(c)>>>(r);
  });
  launched(c);
}

KERNEL_SUITS(router_aux_forward)
{
  router r;
  return forward_of(c, -1, &r);
}

KERNEL_LAUNCH(router_aux_forward)
{
  router r;
  forward_of(c->of, -1, &r);
  with_experts(r.l.experts, [&](auto each) {
    balance_kernel<decltype(each)::PER><<<choice_blocks(r.l), CHOICE_THREADS, 0, stream_of(c)>>>(r);
  });
  launched(c);
}

KERNEL_SUITS(router_topk_forward)
{
  router r;
  return topk_of(c, &r);
}

KERNEL_LAUNCH(router_topk_forward)
{
  router r;
  topk_of(c->of, &r);
  with_experts(r.l.experts, [&](auto each) {
    topk_kernel<decltype(each)::PER><<<choice_blocks(r.l), CHOICE_THREADS, 0, stream_of(c)>>>(r);
  });
  launched(c);
}

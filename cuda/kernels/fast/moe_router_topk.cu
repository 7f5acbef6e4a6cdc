/* The choice alone. */
#include "cuda/kernels/fast/moe_router.cuh"

/* Writes scores and experts, the largest first. */
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

static bool topk_of(const exec_call *c, router *r)
{
  uint32_t last = c->write_count - 1;
  *r = router_of(c, small_dim(c, TOPK), 0);
  int64_t cells = (int64_t)r->l.tokens * r->l.experts, choices = (int64_t)r->l.tokens * r->l.k;
  return limits_suit(r->l) && cells < INT32_MAX && numbers_suit(c->reads[0], cells, &r->in[0]) &&
         numbers_suit(c->writes[last - 1], choices, &r->out[0]) &&
         indices_suit(c->writes[last], choices, &r->out[1]);
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

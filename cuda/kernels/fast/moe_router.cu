/* Routers by one kernel. */
#include "cuda/kernels/fast/moe_scores.cuh"

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

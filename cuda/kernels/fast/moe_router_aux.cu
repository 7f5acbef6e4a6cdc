/* The scores of the balancing loss. */
#include "cuda/kernels/fast/moe_scores.cuh"

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

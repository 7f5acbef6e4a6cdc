/* The log-probabilities that labels pick: ref/kernels/torch_loss.c. */
#include "cuda/kernels/fast/labels.cuh"

enum { COUNT_THREADS = 1024 };

struct nll {
  own_labels labels;
  layout rows, loss, counted; /* rows: units of a row */
  uint32_t tokens;
};

/* One block: thread t has tokens t, t + COUNT_THREADS, ... */
__global__ void __launch_bounds__(COUNT_THREADS) nll_forward_kernel(nll n)
{
  __shared__ float sums[COUNT_THREADS], counts[COUNT_THREADS];
  float sum = 0, count = 0;
  for (uint32_t i = threadIdx.x; i < n.tokens; i += COUNT_THREADS) {
    int32_t label = n.labels.of(i);
    if (label < 0) continue;
    sum -= load_one(n.rows, place_of(n.rows, i) + label);
    count += 1;
  }
  sums[threadIdx.x] = sum;
  counts[threadIdx.x] = count;
  __syncthreads();
  for (uint32_t step = COUNT_THREADS / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) {
      sums[threadIdx.x] += sums[threadIdx.x + step];
      counts[threadIdx.x] += counts[threadIdx.x + step];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  store_one(n.loss, 0, sums[0] / counts[0]);
  store_one(n.counted, 0, counts[0]);
}

/* reads log-probabilities, labels; writes the loss and the number of labels that count. */
static bool nll_of(const exec_call *c, nll *n)
{
  int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
  n->tokens = (uint32_t)tokens;
  return tokens > 0 && tokens < INT32_MAX && is_number(c->reads[0]) &&
         elements_of(c->reads[0]) == tokens * vocab && layout_of(c->reads[0], vocab, 1, &n->rows) &&
         all_labels_of(c, c->reads[1], &n->labels) && numbers_suit(c->writes[0], 1, &n->loss) &&
         numbers_suit(c->writes[1], 1, &n->counted);
}

KERNEL_SUITS(nll_forward)
{
  nll n;
  return nll_of(c, &n);
}

KERNEL_LAUNCH(nll_forward)
{
  nll n;
  if (!nll_of(c->of, &n)) return;
  nll_forward_kernel<<<1, COUNT_THREADS, 0, stream_of(c)>>>(n);
  launched(c);
}

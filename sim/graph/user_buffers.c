#include "sim/graph/user_buffers.h"

#include <assert.h>

#include "sim/config/software.h"
#include "sim/graph/fp8.h"
#include "sim/graph/sizes.h"

#define NAMES(set, linear)                                                                         \
  {                                                                                                \
    "user_buffer." set linear "_fprop", "user_buffer." set linear "_dgrad",                        \
        "user_buffer." set linear "_wgrad"                                                         \
  }
#define LINEARS(set)                                                                               \
  {                                                                                                \
    [USER_QKV] = NAMES(set, "qkv"), [USER_PROJ] = NAMES(set, "proj"),                              \
    [USER_FC1] = NAMES(set, "fc1"), [USER_FC2] = NAMES(set, "fc2")                                 \
  }

const char *user_buffer_name(bool fp8, user_linear of, user_product product)
{
  static const char *const names[2][USER_LINEARS][USER_PRODUCTS] = { LINEARS("bf16."),
                                                                     LINEARS("fp8.") };
  assert(of > NO_USER_BUFFERS && of < USER_LINEARS && product < USER_PRODUCTS);
  return names[fp8][of][product];
}

/* Sets of buffers: for layers in fp8, and for those in bf16. */
static bool has_user_buffers(const settings *s, bool fp8)
{
  bool in_fp8 = s->training.fp8_format != FP8_FORMAT_NONE;
  bool in_bf16 =
      !in_fp8 ||
      (s->training.first_last_layers_bf16 &&
       (s->training.num_layers_at_start_in_bf16 > 0 || s->training.num_layers_at_end_in_bf16 > 0));
  return s->parallel.tp_comm_overlap && !uses_hf(s) && (fp8 ? in_fp8 : in_bf16);
}

/* Transformer Engine 077e26c3 */
enum { TE_GATHERS_TWO_COPIES = SOFTWARE_VERSION(2, 7) };

static bool exists(const settings *s, bool fp8, bool splits_columns, user_product product)
{
  bool second_copy = !splits_columns && product == USER_WGRAD;
  bool has_second = s->derived.software.transformer_engine >= TE_GATHERS_TWO_COPIES ||
                    (fp8 && !fp8_is_per_tensor(s));
  return has_user_buffers(s, fp8) && (!second_copy || has_second);
}

/* What a rank has of the rows of a hidden state, as it exchanges them. */
static int64_t part_bytes(const settings *s, bool fp8, bool for_wgrad)
{
  int64_t rows = size_residual_sequence(s) * s->training.micro_batch_size;
  int64_t width = s->model.hidden_size;
  if (!fp8) return rows * width * dtype_bytes(model_dtype(s));
  return for_wgrad ? fp8_saved_bytes(s, rows, width, true) : fp8_rowwise_bytes(s, rows, width);
}

int64_t user_buffer_bytes(const settings *s, bool fp8, user_linear of, user_product product)
{
  bool splits_columns = of == USER_QKV || of == USER_FC1;
  bool scatters = product == (splits_columns ? USER_WGRAD : USER_FORWARD);
  bool for_wgrad = product == (splits_columns ? USER_DGRAD : USER_WGRAD);
  int64_t parts = s->parallel.tensor_model_parallel_size;
  if (!exists(s, fp8, splits_columns, product)) return 0;
  /* A ring keeps the parts that it sends apart from those that it sums, of which one is its own. */
  if (!splits_columns && scatters && s->parallel.tp_comm_overlap_rs_method == RS_RING_EXCHANGE)
    parts = 2 * parts - 1;
  return parts * part_bytes(s, fp8 && !scatters, for_wgrad);
}

int64_t user_buffers_bytes(const settings *s)
{
  int64_t sum = 0;
  for (int fp8 = 0; fp8 < 2; fp8++)
    for (user_linear of = USER_QKV; of < USER_LINEARS; of++)
      for (user_product product = USER_FORWARD; product < USER_PRODUCTS; product++)
        sum += user_buffer_bytes(s, fp8 != 0, of, product);
  return sum;
}

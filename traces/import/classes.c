#include "traces/import/classes.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* The first row that occurs in a name decides: a fused attention of CUTLASS is attention. Sources:
 * names in traces of PyTorch 2.11 with cuBLAS 13, cuDNN 9.19, NCCL 2.28, Transformer Engine 2.13. */
static const struct {
  const char *part;
  kernel_class class;
} rows[] = {
  { "nccl", CLASS_COMMUNICATION },
  { "nvshmem", CLASS_COMMUNICATION },
  { "deep_ep", CLASS_COMMUNICATION },
  { "fmha", CLASS_ATTENTION },
  { "sdpa", CLASS_ATTENTION },
  { "flash", CLASS_ATTENTION },
  { "attention", CLASS_ATTENTION },
  { "attn", CLASS_ATTENTION },
  { "compute_dot_do_o", CLASS_ATTENTION }, /* cuDNN's attention backward */
  { "convert_dq", CLASS_ATTENTION },
  { "gemm", CLASS_GEMM },
  { "nvjet", CLASS_GEMM }, /* cuBLAS */
  { "gemv", CLASS_GEMM },
  { "cutlass", CLASS_GEMM },
  { "matmul", CLASS_GEMM },
  { "xmma", CLASS_GEMM },
};

static int is_at(const char *text, const char *part)
{
  return strncasecmp(text, part, strlen(part)) == 0;
}

kernel_class kernel_class_of(const char *name)
{
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (const char *at = name; *at != '\0'; at++)
      if (is_at(at, rows[i].part)) return rows[i].class;
  return CLASS_OTHER;
}

const char *kernel_class_name(kernel_class c)
{
#define X(id, name) name,
  static const char *const names[] = { KERNEL_CLASSES(X) };
#undef X
  return names[c];
}

#include "cuda/kernels/fast/attention_shape.h"

enum { BATCH, HEADS, QUERIES, KEYS, QK, V, CAUSAL, WINDOW };
enum { KV_HEADS, SCALE, DROPOUT, LAYOUT };

/* Kernels load 16 bytes at a time. */
enum { ALIGNED_ELEMENTS = 8, ALIGNED_BYTES = 16 };

static attention_shape sizes_of(const exec_call *c)
{
  const int64_t *d = c->call->dims;
  const double *s = c->call->scalars;
  return (attention_shape){ .batch = d[BATCH],
                            .heads = d[HEADS],
                            .kv_heads = (int64_t)s[KV_HEADS],
                            .queries = d[QUERIES],
                            .keys = d[KEYS],
                            .qk = d[QK],
                            .v = d[V],
                            .causal = d[CAUSAL] != 0,
                            .scale = (float)s[SCALE] };
}

/* A tensor's elements in row-major order, cut into dimensions of other sizes from the inside. */
typedef struct cutter {
  const exec_tensor *tensor;
  int dimension;        /* that is being cut; -1: all are */
  int64_t stride, left; /* of what is left of it */
} cutter;

/* The next dimension, and those outside that follow it without a gap. */
static void next_dimension(cutter *k)
{
  const exec_tensor *t = k->tensor;
  while (k->left == 1 && --k->dimension >= 0) {
    k->stride = t->strides[k->dimension];
    k->left = t->shape[k->dimension];
  }
  while (k->dimension > 0 && t->strides[k->dimension - 1] == k->stride * k->left)
    k->left *= t->shape[--k->dimension];
}

/* The stride of an innermost dimension of `size`; false: it has none. */
static bool cut(cutter *k, int64_t size, int64_t *stride)
{
  *stride = 0;
  if (size == 1) return true;
  next_dimension(k);
  if (k->dimension < 0 || k->left % size != 0) return false;
  *stride = k->stride;
  k->stride *= size;
  k->left /= size;
  return true;
}

static bool operand_of(const exec_call *c, const attention_shape *a, const exec_tensor *t,
                       int64_t heads, int64_t length, int64_t columns, attention_operand *o)
{
  attention_layout layout = (attention_layout)c->call->scalars[LAYOUT];
  cutter k = { .tensor = t, .dimension = t->rank, .left = 1 };
  int64_t column_stride = 0;
  bool fits = t->type == DTYPE_BF16 && cut(&k, columns, &column_stride) && column_stride == 1;
  switch (layout) {
  case ATTENTION_BHSD:
    fits = fits && cut(&k, length, &o->row_stride) && cut(&k, heads, &o->head_stride) &&
           cut(&k, a->batch, &o->batch_stride);
    break;
  case ATTENTION_SBHD:
    fits = fits && cut(&k, heads, &o->head_stride) && cut(&k, a->batch, &o->batch_stride) &&
           cut(&k, length, &o->row_stride);
    break;
  case ATTENTION_BSHD:
    fits = fits && cut(&k, heads, &o->head_stride) && cut(&k, length, &o->row_stride) &&
           cut(&k, a->batch, &o->batch_stride);
    break;
  }
  o->data = t->data;
  return fits && o->row_stride % ALIGNED_ELEMENTS == 0 && o->head_stride % ALIGNED_ELEMENTS == 0 &&
         o->batch_stride % ALIGNED_ELEMENTS == 0 && (uintptr_t)t->data % ALIGNED_BYTES == 0;
}

static bool query_of(const exec_call *c, attention_shape *a, const exec_tensor *t, int64_t columns,
                     int which)
{
  return operand_of(c, a, t, a->heads, a->queries, columns, &a->operands[which]);
}

static bool key_of(const exec_call *c, attention_shape *a, const exec_tensor *t, int64_t columns,
                   int which)
{
  return operand_of(c, a, t, a->kv_heads, a->keys, columns, &a->operands[which]);
}

static bool log_sums_of(attention_shape *a, const exec_tensor *t)
{
  int64_t rows = a->batch * a->heads * a->queries, stride;
  cutter k = { .tensor = t, .dimension = t->rank, .left = 1 };
  a->log_sums = t->data;
  return t->type == DTYPE_FP32 && cut(&k, rows, &stride) && (rows == 1 || stride == 1);
}

static bool ordinary(const exec_call *c, const attention_shape *a)
{
  return c->call->scalars[DROPOUT] == 0 && c->call->dims[WINDOW] == 0 &&
         c->rank->group[GROUP_CP].size <= 1 && a->queries == a->keys && a->kv_heads > 0 &&
         a->heads % a->kv_heads == 0;
}

bool attention_forward_shape(const exec_call *c, attention_shape *a)
{
  *a = sizes_of(c);
  return ordinary(c, a) && c->read_count >= 3 && c->write_count >= 2 &&
         query_of(c, a, &c->reads[0], a->qk, FORWARD_QUERY) &&
         key_of(c, a, &c->reads[1], a->qk, FORWARD_KEY) &&
         key_of(c, a, &c->reads[2], a->v, FORWARD_VALUE) &&
         query_of(c, a, &c->writes[0], a->v, FORWARD_OUTPUT) && log_sums_of(a, &c->writes[1]);
}

bool attention_backward_shape(const exec_call *c, attention_shape *a)
{
  *a = sizes_of(c);
  return ordinary(c, a) && c->read_count >= 6 && c->write_count >= 3 &&
         query_of(c, a, &c->reads[0], a->v, BACKWARD_OUTPUT_GRADIENT) &&
         query_of(c, a, &c->reads[1], a->qk, BACKWARD_QUERY) &&
         key_of(c, a, &c->reads[2], a->qk, BACKWARD_KEY) &&
         key_of(c, a, &c->reads[3], a->v, BACKWARD_VALUE) &&
         query_of(c, a, &c->reads[4], a->v, BACKWARD_OUTPUT) && log_sums_of(a, &c->reads[5]) &&
         query_of(c, a, &c->writes[0], a->qk, BACKWARD_QUERY_GRADIENT) &&
         key_of(c, a, &c->writes[1], a->qk, BACKWARD_KEY_GRADIENT) &&
         key_of(c, a, &c->writes[2], a->v, BACKWARD_VALUE_GRADIENT);
}

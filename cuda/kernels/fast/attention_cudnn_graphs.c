#include "cuda/kernels/fast/attention_cudnn_graphs.h"

#ifdef OFFSIM_WITH_CUDNN

/* What both directions are made of. */
typedef struct builder {
  cudnn_graph *g;
  const attention_shape *a;
  int64_t scores[GRAPH_DIMS], rows[GRAPH_DIMS]; /* [.., queries, keys], [.., queries, 1] */
} builder;

static builder new_builder(cudnn_graph *g, const attention_shape *a)
{
  return (builder){ .g = g,
                    .a = a,
                    .scores = { a->batch, a->heads, a->queries, a->keys },
                    .rows = { a->batch, a->heads, a->queries, 1 } };
}

static graph_tensor operand(const builder *b, int which, int64_t heads, int64_t length,
                            int64_t columns, bool transposed)
{
  const attention_operand *o = &b->a->operands[which];
  const int64_t dims[] = { b->a->batch, heads, length, columns };
  const int64_t whole = heads * length * columns;
  /* Those of dimensions of one element do not matter, but none may be 0. */
  const int64_t strides[] = { o->batch_stride > 0 ? o->batch_stride : whole,
                              o->head_stride > 0 ? o->head_stride : length * columns,
                              o->row_stride > 0 ? o->row_stride : columns, 1 };
  return (transposed ? graph_transposed_operand : graph_operand)(
      b->g, ID_OPERANDS + which, CUDNN_DATA_BFLOAT16, dims, strides);
}

static graph_tensor query(const builder *b, int which, int64_t columns)
{
  return operand(b, which, b->a->heads, b->a->queries, columns, false);
}

static graph_tensor key(const builder *b, int which, int64_t columns, bool transposed)
{
  return operand(b, which, b->a->kv_heads, b->a->keys, columns, transposed);
}

/* fp32 [batch, heads, queries, 1] */
static graph_tensor row_numbers(const builder *b, int64_t id)
{
  const int64_t strides[] = { b->a->heads * b->a->queries, b->a->queries, 1, 1 };
  return graph_operand(b->g, id, CUDNN_DATA_FLOAT, b->rows, strides);
}

static graph_tensor add(const builder *b, cudnnPointwiseMode_t mode, graph_tensor x, graph_tensor y)
{
  return graph_binary(b->g, mode, x, y, CUDNN_DATA_FLOAT);
}

static graph_tensor masked(const builder *b, graph_tensor scores)
{
  return b->a->causal ? graph_causal(b->g, scores, graph_scalar(b->g, ID_MINUS_INFINITY)) : scores;
}

void attention_forward_graph(cudnn_graph *g, const attention_shape *a)
{
  builder b = new_builder(g, a);
  graph_tensor q = query(&b, FORWARD_QUERY, a->qk), k = key(&b, FORWARD_KEY, a->qk, true);
  graph_tensor v = key(&b, FORWARD_VALUE, a->v, false), o = query(&b, FORWARD_OUTPUT, a->v);
  graph_tensor s = graph_matmul(g, q, k, CUDNN_DATA_FLOAT, b.scores);
  s = masked(&b, add(&b, CUDNN_POINTWISE_MUL, s, graph_scalar(g, ID_SCALE)));
  graph_tensor most = graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, b.rows);
  graph_tensor e = graph_unary(g, CUDNN_POINTWISE_EXP, add(&b, CUDNN_POINTWISE_SUB, s, most));
  graph_tensor sum = graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, b.rows);
  graph_tensor log_sum = graph_unary(g, CUDNN_POINTWISE_LOG, sum);
  graph_binary_to(g, CUDNN_POINTWISE_ADD, most, log_sum, row_numbers(&b, ID_LOG_SUMS));
  graph_tensor p = graph_binary(g, CUDNN_POINTWISE_DIV, e, sum, CUDNN_DATA_BFLOAT16);
  graph_matmul_to(g, p, v, o);
}

/* x^T times y, where x is of every query head; summed over those that share a key's. */
static void key_gradient(const builder *b, graph_tensor x, graph_tensor y, graph_tensor to)
{
  const attention_shape *a = b->a;
  const int64_t dims[] = { a->batch, a->heads, a->keys, y.dims[3] };
  graph_tensor t = graph_transpose(b->g, x);
  if (a->heads == a->kv_heads) {
    graph_matmul_to(b->g, t, y, to);
  } else {
    graph_tensor all = graph_matmul(b->g, t, y, CUDNN_DATA_BFLOAT16, dims);
    graph_reduce_to(b->g, CUDNN_REDUCE_TENSOR_ADD, all, to);
  }
}

/* Sums of gradient times output, for each row. */
static graph_tensor deltas(const builder *b, graph_tensor gradient, graph_tensor output)
{
  graph_tensor to = row_numbers(b, ID_DELTAS);
  graph_tensor sum = graph_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD,
                                  add(b, CUDNN_POINTWISE_MUL, gradient, output), b->rows);
  graph_binary_to(b->g, CUDNN_POINTWISE_MUL, sum, graph_scalar(b->g, ID_ONE), to);
  return to;
}

void attention_backward_graph(cudnn_graph *g, const attention_shape *a)
{
  builder b = new_builder(g, a);
  graph_tensor gradient = query(&b, BACKWARD_OUTPUT_GRADIENT, a->v);
  graph_tensor q = query(&b, BACKWARD_QUERY, a->qk), k = key(&b, BACKWARD_KEY, a->qk, true);
  graph_tensor v = key(&b, BACKWARD_VALUE, a->v, true), scale = graph_scalar(g, ID_SCALE);
  graph_tensor delta = deltas(&b, gradient, query(&b, BACKWARD_OUTPUT, a->v));
  graph_tensor s = graph_matmul(g, q, k, CUDNN_DATA_FLOAT, b.scores);
  s = add(&b, CUDNN_POINTWISE_MUL, s, scale);
  s = masked(&b, add(&b, CUDNN_POINTWISE_SUB, s, row_numbers(&b, ID_LOG_SUMS)));
  graph_tensor p = graph_unary(g, CUDNN_POINTWISE_EXP, s);
  key_gradient(&b, p, gradient, key(&b, BACKWARD_VALUE_GRADIENT, a->v, false));
  graph_tensor ds = graph_matmul(g, gradient, v, CUDNN_DATA_FLOAT, b.scores);
  ds = add(&b, CUDNN_POINTWISE_MUL, add(&b, CUDNN_POINTWISE_SUB, ds, delta), p);
  ds = add(&b, CUDNN_POINTWISE_MUL, ds, scale);
  key_gradient(&b, ds, q, key(&b, BACKWARD_KEY_GRADIENT, a->qk, false));
  graph_matmul_to(g, ds, graph_transpose(g, k), query(&b, BACKWARD_QUERY_GRADIENT, a->qk));
}

#endif

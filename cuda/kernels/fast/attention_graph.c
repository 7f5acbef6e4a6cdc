#include <assert.h>
#include <string.h>

#include "cuda/kernels/fast/attention_graph.h"

#ifdef OFFSIM_WITH_CUDNN

enum { FIRST_VIRTUAL = 1000, ALIGNMENT_BYTES = 16, ENGINES = 16, NOTES = 8 };

cudnn_graph attention_graph_new(const cudnn_functions *dnn)
{
  return (cudnn_graph){ .dnn = dnn, .next_virtual = FIRST_VIRTUAL };
}

void attention_graph_delete(cudnn_graph *g)
{
  for (uint32_t i = g->owned_count; i-- > 0;)
    g->dnn->cudnnBackendDestroyDescriptor(g->owned[i]);
  g->owned_count = 0;
}

static void check(cudnn_graph *g, cudnnStatus_t status)
{
  if (status != CUDNN_STATUS_SUCCESS && g->failure == NULL)
    g->failure = g->dnn->cudnnGetErrorString(status);
}

/* ---- descriptors ---------------------------------------------------------------------------- */

static cudnn_descriptor new_descriptor(cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
  cudnn_descriptor d = NULL;
  if (g->failure != NULL) return NULL;
  assert(g->owned_count < GRAPH_DESCRIPTORS);
  check(g, g->dnn->cudnnBackendCreateDescriptor(type, &d));
  if (g->failure == NULL) g->owned[g->owned_count++] = d;
  return d;
}

static void set(cudnn_graph *g, cudnn_descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
  if (g->failure == NULL) check(g, g->dnn->cudnnBackendSetAttribute(d, name, type, count, values));
}

static void set_descriptor(cudnn_graph *g, cudnn_descriptor d, cudnnBackendAttributeName_t name,
                           cudnn_descriptor value)
{
  set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(cudnn_graph *g, cudnn_descriptor d)
{
  if (g->failure == NULL) check(g, g->dnn->cudnnBackendFinalize(d));
}

/* ---- tensors -------------------------------------------------------------------------------- */

static graph_tensor new_tensor(cudnn_graph *g, int64_t id, cudnnDataType_t type,
                               const int64_t *dims, const int64_t *strides, bool by_value)
{
  const int64_t alignment = ALIGNMENT_BYTES;
  const bool is_virtual = id >= FIRST_VIRTUAL;
  graph_tensor t = { .descriptor = new_descriptor(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR) };
  memcpy(t.dims, dims, sizeof t.dims);
  memcpy(t.strides, strides, sizeof t.strides);
  set(g, t.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(g, t.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, GRAPH_DIMS, dims);
  set(g, t.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, GRAPH_DIMS, strides);
  set(g, t.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  set(g, t.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  finalize(g, t.descriptor);
  return t;
}

graph_tensor graph_operand(cudnn_graph *g, int64_t id, cudnnDataType_t type, const int64_t *dims,
                           const int64_t *strides)
{
  assert(id > 0 && id < FIRST_VIRTUAL);
  return new_tensor(g, id, type, dims, strides, false);
}

graph_tensor graph_scalar(cudnn_graph *g, int64_t id)
{
  const int64_t ones[] = { 1, 1, 1, 1 };
  return new_tensor(g, id, CUDNN_DATA_FLOAT, ones, ones, true);
}

graph_tensor graph_transposed_operand(cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                      const int64_t *dims, const int64_t *strides)
{
  const int64_t to_dims[] = { dims[0], dims[1], dims[3], dims[2] };
  const int64_t to_strides[] = { strides[0], strides[1], strides[3], strides[2] };
  return graph_operand(g, id, type, to_dims, to_strides);
}

static graph_tensor virtual_tensor(cudnn_graph *g, cudnnDataType_t type, const int64_t *dims)
{
  const int64_t strides[] = { dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1 };
  return new_tensor(g, g->next_virtual++, type, dims, strides, false);
}

/* ---- operations ----------------------------------------------------------------------------- */

static void add_operation(cudnn_graph *g, cudnn_descriptor operation)
{
  finalize(g, operation);
  assert(g->operation_count < GRAPH_OPERATIONS);
  g->operations[g->operation_count++] = operation;
}

void graph_matmul_to(cudnn_graph *g, graph_tensor a, graph_tensor b, graph_tensor to)
{
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnn_descriptor how = new_descriptor(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  finalize(g, how);
  cudnn_descriptor o = new_descriptor(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.descriptor);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  add_operation(g, o);
}

graph_tensor graph_matmul(cudnn_graph *g, graph_tensor a, graph_tensor b, cudnnDataType_t type,
                          const int64_t *dims)
{
  graph_tensor y = virtual_tensor(g, type, dims);
  graph_matmul_to(g, a, b, y);
  return y;
}

/* y = mode(x, b, t); b and t may be missing. `axis` is that of an index, or -1. */
static void pointwise(cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                      int64_t axis, const graph_tensor *x, const graph_tensor *b,
                      const graph_tensor *t, graph_tensor y)
{
  cudnn_descriptor how = new_descriptor(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  if (axis >= 0) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  finalize(g, how);
  cudnn_descriptor o = new_descriptor(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->descriptor);
  if (b != NULL) set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
  if (t != NULL) set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->descriptor);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor);
  add_operation(g, o);
}

graph_tensor graph_unary(cudnn_graph *g, cudnnPointwiseMode_t mode, graph_tensor x)
{
  graph_tensor y = virtual_tensor(g, CUDNN_DATA_FLOAT, x.dims);
  pointwise(g, mode, CUDNN_DATA_FLOAT, -1, &x, NULL, NULL, y);
  return y;
}

void graph_binary_to(cudnn_graph *g, cudnnPointwiseMode_t mode, graph_tensor x, graph_tensor y,
                     graph_tensor to)
{
  pointwise(g, mode, CUDNN_DATA_FLOAT, -1, &x, &y, NULL, to);
}

graph_tensor graph_binary(cudnn_graph *g, cudnnPointwiseMode_t mode, graph_tensor x, graph_tensor y,
                          cudnnDataType_t type)
{
  graph_tensor to = virtual_tensor(g, type, x.dims);
  graph_binary_to(g, mode, x, y, to);
  return to;
}

void graph_reduce_to(cudnn_graph *g, cudnnReduceTensorOp_t mode, graph_tensor x, graph_tensor to)
{
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnn_descriptor how = new_descriptor(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  finalize(g, how);
  cudnn_descriptor o = new_descriptor(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.descriptor);
  add_operation(g, o);
}

graph_tensor graph_reduce(cudnn_graph *g, cudnnReduceTensorOp_t mode, graph_tensor x,
                          const int64_t *dims)
{
  graph_tensor y = virtual_tensor(g, CUDNN_DATA_FLOAT, dims);
  graph_reduce_to(g, mode, x, y);
  return y;
}

graph_tensor graph_transpose(cudnn_graph *g, graph_tensor x)
{
  const int64_t dims[] = { x.dims[0], x.dims[1], x.dims[3], x.dims[2] };
  const int64_t strides[] = { x.strides[0], x.strides[1], x.strides[3], x.strides[2] };
  graph_tensor y = new_tensor(g, g->next_virtual++, CUDNN_DATA_BFLOAT16, dims, strides, false);
  cudnn_descriptor o = new_descriptor(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
  set_descriptor(g, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor);
  add_operation(g, o);
  return y;
}

static graph_tensor index_of(cudnn_graph *g, graph_tensor x, int64_t axis)
{
  graph_tensor y = virtual_tensor(g, CUDNN_DATA_INT32, x.dims);
  pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, &x, NULL, NULL, y);
  return y;
}

graph_tensor graph_causal(cudnn_graph *g, graph_tensor scores, graph_tensor instead)
{
  graph_tensor row = index_of(g, scores, 2), column = index_of(g, scores, 3);
  graph_tensor seen = virtual_tensor(g, CUDNN_DATA_BOOLEAN, scores.dims);
  graph_tensor y = virtual_tensor(g, CUDNN_DATA_FLOAT, scores.dims);
  pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, &row, &column, NULL, seen);
  pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, &scores, &instead, &seen, y);
  return y;
}

/* ---- plans ---------------------------------------------------------------------------------- */

static cudnn_descriptor operation_graph(cudnn_graph *g, cudnnHandle_t handle)
{
  cudnn_descriptor d = new_descriptor(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count,
      g->operations);
  finalize(g, d);
  return d;
}

/* What the library proposes, best first; returns how many. */
static int64_t proposals(cudnn_graph *g, cudnn_descriptor graph, cudnn_descriptor configs[ENGINES])
{
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  int64_t count = 0;
  cudnn_descriptor d = new_descriptor(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_descriptor(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  finalize(g, d);
  for (int i = 0; i < ENGINES; i++)
    configs[i] = new_descriptor(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (g->failure == NULL)
    check(g, g->dnn->cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES, &count,
                                              configs));
  return count < ENGINES ? count : ENGINES;
}

/* Whether the sums of a proposal's engine may come in any order. */
static bool varies(cudnn_graph *g, cudnn_descriptor config)
{
  cudnnBackendNumericalNote_t notes[NOTES];
  int64_t count = 0;
  cudnn_descriptor engine = new_descriptor(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (g->failure != NULL) return true;
  check(g, g->dnn->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine));
  check(g, g->dnn->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                            CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &count, notes));
  for (int64_t i = 0; i < count && i < NOTES; i++)
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
  return g->failure != NULL;
}

/* A proposal may turn out not to work here: that is no failure. */
static cudnn_descriptor plan_of(cudnn_graph *g, cudnnHandle_t handle, cudnn_descriptor config)
{
  cudnn_descriptor d = new_descriptor(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set(g, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  set_descriptor(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (g->failure != NULL) return NULL;
  return g->dnn->cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS ? d : NULL;
}

cudnn_descriptor graph_plan(cudnn_graph *g, cudnnHandle_t handle)
{
  cudnn_descriptor configs[ENGINES], plan = NULL;
  int64_t count = proposals(g, operation_graph(g, handle), configs);
  for (int64_t i = 0; i < count && plan == NULL && g->failure == NULL; i++)
    if (!varies(g, configs[i])) plan = plan_of(g, handle, configs[i]);
  return plan;
}

int64_t graph_workspace_bytes(const cudnn_graph *g, cudnn_descriptor plan)
{
  int64_t count = 0, bytes = 0;
  cudnnStatus_t status = g->dnn->cudnnBackendGetAttribute(
      plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
  assert(status == CUDNN_STATUS_SUCCESS);
  (void)status;
  return bytes;
}

const char *graph_execute(const cudnn_functions *dnn, cudnnHandle_t handle, cudnn_descriptor plan,
                          uint32_t count, const int64_t *ids, void *const *pointers,
                          void *workspace)
{
  cudnn_graph g = attention_graph_new(dnn);
  cudnn_descriptor pack = new_descriptor(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
  set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
  set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  finalize(&g, pack);
  if (g.failure == NULL) check(&g, dnn->cudnnBackendExecute(handle, plan, pack));
  attention_graph_delete(&g);
  return g.failure;
}

#endif

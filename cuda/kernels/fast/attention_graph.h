/*
 * Operation graphs of cuDNN (NVIDIA cuDNN, "Graph API", backend descriptors): tensors, the
 * operations that attention is made of, and an execution plan for them.
 *
 * The first call that fails leaves its reason in `failure`; later calls do nothing.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_GRAPH_H
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/kernels/fast/cudnn_backend.h"

#ifdef OFFSIM_WITH_CUDNN

enum { GRAPH_DESCRIPTORS = 128, GRAPH_OPERATIONS = 40, GRAPH_DIMS = 4 };

typedef cudnnBackendDescriptor_t cudnn_descriptor;

typedef struct cudnn_graph {
  const cudnn_functions *dnn;
  cudnn_descriptor owned[GRAPH_DESCRIPTORS];
  cudnn_descriptor operations[GRAPH_OPERATIONS];
  uint32_t owned_count, operation_count;
  int64_t next_virtual; /* unique ids of tensors without memory */
  const char *failure;
} cudnn_graph;

/* A tensor and where its elements are; the inner strides are those of rows of `dims[3]`. */
typedef struct graph_tensor {
  cudnn_descriptor descriptor;
  int64_t dims[GRAPH_DIMS], strides[GRAPH_DIMS];
} graph_tensor;

cudnn_graph attention_graph_new(const cudnn_functions *dnn);
/* Also what graph_plan returned. */
void attention_graph_delete(cudnn_graph *g);

/* In memory; `id` > 0 says which in graph_execute. */
graph_tensor graph_operand(cudnn_graph *g, int64_t id, cudnnDataType_t type, const int64_t *dims,
                           const int64_t *strides);
/* One fp32 number that is given when the plan runs. */
graph_tensor graph_scalar(cudnn_graph *g, int64_t id);
/* The same memory with the last two dimensions exchanged. */
graph_tensor graph_transposed_operand(cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                      const int64_t *dims, const int64_t *strides);

/* Each gives its result, in no memory, of `dims` packed in row-major order; or writes `to`. */
graph_tensor graph_matmul(cudnn_graph *g, graph_tensor a, graph_tensor b, cudnnDataType_t type,
                          const int64_t *dims);
void graph_matmul_to(cudnn_graph *g, graph_tensor a, graph_tensor b, graph_tensor to);
graph_tensor graph_unary(cudnn_graph *g, cudnnPointwiseMode_t mode, graph_tensor x);
graph_tensor graph_binary(cudnn_graph *g, cudnnPointwiseMode_t mode, graph_tensor x, graph_tensor y,
                          cudnnDataType_t type);
void graph_binary_to(cudnn_graph *g, cudnnPointwiseMode_t mode, graph_tensor x, graph_tensor y,
                     graph_tensor to);
graph_tensor graph_reduce(cudnn_graph *g, cudnnReduceTensorOp_t mode, graph_tensor x,
                          const int64_t *dims);
void graph_reduce_to(cudnn_graph *g, cudnnReduceTensorOp_t mode, graph_tensor x, graph_tensor to);
/* The last two dimensions exchanged, as bf16. */
graph_tensor graph_transpose(cudnn_graph *g, graph_tensor x);
/* Scores [batch, heads, queries, keys] of keys after their query become `instead`. */
graph_tensor graph_causal(cudnn_graph *g, graph_tensor scores, graph_tensor instead);

/* The plan of the first engine that takes the graph and whose sums have one order; NULL: none. */
cudnn_descriptor graph_plan(cudnn_graph *g, cudnnHandle_t handle);
int64_t graph_workspace_bytes(const cudnn_graph *g, cudnn_descriptor plan);

/* Runs a plan on the handle's stream; `ids` and `pointers` of all operands and scalars. */
const char *graph_execute(const cudnn_functions *dnn, cudnnHandle_t handle, cudnn_descriptor plan,
                          uint32_t count, const int64_t *ids, void *const *pointers,
                          void *workspace);

#endif

#endif

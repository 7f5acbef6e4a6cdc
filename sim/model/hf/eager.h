/* Helpers with which the modules of sim/model/hf append operators. */
#ifndef OFFSIM_SIM_MODEL_HF_EAGER_H
#define OFFSIM_SIM_MODEL_HF_EAGER_H

#include "sim/model/hf/hf.h"

bool hf_needs_gradient(const graph *g, tensor_id t);

/* A new output of `n`, whose inputs are already set. It needs a gradient if one of them does. */
tensor_id hf_result(graph *g, graph_node *n, const char *name, dtype type, const int64_t shape[4]);
/* The same for a tensor that never has a gradient: statistics, masks. */
tensor_id hf_side_result(graph *g, graph_node *n, const char *name, dtype type,
                         const int64_t shape[4]);
/* A linear's: the shape and type of its input x, with another width. */
tensor_id hf_output_of_width(graph *g, graph_node *n, tensor_id x, int64_t width);
/* A view of a part of `of` [b, s, width] that `n` produces, `offset` elements into its rows. */
tensor_id hf_split_view(graph *g, graph_node *n, const char *name, tensor_id of, int64_t offset,
                        const int64_t shape[4]);
/* Views of x's columns side by side, which are all of them. Their gradients are joined. */
typedef struct hf_columns {
  const char *name;
  int64_t width;
} hf_columns;
void hf_split_columns(graph *g, tensor_id x, uint32_t count, const hf_columns *columns,
                      tensor_id *parts);
/* x[..., first : first + width]: a view. */
tensor_id hf_slice(graph *g, const char *name, tensor_id x, int64_t first, int64_t width);
/* x[..., first::2]: a view. */
tensor_id hf_every_other(graph *g, const char *name, tensor_id x, int64_t first);
/* The strides of a tensor, in elements. */
void hf_strides_of(const graph *g, tensor_id t, int64_t strides[4]);
/* A contiguous copy of x. */
tensor_id hf_copy(graph *g, const char *name, tensor_id x);
/* The same for an x with contiguous rows; the copy is as fast as that of a contiguous tensor. */
tensor_id hf_copy_rows(graph *g, const char *name, tensor_id x);

#endif

/*
 * Transformer Engine's user buffers (d0067d0d, pytorch/module/base.py, initialize_ub;
 * common/comm_gemm_overlap/comm_gemm_overlap.cpp): with tp_comm_overlap each linear of a layer has memory of
 * its own for each of its products that runs beside an exchange.
 *
 *   linear     forward             gradient of the input   gradient of the weight
 *   qkv, fc1   gathers by a ring   gathers in bulk         scatters in bulk
 *   proj, fc2  scatters            gathers by a ring       since 2.7: gathers copies of MXFP8 for it
 *
 * They are made once, before the model, whichever of these overlaps are on. They come from the driver:
 * PyTorch's allocator does not count them.
 */
#ifndef OFFSIM_SIM_GRAPH_USER_BUFFERS_H
#define OFFSIM_SIM_GRAPH_USER_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

typedef enum user_linear {
  NO_USER_BUFFERS,
  USER_QKV,
  USER_PROJ,
  USER_FC1,
  USER_FC2,
  USER_LINEARS
} user_linear;
typedef enum user_product { USER_FORWARD, USER_DGRAD, USER_WGRAD, USER_PRODUCTS } user_product;

enum {
  USER_BUFFER_PIPELINE_PARTS =
      4 /* of the columns of a product whose sum is scattered in a pipeline */
};

/* Bytes of a buffer, scales of its fp8 parts included; 0: there is none. */
int64_t user_buffer_bytes(const settings *s, bool fp8, user_linear of, user_product product);
/* Of all that a rank has. */
int64_t user_buffers_bytes(const settings *s);
/* The name of its static allocation. */
const char *user_buffer_name(bool fp8, user_linear of, user_product product);

#endif

/*
 * The parameters of a model of eager PyTorch, in the order of its modules, and the part that the
 * optimizer updates: the trainable ones, or this rank's shards of them.
 */
#ifndef OFFSIM_SIM_RESIDENTS_HF_PARAMETERS_H
#define OFFSIM_SIM_RESIDENTS_HF_PARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/config/settings.h"
#include "sim/plan/plan.h"

typedef struct hf_parameter {
  const char *name;
  int64_t elements, rows; /* rows: its first dimension */
  int32_t layer;          /* -1 outside the decoder layers */
  uint8_t type;           /* dtype that the model computes with */
  bool trainable;
  bool embedding; /* an nn.Embedding's */
} hf_parameter;

typedef struct hf_parameter_list {
  hf_parameter *items;
  uint32_t count;
} hf_parameter_list;

#endif

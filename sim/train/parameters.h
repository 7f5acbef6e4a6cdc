/*
 * The parameters of a virtual rank: the model's tensor that each belongs to and its part of it, its
 * place in the buffers of a plan, and its initial value.
 *
 * A tensor of the model is what one rank would have without any parallelism. It has a unique name,
 * "layers.3.mlp.experts.5.linear_fc1.weight"; its elements are numbered in row-major order.
 *
 * Initial values (Megatron-LM, core/utils.py init_method_normal, scaled_init_method_normal): an
 * element of a matrix is generator.h's number for the key of seed and name, at the element's index,
 * times 0.02; for output projections of attention and MLP times 0.02 / sqrt(2 layers). Gains of
 * norms are 1, or 0 if they are zero-centred; biases are 0. Adapters: A has the factor 1 / sqrt(its
 * columns), B is 0. All are then rounded to the type of the weight; main parameters have the
 * rounded values.
 */
#ifndef OFFSIM_SIM_TRAIN_PARAMETERS_H
#define OFFSIM_SIM_TRAIN_PARAMETERS_H

#include <stdbool.h>

#include "sim/base/arena.h"
#include "sim/config/settings.h"
#include "sim/exec/call.h"

#define NO_BUFFER UINT32_MAX

/* Megatron-LM transformer_config.py: init_method_std; transformers: initializer_range. */
#define TRAIN_INIT_DEVIATION 0.02

/* An element's initial value: `deviation` times a number of the generator, or `value`. */
typedef struct initial_value {
  double deviation, value;
} initial_value;

/* A part of a tensor: whole rows or whole columns of a matrix of `rows` times `columns` (a vector
 * has one column). The rows may belong to several tensors, one after the other, each of them
 * split. */
typedef struct train_part {
  const char *name;      /* of the tensor */
  int64_t rows, columns; /* the tensor's */
  int64_t own_rows, own_columns;
  uint32_t tensors; /* number of tensors in the rows, one after the other */
  uint32_t index;   /* number of this part, along the split dimension */
  initial_value initial;
  uint64_t key; /* of the generator */
} train_part;

/* The place of a part in a buffer of the plan; NO_BUFFER: nowhere. */
typedef struct train_home {
  uint32_t buffer;
  plan_view view;
} train_home;

typedef struct train_parameter {
  train_part part;
  train_home weight, gradient, main; /* main: the optimizer's copy */
  train_home first_main;             /* where main begins: elsewhere if it leaves and comes back */
  bool trained;                      /* some step updates it: it has a gradient */
} train_parameter;

typedef struct train_parameter_list {
  train_parameter *items;
  uint32_t count;
} train_parameter_list;

/* The index in the model's tensor of an element of the part. */
int64_t train_part_element(const train_part *p, int64_t own);
double train_part_initial(const train_part *p, int64_t own);

/* The rank's parameters in the plan: those that its optimizer steps update, then all other weights
 * of the plan. */
train_parameter_list train_parameters_of(const settings *s, const plan *p, const exec_rank *rank,
                                         uint64_t seed, arena *a);

#endif

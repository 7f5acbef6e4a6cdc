/*
 * The parameters of a virtual rank: of which tensor of the model each is which part, where it lies
 * in the buffers of a plan, and what it is at the beginning.
 *
 * A tensor of the model is what one rank would hold without any parallelism. It has a name of its
 * own, "layers.3.mlp.experts.5.linear_fc1.weight"; its elements are numbered in row-major order.
 *
 * At the beginning (Megatron-LM, core/utils.py init_method_normal, scaled_init_method_normal):
 * matrices are drawn from the numbers of generator.h, whose key is that of seed and name, one for
 * each element by its number, times 0.02; output projections of attention and MLP times 0.02 /
 * sqrt(2 layers). Norms' gains are 1, or 0 where they are zero-centred; biases are 0. Adapters: A
 * is drawn times 1 / sqrt(its columns), B is 0. All are then rounded to the type of the weight;
 * main parameters have the rounded values.
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

/* What an element is at the beginning: `deviation` times a number of the generator, or `value`. */
typedef struct initial_value {
  double deviation, value;
} initial_value;

/* A part of a tensor: whole rows or whole columns of a matrix of `rows` times `columns` (a vector
 * has one column). The rows may be of several tensors, one after the other, each of them split. */
typedef struct train_part {
  const char *name;      /* of the tensor */
  int64_t rows, columns; /* the tensor's */
  int64_t own_rows, own_columns;
  uint32_t tensors; /* that stand one after the other in the rows */
  uint32_t index;   /* which of the parts, along the dimension in which the own size is less */
  initial_value initial;
  uint64_t key; /* of the generator */
} train_part;

/* Where a part lies: in a buffer of the plan; NO_BUFFER: nowhere. */
typedef struct train_home {
  uint32_t buffer;
  plan_view view;
} train_home;

typedef struct train_parameter {
  train_part part;
  train_home weight, gradient, main; /* main: the optimizer's copy */
  bool trained;                      /* some step updates it: it has a gradient */
} train_parameter;

typedef struct train_parameter_list {
  train_parameter *items;
  uint32_t count;
} train_parameter_list;

/* The model's number of an element of the part. */
int64_t train_part_element(const train_part *p, int64_t own);
double train_part_initial(const train_part *p, int64_t own);

/* Those of the rank in the plan: what its optimizer steps update, then all other weights of the
 * plan that no step touches. */
train_parameter_list train_parameters_of(const settings *s, const plan *p, const exec_rank *rank,
                                         uint64_t seed, arena *a);

#endif

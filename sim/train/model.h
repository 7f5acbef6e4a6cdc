/*
 * The whole model, assembled from the ranks' parts: its tensors by name, so that runs with
 * different layouts can be compared. Ranks that have the same part of a tensor must have the same
 * bits.
 */
#ifndef OFFSIM_SIM_TRAIN_MODEL_H
#define OFFSIM_SIM_TRAIN_MODEL_H

#include "sim/exec/executor.h"
#include "sim/train/parameters.h"

typedef enum model_kind { MODEL_WEIGHT, MODEL_GRADIENT, MODEL_MAIN, MODEL_KINDS } model_kind;

typedef struct model_tensor {
  const char *name;
  int64_t rows, columns;
  void *data[MODEL_KINDS];   /* rows x columns elements; NULL: the model has none of the kind */
  uint8_t type[MODEL_KINDS]; /* dtype */
} model_tensor;

typedef struct train_model {
  model_tensor *tensors; /* ascending by name */
  uint32_t count;
  uint32_t **tensor_of; /* [rank][its parameter]: index into tensors */
} train_model;

/* Where a rank keeps a parameter's data of a kind. */
const train_home *parameter_home(const train_parameter *p, model_kind kind);

/* The trained tensors. `parameters` is indexed by rank. */
train_model model_of(const exec_layout *layout, const train_parameter_list *parameters, arena *a);

/* Gathers all ranks' parts of a kind. False: two ranks differ, and *finding, in `a`, says where. */
bool model_gather(train_model *m, model_kind kind, const execution *e, const plan *p,
                  const exec_layout *layout, const train_parameter_list *parameters,
                  const char **finding, arena *a);

/* Of all tensors in order: name and bytes of each. */
exec_fingerprint model_fingerprint(const train_model *m, model_kind kind);
exec_fingerprint tensor_fingerprint(const model_tensor *t, model_kind kind);
int64_t tensor_count(const model_tensor *t); /* elements */
/* Element `i`, by rows. */
double tensor_value(const model_tensor *t, model_kind kind, int64_t i);

/* Square root of the sum of all squares, in double, tensor by tensor, elements ascending. */
double model_norm(const train_model *m, model_kind kind);

#endif

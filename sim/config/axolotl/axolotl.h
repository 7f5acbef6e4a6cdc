/*
 * Axolotl's training YAML -> settings of the run that `axolotl train FILE` starts.
 *
 * The model's shape is not in the file. It comes from the base model's config.json, which is read
 * before (hf_config.h). World size is the launcher's, parallel.world_size.
 *
 * Which modules run, what is checkpointed and which offload system moves what follows from several
 * keys together, adapters included (offload.c). Combinations that Axolotl refuses are
 * refused, at the place of the key. Each key that can change memory or time and is not
 * modelled gets a note.
 *
 * Source: axolotl-ai-cloud/axolotl at 067b021c: src/axolotl/utils/schemas/ (names, defaults,
 * validation), utils/config/__init__.py (normalize_config), core/builders/base.py,
 * loaders/model.py, core/trainers/mixins/.
 */
#ifndef OFFSIM_SIM_CONFIG_AXOLOTL_AXOLOTL_H
#define OFFSIM_SIM_CONFIG_AXOLOTL_AXOLOTL_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"
#include "sim/config/training_lines.h"

typedef struct axolotl_options {
  bool ignore_unknown; /* keys that Axolotl does not have are listed in notes and skipped */
  const char *lines;   /* at the file's end, where they count; NULL: none */
} axolotl_options;

/* Reads a file; "-" is standard input. False after a diag error. */
bool axolotl_read(settings *s, const char *path, const axolotl_options *options, arena *a, diag *d);

/* The same from memory; `path` only names the text in messages and must outlive `s`. */
bool axolotl_parse(settings *s, const char *path, const char *text, size_t length,
                   const axolotl_options *options, arena *a, diag *d);

/* What a file may say of gradient checkpointing, offloading and keys that set one of offsim's. */
training_rows axolotl_rows;

#endif

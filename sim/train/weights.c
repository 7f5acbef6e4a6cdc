#include "sim/train/weights.h"

#include "sim/exec/number_formats.h"
#include "sim/train/generator.h"

static dtype type_at(const plan *p, uint32_t stage, const train_home *home)
{
  const plan_buffer *b = &p->ranks[stage].buffers.items[home->buffer];
  return home->view.whole ? (dtype)p->tensors.items[b->tensor].dtype : (dtype)home->view.dtype;
}

static int64_t elements_of(const train_parameter *of)
{
  return of->part.own_rows * of->part.own_columns;
}

/* To the numbers of a type. */
static float rounded(dtype type, double x)
{
  double place[1];
  number_store(place, type, 0, x);
  return (float)number_load(place, type, 0);
}

static void fill_home(const plan *p, uint32_t stage, const train_parameter *of,
                      const train_home *home, void *data)
{
  dtype type = type_at(p, stage, home), weight = type_at(p, stage, &of->weight);
  int64_t offset = home->view.whole ? 0 : home->view.offset;
  for (int64_t i = 0; i < elements_of(of); i++)
    number_store(data, type, offset + i,
                 (double)rounded(weight, (double)(float)train_part_initial(&of->part, i)));
}

void weights_fill(const plan *p, uint32_t stage, const train_parameter_list *list, uint32_t buffer,
                  void *data)
{
  for (uint32_t i = 0; i < list->count; i++) {
    const train_parameter *of = &list->items[i];
    if (of->weight.buffer == buffer) fill_home(p, stage, of, &of->weight, data);
    if (of->main.buffer == buffer) fill_home(p, stage, of, &of->main, data);
  }
}

static exec_drawn drawn_home(const plan *p, uint32_t stage, const train_parameter *of,
                             const train_home *home)
{
  dtype type = type_at(p, stage, home);
  int64_t offset = home->view.whole ? 0 : home->view.offset;
  return (exec_drawn){ .offset_bytes = offset * dtype_bytes(type),
                       .count = elements_of(of),
                       .type = (uint8_t)type,
                       .rounded = (uint8_t)type_at(p, stage, &of->weight),
                       .deviation = of->part.initial.deviation,
                       .value = of->part.initial.value,
                       .spread = generator_spread(),
                       .key = of->part.key,
                       .rows = of->part.rows,
                       .columns = of->part.columns,
                       .own_rows = of->part.own_rows,
                       .own_columns = of->part.own_columns,
                       .tensors = of->part.tensors,
                       .index = of->part.index };
}

uint32_t weights_drawn(const plan *p, uint32_t stage, const train_parameter_list *list,
                       uint32_t buffer, const exec_drawn **parts, arena *a)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < list->count; i++)
    count += (uint32_t)(list->items[i].weight.buffer == buffer) +
             (uint32_t)(list->items[i].main.buffer == buffer);
  exec_drawn *drawn = ARENA_ARRAY(a, exec_drawn, count);
  *parts = drawn;
  for (uint32_t i = 0; i < list->count; i++) {
    const train_parameter *of = &list->items[i];
    if (of->weight.buffer == buffer) *drawn++ = drawn_home(p, stage, of, &of->weight);
    if (of->main.buffer == buffer) *drawn++ = drawn_home(p, stage, of, &of->main);
  }
  return count;
}

void weights_put(const plan *p, uint32_t stage, const train_parameter *of, float *tensor)
{
  dtype type = type_at(p, stage, &of->weight);
  for (int64_t i = 0; i < elements_of(of); i++)
    tensor[train_part_element(&of->part, i)] =
        rounded(type, (double)(float)train_part_initial(&of->part, i));
}

/* Values of a config.json, and what is set from them. */
#include "sim/config/hf/parts.h"

bool hf_has_parts(const hf_reader *r, unsigned parts)
{
  return (r->family->parts & parts) == parts;
}

const text_node *hf_get(const hf_reader *r, const char *name)
{
  const text_node *n = text_get(r->top, name);
  return n != NULL && !text_is_null(n) ? n : NULL;
}

bool hf_number(const hf_reader *r, const char *name, int64_t fallback, int64_t *value)
{
  const text_node *n = hf_get(r, name);
  *value = fallback;
  return n == NULL || text_as_i64(n, value, r->d);
}

bool hf_count(const hf_reader *r, const char *name, int64_t *value)
{
  const text_node *n = hf_get(r, name);
  if (n == NULL) {
    return diag_error(r->d, r->top->at, "%s is missing; a %s model has it", name,
                      r->family->model_type);
  }
  if (!text_as_i64(n, value, r->d)) {
    return false;
  }
  return *value > 0 || diag_error(r->d, n->at, "%s is %s; it must be at least 1", name, n->text);
}

bool hf_set(const hf_reader *r, const char *key, const char *text, source_pos at)
{
  return settings_set(r->s, key, text, at, r->a, r->d);
}

bool hf_set_number(const hf_reader *r, const char *key, int64_t value, source_pos at)
{
  return hf_set(r, key, arena_printf(r->a, "%lld", (long long)value), at);
}

bool hf_set_layers(const hf_reader *r, const char *key, const bool *layers, source_pos at)
{
  int64_t count = r->s->model.num_layers;
  char *pattern = ARENA_ARRAY(r->a, char, (size_t)(2 * count + 2));
  bool all = true;
  pattern[0] = '[';
  for (int64_t i = 0; i < count; i++) {
    all = all && layers[i];
    pattern[2 * i + 1] = layers[i] ? '1' : '0';
    pattern[2 * i + 2] = i + 1 < count ? ',' : ']';
  }
  return hf_set(r, key, all ? "1" : pattern, at);
}

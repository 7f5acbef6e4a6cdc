/*
 * What autograd saves in each family of transformers' models, against what saved-tensor hooks saw in
 * the real classes on a CPU (tests/data/hf/saved.json, which tests/peers/hf_saved.py writes):
 * parameters, slots, and the bytes of each storage in the order in which it is first packed. Published
 * models have as many parameters as those classes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/file.h"
#include "sim/config/hf/hf_config.h"
#include "sim/model/chunk.h"
#include "sim/text/yaml_text.h"

/* On GPUs sdpa also saves two numbers of the random generator, of 8 bytes each. */
static bool is_of_gpus(const graph *g, tensor_id t)
{
  return strncmp(g->tensors.items[t].name, "philox_", 7) == 0;
}

typedef struct saved_list {
  const text_node *expected; /* bytes of storages */
  uint32_t count;            /* of them, so far */
  int64_t slots, parameters;
  bool wrong;
} saved_list;

static void see(saved_list *list, const graph *g, tensor_id t, bool *seen)
{
  diag d = { .quiet = true };
  int64_t bytes = 0;
  tensor_id storage = tensor_storage(g, t);
  if (is_of_gpus(g, t)) return;
  list->slots++;
  if (g->tensors.items[storage].parameter || seen[storage]) return;
  seen[storage] = true;
  if (list->count < list->expected->count)
    assert_true(text_as_i64(&list->expected->children[list->count], &bytes, &d));
  if (!list->wrong && bytes != tensor_bytes(g, storage)) {
    print_error("storage %u is %s, %lld bytes; expected %lld\n", list->count,
                g->tensors.items[storage].name, (long long)tensor_bytes(g, storage),
                (long long)bytes);
    list->wrong = true;
  }
  list->count++;
}

static saved_list saved_of(const graph *g, const text_node *expected, arena *a)
{
  saved_list list = { .expected = expected };
  bool *seen = ARENA_ARRAY(a, bool, g->tensors.count);
  for (tensor_id t = 1; t < g->tensors.count; t++)
    if (g->tensors.items[t].parameter) list.parameters += tensor_elements(g, t);
  for (node_id n = 1; n < g->nodes.count; n++) {
    const graph_node *node = &g->nodes.items[n];
    for (int i = 0; i < NODE_SAVED && node->saved[i] != 0; i++)
      see(&list, g, node->saved[i], seen);
  }
  return list;
}

static void set(settings *s, const char *key, const char *value, arena *a)
{
  diag d = { .quiet = true };
  if (!settings_set(s, key, value, (source_pos){ 0 }, a, &d)) fail_msg("%s", d.message);
}

static const char *text_of(const text_node *map, const char *key)
{
  const text_node *n = text_get(map, key);
  if (n == NULL) fail_msg("%s is missing", key);
  return n->text;
}

static graph *build(const text_node *all, const text_node *run, settings *s, arena *a)
{
  diag d = { .quiet = true };
  const char *type = text_of(run, "dtype");
  settings_init(s, a);
  const char *path = arena_printf(a, "tests/data/hf/tiny/%s.json", text_of(run, "model"));
  if (!hf_config_read(s, path, NULL, a, &d)) fail_msg("%s", d.message);
  set(s, "implementation", "hf", a);
  set(s, "world_size", "1", a);
  set(s, "micro_batch_size", text_of(all, "batch"), a);
  set(s, "seq_length", text_of(all, "sequence"), a);
  set(s, "bf16", strcmp(type, "bfloat16") == 0 ? "true" : "false", a);
  set(s, "attn_implementation", text_of(run, "attention"), a);
  if (strstr(path, "linearized") != NULL) set(s, "linearized_experts", "true", a);
  s->derived.compute_capability = 90;
  if (!settings_resolve(s, NULL, a, &d)) fail_msg("%s: %s", path, d.message);
  return graph_of_chunk(s, 0, 0, a);
}

static int64_t number_of(const text_node *run, const char *key)
{
  diag d = { .quiet = true };
  int64_t number = 0;
  text_of(run, key);
  assert_true(text_as_i64(text_get(run, key), &number, &d));
  return number;
}

static bool check(const text_node *all, const text_node *run)
{
  arena memory = { 0 };
  settings s;
  graph *g = build(all, run, &s, &memory);
  saved_list found = saved_of(g, text_get(run, "storages"), &memory);
  bool right = !found.wrong && found.count == found.expected->count &&
               found.slots == number_of(run, "slots") &&
               found.parameters == number_of(run, "parameters");
  if (!right)
    print_error("%s %s: %u storages, %lld slots, %lld parameters; expected %u, %s, %s\n",
                text_of(run, "model"), text_of(run, "attention"), found.count,
                (long long)found.slots, (long long)found.parameters, found.expected->count,
                text_of(run, "slots"), text_of(run, "parameters"));
  graph_release(g);
  arena_release(&memory);
  return right;
}

static const text_node *recorded(arena *a)
{
  diag d = { .quiet = true };
  size_t length;
  const char *path = "tests/data/hf/saved.json";
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, &d);
  assert_non_null(text);
  const text_node *all = text_read(a, path, text, length, &d);
  assert_non_null(all);
  return all;
}

static int64_t parameters_of(const char *path)
{
  arena memory = { 0 };
  diag d = { .quiet = true };
  settings s;
  int64_t sum = 0;
  settings_init(&s, &memory);
  if (!hf_config_read(&s, path, NULL, &memory, &d)) fail_msg("%s", d.message);
  set(&s, "implementation", "hf", &memory);
  set(&s, "world_size", "1", &memory);
  set(&s, "seq_length", "16", &memory);
  set(&s, "attn_implementation", "eager", &memory);
  if (!settings_resolve(&s, NULL, &memory, &d)) fail_msg("%s: %s", path, d.message);
  graph *g = graph_of_chunk(&s, 0, 0, &memory);
  for (tensor_id t = 1; t < g->tensors.count; t++)
    if (g->tensors.items[t].parameter) sum += tensor_elements(g, t);
  graph_release(g);
  arena_release(&memory);
  return sum;
}

static void published_models_have_their_parameters(void **state)
{
  (void)state;
  arena memory = { 0 };
  const text_node *models = text_get(recorded(&memory), "published");
  assert_true(models != NULL && models->count > 0);
  for (uint32_t i = 0; i < models->count; i++) {
    const text_node *of = &models->children[i];
    const char *path = arena_printf(&memory, "tests/data/hf/%s.json", text_of(of, "model"));
    int64_t found = parameters_of(path);
    if (found != number_of(of, "parameters"))
      fail_msg("%s has %lld parameters; expected %s", path, (long long)found,
               text_of(of, "parameters"));
  }
  arena_release(&memory);
}

static void families_save_what_hooks_saw(void **state)
{
  (void)state;
  arena memory = { 0 };
  const text_node *all = recorded(&memory);
  const text_node *runs = text_get(all, "runs");
  assert_true(runs != NULL && runs->count > 0);
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < runs->count; i++)
    wrong += !check(all, &runs->children[i]);
  assert_int_equal(wrong, 0);
  arena_release(&memory);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(families_save_what_hooks_saw),
                                      cmocka_unit_test(published_models_have_their_parameters) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "sim/text/limits.h"
#include "sim/text/yaml_text.h"

/* What the tree promises to those who read it. */
static void visit(const text_node *n, const text_node *parent, int depth)
{
  assert(depth <= TEXT_DEPTH_LIMIT);
  assert(n->at.line > 0 && n->at.column > 0);
  assert((n->key != NULL) == (parent && parent->kind == TEXT_MAPPING));
  diag d = { .quiet = true };
  int64_t number = 0;
  text_as_i64(n, &number, &d);
  for (uint32_t i = 0; i < n->count; i++) {
    visit(&n->children[i], n, depth + 1);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  const text_node *top = text_read(&a, "input", (const char *)data, size, &d);
  assert((top != NULL) == diag_ok(&d));
  if (top) visit(top, NULL, 0);
  arena_release(&a);
  return 0;
}

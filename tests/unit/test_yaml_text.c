/*
 * The YAML and JSON reader: what a text becomes, and the one message that each bad text gets.
 */
#include "sim/text/yaml_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/file.h"
#include "sim/text/limits.h"

static const text_node *read_text(arena *a, const char *text, diag *d)
{
  return text_read(a, "t.yaml", text, strlen(text), d);
}

/* The tree on one line, "key@line:column=" before a value. */
static void print_tree(FILE *out, const text_node *n)
{
  if (n->key) fprintf(out, "%s@%d:%d=", n->key, n->key_at.line, n->key_at.column);
  if (n->kind == TEXT_SCALAR) {
    const char *quote = n->quoted ? "'" : "";
    fprintf(out, "%s%s%s@%d:%d", quote, n->text, quote, n->at.line, n->at.column);
    return;
  }
  fputc(n->kind == TEXT_SEQUENCE ? '[' : '{', out);
  for (uint32_t i = 0; i < n->count; i++) {
    if (i > 0) fputc(' ', out);
    print_tree(out, &n->children[i]);
  }
  fputc(n->kind == TEXT_SEQUENCE ? ']' : '}', out);
}

static void trees(void **state)
{
  (void)state;
  static const struct {
    const char *text, *tree;
  } cases[] = {
    { "", "@1:1" },
    { "# nothing\n", "@1:1" },
    { "a: 1\nbc: two words # why\n", "{a@1:1=1@1:4 bc@2:1=two words@2:5}" },
    { "a:\n  b: 'x'\n  c: \"y\\n\"\n", "{a@1:1={b@2:3='x'@2:6 c@3:3='y\n'@3:6}}" },
    { "a:\nb: ~\n", "{a@1:1=@1:1 b@2:1=~@2:4}" },
    { "- 1\n- [2, three]\n", "[1@1:3 [2@2:4 three@2:7]]" },
    { "{\"a\": [1, {\"b\": null}],\n\t\"c\": true}", NULL },
    { "a: [\n1,\n2\n]\n", "{a@1:1=[1@2:1 2@3:1]}" },
    { "é: ü\n", "{é@1:1=ü@1:4}" },
    { "MODEL_ARGS:\n  --swiglu: true\n  --layout: Et|(tt|)*3m|L\n",
      "{MODEL_ARGS@1:1={--swiglu@2:3=true@2:13 --layout@3:3=Et|(tt|)*3m|L@3:13}}" },
    { "a: ([0]*3+[1]*58)\n", "{a@1:1=([0]*3+[1]*58)@1:4}" },
    { "a: 1\nb: 2\na: {c: 3, c: 4}\nb: 5\n", "{a@3:1={c@3:11=4@3:14} b@4:1=5@4:4}" },
    { "---\na: b\n...\n", "{a@2:1=b@2:4}" },
    { "a: b\r\nc: d\r\n", "{a@1:1=b@1:4 c@2:1=d@2:4}" },
    { "a: &x 1\nb: *x\n*x : c\n", "{a@1:1=1@1:7 b@2:1=1@1:7 1@3:1=c@3:6}" },
    { "a: &x [1]\nb: [*x, *x]\n", "{a@1:1=[1@1:8] b@2:1=[[1@1:8] [1@1:8]]}" },
    { "a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n",
      "{a@1:1={b@1:8=1@1:11 c@1:14=2@1:17} d@2:1={c@4:3=3@4:6 b@1:8=1@1:11}}" },
    { "a: &x {b: 1}\nc: &y {b: 2, d: 3}\ne: {<<: [*x, *y]}\nf: {<<: *x, <<: *y}\n",
      "{a@1:1={b@1:8=1@1:11} c@2:1={b@2:8=2@2:11 d@2:14=3@2:17} e@3:1={b@1:8=1@1:11 d@2:14=3@2:17} "
      "f@4:1={b@2:8=2@2:11 d@2:14=3@2:17}}" },
    { "a: &x\nb: *x\nc: {'<<': 1, << : {d: 2}}\n", NULL },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena a = { 0 };
    diag d = { .quiet = true };
    const text_node *top = read_text(&a, cases[i].text, &d);
    assert_string_equal(d.message, "");
    assert_non_null(top);
    char tree[512] = "";
    FILE *out = fmemopen(tree, sizeof tree, "w");
    print_tree(out, top);
    fclose(out);
    if (cases[i].tree) assert_string_equal(tree, cases[i].tree);
    arena_release(&a);
  }
}

static void messages(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
    { "a: *x\n", "t.yaml:1:4: error: an alias of an anchor that is not before it; expected &x" },
    { "a: &x [1, *x]\n",
      "t.yaml:1:11: error: an alias of the value that it is in; expected another" },
    { "a: &x 1\nb: &x 2\n",
      "t.yaml:2:4: error: anchor &x is also at line 1, column 4; expected each once" },
    { "a: &x [1]\n*x : 2\n", "t.yaml:2:1: error: a list or mapping as a key; expected a word" },
    { "a: &x [1]\nb: {<<: *x}\n",
      "t.yaml:2:5: error: a merge key (<<) without a mapping or a list of mappings" },
    { "a: &x 1\nb: {<<: *x}\n",
      "t.yaml:2:5: error: a merge key (<<) without a mapping or a list of mappings" },
    { "a: !!int 1\n", "t.yaml:1:4: error: a tag (!); expected plain values: tags are not read" },
    { "a: 1\n---\nb: 2\n", "t.yaml:2:1: error: a second document (---); expected one in a file" },
    { "? [a]\n: b\n", "t.yaml:1:3: error: a list or mapping as a key; expected a word" },
    { "a: \"\\0\"\n", "t.yaml:1:4: error: a text with a NUL character (\\0); expected none" },
    { "a: \xff\n", "t.yaml:1:4: error: byte 0xFF is not UTF-8; expected text in UTF-8" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena a = { 0 };
    diag d = { 0 };
    assert_null(read_text(&a, cases[i].text, &d));
    assert_string_equal(d.message, cases[i].message);
    assert_int_equal(d.exit_status, 2);
    arena_release(&a);
  }
}

/* Ten levels of aliases to ten aliases each would be 10^10 values. */
static void test_alias_bomb(void **state)
{
  (void)state;
  char text[1024] = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int k = 1; k <= 9; k++) {
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, sizeof text - used, "a%d: &a%d [", k, k);
    for (int i = 0; i < 10; i++)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s*a%d", i == 0 ? "" : ",", k - 1);
    snprintf(text + used, sizeof text - used, "]\n");
  }
  arena a = { 0 };
  diag d = { 0 };
  assert_null(read_text(&a, text, &d));
  assert_non_null(strstr(d.message, ": error: aliases of more than 100000 values; expected fewer"));
  arena_release(&a);
}

/* What libfyaml finds wrong is said in its words, at its place, once. */
static void syntax_errors(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    int line;
  } cases[] = {
    { "a: [1, 2\n", 2 }, { "a: b: c\n", 1 }, { "a: 1\n b: 2\n", 2 },
    { "a: 'x\n", 1 },    { "{\"a\": 1", 1 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena a = { 0 };
    diag d = { 0 };
    assert_null(read_text(&a, cases[i].text, &d));
    int line = 0, column = 0;
    assert_int_equal(sscanf(d.message, "t.yaml:%d:%d: error:", &line, &column), 2);
    assert_in_range(line, 1, cases[i].line + 1);
    assert_non_null(strstr(d.message, "; expected YAML or JSON"));
    arena_release(&a);
  }
}

static bool depth_is_accepted(const char *open, const char *close, int levels)
{
  static char text[4096];
  char *end = text;
  for (int i = 0; i < levels; i++) {
    end = stpcpy(end, open);
  }
  end = stpcpy(end, "x");
  for (int i = 0; i < levels; i++) {
    end = stpcpy(end, close);
  }
  arena a = { 0 };
  diag d = { 0 };
  bool accepted = read_text(&a, text, &d) != NULL;
  if (!accepted) {
    assert_non_null(strstr(d.message, "nested more than 64 levels deep; expected at most 64"));
  }
  arena_release(&a);
  return accepted;
}

static void depth(void **state)
{
  (void)state;
  assert_true(depth_is_accepted("[", "]", TEXT_DEPTH_LIMIT - 1));
  assert_true(depth_is_accepted("- ", "", TEXT_DEPTH_LIMIT - 1));
  assert_true(depth_is_accepted("{a: ", "}", TEXT_DEPTH_LIMIT - 1));
  assert_false(depth_is_accepted("[", "]", TEXT_DEPTH_LIMIT + 1));
  assert_false(depth_is_accepted("- ", "", TEXT_DEPTH_LIMIT + 1));
  assert_false(depth_is_accepted("[\"]\", ", "", TEXT_DEPTH_LIMIT + 1));
  assert_false(depth_is_accepted("[", "]", 1000));
}

static void size(void **state)
{
  (void)state;
  static char text[FILE_TEXT_LIMIT_BYTES + 1];
  memset(text, '#', sizeof text);
  arena a = { 0 };
  diag d = { 0 };
  assert_non_null(text_read(&a, "t.yaml", text, sizeof text - 1, &d));
  assert_null(text_read(&a, "t.yaml", text, sizeof text, &d));
  assert_string_equal(d.message,
                      "t.yaml: error: the text has 1048577 bytes; at most 1048576 are read");
  arena_release(&a);
}

static void conversions(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { 0 };
  const text_node *top =
      read_text(&a, "n: 64\nx: 1e-2\nf: True\nq: '7'\nz:\nm: {k: v}\nw: yes\n", &d);
  int64_t n = 0;
  double x = 0;
  bool f = false;
  const char *w = NULL;
  assert_true(text_as_i64(text_get(top, "n"), &n, &d));
  assert_int_equal(n, 64);
  assert_true(text_as_i64(text_get(top, "q"), &n, &d));
  assert_int_equal(n, 7);
  assert_true(text_as_double(text_get(top, "x"), &x, &d));
  assert_true(x == 0.01);
  assert_true(text_as_bool(text_get(top, "f"), &f, &d));
  assert_true(f);
  assert_true(text_as_string(text_get(top, "w"), &w, &d));
  assert_string_equal(w, "yes");
  assert_true(text_is_null(text_get(top, "z")));
  assert_null(text_get(top, "absent"));
  assert_null(text_get(text_get(top, "n"), "absent"));
  assert_true(diag_ok(&d));
  arena_release(&a);
}

static void wrong_types(void **state)
{
  (void)state;
  arena a = { 0 };
  diag quiet = { 0 };
  const text_node *top = read_text(
      &a, "n: 1_000\nx: 1e-2\nf: yes\nm: {k: v}\nl: [1]\nz:\nb: 9223372036854775808\no: 010\n",
      &quiet);
  static const struct {
    const char *key, *message;
  } cases[] = {
    { "n", "t.yaml:1:4: error: n is '1_000'; expected a whole number" },
    { "x", "t.yaml:2:4: error: x is '1e-2'; expected a whole number" },
    { "m", "t.yaml:4:4: error: m is a mapping; expected a whole number" },
    { "l", "t.yaml:5:4: error: l is a list; expected a whole number" },
    { "z", "t.yaml:6:1: error: z is nothing; expected a whole number" },
    { "b", "t.yaml:7:4: error: b is '9223372036854775808'; expected a whole number" },
    { "o",
      "t.yaml:8:4: error: o is '010'; expected a number without leading zeros (010 is 8 to some "
      "readers of YAML)" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    diag d = { 0 };
    int64_t value = 5;
    assert_false(text_as_i64(text_get(top, cases[i].key), &value, &d));
    assert_string_equal(d.message, cases[i].message);
    assert_int_equal(value, 5);
  }
  diag d = { 0 };
  bool truth = false;
  assert_false(text_as_bool(text_get(top, "f"), &truth, &d));
  assert_string_equal(d.message, "t.yaml:3:4: error: f is 'yes'; expected true or false");
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(trees),           cmocka_unit_test(messages),
    cmocka_unit_test(test_alias_bomb), cmocka_unit_test(syntax_errors),
    cmocka_unit_test(depth),           cmocka_unit_test(size),
    cmocka_unit_test(conversions),     cmocka_unit_test(wrong_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The shell splitter: which words, which environment, where they stand.
 */
#include "sim/text/shell_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* "<word>" for each word, then "NAME=value;" for each assignment. */
static void show(const shell_text *t, char *buffer, size_t size)
{
  FILE *out = fmemopen(buffer, size, "w");
  for (uint32_t i = 0; i < t->word_count; i++) {
    fprintf(out, "<%s>", t->words[i].text);
  }
  for (uint32_t i = 0; i < t->assignment_count; i++) {
    fprintf(out, "%s=%s;", t->assignments[i].name, t->assignments[i].value);
  }
  fclose(out);
}

static void splits(void **state)
{
  (void)state;
  static const struct {
    const char *text, *shown;
  } cases[] = {
    { "", "" },
    { "--a 1\t--b\n", "<--a><1><--b>" },
    { "--a 1 \\\n  --b 2", "<--a><1><--b><2>" },
    { "--a 1 \\\r\n  --b 2\r\n", "<--a><1><--b><2>" },
    { "--a\\\nb", "<--ab>" },
    { "--a 'x y'\"z $V\"w", "<--a><x yz $Vw>" },
    { "\"a\\\"b\\n\\\\\"", "<a\"b\\n\\>" },
    { "''", "<>" },
    { "--a 1 # --b\n--c a#b", "<--a><1><--c><a#b>" },
    { "--l Et*2|(tt|)*3m|L --f ([0]*3+[1]*58)", "<--l><Et*2|(tt|)*3m|L><--f><([0]*3+[1]*58)>" },
    { "--l Et\\|\\(t\\)", "<--l><Et|(t)>" },
    { "--n $WORLD_SIZE ${X}", "<--n><$WORLD_SIZE><${X}>" },
    { "export A=1 B='2 3'\nC=4 D= run --x", "<run><--x>A=1;B=2 3;C=4;D=;" },
    { "run A=1", "<run><A=1>" },
    { "cd x && A=1 run; B=2", "<cd><x><run>A=1;B=2;" },
    { "export A\nrun", "<run>" },
    { "X=(\n --a 1\n --l (tt|)*3 # why\n)\nrun ${X[@]} --b", "<--a><1><--l><(tt|)*3><run><--b>" },
    { "X=(--a '1)' 2)\nY=3\nrun \"${X[@]}\"", "<--a><1)><2><run>Y=3;" },
    { "X=() run", "<run>" },
    { "X+=( --a )", "<--a>" },
    { "X=(a=1 b)\n", "<a=1><b>" },
    { "\"A\"=1", "<A=1>" },
    { "1A=1 -- --A=1", "<1A=1><--><--A=1>" },
    { "#!/bin/bash\nrun", "<run>" },
    { "ARGS=\"\n  --a 1 \\\n  --b 2\n\"\nrun $ARGS --c",
      "<run><--a><1><--b><2><--c>ARGS=\n  --a 1   --b 2\n;" },
    { "A=\"--x y\" B=z\nrun ${A} \"$A\" $B", "<run><--x><y><$B>A=--x y;B=z;" },
    { "export A=--x\nrun $A", "<run><$A>A=--x;" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena a = { 0 };
    diag d = { 0 };
    shell_text t;
    assert_true(shell_split(&a, "run.sh", cases[i].text, strlen(cases[i].text), &t, &d));
    char shown[256] = "";
    show(&t, shown, sizeof shown);
    assert_string_equal(shown, cases[i].shown);
    arena_release(&a);
  }
}

static void assert_place(source_pos at, int line, int column)
{
  assert_int_equal(at.line, line);
  assert_int_equal(at.column, column);
}

static void places(void **state)
{
  (void)state;
  static const char text[] = "A=1 run \\\n  --ü x y\nX=(--b\n 'c')\nL=\"--p\n q\"\nrun $L";
  arena a = { 0 };
  diag d = { 0 };
  shell_text t;
  assert_true(shell_split(&a, "run.sh", text, strlen(text), &t, &d));
  assert_int_equal(t.word_count, 9);
  assert_place(t.assignments[0].at, 1, 1);
  assert_place(t.words[0].at, 1, 5);
  assert_place(t.words[1].at, 2, 3);
  assert_place(t.words[2].at, 2, 7);
  assert_place(t.words[3].at, 2, 9);
  assert_place(t.words[4].at, 3, 4);
  assert_place(t.words[5].at, 4, 2);
  assert_place(t.words[7].at, 5, 4);
  assert_place(t.words[8].at, 6, 2);
  assert_true(t.words[5].quoted);
  assert_int_equal(t.words[0].command, t.words[3].command);
  assert_int_not_equal(t.words[3].command, t.words[4].command);
  arena_release(&a);
}

static void messages(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
    { "--a\n 'b", "run.sh:2:2: error: this ' does not end; expected another '" },
    { "--a \"b\\\"", "run.sh:1:5: error: this \" does not end; expected another \"" },
    { "X=( --a\n", "run.sh:1:1: error: this array does not end; expected a )" },
    { "a\xC0", "run.sh:1:2: error: byte 0xC0 is not UTF-8; expected text in UTF-8" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena a = { 0 };
    diag d = { 0 };
    shell_text t;
    assert_false(shell_split(&a, "run.sh", cases[i].text, strlen(cases[i].text), &t, &d));
    assert_string_equal(d.message, cases[i].message);
    arena_release(&a);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(splits),
    cmocka_unit_test(places),
    cmocka_unit_test(messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

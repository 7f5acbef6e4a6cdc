/*
 * The commands of a launch script, as the evaluator finds them:
 *
 *     shell_words SCRIPT [--env NAME=VALUE]... [--arg VALUE]...
 *
 * prints for each command the number of its words, then each word as a sign and its text, all ended
 * by NUL. The sign is `=` for a word that is known, `?` for one with an unknown part, `*` for an
 * unknown part alone, which may be no word or many. A command in a branch that cannot be decided
 * has a negative number.
 */
#include <stdio.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/shell/shell.h"

enum { VALUES_MOST = 64 };

static void print_command(const shell_command *c)
{
  printf("%s%u", c->branch != NULL ? "-" : "", c->count);
  putchar('\0');
  for (uint32_t i = 0; i < c->count; i++) {
    const shell_word *w = &c->words[i];
    printf("%c%s", w->is_unknown ? '*' : w->unknown != NULL ? '?' : '=', w->text);
    putchar('\0');
  }
}

int main(int argc, char **argv)
{
  const char *environment[VALUES_MOST], *arguments[VALUES_MOST];
  shell_presets presets = { .environment = environment, .arguments = arguments };
  for (int i = 2; i + 1 < argc && i < VALUES_MOST; i += 2) {
    if (strcmp(argv[i], "--env") == 0)
      environment[presets.environment_count++] = argv[i + 1];
    else
      arguments[presets.argument_count++] = argv[i + 1];
  }
  arena a = { 0 };
  diag d = { 0 };
  shell_script s;
  size_t length;
  const char *text = argc > 1 ? file_read(&a, argv[1], FILE_TEXT_LIMIT_BYTES, &length, &d) : NULL;
  if (text != NULL && shell_evaluate(&a, argv[1], text, length, &presets, &s, &d)) {
    for (uint32_t i = 0; i < s.count; i++) {
      print_command(&s.commands[i]);
    }
  }
  arena_release(&a);
  return diag_finish(&d);
}

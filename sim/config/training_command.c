#include "sim/config/training_command.h"

#include <string.h>

/* ---- unknown and unset ---- */

static const char *alternatives_text(const shell_unknown *u, arena *a)
{
  if (u->alternative_count != 2) return "";
  return arena_printf(a, " (\"%.80s\" or \"%.80s\")", u->alternatives[0], u->alternatives[1]);
}

const char *unknown_reason(const shell_unknown *u, arena *a)
{
  const char *what =
      arena_printf(a, "%.120s in line %d%s", u->what, u->at.line, alternatives_text(u, a));
  if (u->secret) return arena_printf(a, "%s, whose name is a secret's", u->name);
  if (u->name == NULL)
    return arena_printf(a, "%s, which offsim does not run; write its value in its place", what);
  if (u->name[0] >= '0' && u->name[0] <= '9')
    return arena_printf(a, "%s; --arg VALUE gives the script's arguments", what);
  return arena_printf(a, "%s; --env %s=VALUE gives %s", what, u->name, u->name);
}

const char *unset_advice(const char *name, arena *a)
{
  if (name[0] >= '0' && name[0] <= '9')
    return arena_printf(a, "argument $%s of the script is not given; --arg VALUE gives arguments",
                        name);
  return arena_printf(a, "%s is not set; --env %s=VALUE sets it", name, name);
}

/* `name` is one of the names in "a, b". */
static bool is_listed(const char *names, const char *name)
{
  size_t length = strlen(name);
  for (const char *p = names; p != NULL && *p != '\0';
       p = strstr(p, ", "), p = p != NULL ? p + 2 : NULL) {
    if (strncmp(p, name, length) == 0 && (p[length] == '\0' || p[length] == ',')) return true;
  }
  return false;
}

static bool same_place(source_pos x, source_pos y)
{
  return x.line == y.line && x.column == y.column;
}

void hanging_add(hanging *h, const shell_unknown *on, const char *name, arena *a)
{
  bool same = h->on != NULL && same_place(h->on->at, on->at) && strcmp(h->on->what, on->what) == 0;
  if (h->on != NULL && !same) return;
  if (h->on == NULL) h->on = on;
  if (h->names == NULL)
    h->names = name;
  else if (!is_listed(h->names, name))
    h->names = arena_printf(a, "%s, %s", h->names, name);
}

bool hanging_report(const hanging *h, arena *a, diag *d)
{
  if (h->on == NULL) return true;
  bool several = strchr(h->names, ',') != NULL;
  return diag_error(d, h->on->at, "%.400s %s on %s", h->names, several ? "depend" : "depends",
                    unknown_reason(h->on, a));
}

void unset_add(unset_names *u, const char *name, source_pos at, arena *a)
{
  if (u->names == NULL) {
    u->names = name;
    u->at = at;
  } else if (!is_listed(u->names, name)) {
    u->names = arena_printf(a, "%s, %s", u->names, name);
  }
}

void unset_report(const unset_names *u, const diag *d)
{
  if (u->names == NULL) return;
  bool several = strchr(u->names, ',') != NULL;
  if (!several && u->names[0] >= '0' && u->names[0] <= '9')
    diag_note(d, u->at,
              "argument $%s of the script is not given and adds nothing to the training command; "
              "--arg VALUE gives arguments",
              u->names);
  else
    diag_note(d, u->at,
              "%.400s %s not set and %s nothing to the training command; --env NAME=VALUE sets a "
              "variable",
              u->names, several ? "are" : "is", several ? "add" : "adds");
}

/* ---- which command ---- */

/* The next word from `i` on that matters, or the end. */
static uint32_t next_word(const shell_command *c, word_matters matters, uint32_t i)
{
  while (i < c->count && matters != NULL && !matters(c->words[i].text))
    i++;
  return i;
}

static bool same_words(const shell_command *x, const shell_command *y, word_matters matters)
{
  uint32_t i = next_word(x, matters, 0), k = next_word(y, matters, 0);
  while (i < x->count && k < y->count) {
    if (strcmp(x->words[i].text, y->words[k].text) != 0) return false;
    i = next_word(x, matters, i + 1);
    k = next_word(y, matters, k + 1);
  }
  return i == x->count && k == y->count;
}

static const char *entry_name(const shell_command *c)
{
  return c->words[c->entry < c->count ? c->entry : 0].text;
}

static bool report_branches(const shell_command *last, const shell_command *other, arena *a,
                            diag *d)
{
  const shell_unknown *why = last->branch->why;
  const char *how = why->name != NULL ? arena_printf(a, "--env %s=VALUE decides it", why->name)
                                      : "keep the branch that runs and remove the other";
  return diag_error(d, last->at,
                    "this training command (%.80s) and another one in line %d are in branches of "
                    "\"%.120s\" in line %d, which offsim cannot "
                    "decide; %s",
                    entry_name(last), other->at.line, why->what, why->at.line, how);
}

static void note_others(const shell_script *s, const command_fit *fits, const shell_command *chosen,
                        arena *a, const diag *d)
{
  const char *lines = NULL;
  for (uint32_t i = 0; i < s->count; i++) {
    const shell_command *c = &s->commands[i];
    if (c == chosen || fits[i] == COMMAND_OTHER || same_words(c, chosen, NULL)) continue;
    const char *one = arena_printf(a, "%.80s in line %d", entry_name(c), c->at.line);
    if (lines != NULL && strstr(lines, one) != NULL) continue;
    lines = lines == NULL ? one : arena_printf(a, "%s, %s", lines, one);
  }
  if (lines != NULL)
    diag_note(d, chosen->at, "predicted: this training command; the script has others too: %.400s",
              lines);
}

const shell_command *training_command(const shell_script *s, const command_fit *fits,
                                      word_matters matters, arena *a, diag *d)
{
  const shell_command *chosen = NULL;
  command_fit fit = COMMAND_REFUSED;
  for (uint32_t i = 0; i < s->count; i++) {
    if (fits[i] < fit) continue;
    fit = fits[i];
    chosen = &s->commands[i];
  }
  if (chosen == NULL) {
    if (s->ended != NULL) {
      bool advised = strstr(s->ended, "--env") != NULL || strstr(s->ended, "--arg") != NULL;
      diag_error(d, s->ended_at, "the script ends here before it trains: %.300s%s", s->ended,
                 advised ? ""
                         : "; --arg VALUE and --env NAME=VALUE give its arguments and "
                           "variables");
    }
    return NULL;
  }
  if (fit == COMMAND_REFUSED) return chosen;
  for (uint32_t i = 0; chosen->branch != NULL && i < s->count; i++) {
    const shell_command *c = &s->commands[i];
    bool exclusive = c != chosen && fits[i] == COMMAND_TRAINS && c->branch != NULL &&
                     c->branch->condition == chosen->branch->condition &&
                     c->branch->arm != chosen->branch->arm;
    if (exclusive && !same_words(c, chosen, matters)) {
      report_branches(chosen, c, a, d);
      return NULL;
    }
  }
  note_others(s, fits, chosen, a, d);
  if (chosen->branch != NULL) {
    bool same_elsewhere = false;
    for (uint32_t i = 0; i < s->count; i++) {
      const shell_command *c = &s->commands[i];
      same_elsewhere =
          same_elsewhere ||
          (c != chosen && c->branch != NULL && c->branch->condition == chosen->branch->condition &&
           c->branch->arm != chosen->branch->arm && same_words(c, chosen, matters));
    }
    const shell_unknown *why = chosen->branch->why;
    if (!same_elsewhere)
      diag_note(d, chosen->at,
                "the training command is in a branch of \"%.120s\" in line %d, which offsim cannot "
                "decide; predicted as if it runs",
                why->what, why->at.line);
  }
  return chosen;
}

/* ---- how many GPUs ---- */

typedef enum factor { FACTOR_ABSENT, FACTOR_KNOWN, FACTOR_UNKNOWN } factor;

/* A plain number of at most nine digits. */
static factor read_factor(const shell_word *w, int64_t *n)
{
  if (w->text == NULL) return FACTOR_ABSENT;
  size_t length = strlen(w->text);
  if (w->unknown != NULL || length == 0 || length > 9 || strspn(w->text, "0123456789") != length)
    return FACTOR_UNKNOWN;
  *n = 0;
  for (size_t i = 0; i < length; i++) {
    *n = *n * 10 + (w->text[i] - '0');
  }
  return *n > 0 ? FACTOR_KNOWN : FACTOR_UNKNOWN;
}

static bool unclear_factor(const shell_word *w, const char *what, arena *a, diag *d)
{
  if (w->unknown != NULL)
    return diag_error(d, w->unknown->at, "the number of %s depends on %s, or give --world-size N",
                      what, unknown_reason(w->unknown, a));
  const char *name = w->unset != NULL ? w->unset : w->text[0] == '\0' ? w->missing : NULL;
  if (name != NULL)
    return diag_error(d, w->at, "the number of %s is not given: %s, or give --world-size N", what,
                      unset_advice(name, a));
  return diag_error(d, w->at,
                    "the number of %s is \"%.60s\"; --world-size N gives the number of GPUs", what,
                    w->text);
}

static const shell_word *variable_word(const shell_command *c, const char *name)
{
  for (uint32_t i = 0; i < c->variable_count; i++) {
    if (strcmp(c->variables[i].name, name) == 0) return &c->variables[i].value;
  }
  return NULL;
}

bool launch_world_size(const shell_command *c, bool given, int64_t *world_size, source_pos *at,
                       arena *a, diag *d)
{
  const shell_launch *l = &c->launch;
  int64_t nodes = 1, per_node = 0, processes = 0;
  factor node_factor = read_factor(&l->nodes, &nodes),
         per_node_factor = read_factor(&l->per_node, &per_node);
  *world_size = 0;
  if (given) return true;
  if (read_factor(&l->processes, &processes) == FACTOR_KNOWN) {
    *world_size = processes;
    *at = l->processes.at;
    return true;
  }
  if (per_node_factor == FACTOR_UNKNOWN)
    return unclear_factor(&l->per_node, "processes on each node", a, d);
  if (node_factor == FACTOR_UNKNOWN) return unclear_factor(&l->nodes, "nodes", a, d);
  if (per_node_factor == FACTOR_KNOWN && (node_factor == FACTOR_KNOWN || l->nodes_default_to_one)) {
    *world_size = nodes * per_node;
    *at = l->per_node.at;
    return true;
  }
  const shell_word *variable = variable_word(c, "WORLD_SIZE");
  if (variable != NULL && read_factor(variable, world_size) == FACTOR_KNOWN) {
    *at = variable->at;
    return true;
  }
  *world_size = 0;
  if (variable != NULL && variable->unknown != NULL)
    return diag_error(d, variable->at,
                      "the number of GPUs, WORLD_SIZE, depends on %s, or give --world-size N",
                      unknown_reason(variable->unknown, a));
  if (per_node_factor == FACTOR_KNOWN)
    return diag_error(d, l->per_node.at,
                      "%.60s processes on each node, but the number of nodes is not given; "
                      "--world-size N gives the number of GPUs",
                      l->per_node.text);
  return true;
}

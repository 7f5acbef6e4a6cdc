/* Programs that are not bash's: launchers around the training script, shells within, everything
 * else. */
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"

/* ---- names ---- */

static bool is_shell(const char *name)
{
  static const char *const names[] = { "bash", "sh", "zsh", "dash", NULL };
  return is_one_of(name, names);
}

/* Runs the command that its arguments name, here or elsewhere. */
static bool is_wrapper(const char *name)
{
  static const char *const names[] = {
    "nohup",   "env",        "sudo",     "time",        "timeout",    "nice",        "ionice",
    "numactl", "taskset",    "stdbuf",   "setsid",      "nsys",       "ncu",         "coverage",
    "uv",      "poetry",     "pipenv",   "conda",       "srun",       "mpirun",      "mpiexec",
    "ray",     "docker",     "podman",   "singularity", "apptainer",  "enroot",      "xargs",
    "chroot",  "accelerate", "torchrun", "deepspeed",   "horovodrun", "ft_launcher", "unbuffer",
    "script",  "catchsegv",  "bsub",     "rocprof",     "flock",      NULL,
  };
  return is_one_of(name, names);
}

/* x.py, not .py alone. */
static bool has_suffix(const char *text, const char *suffix)
{
  return ends_with(text, suffix) && strlen(text) > strlen(suffix);
}

static bool is_python(const char *name)
{
  return begins_with(name, "python") || strcmp(name, "pypy3") == 0;
}

/* a.b.c */
static bool is_module_name(const char *text)
{
  for (const char *p = text;; p++) {
    uint32_t length = shell_name_length(p, p + strlen(p));
    if (length == 0) return false;
    p += length;
    if (*p == '\0') return true;
    if (*p != '.') return false;
  }
}

static bool is_launcher_module(const char *name)
{
  static const char *const names[] = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.elastic.multiprocessing",
    "accelerate.commands.launch",
    "deepspeed.launcher.launch",
    "deepspeed.launcher.runner",
    "coverage",
    "torch.utils.bottleneck",
    "cProfile",
    "pdb",
    NULL,
  };
  return is_one_of(name, names);
}

/* ---- the training script ---- */

static uint32_t find_entry(const shell_word *words, uint32_t count, bool *is_module)
{
  bool python = false;
  *is_module = false;
  for (uint32_t i = 0; i < count; i++) {
    const char *text = words[i].text;
    if (has_suffix(text, ".py") && text[0] != '-') return i;
    python = python || is_python(base_name(text));
    bool module = strcmp(text, "-m") == 0 || strcmp(text, "--module") == 0;
    if (module && i + 1 < count && is_module_name(words[i + 1].text)) {
      const char *name = words[++i].text;
      bool dotted =
          strchr(name, '.') != NULL || (i >= 2 && is_python(base_name(words[i - 2].text)));
      if (!dotted || is_launcher_module(name)) continue;
      *is_module = true;
      return i;
    }
    if (strcmp(text, "--no-python") == 0 && i + 1 < count) {
      uint32_t next = i + 1;
      while (next < count && words[next].text[0] == '-') {
        next++;
      }
      return next;
    }
    /* after the script its own arguments follow */
    if (strcmp(text, "-c") == 0 && python) return count;
  }
  return count;
}

static void read_launch(evaluator *e, const shell_word *words, uint32_t entry, shell_launch *launch)
{
  const char *launcher = NULL;
  *launch = e->batch;
  for (uint32_t i = 0; i < entry; i++) {
    const char *found = launcher_of(words[i].text);
    if (found != NULL) {
      launcher = found;
      bool own_world = strcmp(found, "torchrun") == 0 || strcmp(found, "deepspeed") == 0;
      if (own_world) {
        *launch = (shell_launch){ .nodes_default_to_one = true };
        if (strcmp(found, "deepspeed") == 0) launch->nodes_default_to_one = false;
      }
    } else if (launcher != NULL && words[i].text[0] == '-') {
      take_launch_option(words, entry, i, launcher, launch);
    }
  }
}

/* ---- records ---- */

static const shell_variable *snapshot(evaluator *e, bool exported_only, uint32_t *count)
{
  shell_variable *list = ARENA_ARRAY(e->a, shell_variable, e->variables.count + 1);
  *count = 0;
  for (uint32_t i = 0; i < e->variables.count; i++) {
    const variable *v = e->variables.items[i];
    if (!v->is_set || (exported_only && !v->exported)) continue;
    field f = { .text = scalar_text(e, v->name, (source_pos){ 0 }), .at = { e->file, 0, 0 } };
    list[(*count)++] =
        (shell_variable){ .name = v->name, .value = make_word(e, &f), .exported = v->exported };
  }
  return list;
}

/* It may be what trains: a Python script or module, options, or overrides such as a.b=c. */
static bool is_worth(const shell_command *c)
{
  uint32_t options = 0;
  for (uint32_t i = 0; i < c->count; i++) {
    options += begins_with(c->words[i].text, "--");
  }
  const char *first = c->words[0].text;
  return c->entry < c->count || options >= 3 || begins_with(first, "--") ||
         strchr(first, '=') != NULL;
}

static shell_command make_command(evaluator *e, const field *words, uint32_t count)
{
  shell_command c = { .words = ARENA_ARRAY(e->a, shell_word, count),
                      .count = count,
                      .branch = e->branch };
  for (uint32_t i = 0; i < count; i++) {
    c.words[i] = make_word(e, &words[i]);
  }
  c.at = words[0].at;
  c.entry = find_entry(c.words, count, &c.is_module);
  return c;
}

bool record(evaluator *e, const field *words, uint32_t count, bool always)
{
  shell_command c = make_command(e, words, count);
  if (!always && !is_worth(&c)) return true;
  if (e->commands.count == COMMANDS_MOST)
    return diag_error(e->d, c.at,
                      "the script starts more than %d commands, which offsim does not follow",
                      COMMANDS_MOST);
  read_launch(e, c.words, c.entry, &c.launch);
  c.environment = snapshot(e, true, &c.environment_count);
  c.variables = snapshot(e, false, &c.variable_count);
  *ARRAY_PUSH(&e->commands) = c;
  return take_step(e, c.at);
}

/* What the variable gives a command: "${X[@]}" of an array, $X of any other. */
static bool expand_variable(evaluator *e, const variable *v, field_list *words)
{
  const char *text = v->kind == VARIABLE_SCALAR ? arena_printf(e->a, "$%s", v->name)
                                                : arena_printf(e->a, "\"${%s[@]}\"", v->name);
  const shell_source *s = new_source(e, text, strlen(text), (source_pos){ e->file, 1, 1 }, true);
  raw_word w = { .start = s->start, .end = s->end, .source = s };
  return expand_words(e, &w, 1, words);
}

bool record_lists(evaluator *e, shell_script *out)
{
  uint32_t environment_count, variable_count;
  const shell_variable *environment = snapshot(e, true, &environment_count),
                       *variables = snapshot(e, false, &variable_count);
  out->lists = ARENA_ARRAY(e->a, shell_list, e->variables.count + 1);
  for (uint32_t i = 0; i < e->variables.count; i++) {
    const variable *v = e->variables.items[i];
    field_list words = { 0 };
    if (!v->is_set || v->kind == VARIABLE_MAP) continue;
    if (!expand_variable(e, v, &words)) return false;
    if (words.count == 0) continue;
    shell_command c = make_command(e, words.items, words.count);
    if (!begins_with(c.words[0].text, "--")) continue;
    c.at = c.words[0].at;
    c.environment = environment;
    c.environment_count = environment_count;
    c.variables = variables;
    c.variable_count = variable_count;
    out->lists[out->list_count++] = (shell_list){ .name = v->name, .command = c };
  }
  return true;
}

/* ---- shells within ---- */

/* bash [options] -c TEXT [name arguments], bash [options] FILE arguments. */
static flow run_inner_shell(evaluator *e, shell_node *n, const field *words, uint32_t count)
{
  flow out;
  source_pos at = node_place(n);
  for (uint32_t i = 0; i < count; i++) {
    const char *text = plain_text(e, words[i].text);
    bool option = text != NULL && (text[0] == '-' || text[0] == '+') && text[1] != '\0';
    if (!option) {
      source_file(e, words[i].text, words + i + 1, count - i - 1, at, FILE_RUN, &out);
      return out;
    }
    if (text[1] == '-') continue;
    if (strcmp(text, "-o") == 0 || strcmp(text, "-O") == 0) {
      i++;
    } else if (strchr(text, 'c') != NULL && i + 1 < count) {
      const char *name = i + 2 < count ? plain_text(e, words[i + 2].text) : NULL;
      uint32_t first = i + 3 < count ? i + 3 : count;
      /* a text inside one that was written elsewhere keeps the places of its options */
      return run_shell(e, words[i + 1].text, at, NULL, name != NULL ? name : "bash", words + first,
                       count - first);
    }
  }
  return FLOW_NEXT;
}

static flow run_input(evaluator *e, shell_node *n, bool *has_input)
{
  *has_input = false;
  for (uint32_t i = 0; i < n->redirect_count; i++) {
    const redirect *r = &n->redirects[i];
    if (r->kind != REDIRECT_INPUT && r->kind != REDIRECT_LITERAL) continue;
    *has_input = true;
    const char *text = r->kind == REDIRECT_LITERAL ? raw_text(e, r->body)
                                                   : expand_text(e, r->body, EXPAND_DOCUMENT);
    return text == NULL ? FLOW_EXIT : run_shell(e, text, node_place(n), NULL, "bash", NULL, 0);
  }
  return FLOW_NEXT;
}

/* sbatch [options] FILE arguments, sbatch --wrap=TEXT. */
static flow run_batch_words(evaluator *e, shell_node *n, const field *words, uint32_t count)
{
  flow out;
  for (uint32_t i = 0; i < count; i++) {
    const char *shown = shown_text(e, words[i].text);
    if (begins_with(shown, "--wrap="))
      return run_shell(e, strchr(words[i].text, '=') + 1, node_place(n), NULL, "sbatch", NULL, 0);
    if (strcmp(shown, "--wrap") == 0 && i + 1 < count)
      return run_shell(e, words[i + 1].text, node_place(n), NULL, "sbatch", NULL, 0);
    static const char *const ends[] = { ".sh", ".slurm", ".sbatch", ".batch", ".bash", NULL };
    for (const char *const *end = ends; *end != NULL && shown[0] != '-'; end++) {
      if (!has_suffix(shown, *end)) continue;
      source_file(e, words[i].text, words + i + 1, count - i - 1, node_place(n), FILE_SUBMITTED,
                  &out);
      return out;
    }
  }
  return FLOW_NEXT;
}

/* The job has Slurm's variables and its own number of nodes; sbatch's options count more than the
 * file's lines. */
static flow run_batch(evaluator *e, shell_node *n, const field *words, uint32_t count)
{
  shell_launch batch = e->batch;
  bool is_batch = e->is_batch;
  shell_word *given = ARENA_ARRAY(e->a, shell_word, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    given[i] = make_word(e, &words[i]);
  }
  e->batch = (shell_launch){ 0 };
  for (uint32_t i = 0; i < count && given[i].text[0] == '-'; i++) {
    take_launch_option(given, count, i, "srun", &e->batch);
    bool apart = i + 1 < count && strchr(given[i].text, '=') == NULL && given[i + 1].text[0] != '-';
    i += apart;
  }
  e->is_batch = true;
  flow f = run_batch_words(e, n, words, count);
  e->batch = batch;
  e->is_batch = is_batch;
  return f;
}

static bool prints_nothing(const char *name)
{
  static const char *const names[] = { "mkdir", "rm",   "touch", "chmod", "ln", "cp",
                                       "mv",    "kill", "pkill", "rmdir", NULL };
  return is_one_of(name, names);
}

/* `env X=Y`, `sudo X=Y`, `mpirun -x X=Y`: exported for the command. */
static bool take_environment(evaluator *e, const char *text, source_pos at)
{
  uint32_t length = shell_name_length(text, text + strlen(text));
  if (length == 0 || text[length] != '=') return true;
  const char *name = arena_strndup(e->a, text, length);
  variable *v = ARENA_NEW(e->a, variable);
  v->name = name;
  v->exported = true;
  return put_variable(e, v) && set_scalar(e, name, text + length + 1, at);
}

static flow run_program(evaluator *e, shell_node *n, const field_list *words)
{
  bool wrapped = true;
  for (uint32_t i = 0; i < words->count && wrapped; i++) {
    const char *text = plain_text(e, words->items[i].text);
    if (text == NULL) continue;
    const char *name = base_name(text);
    if (i == 0 && strcmp(name, "sbatch") == 0) {
      bool has_input;
      flow f = run_input(e, n, &has_input);
      return has_input ? f : run_batch(e, n, words->items + 1, words->count - 1);
    }
    if (is_shell(name)) {
      bool has_input;
      flow f = run_input(e, n, &has_input);
      return has_input ? f : run_inner_shell(e, n, words->items + i + 1, words->count - i - 1);
    }
    bool assigns = i > 0 && strchr(text, '=') != NULL && text[0] != '-';
    if (assigns && !take_environment(e, text, words->items[i].at)) return FLOW_EXIT;
    if (is_python(name) || has_suffix(name, ".py")) break;
    if (i == 0 && has_suffix(name, ".sh")) {
      flow out;
      source_file(e, words->items[0].text, words->items + 1, words->count - 1, node_place(n),
                  FILE_RUN, &out);
      return out;
    }
    if (i == 0) wrapped = is_wrapper(name);
  }
  return record(e, words->items, words->count, false) ? FLOW_NEXT : FLOW_EXIT;
}

flow run_external(evaluator *e, shell_node *n, const field_list *words)
{
  const char *name = plain_text(e, words->items[0].text);
  if (finds_no_accelerator(e, words->items, words->count)) {
    set_status(e, 1);
    return FLOW_NEXT;
  }
  if (name == NULL || !prints_nothing(base_name(name))) add_unknown_output(e);
  text_buffer *output = e->output;
  variable_table before = copy_table(e, &e->variables);
  e->output = NULL;
  flow f = run_program(e, n, words);
  e->output = output;
  e->variables = before;
  set_unknown_status(e, NO_ORIGIN);
  return f;
}

/* What bash does itself, and the few programs whose output follows from their arguments. */
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

typedef struct call {
  evaluator *e;
  shell_node *n;
  const field *words; /* after the name */
  uint32_t count;
  source_pos at;
} call;

typedef flow builtin_run(call *c);

static flow done(call *c, int status)
{
  set_status(c->e, status);
  return FLOW_NEXT;
}

static flow unclear(call *c)
{
  add_unknown_output(c->e);
  set_unknown_status(c->e, NO_ORIGIN);
  return FLOW_NEXT;
}

static const char *plain_word(call *c, uint32_t index)
{
  return index < c->count ? plain_text(c->e, c->words[index].text) : NULL;
}

/* ---- paths ---- */

static flow run_cd(call *c)
{
  evaluator *e = c->e;
  uint32_t first = c->count > 0 && strcmp(c->words[0].text, "--") == 0;
  const char *path = c->count > first ? path_of(e, c->words[first].text) : NULL;
  if (path != NULL && strcmp(path, "-") == 0) path = NULL;
  e->cwd = path == NULL                       ? NULL
           : e->cwd == NULL && path[0] != '/' ? NULL
                                              : joined_path(e, e->cwd, path);
  drop_variable(e, "PWD");
  return done(c, 0);
}

static flow run_pwd(call *c)
{
  evaluator *e = c->e;
  add_output(e, unknown_path(e, "$(pwd)", c->at, e->cwd));
  add_output(e, "\n");
  return done(c, 0);
}

/* realpath, readlink -f: the same file by another name. */
static flow run_realpath(call *c)
{
  evaluator *e = c->e;
  const char *path = c->count > 0 ? path_of(e, c->words[c->count - 1].text) : NULL;
  if (path == NULL) return unclear(c);
  add_output(e, unknown_path(e, node_text(e, c->n), c->at, joined_path(e, e->cwd, path)));
  add_output(e, "\n");
  return done(c, 0);
}

static flow run_dirname(call *c)
{
  evaluator *e = c->e;
  uint32_t first = c->count > 0 && strcmp(c->words[0].text, "--") == 0;
  if (c->count != first + 1) return unclear(c);
  const char *plain = plain_word(c, first), *path = path_of(e, c->words[first].text);
  if (path == NULL) return unclear(c);
  const char *directory = directory_of(e, path);
  add_output(e, plain != NULL ? directory_of(e, plain)
                              : unknown_path(e, node_text(e, c->n), c->at, directory));
  add_output(e, "\n");
  return done(c, 0);
}

static flow run_basename(call *c)
{
  evaluator *e = c->e;
  const char *path = plain_word(c, 0), *suffix = c->count > 1 ? plain_word(c, 1) : "";
  if (c->count == 0 || c->count > 2 || path == NULL || suffix == NULL || path[0] == '-')
    return unclear(c);
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') {
    length--;
  }
  const char *copy = arena_strndup(e->a, path, length), *slash = strrchr(copy, '/');
  const char *base = slash != NULL && slash[1] != '\0' ? slash + 1 : copy;
  size_t base_length = strlen(base), suffix_length = strlen(suffix);
  if (suffix_length < base_length && strcmp(base + base_length - suffix_length, suffix) == 0)
    base_length -= suffix_length;
  add_output(e, arena_strndup(e->a, base, base_length));
  add_output(e, "\n");
  return done(c, 0);
}

/* ---- output ---- */

static flow print(call *c, bool (*printer)(evaluator *, const field *, uint32_t, text_buffer *))
{
  evaluator *e = c->e;
  if (e->output == NULL) return done(c, 0);
  text_buffer out = { 0 };
  if (!printer(e, c->words, c->count, &out)) {
    if (!diag_ok(e->d)) return FLOW_EXIT;
    return unclear(c);
  }
  return buffer_add(e, e->output, out.bytes, out.count) ? done(c, 0) : FLOW_EXIT;
}

static flow run_echo(call *c)
{
  text_buffer b = { 0 };
  for (uint32_t i = 0; i < c->count && b.count < 200; i++) {
    buffer_add_text(c->e, &b, i > 0 ? " " : "");
    buffer_add_text(c->e, &b, shown_text(c->e, c->words[i].text));
  }
  if (b.count > 0) c->e->said = buffer_text(c->e, &b);
  return print(c, print_echo);
}

static flow run_printf(call *c)
{
  evaluator *e = c->e;
  if (c->count < 2 || strcmp(c->words[0].text, "-v") != 0) return print(c, print_formatted);
  const char *name = plain_word(c, 1);
  text_buffer out = { 0 };
  bool known = print_formatted(e, c->words + 2, c->count - 2, &out);
  if (!diag_ok(e->d)) return FLOW_EXIT;
  if (name == NULL || shell_name_length(name, name + strlen(name)) != strlen(name))
    return unclear(c);
  const char *text =
      known ? buffer_text(e, &out) : unknown_text(e, name, node_text(e, c->n), c->at);
  return set_scalar(e, name, text, c->at) ? done(c, 0) : FLOW_EXIT;
}

/* The text of a here-document or <<< of the command; NULL: none, or the run ended. */
static const char *given_input(evaluator *e, const shell_node *n)
{
  for (uint32_t i = n->redirect_count; i-- > 0;) {
    const redirect *r = &n->redirects[i];
    if (r->kind == REDIRECT_STRING) {
      const char *text = expand_text(e, &r->word, EXPAND_VALUE);
      return text != NULL ? arena_printf(e->a, "%s\n", text) : NULL;
    }
    if (r->kind != REDIRECT_INPUT && r->kind != REDIRECT_LITERAL) continue;
    raw_word body = *r->body;
    if (r->strips_tabs) {
      char *text = ARENA_ARRAY(e->a, char, (size_t)(body.end - body.start) + 1);
      size_t length = 0;
      bool line_begins = true;
      for (const char *p = body.start; p < body.end; p++) {
        if (!line_begins || *p != '\t') text[length++] = *p;
        line_begins = (line_begins && *p == '\t') || *p == '\n';
      }
      const shell_source *s =
          new_source(e, text, length, shell_place(body.source, body.start), true);
      body = (raw_word){ .start = text, .end = text + length, .source = s };
    }
    if (r->kind == REDIRECT_LITERAL) return raw_text(e, &body);
    return expand_text(e, &body, EXPAND_DOCUMENT);
  }
  return NULL;
}

static flow run_cat(call *c)
{
  const char *text = c->count == 0 ? given_input(c->e, c->n) : NULL;
  if (!diag_ok(c->e->d)) return FLOW_EXIT;
  if (text == NULL) return unclear(c);
  add_output(c->e, text);
  return done(c, 0);
}

/* ---- variables ---- */

typedef struct declaration_options {
  bool array, map, exported, readonly, integer, global, unexport, prints;
} declaration_options;

static bool take_options(const char *text, declaration_options *o)
{
  if ((text[0] != '-' && text[0] != '+') || text[1] == '\0') return false;
  for (const char *p = text + 1; *p != '\0'; p++) {
    o->array = o->array || *p == 'a';
    o->map = o->map || *p == 'A';
    o->exported = o->exported || (*p == 'x' && *text == '-');
    o->unexport = o->unexport || (*p == 'n' && *text == '-') || (*p == 'x' && *text == '+');
    o->readonly = o->readonly || *p == 'r';
    o->integer = o->integer || (*p == 'i' && *text == '-');
    o->global = o->global || *p == 'g';
    o->prints = o->prints || *p == 'p' || *p == 'f' || *p == 'F';
  }
  return true;
}

static bool make_local(evaluator *e, const char *name)
{
  const variable *before = find_variable(e, name);
  *ARRAY_PUSH(&e->locals) = (saved_local){ .name = name, .value = before };
  variable *v = ARENA_NEW(e->a, variable);
  v->name = name;
  v->exported = before != NULL && before->exported;
  return put_variable(e, v);
}

/* NAME or NAME=VALUE, after expansion; any other text declares nothing. */
static bool declare_field(call *c, const char *written, const declaration_options *o, bool local)
{
  evaluator *e = c->e;
  const char *text = with_unknown_marks(e, written), *equals = strchr(text, '=');
  uint32_t length = shell_name_length(text, text + strlen(text));
  bool good = length > 0 && (equals != NULL ? equals == text + length : text[length] == '\0');
  if (!good) return true;
  const char *name = arena_strndup(e->a, text, length);
  if (local && !make_local(e, name)) return false;
  variable *v = variable_copy(e, name);
  v->exported = (v->exported || o->exported) && !o->unexport;
  v->is_integer = v->is_integer || o->integer;
  if (o->map && !v->is_set) v->kind = VARIABLE_MAP;
  if (o->array && !v->is_set) v->kind = VARIABLE_ARRAY;
  if (o->map || o->array) v->is_set = v->is_set || v->kind != VARIABLE_SCALAR;
  if (!put_variable(e, v)) return false;
  if (equals != NULL && !set_scalar(e, name, strchr(written, '=') + 1, c->at)) return false;
  if (!o->readonly) return true;
  v = variable_copy(e, name);
  v->readonly = true;
  return put_variable(e, v);
}

/* export $LIST, export "X=$Y": an assignment only after expansion. */
static bool declare_fields(call *c, const raw_word *w, const declaration_options *o, bool local)
{
  field_list fields = { 0 };
  if (!expand_words(c->e, w, 1, &fields)) return false;
  for (uint32_t i = 0; i < fields.count; i++) {
    if (!declare_field(c, fields.items[i].text, o, local)) return false;
  }
  return true;
}

/* local X=$X: the value is read before the name becomes local. */
static bool declare_local(call *c, const char *name, const raw_word *w,
                          const declaration_options *o)
{
  evaluator *e = c->e;
  const char *equals = memchr(w->start, '=', (size_t)(w->end - w->start));
  raw_word value = { .start = equals + 1, .end = w->end, .source = w->source };
  const char *text = expand_text(e, &value, EXPAND_VALUE);
  if (text == NULL || !make_local(e, name)) return false;
  variable *v = variable_copy(e, name);
  v->is_integer = o->integer;
  v->exported = v->exported || o->exported;
  return put_variable(e, v) && set_scalar(e, name, text, c->at);
}

static bool declare(call *c, const raw_word *w, const declaration_options *o, bool local)
{
  evaluator *e = c->e;
  if (!is_assignment(w)) return declare_fields(c, w, o, local);
  const char *name = assigned_name(e, w);
  if (local && !w->is_array) return declare_local(c, name, w, o);
  if (local && !make_local(e, name)) return false;
  variable *v = variable_copy(e, name);
  if (o->map) v->kind = VARIABLE_MAP;
  v->is_integer = v->is_integer || o->integer;
  if ((o->map || o->integer) && !put_variable(e, v)) return false;
  if (!assign_word(e, w)) return false;
  v = variable_copy(e, name);
  v->exported = (v->exported || o->exported) && !o->unexport;
  v->readonly = v->readonly || o->readonly;
  return put_variable(e, v);
}

bool is_declaration(const char *name)
{
  static const char *const names[] = { "export", "declare", "typeset", "local", "readonly", NULL };
  return is_one_of(name, names);
}

/* A word after export, declare or local: options or a variable. */
static bool declare_word(call *c, const char *name, const raw_word *w, declaration_options *o)
{
  evaluator *e = c->e;
  const char *text = raw_text(e, w);
  if (!w->is_array && take_options(text, o)) return true;
  bool local =
      e->calls > 0 && !o->global && strcmp(name, "export") != 0 && strcmp(name, "readonly") != 0;
  if (!o->prints) return declare(c, w, o, local);
  add_unknown_output(e);
  return true;
}

flow run_declaration(evaluator *e, shell_node *n, const char *name, const raw_word *words,
                     uint32_t count)
{
  call c = { .e = e, .n = n, .at = node_place(n) };
  declaration_options o = { .exported = strcmp(name, "export") == 0,
                            .readonly = strcmp(name, "readonly") == 0 };
  for (uint32_t i = 0; i < count; i++) {
    raw_word *parts = (raw_word *)&words[i];
    uint32_t part_count = 1;
    if (!words[i].is_array && !expand_braces(e, &words[i], &parts, &part_count)) return FLOW_EXIT;
    for (uint32_t j = 0; j < part_count; j++) {
      if (!declare_word(&c, name, &parts[j], &o)) return FLOW_EXIT;
    }
  }
  set_status(e, 0);
  return FLOW_NEXT;
}

static flow run_unset(call *c)
{
  evaluator *e = c->e;
  for (uint32_t i = 0; i < c->count; i++) {
    const char *name = plain_word(c, i);
    if (name == NULL) {
      diag_note(e->d, c->at, "unset of an unknown name: taken for none that the script reads");
      continue;
    }
    if (name[0] == '-') continue;
    uint32_t length = shell_name_length(name, name + strlen(name));
    if (name[length] == '[') {
      diag_error(e->d, c->at, "unset of an element is not read; assign it an empty text");
      return FLOW_EXIT;
    }
    /* a variable that others set is unset too from now on */
    variable *v = ARENA_NEW(e->a, variable);
    v->name = name;
    if (!put_variable(e, v)) return FLOW_EXIT;
  }
  return done(c, 0);
}

static flow run_shift(call *c)
{
  evaluator *e = c->e;
  int64_t by = 1;
  for (uint32_t i = 0; i < e->argument_count; i++) {
    uint32_t unknown = first_unknown(e, e->arguments[i].text);
    if (unknown != NO_ORIGIN && e->origins.items[unknown].many) return unclear(c);
  }
  if (c->count > 0) {
    const char *text = plain_word(c, 0);
    if (text == NULL || !scalar_i64(text, &by) || by < 0) return unclear(c);
  }
  if (by > e->argument_count) return done(c, 1);
  e->arguments += by;
  e->argument_count -= (uint32_t)by;
  return done(c, 0);
}

static void set_option(evaluator *e, char letter, bool on)
{
  if (letter == 'e') e->errexit = on;
  if (letter == 'u') e->nounset = on;
}

static flow run_set(call *c)
{
  evaluator *e = c->e;
  uint32_t i = 0;
  for (; i < c->count; i++) {
    const char *text = plain_word(c, i);
    if (text == NULL || (text[0] != '-' && text[0] != '+') || strcmp(text, "-") == 0) break;
    if (strcmp(text, "--") == 0) break;
    for (const char *p = text + 1; *p != '\0'; p++) {
      set_option(e, *p, *text == '-');
      if (*p != 'o' || i + 1 >= c->count) continue;
      const char *name = plain_word(c, ++i);
      if (name != NULL && strcmp(name, "errexit") == 0) set_option(e, 'e', *text == '-');
      if (name != NULL && strcmp(name, "nounset") == 0) set_option(e, 'u', *text == '-');
      break;
    }
  }
  if (i < c->count) {
    const char *text = plain_word(c, i);
    if (text != NULL && (strcmp(text, "--") == 0 || strcmp(text, "-") == 0)) i++;
    e->arguments = ARENA_ARRAY(e->a, field, c->count - i + 1);
    e->argument_count = c->count - i;
    if (i < c->count) memcpy(e->arguments, c->words + i, (c->count - i) * sizeof *c->words);
  }
  return done(c, 0);
}

/* read, mapfile, getopts: from outside, unless it is a here-string of one line. */
static flow run_read(call *c)
{
  evaluator *e = c->e;
  uint32_t i = 0, names = 0;
  bool raw = false, array = false;
  for (; i < c->count; i++) {
    const char *text = plain_word(c, i);
    if (text == NULL || text[0] != '-') break;
    raw = raw || strchr(text, 'r') != NULL;
    array = array || strchr(text, 'a') != NULL;
    if (strpbrk(text, "adinNptu") != NULL && text[2] == '\0' && strpbrk(text, "a") == NULL) i++;
  }
  names = c->count - i;
  (void)raw;
  value_origin o = {
    .kind = ORIGIN_UNKNOWN, .many = array, .what = node_text(e, c->n), .at = c->at
  };
  for (; i < c->count; i++) {
    const char *name = plain_word(c, i);
    if (name == NULL ||
        name[strlen(name) == 0 ? 0 : shell_name_length(name, name + strlen(name))] != '\0' ||
        *name == '\0')
      continue;
    o.name = array ? NULL : name;
    const char *text = mark_text(e, new_origin(e, o));
    variable *v = variable_copy(e, name);
    v->is_set = true;
    if (array) {
      element *only = ARENA_NEW(e->a, element);
      only->text = text;
      v->kind = VARIABLE_ARRAY;
      v->elements = only;
      v->element_count = 1;
      if (!put_variable(e, v)) return FLOW_EXIT;
    } else if (!set_scalar(e, name, text, c->at)) {
      return FLOW_EXIT;
    }
  }
  if (names == 0 && !set_scalar(e, "REPLY", mark_text(e, new_origin(e, o)), c->at))
    return FLOW_EXIT;
  set_unknown_status(e, NO_ORIGIN);
  return FLOW_NEXT;
}

static flow run_mapfile(call *c)
{
  evaluator *e = c->e;
  const char *name = c->count > 0 ? plain_word(c, c->count - 1) : NULL;
  if (name == NULL || shell_name_length(name, name + strlen(name)) != strlen(name) || *name == '\0')
    name = "MAPFILE";
  value_origin o = {
    .kind = ORIGIN_UNKNOWN, .many = true, .what = node_text(e, c->n), .at = c->at
  };
  variable *v = variable_copy(e, name);
  element *only = ARENA_NEW(e->a, element);
  only->text = mark_text(e, new_origin(e, o));
  v->is_set = true;
  v->kind = VARIABLE_ARRAY;
  v->elements = only;
  v->element_count = 1;
  if (!put_variable(e, v)) return FLOW_EXIT;
  set_unknown_status(e, NO_ORIGIN);
  return FLOW_NEXT;
}

static flow run_getopts(call *c)
{
  if (c->e->argument_count == 0 && c->count == 2) return done(c, 1);
  diag_error(c->e->d, c->at,
             "getopts is not read; assign the variables with --env NAME=VALUE and give no --arg");
  return FLOW_EXIT;
}

static flow run_let(call *c)
{
  int status = 0;
  for (uint32_t i = 0; i < c->count; i++) {
    const char *value = arithmetic(c->e, c->words[i].text, c->at);
    if (value == NULL) return FLOW_EXIT;
    const char *plain = plain_text(c->e, value);
    if (plain == NULL) {
      set_unknown_status(c->e, first_unknown(c->e, value));
      return FLOW_NEXT;
    }
    status = strcmp(plain, "0") == 0;
  }
  return done(c, status);
}

/* ---- flow ---- */

static flow run_true(call *c)
{
  return done(c, 0);
}

static flow run_false(call *c)
{
  return done(c, 1);
}

static int status_word(call *c)
{
  int64_t status = c->e->status.number;
  const char *text = plain_word(c, 0);
  if (c->count > 0) status = text != NULL && scalar_i64(text, &status) ? status & 0xFF : -1;
  return (int)status;
}

static flow run_exit(call *c)
{
  int status = status_word(c);
  const char *exits = node_text(c->e, c->n);
  if (status != 0 && c->e->said != NULL)
    exits = arena_printf(c->e->a, "%s, after \"%.200s\"", exits, c->e->said);
  end_run(c->e, c->at, exits);
  if (status >= 0)
    set_status(c->e, status);
  else
    set_unknown_status(c->e, NO_ORIGIN);
  return FLOW_EXIT;
}

static flow run_return(call *c)
{
  int status = status_word(c);
  const frame *f = c->e->frames;
  while (f != NULL && !f->is_call) {
    f = f->outer;
  }
  if (status >= 0)
    set_status(c->e, status);
  else if (c->count > 0)
    set_unknown_status(c->e, NO_ORIGIN);
  return f != NULL ? FLOW_RETURN : done(c, 1);
}

static flow leave_loop(call *c, flow by)
{
  int64_t levels = 1;
  int loops = 0;
  const char *text = c->count > 0 ? plain_word(c, 0) : "1";
  if (text == NULL || !scalar_i64(text, &levels) || levels < 1) levels = 1;
  for (const frame *f = c->e->frames; f != NULL && !f->is_call; f = f->outer) {
    loops++;
  }
  if (loops == 0) return done(c, 0);
  c->e->levels = levels < loops ? (int)levels : loops;
  set_status(c->e, 0);
  return by;
}

static flow run_break(call *c)
{
  return leave_loop(c, FLOW_BREAK);
}

static flow run_continue(call *c)
{
  return leave_loop(c, FLOW_CONTINUE);
}

static flow run_test(call *c)
{
  test_words(c->e, c->words, c->count, c->at, node_text(c->e, c->n));
  return FLOW_NEXT;
}

static flow run_bracket(call *c)
{
  if (c->count == 0 || strcmp(with_unknown_marks(c->e, c->words[c->count - 1].text), "]") != 0) {
    diag_error(c->e->d, c->at, "this [ does not end; expected ]");
    return FLOW_EXIT;
  }
  c->count--;
  return run_test(c);
}

/* Places only before options: they may not hide names and operators from the parser. */
static const char *text_to_parse(evaluator *e, const char *text)
{
  text_buffer b = { 0 };
  for (const char *p = text; *p != '\0';) {
    size_t length = is_mark(p) ? MARK_BYTES : 1;
    bool place = is_mark(p) && mark_origin(e, p)->kind == ORIGIN_PLACE;
    if (!(place && p[MARK_BYTES] != '-') && !buffer_add(e, &b, p, length)) return "";
    p += length;
  }
  return buffer_text(e, &b);
}

static flow run_eval(call *c)
{
  text_buffer b = { 0 };
  for (uint32_t i = 0; i < c->count; i++) {
    if ((i > 0 && !buffer_add(c->e, &b, " ", 1)) || !buffer_add_text(c->e, &b, c->words[i].text))
      return FLOW_EXIT;
  }
  set_status(c->e, 0);
  return run_text(c->e, text_to_parse(c->e, buffer_text(c->e, &b)), c->at, NULL);
}

/* ---- commands within ---- */

static flow run_source(call *c)
{
  flow out;
  if (c->count == 0) return done(c, 2);
  source_file(c->e, c->words[0].text, c->words + 1, c->count - 1, c->at, FILE_SOURCED, &out);
  return out;
}

/* exec ends the script after its command; without one it only redirects. */
static flow run_exec(call *c)
{
  if (c->count == 0) return done(c, 0);
  field_list rest = { (field *)c->words, c->count, c->count };
  flow f = run_external(c->e, c->n, &rest);
  if (f != FLOW_NEXT) return f;
  end_run(c->e, c->at, "exec");
  return FLOW_EXIT;
}

static flow run_command_builtin(call *c)
{
  uint32_t first = 0;
  const char *text = plain_word(c, 0);
  while (text != NULL && text[0] == '-') {
    if (strpbrk(text, "vV") != NULL) {
      bool fails = finds_no_accelerator(c->e, c->words - 1, c->count + 1);
      return fails ? done(c, 1) : unclear(c);
    }
    text = plain_word(c, ++first);
  }
  if (first >= c->count) return done(c, 0);
  field_list rest = { (field *)c->words + first, c->count - first, c->count - first };
  flow out;
  if (text != NULL && run_builtin(c->e, c->n, text, &rest, &out)) return out;
  return run_external(c->e, c->n, &rest);
}

/* ---- the table ---- */

typedef struct builtin {
  const char *name;
  builtin_run *run;
} builtin;

static const builtin builtins[] = {
  { ":", run_true },
  { "true", run_true },
  { "false", run_false },
  { "echo", run_echo },
  { "printf", run_printf },
  { "cat", run_cat },
  { "cd", run_cd },
  { "pushd", run_cd },
  { "popd", run_true },
  { "pwd", run_pwd },
  { "dirname", run_dirname },
  { "basename", run_basename },
  { "realpath", run_realpath },
  { "readlink", run_realpath },
  { "unset", run_unset },
  { "shift", run_shift },
  { "set", run_set },
  { "read", run_read },
  { "mapfile", run_mapfile },
  { "readarray", run_mapfile },
  { "getopts", run_getopts },
  { "let", run_let },
  { "exit", run_exit },
  { "return", run_return },
  { "break", run_break },
  { "continue", run_continue },
  { "test", run_test },
  { "[", run_bracket },
  { "eval", run_eval },
  { "source", run_source },
  { ".", run_source },
  { "exec", run_exec },
  { "command", run_command_builtin },
  { "builtin", run_command_builtin },
  { "wait", run_true },
  { "trap", run_true },
  { "shopt", run_true },
  { "umask", run_true },
  { "alias", run_true },
  { "unalias", run_true },
  { "sleep", run_true },
};

bool run_builtin(evaluator *e, shell_node *n, const char *name, const field_list *words, flow *out)
{
  for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++) {
    if (strcmp(builtins[i].name, name) != 0) continue;
    call c = {
      .e = e, .n = n, .words = words->items + 1, .count = words->count - 1, .at = node_place(n)
    };
    *out = builtins[i].run(&c);
    return true;
  }
  return false;
}

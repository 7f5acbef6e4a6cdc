/* The walk over the tree: commands, conditions, loops, calls. */
#include <assert.h>
#include <string.h>

#include "sim/shell/parts.h"

enum {
  ROUNDS_MOST = 8,       /* until what an uncertain loop changes is known to be unknown */
  UNCERTAIN_ROUNDS = 16, /* of a loop that may end at an unknown condition */
  ITERATIONS_MOST = 10000
};

/* ---- branches ---- */

static shell_branch *new_branch(evaluator *e, uint32_t condition, uint32_t arm, uint32_t origin)
{
  shell_branch *b = ARENA_NEW(e->a, shell_branch);
  *b = (shell_branch){ .condition = condition,
                       .arm = arm,
                       .why = make_unknown(e, &e->origins.items[origin]) };
  return b;
}

/* A command from `from` on that may train. */
static bool trains(const evaluator *e, uint32_t from)
{
  for (uint32_t i = from; i < e->commands.count; i++) {
    const shell_command *c = &e->commands.items[i];
    if (c->entry < c->count && c->count > c->entry + 3) return true;
  }
  return false;
}

static void unmark(evaluator *e, uint32_t from, uint32_t to, const shell_branch *branch,
                   shell_branch *outer)
{
  for (uint32_t i = from; i < to; i++) {
    if (e->commands.items[i].branch == branch) e->commands.items[i].branch = outer;
  }
}

/* Two ways to go on, of which one is taken; each is a step of the walk. `right` NULL: nothing. */
typedef flow step(evaluator *e, void *context, uint32_t index);

static flow run_both(evaluator *e, step *left, uint32_t left_index, step *right,
                     uint32_t right_index, void *context, uint32_t origin, bool marks)
{
  shell_branch *outer = e->branch;
  uint32_t condition = ++e->condition_count, first = e->commands.count;
  shell_state before = take_state(e);
  shell_branch *left_branch = new_branch(e, condition, 0, origin),
               *right_branch = new_branch(e, condition, 1, origin);
  if (marks) e->branch = left_branch;
  flow left_flow = left(e, context, left_index);
  shell_state left_state = take_state(e);
  shell_status left_status = e->status;
  uint32_t middle = e->commands.count;
  put_state(e, &before);
  if (!diag_ok(e->d)) return FLOW_EXIT;
  if (marks) e->branch = right_branch;
  set_unknown_status(e, origin);
  flow right_flow = right != NULL ? right(e, context, right_index) : FLOW_NEXT;
  e->branch = outer;
  /* a path that ends does not count, unless it trained first: then the other is what runs
   * otherwise */
  bool left_ends = left_flow == FLOW_EXIT, right_ends = right_flow == FLOW_EXIT;
  if (marks && left_ends && !right_ends) {
    if (trains(e, first) && middle > first)
      e->branch = right_branch;
    else
      unmark(e, middle, e->commands.count, right_branch, outer);
  }
  if (marks && right_ends && !left_ends) {
    if (e->commands.count > middle && trains(e, middle))
      e->branch = left_branch;
    else
      unmark(e, first, middle, left_branch, outer);
  }
  bool same_status = left_status.number == e->status.number && left_status.number >= 0;
  if (right_ends)
    e->status = left_status;
  else if (!left_ends && !same_status)
    set_unknown_status(e, origin);
  return join_branches(e, left_flow, &left_state, right_flow, origin);
}

/* A condition, after which errexit does not end the script. */
static flow run_tested(evaluator *e, shell_node *n)
{
  e->tested++;
  flow f = run_node(e, n);
  e->tested--;
  return f;
}

/* ---- frames ---- */

static void enter(evaluator *e, frame *f, bool is_call)
{
  *f = (frame){ .outer = e->frames, .is_call = is_call };
  e->frames = f;
}

/* The states that left by `by` meet here. */
static bool meet(evaluator *e, frame *f, flow by)
{
  uint32_t kept = 0;
  bool good = true;
  for (uint32_t i = 0; i < f->pending.count; i++) {
    if (f->pending.by[i] == by) {
      good = good && merge_state(e, &f->pending.items[i], f->pending.origins[i]);
    } else {
      f->pending.items[kept] = f->pending.items[i];
      f->pending.by[kept] = f->pending.by[i];
      f->pending.origins[kept++] = f->pending.origins[i];
    }
  }
  f->pending.count = kept;
  return good;
}

/* Nothing goes on here but states that left: the first is the state, the others are merged. */
static bool resume(evaluator *e, frame *f, flow by)
{
  for (uint32_t i = 0; i < f->pending.count; i++) {
    if (f->pending.by[i] != by) continue;
    put_state(e, &f->pending.items[i]);
    return meet(e, f, by);
  }
  return false;
}

/* ---- loops ---- */

typedef enum loop_end { LOOP_GOES_ON, LOOP_ENDS, LOOP_LEAVES } loop_end;

/* After a body: what its flow means to the loop. *f is what the loop returns if it leaves. */
static loop_end after_body(evaluator *e, frame *loop, flow *f)
{
  if (*f == FLOW_EXIT) {
    if (!diag_ok(e->d)) return LOOP_LEAVES;
    if (resume(e, loop, FLOW_CONTINUE)) {
      *f = FLOW_NEXT;
      return LOOP_GOES_ON;
    }
    if (resume(e, loop, FLOW_BREAK)) {
      *f = FLOW_NEXT;
      return LOOP_ENDS;
    }
    return LOOP_LEAVES;
  }
  if (*f == FLOW_RETURN) return LOOP_LEAVES;
  if (*f == FLOW_BREAK || *f == FLOW_CONTINUE) {
    if (--e->levels > 0) return LOOP_LEAVES;
    bool ends = *f == FLOW_BREAK;
    *f = FLOW_NEXT;
    if (ends) return meet(e, loop, FLOW_BREAK) ? LOOP_ENDS : LOOP_LEAVES;
  }
  if (!meet(e, loop, FLOW_CONTINUE)) {
    *f = FLOW_EXIT;
    return LOOP_LEAVES;
  }
  return LOOP_GOES_ON;
}

typedef struct uncertain {
  shell_node *condition, *body; /* condition may be NULL */
} uncertain;

static flow run_uncertain_body(evaluator *e, void *context, uint32_t index)
{
  (void)index;
  uncertain *u = context;
  frame loop;
  enter(e, &loop, false);
  flow f = run_node(e, u->body);
  if (f == FLOW_NEXT && u->condition != NULL) {
    f = run_tested(e, u->condition);
  }
  e->frames = loop.outer;
  if (f == FLOW_BREAK || f == FLOW_CONTINUE) f = --e->levels > 0 ? f : FLOW_NEXT;
  if (f == FLOW_NEXT && !(meet(e, &loop, FLOW_CONTINUE) && meet(e, &loop, FLOW_BREAK)))
    f = FLOW_EXIT;
  return f;
}

/* A body that runs an unknown number of times: what it changes is unknown after it. */
static flow run_uncertain(evaluator *e, uncertain *u, uint32_t origin)
{
  flow f = FLOW_NEXT;
  bool changed = true;
  for (int round = 0; changed && round < ROUNDS_MOST; round++) {
    shell_state before = take_state(e);
    uint32_t first = e->commands.count;
    f = run_both(e, run_uncertain_body, 0, NULL, 0, u, origin, true);
    if (f != FLOW_NEXT) return f;
    changed = false;
    if (!forget_changes(e, &before, origin, &changed)) return FLOW_EXIT;
    if (changed && round + 1 < ROUNDS_MOST)
      e->commands.count = first; /* the next round records them again, with less known */
  }
  return FLOW_NEXT;
}

static bool is_uncertain_item(const evaluator *e, const field *f)
{
  uint32_t unknown = first_unknown(e, f->text);
  return unknown != NO_ORIGIN && (e->origins.items[unknown].many ||
                                  (!f->quoted && f->text[MARK_BYTES] == '\0' && is_mark(f->text)));
}

static flow run_for(evaluator *e, shell_node *n)
{
  field_list items = { 0 };
  const char *name = raw_text(e, &n->words[0]);
  if (n->has_list) {
    if (!expand_words(e, n->words + 1, n->word_count - 1, &items)) return FLOW_EXIT;
  } else {
    items = (field_list){ e->arguments, e->argument_count, e->argument_count };
  }
  frame loop;
  enter(e, &loop, false);
  if (items.count == 0) set_status(e, 0);
  flow f = FLOW_NEXT;
  loop_end end = LOOP_GOES_ON;
  for (uint32_t i = 0; i < items.count && end == LOOP_GOES_ON; i++) {
    if (!take_step(e, node_place(n)) || !set_scalar(e, name, items.items[i].text, node_place(n))) {
      f = FLOW_EXIT;
      break;
    }
    if (is_uncertain_item(e, &items.items[i])) {
      uncertain u = { .body = n->children[0] };
      f = run_uncertain(e, &u, first_unknown(e, items.items[i].text));
    } else {
      f = run_node(e, n->children[0]);
    }
    end = after_body(e, &loop, &f);
  }
  e->frames = loop.outer;
  if (f == FLOW_NEXT && !meet(e, &loop, FLOW_BREAK)) f = FLOW_EXIT;
  return f;
}

/* The condition of a loop: 1, 0, or -1 with the origin of what is unknown. */
static int loop_condition(evaluator *e, shell_node *n, flow *f, uint32_t *origin)
{
  *f = FLOW_NEXT;
  if (n->kind == NODE_FOR_NUMBER) {
    const char *text = expand_text(e, &n->words[1], EXPAND_VALUE);
    bool empty = text != NULL && text[strspn(text, " \t\n")] == '\0';
    const char *value = text == NULL ? NULL : empty ? "1" : arithmetic(e, text, node_place(n));
    if (value == NULL) {
      *f = FLOW_EXIT;
      return 0;
    }
    *origin = first_unknown(e, value);
    return *origin != NO_ORIGIN ? -1 : strcmp(value, "0") != 0;
  }
  *f = run_tested(e, n->children[0]);
  if (*f != FLOW_NEXT) return 0;
  if (e->status.number < 0) {
    *origin = status_origin(e, node_text(e, n->children[0]), node_place(n));
    return -1;
  }
  return (e->status.number == 0) == (n->kind != NODE_UNTIL);
}

static bool run_step(evaluator *e, shell_node *n, uint32_t index)
{
  const char *text = expand_text(e, &n->words[index], EXPAND_VALUE);
  return text != NULL && arithmetic(e, text, node_place(n)) != NULL;
}

static bool leaves_somewhere(const frame *loop)
{
  for (uint32_t i = 0; i < loop->pending.count; i++) {
    if (loop->pending.by[i] == FLOW_BREAK) return true;
  }
  return false;
}

static flow run_iterations(evaluator *e, shell_node *n, frame *loop)
{
  bool numbers = n->kind == NODE_FOR_NUMBER;
  shell_node *body = numbers ? n->children[0] : n->children[1];
  shell_state start = take_state(e);
  int status = 0;
  for (int i = 0;; i++) {
    flow f;
    uint32_t origin = NO_ORIGIN;
    if (!take_step(e, node_place(n))) return FLOW_EXIT;
    if (i == ITERATIONS_MOST) {
      end_run(e, node_place(n), "this loop does not end");
      return FLOW_EXIT;
    }
    int goes_on = loop_condition(e, n, &f, &origin);
    if (f != FLOW_NEXT) return f;
    if (goes_on == 0) break;
    bool waits = i >= UNCERTAIN_ROUNDS && leaves_somewhere(loop);
    if (waits) origin = loop->pending.origins[0];
    if (goes_on < 0 || waits) {
      uncertain u = { .condition = numbers ? NULL : n->children[0], .body = body };
      bool changed;
      f = run_uncertain(e, &u, origin);
      set_unknown_status(e, origin);
      return f == FLOW_NEXT && waits && !forget_changes(e, &start, origin, &changed) ? FLOW_EXIT
                                                                                     : f;
    }
    f = run_node(e, body);
    status = e->status.number;
    loop_end end = after_body(e, loop, &f);
    if (end == LOOP_LEAVES) return f;
    if (end == LOOP_ENDS) break;
    if (numbers && !run_step(e, n, 2)) return FLOW_EXIT;
  }
  if (status >= 0) set_status(e, status);
  return FLOW_NEXT;
}

static flow run_loop(evaluator *e, shell_node *n)
{
  if (n->kind == NODE_FOR_NUMBER && !run_step(e, n, 0)) return FLOW_EXIT;
  frame loop;
  enter(e, &loop, false);
  flow f = run_iterations(e, n, &loop);
  e->frames = loop.outer;
  if (f == FLOW_NEXT && !meet(e, &loop, FLOW_BREAK)) f = FLOW_EXIT;
  if (f == FLOW_EXIT && diag_ok(e->d) && resume(e, &loop, FLOW_BREAK)) f = FLOW_NEXT;
  return f;
}

/* ---- conditions ---- */

static flow run_if_from(evaluator *e, void *context, uint32_t index);

static flow run_child(evaluator *e, void *context, uint32_t index)
{
  shell_node *n = context;
  return run_node(e, n->children[index]);
}

/* From the condition with this index on, or the last else. */
static flow run_if_from(evaluator *e, void *context, uint32_t index)
{
  shell_node *n = context;
  if (index == n->child_count) {
    set_status(e, 0);
    return FLOW_NEXT;
  }
  if (index + 1 == n->child_count) return run_node(e, n->children[index]);
  flow f = run_tested(e, n->children[index]);
  if (f != FLOW_NEXT) return f;
  if (e->status.number >= 0)
    return e->status.number == 0 ? run_node(e, n->children[index + 1])
                                 : run_if_from(e, n, index + 2);
  uint32_t origin =
      status_origin(e, node_text(e, n->children[index]), node_place(n->children[index]));
  return run_both(e, run_child, index + 1, run_if_from, index + 2, n, origin, true);
}

typedef struct case_walk {
  shell_node *n;
  const char *subject;
} case_walk;

static flow run_arm(evaluator *e, void *context, uint32_t index);

/* 1, 0, or -1 with an origin; -2: the run ended. */
static int arm_matches(evaluator *e, const case_walk *w, uint32_t index, uint32_t *origin)
{
  const case_arm *arm = &w->n->arms[index];
  const char *subject = plain_text(e, w->subject);
  int found = 0;
  for (uint32_t i = 0; i < arm->pattern_count; i++) {
    const char *text = expand_text(e, &arm->patterns[i], EXPAND_PATTERN);
    if (text == NULL) return -2;
    const char *pattern = plain_text(e, text);
    if (pattern != NULL && strcmp(pattern, "*") == 0) return 1;
    if (pattern == NULL || subject == NULL || has_extended_pattern(pattern)) {
      found = -1;
      *origin = first_unknown(e, subject == NULL ? w->subject : text);
      if (*origin == NO_ORIGIN) {
        uint32_t pattern_origin = mark_index(unknown_text(e, NULL, text, node_place(w->n)));
        *origin = pattern_origin;
      }
    } else {
      offer_choice(e, w->subject, pattern);
      if (pattern_matches(pattern, subject)) return 1;
    }
  }
  return found;
}

static flow run_case_from(evaluator *e, void *context, uint32_t index)
{
  case_walk *w = context;
  for (uint32_t i = index; i < w->n->arm_count; i++) {
    uint32_t origin = NO_ORIGIN;
    int found = arm_matches(e, w, i, &origin);
    if (found == -2) return FLOW_EXIT;
    if (found == 1) return run_arm(e, w, i);
    if (found == -1) return run_both(e, run_arm, i, run_case_from, i + 1, w, origin, true);
  }
  set_status(e, 0);
  return FLOW_NEXT;
}

static flow run_arm(evaluator *e, void *context, uint32_t index)
{
  case_walk *w = context;
  for (uint32_t i = index; i < w->n->arm_count; i++) {
    if (w->n->arms[i].body->child_count == 0) set_status(e, 0);
    flow f = run_node(e, w->n->arms[i].body);
    if (f != FLOW_NEXT || w->n->arms[i].ends == ';') return f;
    if (w->n->arms[i].ends == '|') return run_case_from(e, w, i + 1);
  }
  return FLOW_NEXT;
}

static flow run_case(evaluator *e, shell_node *n)
{
  case_walk w = { .n = n, .subject = expand_text(e, &n->words[0], EXPAND_VALUE) };
  return w.subject == NULL ? FLOW_EXIT : run_case_from(e, &w, 0);
}

/* && and ||: the right side runs where the left ends with `wanted`. */
static flow run_list(evaluator *e, shell_node *n)
{
  bool both = n->kind == NODE_AND;
  flow f = run_tested(e, n->children[0]);
  if (f != FLOW_NEXT) return f;
  if (e->status.number >= 0)
    return (e->status.number == 0) == both ? run_node(e, n->children[1]) : FLOW_NEXT;
  bool foreign = e->status.origin == NO_ORIGIN;
  uint32_t origin = status_origin(e, node_text(e, n->children[0]), node_place(n->children[0]));
  /* x && train: that x succeeds is taken for granted; what it assigns is not */
  f = run_both(e, run_child, 1, NULL, 0, n, origin, !(both && foreign));
  if (foreign && both && f == FLOW_NEXT) set_unknown_status(e, NO_ORIGIN);
  return f;
}

/* The same for [[ a && b ]], where the right side may decide alone. */
static flow run_test_list(evaluator *e, shell_node *n)
{
  flow f = run_node(e, n->children[0]);
  if (f != FLOW_NEXT) return f;
  bool both = n->kind == NODE_AND;
  shell_status left = e->status;
  if (left.number >= 0) return (left.number == 0) == both ? run_node(e, n->children[1]) : FLOW_NEXT;
  f = run_node(e, n->children[1]);
  bool decides = e->status.number >= 0 && (e->status.number != 0) == both;
  if (f == FLOW_NEXT && !decides) e->status = left;
  return f;
}

static bool is_test(const shell_node *n)
{
  while (n->kind == NODE_AND || n->kind == NODE_OR || n->kind == NODE_NOT) {
    n = n->children[0];
  }
  return n->kind == NODE_TEST;
}

/* ---- shells within ---- */

static flow run_kind(evaluator *e, shell_node *n);

static flow run_subshell(evaluator *e, shell_node *n)
{
  shell_state before = take_state(e);
  frame *frames = e->frames;
  shell_branch *branch = e->branch;
  e->frames = NULL;
  if (n->background)
    run_kind(e, n);
  else
    run_node(e, n);
  e->frames = frames;
  e->branch = branch;
  if (!diag_ok(e->d)) return FLOW_EXIT;
  put_state(e, &before);
  return FLOW_NEXT;
}

const char *captured(evaluator *e, shell_node *n, const char *written, source_pos at)
{
  text_buffer output = { 0 }, *outer = e->output;
  bool outer_unknown = e->output_unknown, errexit = e->errexit;
  if (e->substitutions == 40) {
    diag_error(e->d, at, "command substitutions are nested too deep");
    return NULL;
  }
  e->substitutions++;
  e->output = &output;
  e->output_unknown = false;
  e->errexit = false;
  e->captures++;
  if (n->child_count == 0) set_status(e, 0);
  uint32_t conditions = e->condition_count;
  run_subshell(e, n);
  bool unknown = e->output_unknown || e->condition_count > conditions;
  e->substitutions--;
  e->errexit = errexit;
  e->output = outer;
  e->output_unknown = outer_unknown;
  if (!diag_ok(e->d)) return NULL;
  if (unknown) return unknown_text(e, NULL, written, at);
  while (output.count > 0 && output.bytes[output.count - 1] == '\n') {
    output.count--;
  }
  return buffer_text(e, &output);
}

static flow run_pipe(evaluator *e, shell_node *n)
{
  text_buffer *output = e->output;
  for (uint32_t i = 0; i < n->child_count; i++) {
    bool last = i + 1 == n->child_count;
    e->output = NULL;
    e->tested += !last;
    flow f = run_subshell(e, n->children[i]);
    e->tested -= !last;
    e->output = output;
    if (f != FLOW_NEXT) return f;
  }
  add_unknown_output(e);
  set_unknown_status(e, NO_ORIGIN);
  return FLOW_NEXT;
}

/* ---- simple commands ---- */

static shell_node *find_function(const evaluator *e, const char *name)
{
  for (uint32_t i = e->functions.count; i-- > e->function_base;) {
    if (strcmp(e->functions.items[i].name, name) == 0) return e->functions.items[i].body;
  }
  return NULL;
}

static bool define_function(evaluator *e, shell_node *n)
{
  const char *name = raw_text(e, &n->words[0]);
  shell_node *before = find_function(e, name);
  if (before != NULL && before != n->children[0] && e->branch != NULL)
    return diag_error(e->d, node_place(n),
                      "function %.100s is defined differently in a branch that cannot be decided",
                      name);
  *ARRAY_PUSH(&e->functions) = (function){ .name = name, .body = n->children[0] };
  set_status(e, 0);
  return true;
}

static void restore_locals(evaluator *e, uint32_t from)
{
  while (e->locals.count > from) {
    const saved_local *x = &e->locals.items[--e->locals.count];
    drop_variable(e, x->name);
    if (x->value != NULL) put_variable(e, x->value);
  }
}

static flow call_function(evaluator *e, shell_node *body, const field_list *words)
{
  field *arguments = e->arguments;
  uint32_t argument_count = e->argument_count, locals = e->locals.count;
  e->arguments = words->items + 1;
  e->argument_count = words->count - 1;
  frame call;
  enter(e, &call, true);
  e->calls++;
  flow f = run_node(e, body);
  e->calls--;
  e->frames = call.outer;
  if (f == FLOW_RETURN) f = FLOW_NEXT;
  bool merged =
      f == FLOW_NEXT ? meet(e, &call, FLOW_RETURN) : diag_ok(e->d) && resume(e, &call, FLOW_RETURN);
  f = merged ? FLOW_NEXT : f == FLOW_NEXT ? FLOW_EXIT : f;
  restore_locals(e, locals);
  e->arguments = arguments;
  e->argument_count = argument_count;
  return f;
}

static flow run_command(evaluator *e, shell_node *n, const field_list *words)
{
  const char *name = plain_text(e, words->items[0].text);
  shell_node *body = name != NULL ? find_function(e, name) : NULL;
  flow f;
  if (body != NULL) return call_function(e, body, words);
  if (name != NULL && run_builtin(e, n, name, words, &f)) return f;
  return run_external(e, n, words);
}

/* X=Y command: the assignments last as long as the command. */
static flow run_with_assignments(evaluator *e, shell_node *n, uint32_t assignments,
                                 const field_list *words)
{
  saved_local *saved = ARENA_ARRAY(e->a, saved_local, assignments);
  for (uint32_t i = 0; i < assignments; i++) {
    saved[i] = (saved_local){ .name = assigned_name(e, &n->words[i]) };
    saved[i].value = find_variable(e, saved[i].name);
    if (!assign_word(e, &n->words[i])) return FLOW_EXIT;
    if (find_variable(e, saved[i].name) == NULL) continue;
    variable *v = variable_copy(e, saved[i].name);
    v->exported = true;
    if (!put_variable(e, v)) return FLOW_EXIT;
  }
  flow f = run_command(e, n, words);
  for (uint32_t i = assignments; i-- > 0;) {
    drop_variable(e, saved[i].name);
    if (saved[i].value != NULL && !put_variable(e, saved[i].value)) return FLOW_EXIT;
  }
  return f;
}

/* The status is that of the last command substitution, or 0. */
static flow assign_all(evaluator *e, shell_node *n, uint32_t count, uint32_t captures)
{
  for (uint32_t i = 0; i < count; i++) {
    if (!assign_word(e, &n->words[i])) return FLOW_EXIT;
  }
  if (e->captures == captures) set_status(e, 0);
  return FLOW_NEXT;
}

static bool prints_elsewhere(const shell_node *n)
{
  for (uint32_t i = 0; i < n->redirect_count; i++) {
    if (n->redirects[i].to_stdout) return true;
  }
  return false;
}

static flow run_words(evaluator *e, shell_node *n, uint32_t first)
{
  char name[16];
  const raw_word *w = &n->words[first];
  size_t length = (size_t)(w->end - w->start);
  if (length < sizeof name) {
    memcpy(name, w->start, length);
    name[length] = '\0';
    if (is_declaration(name)) {
      flow f = first > 0 ? assign_all(e, n, first, e->captures) : FLOW_NEXT;
      return f == FLOW_NEXT
                 ? run_declaration(e, n, name, n->words + first + 1, n->word_count - first - 1)
                 : f;
    }
  }
  field_list words = { 0 };
  uint32_t captures = e->captures;
  if (!expand_words(e, n->words + first, n->word_count - first, &words)) return FLOW_EXIT;
  if (words.count == 0) return assign_all(e, n, first, captures);
  return run_with_assignments(e, n, first, &words);
}

static flow run_simple(evaluator *e, shell_node *n)
{
  uint32_t first = 0;
  while (first < n->word_count && is_assignment(&n->words[first])) {
    first++;
  }
  if (first == n->word_count) return assign_all(e, n, first, e->captures);
  text_buffer *output = e->output;
  if (prints_elsewhere(n)) e->output = NULL;
  flow f = run_words(e, n, first);
  e->output = output;
  return f;
}

static flow run_sequence(evaluator *e, shell_node *n)
{
  for (uint32_t i = 0; i < n->child_count; i++) {
    flow f = run_node(e, n->children[i]);
    if (f != FLOW_NEXT) return f;
  }
  return FLOW_NEXT;
}

static flow run_number(evaluator *e, shell_node *n)
{
  const char *text = expand_text(e, &n->words[0], EXPAND_VALUE);
  const char *value = text != NULL ? arithmetic(e, text, node_place(n)) : NULL;
  if (value == NULL) return FLOW_EXIT;
  uint32_t unknown = first_unknown(e, value);
  if (unknown != NO_ORIGIN)
    set_unknown_status(e, unknown);
  else
    set_status(e, strcmp(value, "0") == 0);
  return FLOW_NEXT;
}

/* ---- any node ---- */

static flow run_not(evaluator *e, shell_node *n)
{
  flow f = run_tested(e, n->children[0]);
  if (f == FLOW_NEXT && e->status.number >= 0) set_status(e, e->status.number == 0);
  return f;
}

static flow run_kind(evaluator *e, shell_node *n)
{
  switch (n->kind) {
  case NODE_SIMPLE: return run_simple(e, n);
  case NODE_SEQUENCE: return run_sequence(e, n);
  case NODE_AND:
  case NODE_OR: return is_test(n) ? run_test_list(e, n) : run_list(e, n);
  case NODE_NOT: return run_not(e, n);
  case NODE_PIPE: return run_pipe(e, n);
  case NODE_IF: return run_if_from(e, n, 0);
  case NODE_FOR: return run_for(e, n);
  case NODE_FOR_NUMBER:
  case NODE_WHILE:
  case NODE_UNTIL: return run_loop(e, n);
  case NODE_CASE: return run_case(e, n);
  case NODE_FUNCTION: return define_function(e, n) ? FLOW_NEXT : FLOW_EXIT;
  case NODE_GROUP: return run_node(e, n->children[0]);
  case NODE_SUBSHELL: return run_subshell(e, n->children[0]);
  case NODE_NUMBER: return run_number(e, n);
  case NODE_TEST: return test_leaf(e, n) ? FLOW_NEXT : FLOW_EXIT;
  }
  assert(0 && "node kind out of range");
  return FLOW_EXIT;
}

/* What `set -e` ends the script after. */
static bool counts_for_errexit(node_kind kind)
{
  return kind == NODE_SIMPLE || kind == NODE_SUBSHELL || kind == NODE_NUMBER || kind == NODE_TEST;
}

flow run_node(evaluator *e, shell_node *n)
{
  if (!take_step(e, node_place(n))) return FLOW_EXIT;
  if (e->nesting == NESTING_MOST) {
    diag_error(e->d, node_place(n),
               "commands and calls are nested deeper than %d levels, which offsim does not follow",
               NESTING_MOST);
    return FLOW_EXIT;
  }
  e->nesting++;
  flow f = n->background ? run_subshell(e, n) : run_kind(e, n);
  e->nesting--;
  if (!diag_ok(e->d)) return FLOW_EXIT;
  if (n->background) set_status(e, 0);
  if (f == FLOW_NEXT && e->errexit && e->tested == 0 && e->status.number > 0 &&
      counts_for_errexit(n->kind)) {
    end_run(e, node_place(n), arena_printf(e->a, "%s fails under set -e", node_text(e, n)));
    return FLOW_EXIT;
  }
  return f;
}

/* ---- texts ---- */

flow run_text(evaluator *e, const char *text, source_pos at, const char *file)
{
  source_pos start = file != NULL ? (source_pos){ file, 1, 1 } : at;
  const shell_source *s = new_source(e, text, strlen(text), start, file == NULL);
  shell_node *n = shell_parse(e->a, s, e->d);
  return n == NULL ? FLOW_EXIT : run_node(e, n);
}

static void keep_exported(evaluator *e)
{
  variable_table own = copy_table(e, &e->variables);
  e->variables.count = 0;
  e->variables = copy_table(e, &e->variables);
  for (uint32_t i = 0; i < own.count; i++) {
    if (own.items[i]->exported) put_variable(e, own.items[i]);
  }
}

flow run_shell(evaluator *e, const char *text, source_pos at, const char *file, const char *name,
               const field *arguments, uint32_t count)
{
  shell_state before = take_state(e);
  frame *frames = e->frames;
  const char *own_name = e->name, *source_name = e->source_name;
  uint32_t base = e->function_base;
  int calls = e->calls;
  shell_branch *branch = e->branch;
  e->frames = NULL;
  e->calls = 0;
  e->function_base = e->functions.count;
  e->errexit = e->nounset = false;
  keep_exported(e);
  e->name = e->source_name = name;
  e->arguments = ARENA_ARRAY(e->a, field, count + 1);
  if (count > 0) memcpy(e->arguments, arguments, count * sizeof *arguments);
  e->argument_count = count;
  run_text(e, text, at, file);
  e->name = own_name;
  e->source_name = source_name;
  e->function_base = base;
  e->frames = frames;
  e->calls = calls;
  e->branch = branch;
  put_state(e, &before);
  set_unknown_status(e, NO_ORIGIN);
  return diag_ok(e->d) ? FLOW_NEXT : FLOW_EXIT;
}

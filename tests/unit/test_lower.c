/*
 * PyTorch's rules about lifetimes, on graphs of a few made-up operators. A program as text:
 *
 *     +y           a new buffer y
 *     y*=y         autograd saves y: a second reference to the buffer
 *     -y           a reference ends
 *     ~y, ^y       the storage is emptied; it is allocated again
 *     f(x>y)       a kernel; f'(..): of its backward
 *     dy           the gradient of y
 *     W, dW        a parameter and its gradient buffer
 *     [1 ]1 (1 )1  hooks of group 1: start, commit, backward commit, backward start
 *     !y*          hooks see a saved tensor
 *     ?y*          backward needs it on the device
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>
#include <stdlib.h>

#include "sim/compile/lower.h"

enum { TEXT_BYTES = 2048, PLACES = 256 };

/* What the operators below have named while they were lowered. */
static char named[PLACES][16];

static void name_place(place_id r, const char *before, const char *name, const char *after)
{
  if (r < PLACES) snprintf(named[r], sizeof named[r], "%s%s%s", before, name, after);
}

static const char *tensor_name(const graph *g, tensor_id t)
{
  return g->tensors.items[t].name;
}

/* ---- operators ---- */

static void name_ref(const emitter *e, ref r, const char *before, const char *name)
{
  name_place(lower_operand(e, r), before, name, "");
}

static uint32_t inputs_of(emitter *e, const graph_node *n, ref *reads)
{
  uint32_t count = 0;
  for (; count < NODE_INPUTS && n->inputs[count] != 0; count++)
    reads[count] = emit_input(e, n->inputs[count]);
  return count;
}

static void plain_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref reads[NODE_INPUTS + 1] = { 0 };
  inputs_of(e, n, reads);
  ref out = emit_output(e, n->outputs[0]);
  name_ref(e, out, "", tensor_name(g, tensor_storage(g, n->outputs[0])));
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_ELEMENTWISE }, reads, (ref[]){ out, 0 });
}

/* Reads the gradient of its output and all it has saved; makes a gradient for each activation. */
static void plain_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref reads[NODE_SAVED + 2] = { emit_grad_of(e, n->outputs[0]) };
  uint32_t count = 1;
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++)
    reads[count++] = emit_saved(e, i);
  for (int i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++) {
    bool parameter = g->tensors.items[n->inputs[i]].parameter;
    ref made =
        parameter ? emit_parameter_grad(e, n->inputs[i], true) : emit_grad_for(e, n->inputs[i]);
    if (made == 0) continue;
    name_ref(e, made, "d", tensor_name(g, n->inputs[i]));
    emit_kernel(e, (kernel_shape){ .kind = KERNEL_COPY }, reads, (ref[]){ made, 0 });
  }
}

/* An addition hands its gradient on to both sides. */
static void add_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gradient = emit_grad_of(e, n->outputs[0]);
  (void)g;
  emit_grad_is(e, n->inputs[0], gradient);
  emit_grad_is(e, n->inputs[1], gradient);
}

/* Two temporaries, the first of which ends early. */
static void working_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref reads[NODE_INPUTS + 1] = { 0 };
  inputs_of(e, n, reads);
  ref first = emit_temporary(e, "t", DTYPE_BF16, 8, 0, 0, 0, CLASS_TRANSIENT);
  name_ref(e, first, "", "t");
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_ELEMENTWISE }, reads, (ref[]){ first, 0 });
  ref second = emit_temporary(e, "u", DTYPE_BF16, 8, 0, 0, 0, CLASS_TRANSIENT);
  name_ref(e, second, "", "u");
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_ELEMENTWISE }, (ref[]){ first, 0 },
              (ref[]){ second, 0 });
  emit_drop(e, first);
  ref out = emit_output(e, n->outputs[0]);
  name_ref(e, out, "", tensor_name(g, n->outputs[0]));
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_ELEMENTWISE }, (ref[]){ second, 0 },
              (ref[]){ out, 0 });
}

/* Drops the incoming gradient before its last kernel. */
static void hasty_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gradient = emit_grad_of(e, n->outputs[0]);
  ref made = emit_grad_for(e, n->inputs[0]);
  name_ref(e, made, "d", tensor_name(g, n->inputs[0]));
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_COPY }, (ref[]){ gradient, emit_saved(e, 0), 0 },
              (ref[]){ made, 0 });
  emit_drop(e, gradient);
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_COPY }, (ref[]){ made, 0 }, (ref[]){ made, 0 });
}

static const operator_kind plain = { "plain", plain_forward, plain_backward };
static const operator_kind add = { "add", plain_forward, add_backward };
static const operator_kind working = { "working", working_forward, plain_backward };
static const operator_kind hasty = { "hasty", plain_forward, hasty_backward };

/* ---- telling a program ---- */

static char text[TEXT_BYTES];

static void say(const char *a, const char *b, const char *c)
{
  size_t used = strlen(text);
  snprintf(text + used, sizeof text - used, "%s%s%s%s", used == 0 ? "" : " ", a, b, c);
}

static const char *operand_name(const plan *p, const chunk_program *c, uint32_t operand, char *room,
                                size_t bytes)
{
  uint32_t row = operand & ~(OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT);
  if (operand & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT))
    snprintf(room, bytes, "%s%s", operand & OPERAND_PARAMETER ? "" : "d",
             p->tensors.items[c->parameters.items[row].tensor].name);
  else
    snprintf(room, bytes, "%s", named[operand]);
  return room;
}

/* f(x,W>y), and f' for what backward runs: by the kernel kind that the operators above use. */
static void say_step(const plan *p, const chunk_program *c, const program_step *s)
{
  char line[128] = "", room[24];
  for (uint32_t i = 0; i < (uint32_t)s->reads + s->writes; i++) {
    const char *before = i == 0 ? "" : i == s->reads ? ">" : ",";
    size_t used = strlen(line);
    snprintf(line + used, sizeof line - used, "%s%s", before,
             operand_name(p, c, c->operands.items[s->operands + i], room, sizeof room));
  }
  say(p->calls.items[s->call].kind == KERNEL_COPY ? "f'(" : "f(", line, ")");
}

static void name_slots(const graph *g, const plan *p, const chunk_program *c)
{
  (void)g;
  for (uint32_t i = 1; i < c->entries.count; i++)
    name_place(c->entry_places.items[i], "", p->tensors.items[c->entries.items[i].tensor].name,
               "*");
}

static void say_instruction(const plan *p, const chunk_program *c, const instruction *i)
{
  char number[12];
  snprintf(number, sizeof number, "%u", i->a);
  switch (i->kind) {
  case I_ALLOC: say("+", named[i->a], ""); break;
  case I_BIND:
    if (named[i->a][0] == '\0') /* a gradient passed on */
      memcpy(named[i->a], named[i->b], sizeof named[i->a]);
    say(named[i->a], "=", named[i->b]);
    break;
  case I_DROP: say("-", named[i->a], ""); break;
  case I_EMPTY: say("~", named[i->a], ""); break;
  case I_REFILL: say("^", named[c->refills.items[i->a].handle], ""); break;
  case I_STEP:
  case I_ACCUMULATE: say_step(p, c, &c->steps.items[i->a]); break;
  case I_MARK: say("@", named[i->a], ""); break;
  case I_JOIN:
    snprintf(number, sizeof number, "%u<%u", i->a, i->b);
    say(number, "", "");
    break;
  case I_ENTRY_READY: say("!", named[c->entry_places.items[i->a]], ""); break;
  case I_UNPACK: say("?", named[c->entry_places.items[i->a]], ""); break;
  case I_GROUP_START: say("[", number, ""); break;
  case I_GROUP_COMMIT: say("]", number, ""); break;
  case I_GROUP_BACKWARD_COMMIT: say("(", number, ""); break;
  case I_GROUP_BACKWARD_START: say(")", number, ""); break;
  default: fail();
  }
}

typedef struct lowered {
  arena memory;
  settings settings;
  graph *graph;
  plan plan;
  chunk_program *program;
} lowered;

static lowered *begin(void)
{
  lowered *l = calloc(1, sizeof *l);
  l->graph = graph_new(&l->memory);
  l->plan = plan_new(1, &l->memory);
  l->settings.training.gradient_accumulation_fusion = true;
  l->settings.model.implementation = IMPLEMENTATION_TE;
  l->settings.offload.system = SYSTEM_none;
  l->settings.parallel.fsdp = FSDP_NONE;
  memset(named, 0, sizeof named);
  graph_site(l->graph, "module");
  return l;
}

static void lower(lowered *l, tensor_id input, tensor_id output)
{
  l->graph->input = input;
  l->graph->output = output;
  l->program = lower_chunk(&l->settings, l->graph, &l->plan, &l->memory);
  name_slots(l->graph, &l->plan, l->program);
  if (input != 0) name_place(l->program->input, "", tensor_name(l->graph, input), "");
  name_place(l->program->output_gradient, "d", tensor_name(l->graph, output), "");
}

static void assert_code(const lowered *l, const instruction_array *code, const char *expected)
{
  text[0] = '\0';
  for (uint32_t i = 0; i < code->count; i++)
    say_instruction(&l->plan, l->program, &code->items[i]);
  assert_string_equal(text, expected);
}

static void assert_program(const lowered *l, const char *forward, const char *backward)
{
  assert_code(l, &l->program->forward, forward);
  assert_code(l, &l->program->backward, backward);
}

static void end(lowered *l)
{
  chunk_program_release(l->program);
  graph_release(l->graph);
  plan_release(&l->plan);
  arena_release(&l->memory);
  free(l);
}

static tensor_id tensor(lowered *l, const char *name)
{
  return graph_tensor_new(l->graph, name, DTYPE_BF16, 8, 1, 4, 0);
}

/* y = f(x), saving what is named (0: nothing). */
static tensor_id apply(lowered *l, const operator_kind *kind, tensor_id x, tensor_id saved,
                       const char *y)
{
  tensor_id out = tensor(l, y);
  graph_node *n = graph_add(l->graph, kind);
  n->inputs[0] = x;
  n->outputs[0] = out;
  n->saved[0] = saved;
  return out;
}

static tensor_id apply_two(lowered *l, const operator_kind *kind, tensor_id x, tensor_id w)
{
  tensor_id out = apply(l, kind, x, 0, "o");
  l->graph->nodes.items[l->graph->nodes.count - 1].inputs[1] = w;
  return out;
}

/* ---- the frame and autograd ---- */

/* The frame drops a tensor after its last reader; a saved tensor lives until its backward has run.
 * The input stays until the backward is over, the output until it is sent. */
static void test_saved_outlives_the_frame(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  tensor_id y = apply(l, &plain, x, x, "y");
  tensor_id z = apply(l, &plain, y, y, "z");
  lower(l, x, apply(l, &plain, z, 0, "o"));
  assert_program(l, "+y f(x>y) x*=x +z f(y>z) y*=y -y +o f(z>o) -z",
                 "+dz f'(do>dz) -do +dy f'(dz,y*>dy) -dz -y* +dx f'(dy,x*>dx) -dy -x* -x");
  assert_int_equal(l->program->places.items[l->program->entries.items[2].slot].purpose,
                   CLASS_SAVED);
  assert_int_equal(l->program->input_gradient != 0, 1);
  end(l);
}

/* A view keeps its storage: it has no memory, and a saved view refers to the whole storage. */
static void test_views(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  tensor_id y = apply(l, &plain, x, 0, "y");
  tensor_id v = graph_view(l->graph, "v", y, false, 8, 1, 2, 0);
  lower(l, x, apply(l, &plain, v, v, "o"));
  assert_program(l, "+y f(x>y) +o f(y>o) v*=y -y", "+dv f'(do,v*>dv) -do -v* +dx f'(dv>dx) -dv -x");
  const saved_entry *e = &l->program->entries.items[1];
  assert_int_equal(e->bytes, 8 * 2 * 2);
  assert_int_equal(e->storage_bytes, 8 * 4 * 2);
  assert_int_equal(e->elements, 16);
  assert_false(e->contiguous);
  assert_string_equal(named[e->slot], "y");
  end(l);
}

/* graph_keep keeps a Python variable beyond its last reader. */
static void test_keep(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  tensor_id y = apply(l, &plain, x, 0, "y");
  tensor_id z = apply(l, &plain, y, 0, "z");
  tensor_id o = apply(l, &plain, z, 0, "o");
  graph_keep(l->graph, y);
  lower(l, x, o);
  assert_code(l, &l->program->forward, "+y f(x>y) +z f(y>z) +o f(z>o) -z -y");
  end(l);
}

static void test_temporaries_end_with_their_operator(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  lower(l, x, apply(l, &working, x, 0, "o"));
  assert_code(l, &l->program->forward, "+t f(x>t) +u f(t>u) -t +o f(u>o) -u");
  end(l);
}

static void test_operator_lets_go_early(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  lower(l, x, apply(l, &hasty, x, x, "o"));
  assert_code(l, &l->program->backward, "+dx f'(do,x*>dx) -do f'(dx>dx) -x* -x");
  end(l);
}

/* ---- gradients ---- */

/* The second gradient of a tensor is added to the first in place. */
static void test_two_gradients_are_added(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  tensor_id y = apply(l, &plain, x, 0, "y");
  tensor_id a = apply(l, &plain, y, 0, "a");
  tensor_id b = apply(l, &plain, y, 0, "b");
  lower(l, x, apply_two(l, &plain, a, b));
  assert_code(l, &l->program->backward,
              "+da f'(do>da) +db f'(do>db) -do +dy f'(db>dy) -db "
              "+dy f'(da>dy) -da f(dy,dy>dy) -dy +dx f'(dy>dx) -dy -x");
  end(l);
}

/* A residual: both sides refer to one gradient; the sum is taken in it. */
static void test_addition_passes_its_gradient_on(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  tensor_id y = apply(l, &plain, x, 0, "y");
  lower(l, x, apply_two(l, &add, y, x));
  assert_code(l, &l->program->backward, "do=do do=do -do +dx f'(do>dx) -do f(do,dx>do) -dx -x");
  end(l);
}

/* A weight's gradient: the product adds to the gradient buffer itself, or a temporary is added to
 * it. */
/* Accumulators add on their own stream, for which backward's end waits. */
static void test_parameter_gradients(void **state)
{
  (void)state;
  for (int fused = 0; fused < 2; fused++) {
    lowered *l = begin();
    l->settings.training.gradient_accumulation_fusion = fused;
    tensor_id x = tensor(l, "x");
    tensor_id w = graph_parameter(l->graph, "W", DTYPE_BF16, 4, 4);
    lower(l, x, apply_two(l, &plain, x, w));
    assert_code(l, &l->program->forward, "+o f(x,W>o)");
    assert_code(l, &l->program->backward,
                fused ? "+dx f'(do>dx) f'(do>dW) -do -x"
                      : "+dx f'(do>dx) +dW f'(do>dW) -do 10<0 f(dW,dW>dW) @dW -dW 0<10 -x");
    end(l);
  }
  _Static_assert(STREAM_COMPUTE == 0 && STREAM_ACCUMULATE == 10, "as above");
}

/* If nothing needs a gradient, backward only releases saved tensors. */
static void test_no_gradient(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  tensor_id m = apply(l, &plain, x, x, "m");
  l->graph->tensors.items[m].requires_grad = false;
  tensor_id y = apply(l, &plain, x, 0, "y");
  lower(l, x, apply_two(l, &plain, y, m));
  assert_code(l, &l->program->backward, "+dy f'(do>dy) -do +dx f'(dy>dx) -dy -x* -x");
  end(l);
}

/* A chunk that ends in the loss makes its first gradient itself, and drops the loss. */
static void test_loss(void **state)
{
  (void)state;
  lowered *l = begin();
  l->graph->ends_in_loss = true;
  tensor_id x = tensor(l, "x");
  lower(l, x, apply(l, &plain, x, 0, "o"));
  assert_code(l, &l->program->backward, "+do f(do) +dx f'(do>dx) -do -o -x");
  end(l);
}

/* ---- groups ---- */

/* Hooks see what is saved between start and the end of the call; backward meets the markers in
 * reverse. */
static void test_groups(void **state)
{
  (void)state;
  lowered *l = begin();
  graph_layer_begin(l->graph, 3);
  tensor_id x = tensor(l, "x");
  group_id group = graph_group_start(l->graph, "core_attn");
  tensor_id y = apply(l, &plain, x, x, "y");
  graph_group_hooks_end(l->graph, group);
  tensor_id z = apply(l, &plain, y, y, "z");
  graph_group_release(l->graph, group, y);
  graph_group_commit(l->graph, group);
  graph_layer_end(l->graph);
  lower(l, x, apply(l, &plain, z, 0, "o"));
  assert_program(
      l, "[1 +y f(x>y) x*=x !x* +z f(y>z) y*=y ]1 -y +o f(z>o) -z",
      "+dz f'(do>dz) -do (1 +dy f'(dz,y*>dy) -dz -y* ?x* +dx f'(dy,x*>dx) -dy -x* )1 -x");
  const saved_group *g = &l->program->groups.items[1];
  assert_string_equal(g->name, "core_attn");
  assert_int_equal(g->layer, 3);
  assert_int_equal(g->first_entry, 1);
  assert_int_equal(g->entry_count, 1);
  assert_string_equal(named[g->released[0]], "y");
  assert_int_equal(g->released_elements[0], 32);
  end(l);
}

/* ---- recomputation ---- */

/* y and z of x -> h -> y -> z -> o are in a checkpoint, which may keep y. */
static void lower_checkpoint(lowered *l, bool keeps)
{
  tensor_id x = tensor(l, "x");
  tensor_id h = apply(l, &plain, x, 0, "h");
  region_id r = graph_region_begin(l->graph, REGION_CHECKPOINT, &h, 1);
  tensor_id y = apply(l, &plain, h, 0, "y");
  tensor_id z = apply(l, &plain, y, y, "z");
  if (keeps) graph_region_cache(l->graph, r, y);
  graph_region_end(l->graph, r, z);
  lower(l, x, apply(l, &plain, z, 0, "o"));
}

/* Inside, forward saves nothing; backward runs it again and keeps the region's input, and the gradient
 * that it was given, until it is done: what comes to that gradient is added in a new tensor. */
static void test_checkpoint(void **state)
{
  (void)state;
  lowered *l = begin();
  lower_checkpoint(l, false);
  assert_program(l, "+h f(x>h) h*=h +y f(h>y) -h +z f(y>z) -y +o f(z>o) -z",
                 "+dz f'(do>dz) -do +y f(h*>y) +z f(y>z) y*=y -y dz=dz "
                 "+dy f'(dz,y*>dy) -dz -y* +dh f'(dy>dh) -dy -z -dz -h* +dx f'(dh>dx) -dh -x");
  end(l);
}

/* Without a function in the graph, the checkpoint dies with the last tensor saved inside. */
static void test_checkpoint_that_is_not_reentrant(void **state)
{
  (void)state;
  lowered *l = begin();
  l->settings.model.implementation = IMPLEMENTATION_HF;
  lower_checkpoint(l, false);
  assert_program(l, "+h f(x>h) h*=h +y f(h>y) -h +z f(y>z) -y +o f(z>o) -z",
                 "+dz f'(do>dz) -do +y f(h*>y) y*=y +z f(y>z) -y "
                 "+dy f'(dz,y*>dy) -dz -y* -h* +dh f'(dy>dh) -dy -z +dx f'(dh>dx) -dh -x");
  end(l);
}

/* What a selective checkpoint keeps is found again, and its operator does not run. */
static void test_selective_checkpoint(void **state)
{
  (void)state;
  lowered *l = begin();
  l->settings.model.implementation = IMPLEMENTATION_HF;
  lower_checkpoint(l, true);
  assert_program(l, "+h f(x>h) h*=h +y f(h>y) y*=y -h +z f(y>z) -y +o f(z>o) -z",
                 "+dz f'(do>dz) -do y*=y* +z f(y*>z) -y* +dy f'(dz,y*>dy) -dz -y* -h* "
                 "+dh f'(dy>dh) -dy -z +dx f'(dh>dx) -dh -x");
  end(l);
}

/* A recomputation that stops early ends its frames: only what is saved outlives it. The last operator that
 * saves does not run, as it saves what it takes. */
static void test_checkpoint_that_stops_early(void **state)
{
  (void)state;
  lowered *l = begin();
  l->settings.model.implementation = IMPLEMENTATION_HF;
  tensor_id x = tensor(l, "x");
  tensor_id h = apply(l, &plain, x, 0, "h");
  region_id r = graph_region_begin(l->graph, REGION_CHECKPOINT, &h, 1);
  l->graph->regions.items[r].stops_early = true;
  tensor_id y = apply(l, &plain, h, 0, "y");
  tensor_id z = apply(l, &plain, y, y, "z");
  tensor_id w = apply(l, &plain, z, 0, "w");
  graph_keep(l->graph, z);
  graph_region_end(l->graph, r, w);
  lower(l, x, apply(l, &plain, w, 0, "o"));
  assert_program(l, "+h f(x>h) h*=h +y f(h>y) -h +z f(y>z) -y +w f(z>w) -z +o f(w>o) -w",
                 "+dw f'(do>dw) -do +y f(h*>y) y*=y -y +dz f'(dw>dz) -dw "
                 "+dy f'(dz,y*>dy) -dz -y* -h* +dh f'(dy>dh) -dy +dx f'(dh>dx) -dh -x");
  end(l);
}

/* A module that is computed again saves nothing that could leave: it is no group. */
static void test_group_inside_a_checkpoint(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  region_id r = graph_region_begin(l->graph, REGION_CHECKPOINT, &x, 1);
  group_id inside = graph_group_start(l->graph, "core_attn");
  tensor_id y = apply(l, &plain, x, x, "y");
  graph_group_hooks_end(l->graph, inside);
  graph_group_commit(l->graph, inside);
  graph_region_end(l->graph, r, y);
  group_id outside = graph_group_start(l->graph, "core_attn");
  tensor_id o = apply(l, &plain, y, y, "o");
  graph_group_hooks_end(l->graph, outside);
  graph_group_commit(l->graph, outside);
  lower(l, x, o);
  assert_program(
      l, "x*=x +y f(x>y) [1 +o f(y>o) y*=y !y* -y ]1",
      "(1 ?y* +dy f'(do,y*>dy) -do -y* )1 +y f(x*>y) x*=x* dy=dy +dx f'(dy,x*>dx) -dy -x* -y -dy "
      "-x* -x");
  assert_int_equal(l->program->groups.count, 2);
  end(l);
}

/* The output is emptied where it is discarded, and filled again when backward comes there. */
static void test_discarded_output(void **state)
{
  (void)state;
  lowered *l = begin();
  tensor_id x = tensor(l, "x");
  tensor_id h = apply(l, &plain, x, 0, "h");
  region_id r = graph_region_begin(l->graph, REGION_DISCARD, &h, 1);
  tensor_id y = apply(l, &plain, h, h, "y");
  graph_region_end(l->graph, r, y);
  tensor_id z = apply(l, &plain, y, y, "z");
  graph_discard(l->graph, r);
  lower(l, x, apply(l, &plain, z, 0, "o"));
  assert_program(l, "+h f(x>h) h*=h +y f(h>y) -h +z f(y>z) y*=y ~y +o f(z>o) -z",
                 "+dz f'(do>dz) -do ^y f(h*>y) h*=h* +dy f'(dz,y*>dy) -dz -y* "
                 "+dh f'(dy,h*>dh) -dy -h* -y -h* +dx f'(dh>dx) -dh -x");
  assert_true(l->program->entries.items[2].discarded);
  assert_int_equal(l->program->refills.items[0].count,
                   2); /* the handle, and the slot of z's backward */
  end(l);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_saved_outlives_the_frame),
    cmocka_unit_test(test_views),
    cmocka_unit_test(test_keep),
    cmocka_unit_test(test_temporaries_end_with_their_operator),
    cmocka_unit_test(test_operator_lets_go_early),
    cmocka_unit_test(test_two_gradients_are_added),
    cmocka_unit_test(test_addition_passes_its_gradient_on),
    cmocka_unit_test(test_parameter_gradients),
    cmocka_unit_test(test_no_gradient),
    cmocka_unit_test(test_loss),
    cmocka_unit_test(test_groups),
    cmocka_unit_test(test_checkpoint),
    cmocka_unit_test(test_checkpoint_that_is_not_reentrant),
    cmocka_unit_test(test_selective_checkpoint),
    cmocka_unit_test(test_checkpoint_that_stops_early),
    cmocka_unit_test(test_group_inside_a_checkpoint),
    cmocka_unit_test(test_discarded_output),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

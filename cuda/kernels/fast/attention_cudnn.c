#include "cuda/kernels/fast/attention_cudnn.h"

#include "cuda/kernels/fast/attention_cudnn_graphs.h"
#include "cuda/kernels/fast/handles.h"

#ifdef OFFSIM_WITH_CUDNN

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "sim/base/diag.h"

enum { ALIGNMENT_BYTES = 256 };

/* ---- what a rank remembers ------------------------------------------------------------------ */

typedef struct known_plan {
  attention_shape shape; /* without addresses */
  bool backward;
  cudnn_graph graph;
  cudnn_descriptor plan; /* NULL: cuDNN has none */
  int64_t workspace_bytes;
  struct known_plan *next;
} known_plan;

static void release_plans(cuda_libraries *l, void *items)
{
  (void)l;
  for (known_plan *k = items, *next; k != NULL; k = next) {
    next = k->next;
    attention_graph_delete(&k->graph);
    free(k);
  }
}

static attention_shape without_addresses(const attention_shape *a)
{
  attention_shape b = *a;
  b.log_sums = NULL;
  for (int i = 0; i < ATTENTION_OPERANDS; i++)
    b.operands[i].data = NULL;
  return b;
}

static bool same_operand(const attention_operand *a, const attention_operand *b)
{
  return a->batch_stride == b->batch_stride && a->head_stride == b->head_stride &&
         a->row_stride == b->row_stride;
}

static bool same_shape(const attention_shape *a, const attention_shape *b)
{
  bool same = a->batch == b->batch && a->heads == b->heads && a->kv_heads == b->kv_heads &&
              a->queries == b->queries && a->keys == b->keys && a->qk == b->qk && a->v == b->v &&
              a->causal == b->causal;
  for (int i = 0; i < ATTENTION_OPERANDS; i++)
    same = same && same_operand(&a->operands[i], &b->operands[i]);
  return same;
}

static known_plan *new_plan(cuda_libraries *l, const attention_shape *a, bool backward)
{
  known_plan *k = calloc(1, sizeof *k);
  if (k == NULL) die_refused("no memory for a plan of cuDNN");
  *k = (known_plan){ .shape = without_addresses(a),
                     .backward = backward,
                     .graph = attention_graph_new(l->cudnn),
                     .next = l->attention.items };
  (backward ? attention_backward_graph : attention_forward_graph)(&k->graph, a);
  k->plan = graph_plan(&k->graph, l->cudnn_handle);
  if (k->plan != NULL) k->workspace_bytes = graph_workspace_bytes(&k->graph, k->plan);
  l->attention = (kernel_memory){ .items = k, .release = release_plans };
  return k;
}

static known_plan *find_plan(cuda_libraries *l, const attention_shape *a, bool backward)
{
  for (known_plan *k = l->attention.items; k != NULL; k = k->next)
    if (k->backward == backward && same_shape(&k->shape, a)) return k;
  return new_plan(l, a, backward);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* What a call costs where sums have one order: cuDNN writes the gradients of all scores down, and
 * those of keys and values for every query head. Rows are rounded up to its tiles. */
enum { TILE_ROWS = 128, SCRATCH_SLACK = 64 << 10 };
enum { SCRATCH_PART = 32 }; /* of the GPU's memory, at most */

static int64_t most_scratch;

static void find_most_scratch(void)
{
  size_t free_bytes, total_bytes;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess)
    most_scratch = (int64_t)total_bytes / SCRATCH_PART;
}

/* The same for all GPUs, so that all ranks sum up in the same parts. */
static int64_t most_scratch_bytes(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_most_scratch);
  return most_scratch;
}

static int64_t round_up(int64_t n, int64_t to)
{
  return (n + to - 1) / to * to;
}

static int64_t delta_bytes(const attention_shape *a)
{
  return round_up(a->batch * a->heads * a->queries * (int64_t)sizeof(float), ALIGNMENT_BYTES);
}

static int64_t scratch_bytes(const attention_shape *a, bool backward)
{
  if (!backward) return SCRATCH_SLACK;
  int64_t scores = round_up(a->queries, TILE_ROWS) * round_up(a->keys, TILE_ROWS);
  int64_t columns = a->heads > a->kv_heads ? a->keys * (a->qk + a->v) : 0;
  return a->batch * a->heads * (scores + columns) * (int64_t)sizeof(uint16_t) + delta_bytes(a) +
         SCRATCH_SLACK;
}

/* As many of the batch's heads, with the keys that they share, as fit into the scratch memory at
 * once: all, or some of one sequence. */
static attention_shape part_of(const attention_shape *a, bool backward)
{
  attention_shape part = *a;
  if (scratch_bytes(a, backward) <= most_scratch_bytes()) return part;
  part.batch = 1;
  for (part.kv_heads = a->kv_heads; part.kv_heads > 0; part.kv_heads--) {
    part.heads = part.kv_heads * (a->heads / a->kv_heads);
    if (a->kv_heads % part.kv_heads == 0 && scratch_bytes(&part, backward) <= most_scratch_bytes())
      break;
  }
  return part;
}

int64_t attention_cudnn_scratch(const attention_shape *a, bool backward)
{
  attention_shape part = part_of(a, backward);
  return part.kv_heads > 0 ? scratch_bytes(&part, backward) : 0;
}

static bool of_keys(bool backward, int which)
{
  return backward ? which == BACKWARD_KEY || which == BACKWARD_VALUE ||
                        which == BACKWARD_KEY_GRADIENT || which == BACKWARD_VALUE_GRADIENT
                  : which == FORWARD_KEY || which == FORWARD_VALUE;
}

/* Number `i` of the parts of a call. */
static void move_to(attention_shape *part, const attention_shape *a, bool backward, int64_t i)
{
  int64_t parts = a->kv_heads / part->kv_heads, batch = i / parts * part->batch;
  int64_t kv_head = i % parts * part->kv_heads, head = i % parts * part->heads;
  for (int k = 0; k < (backward ? BACKWARD_OPERANDS : FORWARD_OPERANDS); k++) {
    const attention_operand *o = &a->operands[k];
    int64_t first =
        batch * o->batch_stride + (of_keys(backward, k) ? kv_head : head) * o->head_stride;
    part->operands[k].data = (uint16_t *)o->data + first;
  }
  part->log_sums = a->log_sums + (batch * a->heads + head) * a->queries;
}

enum { MOST_POINTERS = ATTENTION_OPERANDS + 5 };

typedef struct given {
  int64_t ids[MOST_POINTERS];
  void *pointers[MOST_POINTERS];
  uint32_t count;
} given;

static void give(given *g, int64_t id, void *pointer)
{
  g->ids[g->count] = id;
  g->pointers[g->count++] = pointer;
}

static const char *execute(const cuda_call *c, const known_plan *k, const attention_shape *a)
{
  const cuda_libraries *l = c->libraries;
  float scale = a->scale, minus_infinity = -INFINITY, one = 1;
  given g = { .count = 0 };
  for (int i = 0; i < (k->backward ? BACKWARD_OPERANDS : FORWARD_OPERANDS); i++)
    give(&g, ID_OPERANDS + i, a->operands[i].data);
  give(&g, ID_LOG_SUMS, a->log_sums);
  give(&g, ID_SCALE, &scale);
  if (a->causal) give(&g, ID_MINUS_INFINITY, &minus_infinity);
  if (k->backward) {
    give(&g, ID_DELTAS, c->scratch);
    give(&g, ID_ONE, &one);
  }
  return graph_execute(l->cudnn, l->cudnn_handle, k->plan, g.count, g.ids, g.pointers,
                       (char *)c->scratch + (k->backward ? delta_bytes(a) : 0));
}

bool attention_cudnn(cuda_call *c, const attention_shape *a, bool backward)
{
  cuda_libraries *l = c->libraries;
  attention_shape part = part_of(a, backward);
  if (l == NULL || l->cudnn == NULL || part.kv_heads == 0) return false;
  const known_plan *k = find_plan(l, &part, backward);
  int64_t bytes = k->workspace_bytes + (backward ? delta_bytes(&part) : 0);
  if (k->plan == NULL || bytes > c->scratch_bytes) return false;
  cudnnStatus_t status = l->cudnn->cudnnSetStream(l->cudnn_handle, (cudaStream_t)c->stream);
  if (status != CUDNN_STATUS_SUCCESS) c->failure = l->cudnn->cudnnGetErrorString(status);
  int64_t parts = a->batch / part.batch * (a->kv_heads / part.kv_heads);
  for (int64_t i = 0; i < parts && c->failure == NULL; i++) {
    move_to(&part, a, backward, i);
    c->failure = execute(c, k, &part);
  }
  return true;
}

#else

int64_t attention_cudnn_scratch(const attention_shape *a, bool backward)
{
  (void)a, (void)backward;
  return 0;
}

bool attention_cudnn(cuda_call *c, const attention_shape *a, bool backward)
{
  (void)c, (void)a, (void)backward;
  return false;
}

#endif

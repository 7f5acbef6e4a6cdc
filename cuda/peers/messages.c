/* Messages: the last side copies. */
#include <assert.h>
#include <stdlib.h>

#include "cuda/peers/exchange_state.h"

enum { WORD_BYTES = 8 };

/* A message of an exchange as its rank sees it. */
typedef struct transfer {
  post own;
  void *data;
  bool sends;
  int64_t bytes;
  message_side other; /* other.waits: it arrived first, so this side copies */
} transfer;

/* ---- the table, under the lock --------------------------------------------------------------- */

static message_side *side_of(const exchange *x, const transfer *t)
{
  const plan_op *o = stage_op(x->ranks[t->own.rank].stage, t->own.op);
  const exec_members *pipeline = &x->setup.layout->pipelines[t->own.rank];
  assert(o->arg < x->plan->messages.count);
  uint32_t sender = pipeline->ranks[x->plan->messages.items[o->arg].from_rank];
  return &x->sides[(uint64_t)sender * x->plan->messages.count + o->arg];
}

static void pair(exchange *x, transfer *t)
{
  message_side *side = side_of(x, t);
  assert((!side->waits || side->at.op != t->own.op || side->at.rank != t->own.rank) &&
         "a side comes once");
  t->other = *side;
  *side = (message_side){ t->own, t->data, !side->waits };
}

/* The communication library pairs messages by their order, not by their numbers in the plan. */
static const char *check_pairing(exchange *x, const post *p)
{
  const stage *s = x->ranks[p->rank].stage;
  uint32_t expected = stage_op(s, p->op)->arg, sent = s->mate[p->op];
  if (stage_op(s, p->op)->kind != OP_RECV || expected == sent) return NULL;
  return arena_printf(&x->texts, "%s receives message %u where the other side sends message %u",
                      post_text(x, p), expected, sent);
}

static const char *pair_all(exchange *x, transfer *transfers, uint32_t count)
{
  const char *finding = NULL;
  pthread_mutex_lock(&x->lock);
  for (uint32_t i = 0; i < count && finding == NULL; i++) {
    finding = check_pairing(x, &transfers[i].own);
    if (finding == NULL && !is_spread()) pair(x, &transfers[i]);
  }
  pthread_mutex_unlock(&x->lock);
  return finding;
}

/* ---- what streams are given ------------------------------------------------------------------ */

static exec_tensor numbers_at(void *data, int64_t bytes, bool whole)
{
  return (exec_tensor){ .data = data,
                        .type = whole ? DTYPE_INT64 : DTYPE_BYTE,
                        .rank = 1,
                        .shape = { whole ? bytes / WORD_BYTES : bytes },
                        .strides = { 1 } };
}

const char *copy_by_kernel(const cuda_collective_row *collectives, void *to, void *from,
                           int64_t bytes, gpu_stream *stream)
{
  assert(bytes >= 0);
  bool whole = ((uintptr_t)to | (uintptr_t)from | (uint64_t)bytes) % WORD_BYTES == 0;
  exec_tensor read = numbers_at(from, bytes, whole), write = numbers_at(to, bytes, whole);
  exec_call of = { .reads = &read, .writes = &write, .read_count = 1, .write_count = 1 };
  cuda_call call = { .of = &of, .stream = stream }, *calls[] = { &call };
  if (bytes > 0) collectives[COLLECTIVE_ALL_GATHER].launch(calls, 1);
  return call.failure;
}

static const char *copy(const exchange *x, const transfer *t, gpu_stream *stream)
{
  const gpu_driver *driver = x->setup.driver;
  const post *other = &t->other.at;
  assert(t->other.waits && "the last side copies");
  void *from = t->sends ? t->data : t->other.data, *to = t->sends ? t->other.data : t->data;
  const char *failure = driver->gate_wait(stream, arrived_gate(x, other), other->number);
  if (failure == NULL) failure = copy_by_kernel(x->setup.collectives, to, from, t->bytes, stream);
  if (failure == NULL) failure = driver->gate_open(stream, passed_gate(x, other), other->number);
  return failure;
}

/* On a lane, once the stream has reached the exchange; the stream goes on after this side's
 * gate. */
static const char *copy_on_lane(const exchange *x, const transfer *t)
{
  const gpu_driver *driver = x->setup.driver;
  assert(t->own.slot > 0 && "the first message uses the stream itself");
  gpu_stream *lane = x->ranks[t->own.rank].points[t->own.stream].lanes[t->own.slot];
  const char *failure = driver->gate_wait(lane, arrived_gate(x, &t->own), t->own.number);
  if (failure == NULL) failure = copy(x, t, lane);
  if (failure == NULL) failure = driver->gate_open(lane, passed_gate(x, &t->own), t->own.number);
  return failure;
}

/* The first message may be copied on the stream itself: the exchange's other copies are on lanes,
 * which get their work first. */
static const char *issue(const exchange *x, const transfer *transfers, uint32_t count,
                         gpu_stream *stream)
{
  const gpu_driver *driver = x->setup.driver;
  const transfer *first = &transfers[0];
  assert(count > 0 && first->own.slot == 0);
  const char *failure = driver->gate_open(stream, arrived_gate(x, &first->own), first->own.number);
  for (uint32_t i = 1; i < count && failure == NULL; i++)
    if (transfers[i].other.waits) failure = copy_on_lane(x, &transfers[i]);
  if (failure == NULL && first->other.waits) failure = copy(x, first, stream);
  for (uint32_t i = first->other.waits; i < count && failure == NULL; i++)
    failure = driver->gate_wait(stream, passed_gate(x, &transfers[i].own), first->own.number);
  return failure;
}

static uint32_t peer_of(const exchange *x, const transfer *t)
{
  const plan_op *o = stage_op(x->ranks[t->own.rank].stage, t->own.op);
  const plan_message *m = &x->plan->messages.items[o->arg];
  return x->setup.layout->pipelines[t->own.rank].ranks[t->sends ? m->to_rank : m->from_rank];
}

static const char *issue_by_library(const exchange *x, const transfer *transfers, uint32_t count,
                                    gpu_stream *stream)
{
  const post *own = &transfers[0].own;
  assert(count > 0 && x->library != NULL);
  peer_message *messages = calloc(count, sizeof *messages);
  if (messages == NULL) die_refused("no memory for an exchange of %u messages", count);
  for (uint32_t i = 0; i < count; i++)
    messages[i] = (peer_message){ .peer = peer_of(x, &transfers[i]),
                                  .sends = transfers[i].sends,
                                  .data = transfers[i].data,
                                  .bytes = transfers[i].bytes };
  const char *failure =
      x->library->exchange(x->peers, own->rank, own->stream, messages, count, stream);
  free(messages);
  return failure;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static transfer transfer_of(const exchange *x, uint32_t rank, const pending_message *m)
{
  const plan_op *o = stage_op(x->ranks[rank].stage, m->op);
  assert(is_message(x->ranks[rank].stage, m->op));
  return (transfer){ .own = { .rank = rank, .op = m->op, .stream = o->stream },
                     .data = m->data,
                     .sends = o->kind == OP_SEND,
                     .bytes = x->plan->messages.items[o->arg].bytes };
}

static exchange_trouble exchange_all(exchange *x, uint32_t rank, uint32_t stream_number,
                                     gpu_stream *stream)
{
  rank_exchange *r = &x->ranks[rank];
  rendezvous_point *point = &r->points[stream_number];
  uint32_t count = r->pending[stream_number].count;
  exchange_trouble trouble = { NULL, NULL };
  assert(count > 0 && (x->library != NULL || count <= point->slots));
  transfer *transfers = calloc(count, sizeof *transfers);
  if (transfers == NULL) die_refused("no memory for an exchange of %u messages", count);
  point->posts++;
  for (uint32_t i = 0; i < count; i++) {
    transfers[i] = transfer_of(x, rank, &r->pending[stream_number].items[i]);
    transfers[i].own.slot = i;
    transfers[i].own.number = point->posts;
  }
  trouble.finding = pair_all(x, transfers, count);
  if (trouble.finding == NULL)
    trouble.failure = (x->library == NULL ? issue : issue_by_library)(x, transfers, count, stream);
  free(transfers);
  r->pending[stream_number].count = 0;
  return trouble;
}

exchange_trouble exchange_message(exchange *x, uint32_t rank, uint32_t op, void *data,
                                  gpu_stream *stream)
{
  rank_exchange *r = &x->ranks[rank];
  uint32_t number = stage_op(r->stage, op)->stream;
  assert(is_message(r->stage, op) && number < DEVICE_STREAMS);
  if (atomic_load(&x->stopped)) return (exchange_trouble){ NULL, NULL };
  *ARRAY_PUSH(&r->pending[number]) = (pending_message){ op, data };
  if (is_message(r->stage, r->stage->following[op])) return (exchange_trouble){ NULL, NULL };
  return exchange_all(x, rank, number, stream);
}

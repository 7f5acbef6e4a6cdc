#include "cuda/measure/measure.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/measure/buffers.h"
#include "cuda/measure/cupti.h"
#include "cuda/measure/spans.h"
#include "sim/base/array.h"

/* A node that an op has added to a graph. */
typedef struct op_node {
  CUgraphNode node;
  uint32_t op;
} op_node;

typedef struct node_array {
  op_node *items;
  uint32_t count, capacity;
} node_array;

struct measure {
  const cupti *cupti;
  CUpti_SubscriberHandle subscriber;
  uint64_t zero; /* CUPTI's clock when the iteration began */
  rank_spans *ranks;
  node_array *nodes; /* by rank: of the current capture */
  uint32_t rank_count;
  activity_array activities;
  claim_array claims;
  measure_tally tally;
  bool enabled;
};

/* Launches carry offsim's number: the rank and the op, of one kind for ops and another for
 * graphs. */
enum {
  OF_OP = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
  OF_GRAPH = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1,
};

/* The op that this thread issues. */
static _Thread_local struct {
  measure *of; /* NULL: none */
  uint32_t rank, op;
  CUpti_ExternalCorrelationKind kind;
} issued;

/* Calls are recorded only because they give launches their numbers: calls of the runtime, and
 * driver calls that libraries make directly. */
static const CUpti_ActivityKind kinds[] = {
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
  CUPTI_ACTIVITY_KIND_MEMCPY,
  CUPTI_ACTIVITY_KIND_MEMCPY2,
  CUPTI_ACTIVITY_KIND_MEMSET,
  CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
  CUPTI_ACTIVITY_KIND_RUNTIME,
  CUPTI_ACTIVITY_KIND_DRIVER,
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- a CUPTI session ---- */

/* A capture has added a node to a graph, in the capturing thread. Its kind can be queried only
 * after the callback. */
static void CUPTIAPI node_created(void *context, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                  const void *data)
{
  (void)context;
  (void)domain;
  (void)id;
  if (issued.of == NULL || (int)issued.kind != OF_OP) return;
  const CUpti_ResourceData *resource = data;
  const CUpti_GraphData *graph = resource->resourceDescriptor;
  node_array *nodes = &issued.of->nodes[issued.rank];
  *ARRAY_PUSH(nodes) = (op_node){ graph->node, issued.op };
}

/* Before the launch of a graph: counts the measurable nodes of each of its ops. */
static void count_nodes(measure *m, uint32_t rank, uint32_t first, uint32_t end)
{
  node_array *nodes = &m->nodes[rank];
  for (uint32_t i = 0; i < nodes->count; i++) {
    enum cudaGraphNodeType type;
    const op_node *n = &nodes->items[i];
    bool known =
        n->op >= first && n->op < end && cudaGraphNodeGetType(n->node, &type) == cudaSuccess;
    if (known && (type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy ||
                  type == cudaGraphNodeTypeMemset))
      m->ranks[rank].captured[n->op]++;
  }
  nodes->count = 0;
}

static bool subscribe(measure *m, diag *d)
{
  const cupti *c = m->cupti;
  return cupti_check(c, c->cuptiSubscribe(&m->subscriber, node_created, NULL), "cuptiSubscribe",
                     d) &&
         cupti_check(c,
                     c->cuptiEnableCallback(1, m->subscriber, CUPTI_CB_DOMAIN_RESOURCE,
                                            CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED),
                     "cuptiEnableCallback", d);
}

static bool record(measure *m, diag *d)
{
  const cupti *c = m->cupti;
  uint8_t zeroed = 1;
  size_t size = sizeof zeroed;
  bool ok = cupti_check(c,
                        c->cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER,
                                                     &size, &zeroed),
                        "cuptiActivitySetAttribute", d) &&
            cupti_check(c, c->cuptiActivityRegisterCallbacks(buffers_give, buffers_take),
                        "cuptiActivityRegisterCallbacks", d);
  return ok;
}

static bool enable(measure *m, diag *d)
{
  const cupti *c = m->cupti;
  bool ok = true;
  for (int i = 0; i < KINDS && ok && !m->enabled; i++)
    ok = cupti_check(c, c->cuptiActivityEnable(kinds[i]), "cuptiActivityEnable", d);
  m->enabled = true;
  return ok;
}

measure *measure_open(diag *d)
{
  const cupti *c = cupti_load(d);
  if (c == NULL) return NULL;
  measure *m = calloc(1, sizeof *m);
  if (m == NULL) die_refused("no memory for measurements: %zu bytes", sizeof *m);
  m->cupti = c;
  buffers_prepare();
  if (subscribe(m, d) && record(m, d)) return m;
  measure_close(m);
  return NULL;
}

static void forget_ranks(measure *m)
{
  for (uint32_t i = 0; i < m->rank_count; i++) {
    free(m->ranks[i].spans);
    free(m->ranks[i].captured);
    free(m->ranks[i].graph_first);
    ARRAY_FREE(&m->nodes[i]);
  }
  free(m->ranks);
  free(m->nodes);
  m->ranks = NULL;
  m->nodes = NULL;
  m->rank_count = 0;
}

void measure_close(measure *m)
{
  if (m == NULL) return;
  for (int i = 0; i < KINDS && m->enabled; i++)
    m->cupti->cuptiActivityDisable(kinds[i]);
  m->cupti->cuptiActivityFlushAll(1);
  if (m->subscriber != NULL) m->cupti->cuptiUnsubscribe(m->subscriber);
  buffers_release();
  forget_ranks(m);
  ARRAY_FREE(&m->activities);
  ARRAY_FREE(&m->claims);
  free(m);
}

/* ---- an iteration ---- */

static void *zeros(size_t count, size_t size)
{
  void *memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) die_refused("no memory for measurements: %zu x %zu bytes", count, size);
  return memory;
}

static void read_nothing(void *context, uint8_t *bytes, size_t filled)
{
  (void)context;
  (void)bytes;
  (void)filled;
}

bool measure_begin(measure *m, uint32_t rank_count, const uint32_t *op_counts, diag *d)
{
  if (!enable(m, d)) return false;
  forget_ranks(m);
  m->rank_count = rank_count;
  m->ranks = zeros(rank_count, sizeof *m->ranks);
  m->nodes = zeros(rank_count, sizeof *m->nodes);
  for (uint32_t i = 0; i < rank_count; i++)
    m->ranks[i] = (rank_spans){
      .op_count = op_counts[i],
      .spans = zeros(op_counts[i], sizeof(measure_span)),
      .captured = zeros(op_counts[i], sizeof(uint32_t)),
      .graph_first = zeros((size_t)op_counts[i] + 1, sizeof(uint32_t)),
    };
  m->activities.count = m->claims.count = 0;
  m->tally = (measure_tally){ 0 };
  m->cupti->cuptiActivityFlushAll(1); /* records of earlier work */
  buffers_read(read_nothing, NULL);
  m->cupti->cuptiGetTimestamp(&m->zero);
  return true;
}

static void begin(measure *m, uint32_t rank, uint32_t op, int kind)
{
  assert(issued.of == NULL && rank < m->rank_count && op <= m->ranks[rank].op_count);
  issued.of = m;
  issued.rank = rank;
  issued.op = op;
  issued.kind = (CUpti_ExternalCorrelationKind)kind;
  m->cupti->cuptiActivityPushExternalCorrelationId(issued.kind, (uint64_t)rank << 32 | op);
}

void measure_op_begin(measure *m, uint32_t rank, uint32_t op)
{
  begin(m, rank, op, OF_OP);
}

void measure_graph_begin(measure *m, uint32_t rank, uint32_t first, uint32_t end)
{
  count_nodes(m, rank, first, end);
  begin(m, rank, end, OF_GRAPH);
  m->ranks[rank].graph_first[end] = first;
}

void measure_op_end(measure *m)
{
  uint64_t number;
  assert(issued.of == m);
  m->cupti->cuptiActivityPopExternalCorrelationId(issued.kind, &number);
  assert(number == ((uint64_t)issued.rank << 32 | issued.op));
  issued.of = NULL;
}

/* ---- records ---- */

static void ran(measure *m, uint32_t launch, uint32_t device, uint64_t begin_ns, uint64_t end_ns)
{
  *ARRAY_PUSH(&m->activities) = (activity){
    .launch = launch,
    .device = device,
    .begin_ns = (int64_t)(begin_ns - m->zero),
    .end_ns = (int64_t)(end_ns - m->zero),
  };
}

static void read_record(measure *m, const CUpti_Activity *record)
{
  switch ((int)record->kind) {
  case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
    const CUpti_ActivityKernel10 *k = (const CUpti_ActivityKernel10 *)record;
    ran(m, k->correlationId, k->deviceId, k->start, k->end);
    break;
  }
  case CUPTI_ACTIVITY_KIND_MEMCPY: {
    const CUpti_ActivityMemcpy6 *k = (const CUpti_ActivityMemcpy6 *)record;
    ran(m, k->correlationId, k->deviceId, k->start, k->end);
    break;
  }
  case CUPTI_ACTIVITY_KIND_MEMCPY2: { /* between devices */
    const CUpti_ActivityMemcpyPtoP4 *k = (const CUpti_ActivityMemcpyPtoP4 *)record;
    ran(m, k->correlationId, k->deviceId, k->start, k->end);
    break;
  }
  case CUPTI_ACTIVITY_KIND_MEMSET: {
    const CUpti_ActivityMemset4 *k = (const CUpti_ActivityMemset4 *)record;
    ran(m, k->correlationId, k->deviceId, k->start, k->end);
    break;
  }
  case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
    const CUpti_ActivityExternalCorrelation *k = (const CUpti_ActivityExternalCorrelation *)record;
    *ARRAY_PUSH(&m->claims) = (claim){
      .launch = k->correlationId,
      .rank = (uint32_t)(k->externalId >> 32),
      .op = (uint32_t)k->externalId,
      .of_graph = (int)k->externalKind == OF_GRAPH,
    };
    break;
  }
  default: break; /* calls */
  }
}

static void read_buffer(void *context, uint8_t *bytes, size_t filled)
{
  measure *m = context;
  CUpti_Activity *record = NULL;
  while (m->cupti->cuptiActivityGetNextRecord(bytes, filled, &record) == CUPTI_SUCCESS)
    read_record(m, record);
}

bool measure_collect(measure *m, diag *d)
{
  const cupti *c = m->cupti;
  size_t dropped = 0;
  if (!cupti_check(c, c->cuptiActivityFlushAll(1), "cuptiActivityFlushAll", d)) return false;
  buffers_read(read_buffer, m);
  c->cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped);
  m->tally = spans_join(&m->activities, &m->claims, m->ranks);
  m->tally.dropped = (int64_t)dropped;
  return true;
}

const measure_span *measure_spans(const measure *m, uint32_t rank)
{
  assert(rank < m->rank_count);
  return m->ranks[rank].spans;
}

measure_tally measure_count(const measure *m)
{
  return m->tally;
}

int64_t measure_now_ns(const measure *m)
{
  uint64_t now = m->zero;
  m->cupti->cuptiGetTimestamp(&now);
  return (int64_t)(now - m->zero);
}

#include "sim/plan/join.h"

#include <assert.h>
#include <string.h>

plan plan_apart(const plan *p, arena *a)
{
  plan apart = plan_new(1, a);
  ARRAY_FREE(&apart.ranks[0].marks); /* its ranks are those of p */
  apart.rank_count = p->rank_count;
  apart.global_ranks = p->global_ranks;
  apart.ranks = p->ranks;
  ARRAY_COPY(&apart.messages, &p->messages);
  return apart;
}

/* A list is referred to by its first row. */
static uint32_t *join_views(plan *p, const plan *apart, arena *a)
{
  uint32_t *rows = ARENA_ARRAY(a, uint32_t, apart->views.count);
  for (uint32_t i = 0; i < apart->view_list_first.count; i++) {
    uint32_t first = apart->view_list_first.items[i];
    rows[first] =
        plan_view_list_row(p, &apart->views.items[first], plan_view_list_length(apart, i));
  }
  return rows;
}

static uint32_t *join_calls(plan *p, const plan *apart, const uint32_t *views, arena *a)
{
  uint32_t *rows = ARENA_ARRAY(a, uint32_t, apart->calls.count);
  for (uint32_t i = 0; i < apart->calls.count; i++) {
    plan_call call = apart->calls.items[i];
    call.views = views[call.views];
    rows[i] = plan_call_row(p, &call);
  }
  return rows;
}

static const char *own_name(plan *p, const char *name)
{
  return arena_strndup(p->names, name, strlen(name));
}

static void join_sites_and_tensors(plan *p, const plan *apart, const plan_rows *rows)
{
  assert(apart->sites.count > 0);
  for (uint32_t i = 1; i < apart->sites.count; i++) {
    plan_site site = apart->sites.items[i];
    site.module = own_name(p, site.module);
    *ARRAY_PUSH(&p->sites) = site;
  }
  for (uint32_t i = 0; i < apart->tensors.count; i++) {
    plan_tensor tensor = apart->tensors.items[i];
    tensor.name = own_name(p, tensor.name);
    tensor.site = plan_site_joined(rows, tensor.site);
    *ARRAY_PUSH(&p->tensors) = tensor;
  }
}

/* A message's size is known to the ranks that send and receive it. */
static void join_messages(plan *p, const plan *apart)
{
  assert(p->messages.count == apart->messages.count);
  for (uint32_t i = 0; i < p->messages.count; i++)
    if (apart->messages.items[i].bytes != 0)
      p->messages.items[i].bytes = apart->messages.items[i].bytes;
}

plan_rows plan_join_rows(plan *p, const plan *apart, arena *a)
{
  plan_rows rows = { .sites = p->sites.count - 1, .tensors = p->tensors.count };
  rows.views = join_views(p, apart, a);
  rows.calls = join_calls(p, apart, rows.views, a);
  join_sites_and_tensors(p, apart, &rows);
  return rows;
}

plan_rows plan_join(plan *p, plan *apart, arena *a)
{
  assert(p->ranks == apart->ranks);
  plan_rows rows = plan_join_rows(p, apart, a);
  join_messages(p, apart);
  plan_release_tables(apart);
  return rows;
}

void plan_renumber(rank_plan *r, const plan_rows *rows)
{
  for (uint32_t i = 0; i < r->ops.count; i++) {
    plan_op *o = &r->ops.items[i];
    o->site = plan_site_joined(rows, o->site);
    if (op_is_call((op_kind)o->kind))
      o->arg = rows->calls[o->arg];
    else if (copy_may_be_part((op_kind)o->kind))
      o->arg = rows->views[o->arg];
  }
  for (uint32_t i = 0; i < r->buffers.count; i++)
    r->buffers.items[i].tensor += rows->tensors;
}

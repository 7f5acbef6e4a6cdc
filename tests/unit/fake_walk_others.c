/* Actions of policies that do not run on made-up chunks: the table of systems names those too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/fake_walk.h"

static void not_here(const walk *w)
{
  fail_msg("an action that made-up chunks do not know");
  (void)w;
}

void act_host_wait(walk *w, event_id event)
{
  (void)event;
  not_here(w);
}

void act_clone(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i, (void)entry, (void)stream;
  not_here(w);
}

void act_record_stream(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i, (void)entry, (void)stream;
  not_here(w);
}

void act_write_file(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i, (void)entry, (void)stream;
  not_here(w);
}

void act_read_file(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  (void)i, (void)entry, (void)stream;
  not_here(w);
}

void act_drop_file(walk *w, instance_id i, uint32_t entry)
{
  (void)i, (void)entry;
  not_here(w);
}

bool act_weights_on_device(const walk *w, int32_t layer)
{
  (void)layer;
  not_here(w);
  return false;
}

void act_weights_out(walk *w, int32_t layer, plan_stream stream)
{
  (void)layer, (void)stream;
  not_here(w);
}

void act_weights_in(walk *w, int32_t layer, plan_stream stream, plan_stream pool)
{
  (void)layer, (void)stream, (void)pool;
  not_here(w);
}

#include "ref/kernels/moe_exchange.h"

#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/moe_rows.h"
#include "ref/kernels/storage.h"

enum { SLOT_RANKS, SLOT_EXPERTS, SLOT_ROWS, SLOT_WIDTH, SLOT_DIMS };

bool ref_is_moe_exchange(const exec_call *c)
{
  return c->read_count == 2 && (c->reads[1].type == DTYPE_INT32 || c->reads[1].type == DTYPE_INT64);
}

/* The place of a rank's row at the experts: a rank, and a row there; -1: dropped. */
typedef struct place {
  int64_t rank, row;
} place;

static place *places_of(const moe_rows *r, const exec_tensor *slots, int64_t source)
{
  int64_t experts = slots->shape[SLOT_EXPERTS], slot = slots->shape[SLOT_ROWS];
  int64_t *used = moe_numbers(experts * slots->shape[SLOT_RANKS]);
  place *places = (place *)moe_numbers(2 * r->count);
  for (int64_t i = 0; i < r->count; i++) {
    int64_t e = r->expert[i];
    places[i].row = -1;
    if (e < 0 || used[e] == slot) continue;
    places[i] = (place){ e / experts, (source * experts + e % experts) * slot + used[e] };
    used[e]++;
  }
  free(used);
  return places;
}

void ref_moe_exchange(const exec_call *const *members, uint32_t count)
{
  bool back = members[0]->reads[0].rank == SLOT_DIMS;
  const exec_tensor *slots = back ? members[0]->reads : members[0]->writes;
  assert(slots->rank == SLOT_DIMS && "equally many rows for each rank and expert");
  assert(slots->shape[SLOT_RANKS] == count);
  int64_t width = slots->shape[SLOT_WIDTH], left_out = 0;
  for (uint32_t m = 0; m < count; m++)
    ref_clear(&members[m]->writes[0]);
  for (uint32_t m = 0; m < count; m++) {
    const exec_tensor *own = back ? &members[m]->writes[0] : &members[m]->reads[0];
    moe_rows r = moe_read_rows(&members[m]->reads[1], exec_elements(own) / width);
    place *places = places_of(&r, slots, m);
    for (int64_t i = 0; i < r.count; i++) {
      if (places[i].row < 0) {
        left_out += r.expert[i] >= 0;
        continue;
      }
      const exec_call *there = members[places[i].rank];
      if (back)
        ref_copy_row(&there->reads[0], places[i].row * width, own, i * width, width);
      else
        ref_copy_row(own, i * width, &there->writes[0], places[i].row * width, width);
    }
    free(places);
    moe_rows_release(&r);
  }
  /* Probabilities take the same way; each dropped row is counted only once. */
  if (!back && width > 1) moe_leave_out(members[0], left_out);
}

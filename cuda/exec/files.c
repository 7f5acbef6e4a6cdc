/* Files: the stream runs a function of the host that writes or reads. */
#include <stdlib.h>

#include "cuda/exec/state.h"

typedef struct transfer {
  rank_run *rank;
  uint32_t op;
  bool writes;
  void *memory;
  int64_t bytes, at;
} transfer;

/* On another thread than the rank's own: no call of the driver is made here. */
static void run(void *context)
{
  transfer *t = context;
  exec_disk *disk = &t->rank->exec->disk;
  diag d = { 0 };
  bool done = t->writes ? disk_write(disk, t->at, t->memory, t->bytes, &d)
                        : disk_read(disk, t->at, t->memory, t->bytes, &d);
  if (!done) op_refused(t->rank, t->op, d.message);
  free(t);
}

void file_issue(rank_run *r, const op_call *c)
{
  bool writes = c->op->kind == OP_DISK_WRITE;
  const held_buffer *file = &r->buffers[op_operand(r, c, writes ? 1 : 0)];
  const held_buffer *memory = &r->buffers[op_operand(r, c, writes ? 0 : 1)];
  transfer *t = malloc(sizeof *t);
  if (t == NULL) die_refused("memory: no room for a transfer of a file");
  *t = (transfer){ r, r->at, writes, memory->data, memory->bytes, file->file_at };
  const char *why = r->driver->call(run, t, r->streams[c->op->stream]);
  if (why != NULL) free(t);
  rank_ok(r, why);
}

/*
 * The actions of an offload policy: ops that it issues through the compile walk (implemented by
 * sim/compile/actions.c), at the current place in the host's program order.
 */
#ifndef OFFSIM_SIM_OFFLOAD_ACTIONS_H
#define OFFSIM_SIM_OFFLOAD_ACTIONS_H

#include "sim/offload/policy.h"
#include "sim/plan/plan.h"

typedef struct walk walk;
typedef uint32_t event_id;
typedef uint32_t device_buffer; /* a policy's reference to one */
typedef uint32_t host_buffer;

/* Where an entry's data is. */
typedef enum entry_place {
  PLACE_NONE,   /* not saved yet, or released by its consumer */
  PLACE_DEVICE, /* in a device buffer (original or reloaded) */
  PLACE_HOST,   /* only in a host buffer; the device reference is gone */
  PLACE_FILE    /* only in a file */
} entry_place;
entry_place act_place(const walk *w, instance_id i, uint32_t entry);

/* Events. STREAM_COMPUTE is the framework's current stream, here and below: another one where a
 * schedule runs a part of a chunk on it. act_join: `waiting` goes on after everything issued on
 * `on` so far. */
event_id act_record(walk *w, plan_stream stream);
void act_wait(walk *w, plan_stream stream, event_id event);
void act_join(walk *w, plan_stream waiting, plan_stream on);
/* The host thread waits for the event. */
void act_host_wait(walk *w, event_id event);
/* The host thread waits for the event and reads a value (`.item()`, `.tolist()`). */
void act_host_read(walk *w, event_id event);
/* The host thread works for the time of `operators` eager operators, and launches nothing. */
void act_host_work(walk *w, uint32_t operators);

typedef struct offload_how {
  copy_form form;
  bool pooled;        /* host buffer from the pool keyed by shape and dtype; else a new one */
  bool pageable;      /* host memory that is not page-locked; has no pool */
  bool record_stream; /* the device block is marked as used by `stream` when its reference dies */
  plan_stream stream; /* on which the copy runs */
} offload_how;

/* Copies the entry to the host and drops its device reference. Needs PLACE_DEVICE. */
void act_offload(walk *w, instance_id i, uint32_t entry, offload_how how);

/* The two halves of act_offload: the copy to the host and, now or later, the drop of the device
 * reference. */
void act_copy_out(walk *w, instance_id i, uint32_t entry, offload_how how);
void act_release(walk *w, instance_id i, uint32_t entry);

/* Copies the entry back into a new device buffer of stream `pool`, on `stream`; the host buffer is
 * returned when the copy is issued. Needs PLACE_HOST. */
void act_reload(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool);

/* The two halves of act_reload: the copy back and, now or later, the return of the host buffer. */
void act_copy_in(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool);
void act_drop_host(walk *w, instance_id i, uint32_t entry);

/* Replaces the entry's device reference by one to a contiguous copy of the tensor, made on `stream`
 * in that stream's memory. Needs PLACE_DEVICE. */
void act_clone(walk *w, instance_id i, uint32_t entry, plan_stream stream);

/* `entry` has the same storage as `with` and moves with it: after act_copy_out it shares the host
 * copy of `with`, after act_copy_in also its device buffer. */
void act_share(walk *w, instance_id i, uint32_t entry, uint32_t with);

/* Writes the entry's host copy to a new file, on `stream`. The host buffer stays until
 * act_drop_host. */
void act_write_file(walk *w, instance_id i, uint32_t entry, plan_stream stream);
/* Reads the file into a new host buffer that is not page-locked, on `stream`. Needs PLACE_FILE. */
void act_read_file(walk *w, instance_id i, uint32_t entry, plan_stream stream);
/* Removes the file. */
void act_drop_file(walk *w, instance_id i, uint32_t entry);

/* Adds the policy's reference to the entry's device buffer, until the policy drops it. Needs
 * PLACE_DEVICE. */
device_buffer act_hold(walk *w, instance_id i, uint32_t entry);
void act_let_go(walk *w, device_buffer held);
/* Whether anything but the policy refers to it; and act_record_stream for it. */
bool act_others_refer(const walk *w, device_buffer held);
void act_mark_held(walk *w, device_buffer held, plan_stream stream);

/* A buffer from compute's pool that the policy keeps for the whole run, as large as the entry. The
 * first iteration allocates it now; in steady state it is a resident: call this in
 * iteration_begin. */
device_buffer act_own_buffer(walk *w, uint32_t chunk, uint32_t entry);
/* As act_reload, into such a buffer. */
void act_reload_into(walk *w, instance_id i, uint32_t entry, plan_stream stream, device_buffer own);

/* A pinned buffer that the policy keeps for the whole run, as large as this copy of the entry.
 * Allocated as act_own_buffer. */
host_buffer act_own_host_buffer(walk *w, uint32_t chunk, uint32_t entry, copy_form form);
/* As act_copy_out, into such a buffer, which act_drop_host does not return. */
void act_copy_out_into(walk *w, instance_id i, uint32_t entry, offload_how how, host_buffer own);

/* Memory that the policy keeps from the end of the first iteration on: call this in
 * lasting_memory. */
device_buffer act_own_memory(walk *w, const char *name, int64_t bytes, bool on_host);

/* Packs the first `bytes` of the entry, by a kernel on `stream`, into such device memory, from byte
 * `offset` on, or into a new block of compute (NO_OWN_MEMORY). Needs PLACE_DEVICE; act_release then
 * drops the device reference, and the packed entry counts as PLACE_HOST. */
#define NO_OWN_MEMORY UINT32_MAX
typedef struct packed_place {
  device_buffer memory;
  int64_t offset;
} packed_place;
void act_stash(walk *w, instance_id i, uint32_t entry, packed_place to, int64_t bytes,
               plan_stream stream);
/* ... and unpacks it into a new block of compute, as large as the entry. */
void act_unstash(walk *w, instance_id i, uint32_t entry, int64_t offset, int64_t bytes,
                 plan_stream stream);

/* record_stream: the entry's device block is marked as used by `stream` when its last reference
 * dies. */
void act_record_stream(walk *w, instance_id i, uint32_t entry, plan_stream stream);

/* Empties the storage of a slot although references remain (storage resize to 0), marked as used by
 * `marked` unless that is STREAM_HOST. Does nothing if the storage is already empty. */
void act_empty_storage(walk *w, instance_id i, uint32_t slot, plan_stream marked);

/* With offload.layer_offloading: the frozen parameters of a decoder layer, each with a page-locked
 * twin on the host, to which they are moved as soon as the model is built. When an iteration ends,
 * and a steady one begins, the first layer's are on the device, loaded by STREAM_H2D.
 *
 * Out: copies them to their twins on `stream` and drops the device references, without
 * record_stream. In: copies them on `stream` into new blocks of stream `pool`. */
bool act_weights_on_device(const walk *w, int32_t layer);
void act_weights_out(walk *w, int32_t layer, plan_stream stream);
void act_weights_in(walk *w, int32_t layer, plan_stream stream, plan_stream pool);

#endif

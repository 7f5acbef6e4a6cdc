/*
 * A small fake of the compile walk: it runs a rank's schedule over made-up chunks, calls a policy's
 * hooks in the order in which Megatron's markers fire, implements sim/offload/actions.h by
 * counting, and logs what was issued.
 *
 * A chunk is given by its layers' modules as letters, layers separated by blanks, chunks by
 * slashes: "cp cpfa / cpfa" (n attn_norm, q qkv_linear, c core_attn, p attn_proj, m mlp_norm, f
 * expert_fc1, a moe_act). Every module call saves one tensor of FAKE_GROUP_BYTES, to which only its
 * group refers.
 *
 * The log has one part for each run, "F0" forward and "B0" backward of micro-batch 0 ("F0.1": of
 * chunk 1):
 *   Dl0c     copied to the host: layer 0, core_attn (without the letter if all have one name)
 *   Hl0c     copied back on a copy stream; "Hm1l0c": for another micro-batch, "Hm1.1l0c": and chunk
 *   l0c      used by backward; "l0c!": copied back on the compute stream for this use
 *   w        compute waits for a copy to the host (in forward)
 *   Sl0 Ul0  packed into the policy's memory on the device, and unpacked
 *   Rl0      the device copy of an offloaded tensor is dropped (only if later than the copy)
 */
#ifndef OFFSIM_TESTS_UNIT_FAKE_WALK_H
#define OFFSIM_TESTS_UNIT_FAKE_WALK_H

#include "sim/offload/actions.h"
#include "sim/schedule/schedule.h"

enum { FAKE_GROUP_BYTES = 4 << 20, FAKE_LOG_BYTES = 1 << 16 };

typedef struct fake_setup {
  const char *layers; /* of every rank */
  int64_t stages, virtual_stages, group, microbatches;
  uint32_t rank;
  iteration_kind iteration;
  system_choice system; /* SYSTEM_EMPTY: megatron */
  mode_choice mode;
  const double *fraction; /* NULL: 1 */
  int64_t delta_bytes;
  const int64_t *max_inflight;         /* NULL: no limit */
  int64_t elements;                    /* of every tensor; 0: enough to leave */
  bool waits;                          /* write w */
  bool delays;                         /* experts' commits wait for the next layer's graph */
  int64_t offloaded_layers;            /* of layer-level systems */
  const char *manual_layers;           /* te_v2, manual: '1' for each that moves; NULL: automatic */
  int64_t release_after, reload_ahead; /* manual */
  bool retain_host;
  double capacity_factor; /* of the paged stash; a tensor has 1024 x 2 x factor rows */
  double device_factor, host_factor, imbalance;
  bool double_buffering;
} fake_setup;

typedef struct fake_result {
  char log[FAKE_LOG_BYTES];
  uint32_t d2h_groups, h2d_groups, inline_groups;
  int64_t peak_bytes;        /* on the device, of what was saved */
  int64_t forward_end_bytes; /* most at the end of a forward */
  int64_t boundary_bytes;    /* most when a layer's forward begins, that of the layer not counted */
  int64_t own_bytes;         /* the policy's own buffers, not counted elsewhere */
  int64_t host_bytes;        /* ... on the host */
  int64_t stashed_bytes;     /* packed in all */
  uint32_t own_host_buffers;
  int64_t theoretical_bytes;
  char message[1024];  /* the diagnostic, empty if none */
  const char *defects; /* lives until the next run */
} fake_result;

/* `layers` of a setup: as many with one group each; valid until the next call. */
const char *fake_layers(uint32_t count);

/* Each call starts afresh. */
void fake_run(const fake_setup *setup, fake_result *out);
/* Fails, with `what`, if the log is not `log` or there is a message. */
void fake_run_logs(const fake_setup *setup, const char *what, const char *log, fake_result *out);

#endif

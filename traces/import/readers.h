/*
 * One function for each format. Each reads from the first byte to the last. Private to
 * traces/import.
 */
#ifndef OFFSIM_TRACES_IMPORT_READERS_H
#define OFFSIM_TRACES_IMPORT_READERS_H

#include "traces/import/real_run.h"
#include "traces/input.h"

/* False after a message: a run has one record of what its streams did. */
bool takes_profile(const real_run *r, input *in);

/* PyTorch's profiler: libkineto's Chrome trace. */
bool kineto_read(real_run *r, input *in);
/* torch.cuda.memory._dump_snapshot: a pickle. */
bool snapshot_read(real_run *r, input *in);
/* Nsight Systems: an SQLite export; of one of its processes. */
bool nsight_read(real_run *r, input *in, uint32_t rank);
/* What offsim record wrote (traces/issued). */
bool issued_run_read(real_run *r, input *in);
/* What real_run_write wrote. */
bool run_file_read(real_run *r, input *in);
/* offsim's own record of one rank (traces/record.h). */
bool own_record_read(real_run *r, input *in, uint32_t rank);

/* Finds the passes of a profile; of finished spans. */
void find_passes(real_run *r);

#endif

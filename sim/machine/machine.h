/*
 * A machine: the figures of a host with its GPUs, as whole numbers with their sources.
 *
 * A machine is a YAML file (format_version 1) that users copy and edit; the shipped ones are
 * compiled into the program (sim/machine/presets). The tables below define the keys: sections of
 * the file, their integer fields, the smallest allowed value, the value of an absent key, and the
 * meaning. Struct, reader and `--help` come from these tables.
 *
 * Rates are bytes per microsecond (MB/s), arithmetic rates 10^9 operations per second. Where a key
 * says "0: no limit", 0 removes the limit.
 *
 * A word after the number says where it comes from: `d2h_bytes_per_us: 55200 measured`. How far each
 * source may be off is in sim/machine/error.c.
 */
#ifndef OFFSIM_SIM_MACHINE_MACHINE_H
#define OFFSIM_SIM_MACHINE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/machine/contention.h"
#include "sim/text/yaml_text.h"

enum { MACHINE_FORMAT_VERSION = 1 };

/* A key with this mark is required. The others came after version 0.1.0. In a file without them
 * they have the value in this column: no effect, as in earlier programs, or, for eager_ns and
 * graph_launch_ns, what was measured on hosts of H200 (presets/H200-SXM.yaml). */
#define NEEDED (-1)

/* Rates that are wrong together. +RATE: a greater value makes a step faster; -RATE: slower; RATE_NONE: no
 * rate, or one whose error another key has. */
typedef enum rate_class {
  RATE_NONE,
  RATE_PRODUCTS,
  RATE_GROUPED,
  RATE_ATTENTION,
  RATE_MEMORY,
  RATE_POWER,
  RATE_HOST,
  RATE_COPIES,
  RATE_NVLINK,
  RATE_NETWORK,
  RATE_OVERLAP,
  RATE_CLASSES
} rate_class;

/* Where a value comes from, the word in the file. */
typedef enum value_source {
  SOURCE_ASSUMED,    /* of another machine, or a guess; a file's value without a word */
  SOURCE_PUBLISHED,  /* by the vendor, a benchmark, or fitted to published runs */
  SOURCE_MEASURED,   /* on another machine of this kind */
  SOURCE_CALIBRATED, /* on this machine (`offsim calibrate`) */
  SOURCE_EXACT,      /* by definition: no error */
  VALUE_SOURCES
} value_source;

/*                key                 at least  without it  what it is  meaning */
#define MACHINE_GPU_KEYS(X)                                                                        \
  X(compute_capability, 10, NEEDED, RATE_NONE,                                                     \
    "ten times the CUDA compute capability: 90 is Hopper")                                         \
  X(sm_count, 1, NEEDED, RATE_NONE, "streaming multiprocessors: GEMM tiles that run at once")      \
  X(peak_bf16_gflops, 0, 0, RATE_NONE,                                                             \
    "dense bf16 operations of the datasheet, for model FLOPs utilization; 0: not known")           \
  X(memory_bytes, 1, NEEDED, RATE_NONE, "device memory")                                           \
  X(reserved_by_system_bytes, 0, NEEDED, RATE_NONE,                                                \
    "part of it for the CUDA context, NCCL and others outside the allocator")                      \
  X(power_limit_w, 0, 0, +RATE_POWER, "power at which the GPU lowers its clock; 0: it never does") \
  X(power_base_w, 0, 0, RATE_NONE, "part of it that a GPU draws between kernels")                  \
  X(product_energy_fj, 0, 0, RATE_NONE,                                                            \
    "energy of one 16-bit operation of a matrix product at full clock")                            \
  X(attention_energy_fj, 0, 0, RATE_NONE, "the same, of attention")                                \
  X(memory_energy_fj, 0, 0, RATE_NONE, "energy of one byte that other kernels move")               \
  X(exchange_energy_fj, 0, 0, RATE_NONE, "energy of one byte that a rank sends in a collective")   \
  X(power_slowdown_permille, 0, 0, -RATE_POWER,                                                    \
    "slowdown of matrix products for each part by which demand exceeds the limit")                 \
  X(attention_slowdown_permille, 0, 0, -RATE_POWER, "the same, of attention; 0: as products")

#define MACHINE_HOST_KEYS(X)                                                                       \
  X(gpus, 1, NEEDED, RATE_NONE, "GPUs of one host")                                                \
  X(memory_bytes, 1, NEEDED, RATE_NONE, "host memory, shared by its GPUs' pinned buffers")         \
  X(gpus_per_group, 1, NEEDED, RATE_NONE, "neighbouring GPUs that share a socket or switch")       \
  X(group_d2h_bytes_per_us, 0, NEEDED, +RATE_COPIES,                                               \
    "sum over one group, device to host; 0: no limit")                                             \
  X(group_h2d_bytes_per_us, 0, NEEDED, +RATE_COPIES,                                               \
    "sum over one group, host to device; 0: no limit")                                             \
  X(group_duplex_bytes_per_us, 0, NEEDED, +RATE_COPIES,                                            \
    "sum over one group while both directions copy; 0: no limit")                                  \
  X(d2h_bytes_per_us, 0, NEEDED, +RATE_COPIES, "sum over the host, device to host; 0: no limit")   \
  X(h2d_bytes_per_us, 0, NEEDED, +RATE_COPIES, "sum over the host, host to device; 0: no limit")   \
  X(duplex_bytes_per_us, 0, NEEDED, +RATE_COPIES,                                                  \
    "sum over the host while both directions copy; 0: no limit")                                   \
  X(arithmetic_bytes_per_us, 1, 25000, +RATE_HOST,                                                 \
    "host memory that a thread's arithmetic reads and writes: an optimizer's step on the host")    \
  X(arithmetic_all_bytes_per_us, 1, 125000, +RATE_HOST,                                            \
    "the same, by the threads of all cores; fewer add up until then")

#define MACHINE_ISSUE_KEYS(X)                                                                      \
  X(kernel_ns, 0, NEEDED, -RATE_HOST, "host time to launch a kernel")                              \
  X(framework_ns, 0, NEEDED, -RATE_HOST,                                                           \
    "host time that a framework adds to every kernel and copy")                                    \
  X(eager_ns, 0, 20000, -RATE_HOST,                                                                \
    "the same for models of plain PyTorch modules (model.implementation hf)")                      \
  X(module_ns, 0, 0, -RATE_HOST,                                                                   \
    "host time to enter a module of Megatron-LM in forward: Python, autograd")                     \
  X(node_ns, 0, 0, -RATE_HOST, "host time to enter an autograd function in backward")              \
  X(operator_ns, 0, 0, -RATE_HOST, "host time of an eager operator that Python calls")             \
  X(check_ns, 0, 0, -RATE_HOST,                                                                    \
    "host time of what Transformer Engine checks around a call of a library")                      \
  X(product_ns, 0, 0, -RATE_HOST, "host time of a matrix product by cuBLASLt")                     \
  X(expert_ns, 0, 0, -RATE_HOST, "host time of one expert's product in a grouped product")         \
  X(search_ns, 0, 0, -RATE_HOST,                                                                   \
    "host time of cuBLASLt's search for the kernel of a product of new sizes")                     \
  X(compiled_ns, 0, 0, -RATE_HOST, "host time of a region of torch.compile")                       \
  X(parameter_ns, 0, 0, -RATE_HOST,                                                                \
    "host time to accumulate one parameter's gradient: node and hook")                             \
  X(tensor_ns, 0, 0, -RATE_HOST, "host time of one parameter's part of the optimizer step")        \
  X(collective_ns, 0, 0, -RATE_HOST,                                                               \
    "host time of a collective or message; twice for an all-to-all")                               \
  X(offload_out_ns, 0, 0, -RATE_HOST, "host time of the hooks that offload a tensor")              \
  X(offload_in_ns, 0, 0, -RATE_HOST, "host time of the hooks that reload a tensor")                \
  X(forward_ns, 0, 0, -RATE_HOST,                                                                  \
    "host time of the schedule before a chunk's forward of a micro-batch")                         \
  X(batch_ns, 0, 0, -RATE_HOST, "host time to get a micro-batch: of the first and the last stage") \
  X(backward_ns, 0, 0, -RATE_HOST,                                                                 \
    "host time of the schedule and autograd before a micro-batch's backward")                      \
  X(step_ns, 0, 0, -RATE_HOST, "host time of a step outside of its passes and parameters")         \
  X(graph_launch_ns, 0, 3200, -RATE_HOST, "host time to launch a captured CUDA graph")             \
  X(queue_ops, 0, 0, RATE_NONE,                                                                    \
    "ops (launches, events, copies) that a stream holds before the host waits; 0: no limit")       \
  X(event_ns, 0, NEEDED, -RATE_HOST, "host time for an event record or a stream's wait for one")   \
  X(copy_ns, 0, NEEDED, -RATE_HOST, "host time to issue an asynchronous copy")                     \
  X(alloc_ns, 0, NEEDED, -RATE_HOST, "host time of an allocation or free served from the cache")   \
  X(driver_alloc_ns, 0, NEEDED, -RATE_HOST,                                                        \
    "host time of a driver call that allocates or frees memory")                                   \
  X(pinned_alloc_ns_per_gib, 0, NEEDED, -RATE_HOST, "host time to page-lock new memory")

#define MACHINE_LINK_KEYS(X)                                                                       \
  X(d2h_bytes_per_us, 1, NEEDED, +RATE_COPIES, "one GPU to its host, alone")                       \
  X(h2d_bytes_per_us, 1, NEEDED, +RATE_COPIES, "host to one GPU, alone")                           \
  X(duplex_bytes_per_us, 0, NEEDED, +RATE_COPIES,                                                  \
    "one GPU, both directions at once, summed; 0: no limit")                                       \
  X(d2h_latency_ns, 0, NEEDED, -RATE_COPIES, "fixed part of a copy's time, device to host")        \
  X(h2d_latency_ns, 0, NEEDED, -RATE_COPIES, "fixed part of a copy's time, host to device")        \
  X(pageable_d2h_bytes_per_us, 0, 0, +RATE_COPIES,                                                 \
    "one GPU to memory that is not page-locked; 0: no slower")                                     \
  X(pageable_h2d_bytes_per_us, 0, 0, +RATE_COPIES, "the same, host to device; 0: no slower")       \
  X(far_d2h_bytes_per_us, 0, 0, +RATE_COPIES,                                                      \
    "one GPU to page-locked memory of another socket; 0: not known")                               \
  X(far_h2d_bytes_per_us, 0, 0, +RATE_COPIES, "the same, host to device; 0: not known")            \
  X(gemm_slowdown_d2h_permille, 0, NEEDED, -RATE_OVERLAP,                                          \
    "slowdown of GEMM and attention during a D2H copy")                                            \
  X(gemm_slowdown_h2d_permille, 0, NEEDED, -RATE_OVERLAP, "the same during an H2D copy")           \
  X(memory_slowdown_d2h_permille, 0, NEEDED, -RATE_OVERLAP,                                        \
    "slowdown of memory-bound kernels during a D2H copy")                                          \
  X(memory_slowdown_h2d_permille, 0, NEEDED, -RATE_OVERLAP, "the same during an H2D copy")         \
  X(waiting_slowdown_d2h_permille, 0, 0, -RATE_OVERLAP,                                            \
    "slowdown of D2H copies while streams other than compute wait for events")                     \
  X(waiting_slowdown_h2d_permille, 0, 0, -RATE_OVERLAP, "the same, H2D copies")

#define MACHINE_NVLINK_KEYS(X)                                                                     \
  X(one_way_bytes_per_us, 1, NEEDED, +RATE_NVLINK, "one GPU to a peer of its host")                \
  X(bus_bytes_per_us, 1, NEEDED, +RATE_NVLINK, "bus bandwidth of collectives within a host")       \
  X(all_to_all_bytes_per_us, 1, NEEDED, +RATE_NVLINK, "per GPU, all-to-all within a host")         \
  X(latency_ns, 0, NEEDED, -RATE_NVLINK, "fixed part of a transfer or collective within a host")   \
  X(step_ns, 0, 0, -RATE_NVLINK,                                                                   \
    "a step of a collective's ring, NCCL's protocol of least latency; 0: latency_ns for all")      \
  X(ramp_ns, 0, 0, -RATE_NVLINK,                                                                   \
    "time until a large transfer reaches its rate, lost once in each")                             \
  X(gemm_slowdown_nccl_permille, 0, 0, -RATE_OVERLAP,                                              \
    "slowdown of GEMM while a collective of the domain runs")                                      \
  X(attention_slowdown_nccl_permille, 0, 0, -RATE_OVERLAP, "the same, of attention")               \
  X(memory_slowdown_nccl_permille, 0, 0, -RATE_OVERLAP, "the same, of memory-bound kernels")       \
  X(nccl_slowdown_permille, 0, 0, -RATE_OVERLAP,                                                   \
    "slowdown of such a collective while compute runs")                                            \
  X(domain_gpus, 0, 0, RATE_NONE,                                                                  \
    "GPUs that NVLink joins, if more than those of a host; 0: one host's")

#define MACHINE_NETWORK_KEYS(X)                                                                    \
  X(nic_bytes_per_us, 1, NEEDED, +RATE_NETWORK, "one way per GPU, between hosts")                  \
  X(all_to_all_bytes_per_us, 1, NEEDED, +RATE_NETWORK, "per GPU, all-to-all between hosts")        \
  X(latency_ns, 0, NEEDED, -RATE_NETWORK, "fixed part of a transfer or collective between hosts")  \
  X(step_ns, 0, 0, -RATE_NETWORK, "a step of a collective's ring between hosts, as that of nvlink")

#define MACHINE_DISK_KEYS(X)                                                                       \
  X(read_bytes_per_us, 1, NEEDED, +RATE_COPIES, "host's disks to host memory")                     \
  X(write_bytes_per_us, 1, NEEDED, +RATE_COPIES, "host memory to the host's disks")

#define MACHINE_COMPUTE_KEYS(X)                                                                    \
  X(gemm_bf16_gflops, 1, NEEDED, +RATE_PRODUCTS,                                                   \
    "GEMM rate with all multiprocessors at work, bf16 or fp16")                                    \
  X(gemm_fp8_gflops, 1, NEEDED, +RATE_PRODUCTS,                                                    \
    "the same, fp8; of GPUs without fp8 the bf16 rate")                                            \
  X(gemm_tf32_gflops, 1, NEEDED, +RATE_PRODUCTS, "the same, tf32")                                 \
  X(gemm_fp32_gflops, 1, NEEDED, +RATE_PRODUCTS, "the same, fp32")                                 \
  X(gemm_wave_ns, 0, NEEDED, -RATE_PRODUCTS,                                                       \
    "prologue and epilogue of one wave of tiles; 0: hidden, and so is the traffic of fp32 "        \
    "accumulators")                                                                                \
  X(gemm_fixed_ns, 0, NEEDED, -RATE_PRODUCTS, "start and end of a GEMM on the GPU")                \
  X(gemm_small_tile_permille, 1, NEEDED, +RATE_PRODUCTS,                                           \
    "rate with 128 x 128 tiles, relative to 128 x 256")                                            \
  X(gemm_grouped_permille, 1, 1000, +RATE_GROUPED,                                                 \
    "rate of grouped products in the tiles that they fill, relative to one product")               \
  X(attention_forward_gflops, 1, NEEDED, +RATE_ATTENTION,                                          \
    "fused attention forward, long sequences, bf16")                                               \
  X(attention_forward_half_length, 0, NEEDED, -RATE_ATTENTION,                                     \
    "sequence length at which half that rate is reached")                                          \
  X(attention_backward_gflops, 1, NEEDED, +RATE_ATTENTION,                                         \
    "fused attention backward, long sequences, bf16")                                              \
  X(attention_backward_half_length, 0, NEEDED, -RATE_ATTENTION,                                    \
    "sequence length at which half that rate is reached")                                          \
  X(attention_least_dim, 0, 0, -RATE_ATTENTION,                                                    \
    "head size below which attention gets no faster: softmax takes the time; 0: none")             \
  X(attention_block_rows, 0, 0, RATE_NONE,                                                         \
    "queries, in backward keys, of a head that a multiprocessor works on at a time; the last "     \
    "such block ends a block's mean time after an even split would; 0: not known")                 \
  X(attention_forward_drawn_per_ns, 0, 0, +RATE_ATTENTION,                                         \
    "random numbers that fused attention draws: dropout adds one for each score; 0: no limit")     \
  X(attention_backward_drawn_per_ns, 0, 0, +RATE_ATTENTION, "the same, backward")                  \
  X(hbm_bytes_per_us, 1, NEEDED, RATE_NONE, "device memory, as the vendor states it")              \
  X(hbm_reached_permille, 1, NEEDED, +RATE_MEMORY, "part of it that memory-bound kernels reach")   \
  X(strided_elements_per_us, 0, 0, +RATE_MEMORY,                                                   \
    "rate of kernels that compute each element's address; 0: no limit")                            \
  X(mixed_elements_per_us, 0, 0, +RATE_MEMORY,                                                     \
    "rate of kernels that convert each element's type; 0: no limit")                               \
  X(row_cast_elements_per_us, 0, 0, +RATE_MEMORY,                                                  \
    "rate of casts of one row to fp8 with a transposed copy; 0: no limit")                         \
  X(partial_row_ns, 0, 0, -RATE_MEMORY,                                                            \
    "time in which a thread adds one of a column's parts, a sum in fixed order; 0: none")          \
  X(kernel_fixed_ns, 0, NEEDED, -RATE_MEMORY, "start and end of any other kernel on the GPU")

/*                 section    keys */
#define MACHINE_SECTIONS(X)                                                                        \
  X(gpu, MACHINE_GPU_KEYS)                                                                         \
  X(host, MACHINE_HOST_KEYS)                                                                       \
  X(issue, MACHINE_ISSUE_KEYS)                                                                     \
  X(link, MACHINE_LINK_KEYS)                                                                       \
  X(nvlink, MACHINE_NVLINK_KEYS)                                                                   \
  X(network, MACHINE_NETWORK_KEYS)                                                                 \
  X(disk, MACHINE_DISK_KEYS)                                                                       \
  X(compute, MACHINE_COMPUTE_KEYS)

#define MACHINE_FIELD(key, minimum, otherwise, rate, meaning) int64_t key;
#define MACHINE_SECTION(section, KEYS)                                                             \
  struct {                                                                                         \
    KEYS(MACHINE_FIELD)                                                                            \
  } section;

#define MACHINE_COUNT(...)                +1
#define MACHINE_COUNT_KEYS(section, KEYS) KEYS(MACHINE_COUNT)
enum { MACHINE_KEYS = 0 MACHINE_SECTIONS(MACHINE_COUNT_KEYS) };

/* machine.link.d2h_bytes_per_us and so on. */
typedef struct machine {
  const char *name;
  const char *gpu_name;                  /* "H200" */
  const struct measured_calls *measured; /* key `measured` (call_time.h); NULL: there is none */
  /* no key: how often a rank's experts got rows before the step; 0: their numbers never change */
  int64_t routings;
  contention_list at_once; /* key `at_once`; none: link and host are the only limits */
  MACHINE_SECTIONS(MACHINE_SECTION)
  uint8_t sources[MACHINE_KEYS]; /* value_source, by key of machine_keys */
} machine;

#undef MACHINE_FIELD
#undef MACHINE_SECTION
#undef MACHINE_COUNT
#undef MACHINE_COUNT_KEYS

/* One key of the tables, for readers and documentation. */
typedef struct machine_key {
  const char *section;
  const char *key;
  int64_t minimum;
  int64_t otherwise; /* the value of a file without the key; NEEDED: the key must be there */
  int8_t rate;       /* its rate_class, with the sign of what a greater value does */
  const char *meaning;
  uint32_t offset; /* of its int64_t in struct machine */
} machine_key;

extern const machine_key machine_keys[MACHINE_KEYS];

/* "measured" */
const char *value_source_name(value_source s);

/* A shipped machine: its name, the comment that its file begins with, up to a colon or the line's end,
 * and the file as a tree. The last one has a NULL name. */
typedef struct machine_preset {
  const char *name, *description;
  text_node top;
} machine_preset;

extern const machine_preset machine_presets[];

/* The shipped machine of that name, or else the file at that path. Name and texts are in the arena.
 * NULL after a diag error. */
const machine *machine_load(arena *a, const char *name_or_path, diag *d);

/* Values in place of those of a machine's file: texts "SECTION.KEY=VALUE", in order. The machine's name
 * then names them, too. */
typedef struct machine_changes {
  const char *const *texts;
  uint32_t count;
} machine_changes;

/* The same as machine_load with changes; an unknown name is an error at `at`, a wrong change one at
 * --machine-set. */
const machine *machine_load_at(arena *a, const char *name_or_path, source_pos at,
                               const machine_changes *changes, diag *d);
/* Private to sim/machine: the tree of a file with the changes. NULL after a diag error. */
const text_node *machine_change(const text_node *top, const machine_changes *changes, arena *a,
                                diag *d);

/* A machine from the text of its file; `file` names it in messages and must outlive the diag. */
const machine *machine_parse(arena *a, const char *file, const char *text, size_t length, diag *d);

/* GPUs that NVLink joins: of one host, or of several in a rack. A multiple of host.gpus. */
static inline int64_t machine_domain_gpus(const machine *m)
{
  return m->nvlink.domain_gpus > m->host.gpus ? m->nvlink.domain_gpus : m->host.gpus;
}

/* How many GPUs of one domain a job of `world_size` GPUs gets. A job that fits one domain gets them
 * there. Else a scheduler gives it equal parts: the most hosts of a domain that divide the job's
 * (segments of Slurm's topology/block). */
int64_t machine_segment_gpus(const machine *m, int64_t world_size);

/* Device memory for a framework's allocator. */
static inline int64_t machine_usable_bytes(const machine *m)
{
  return m->gpu.memory_bytes - m->gpu.reserved_by_system_bytes;
}

#endif

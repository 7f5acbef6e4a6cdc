/* How many processes there are: options of launchers, and what Slurm gives to a job. */
#include <inttypes.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

/* ---- options ---- */

const char *base_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

typedef enum launch_fact { FACT_NODES, FACT_PER_NODE, FACT_PROCESSES } launch_fact;

typedef struct launch_option {
  const char *launcher, *name;
  launch_fact fact;
} launch_option;

static const launch_option launch_options[] = {
  { "torchrun", "--nnodes", FACT_NODES },
  { "torchrun", "--nproc-per-node", FACT_PER_NODE },
  { "deepspeed", "--num-nodes", FACT_NODES },
  { "deepspeed", "--num-gpus", FACT_PER_NODE },
  { "accelerate", "--num-machines", FACT_NODES },
  { "accelerate", "--num-processes", FACT_PROCESSES },
  { "srun", "--nodes", FACT_NODES },
  { "srun", "-N", FACT_NODES },
  { "srun", "--ntasks-per-node", FACT_PER_NODE },
  { "srun", "--ntasks", FACT_PROCESSES },
  { "srun", "-n", FACT_PROCESSES },
  { "mpirun", "-np", FACT_PROCESSES },
  { "mpirun", "--np", FACT_PROCESSES },
  { "mpirun", "-n", FACT_PROCESSES },
  { "msrun", "--worker-num", FACT_PROCESSES },
  { "msrun", "--local-worker-num", FACT_PER_NODE },
  { "mpirun", "-npernode", FACT_PER_NODE },
  { "mpirun", "--npernode", FACT_PER_NODE },
};

const char *launcher_of(const char *text)
{
  const char *name = base_name(text);
  static const char *const like_torchrun[] = { "torchrun", "ft_launcher", "torch.distributed.run",
                                               "torch.distributed.launch", NULL };
  if (is_one_of(name, like_torchrun)) return "torchrun";
  if (strcmp(name, "mpiexec") == 0 || strcmp(name, "mpirun") == 0) return "mpirun";
  if (strcmp(name, "deepspeed") == 0 || strcmp(name, "srun") == 0 || strcmp(name, "msrun") == 0 ||
      strcmp(name, "accelerate") == 0)
    return name;
  return NULL;
}

/* The option's name up to `=`, with _ read as -. */
static bool names_option(const char *given, const char *name, const char **value)
{
  size_t i = 0;
  for (; name[i] != '\0'; i++) {
    char c = given[i] == '_' && name[1] == '-' ? '-' : given[i];
    if (c != name[i]) return false;
  }
  *value = given[i] == '=' ? given + i + 1 : NULL;
  if (given[i] == '\0' || given[i] == '=') return true;
  /* -N4 */
  bool joined = name[1] != '-' && name[2] == '\0' && given[i] >= '0' && given[i] <= '9';
  if (joined) *value = given + i;
  return joined;
}

static void take_fact(shell_launch *launch, launch_fact fact, shell_word w)
{
  if (fact == FACT_NODES) launch->nodes = w;
  if (fact == FACT_PER_NODE) launch->per_node = w;
  if (fact == FACT_PROCESSES) launch->processes = w;
}

void take_launch_option(const shell_word *words, uint32_t count, uint32_t i, const char *launcher,
                        shell_launch *launch)
{
  for (size_t j = 0; j < sizeof launch_options / sizeof *launch_options; j++) {
    const launch_option *o = &launch_options[j];
    const char *value;
    if (strcmp(o->launcher, launcher) != 0 || !names_option(words[i].text, o->name, &value))
      continue;
    if (value == NULL && i + 1 == count) continue;
    shell_word w = words[value != NULL ? i : i + 1];
    if (value != NULL) w.text = value;
    bool has_none = value == NULL && w.text[0] == '-'; /* an unset variable left none */
    if (has_none) {
      w = words[i];
      w.text = "";
    }
    take_fact(launch, o->fact, w);
    return;
  }
}

/* ---- #SBATCH ---- */

/* The value of the option, after a = or in the next word; NULL: the word is no such option. */
static const char *value_of(const char *word, const char *name, const char *next)
{
  const char *value;
  if (!names_option(word, name, &value)) return NULL;
  return value != NULL ? value : next;
}

/* --gpus-per-node=4, --gpus-per-node mi250:8, --gres=gpu:4, --gres=gpu:a100:8, --cpus-per-task 72, -c 72 */
static void take_resources(evaluator *e, const char *word, const char *next)
{
  const char *gpus = value_of(word, "--gpus-per-node", next);
  const char *resource = value_of(word, "--gres", next);
  const char *cpus = value_of(word, "--cpus-per-task", next);
  if (cpus == NULL) cpus = value_of(word, "-c", next);
  if (cpus != NULL) e->batch_cpus = cpus;
  if (gpus != NULL) e->batch_gpus_per_node = gpus;
  if (resource != NULL && begins_with(resource, "gpu:")) gpus = resource;
  if (gpus == NULL) return;
  const char *colon = strrchr(gpus, ':');
  e->batch_gpus = colon != NULL ? colon + 1 : gpus;
}

static void take_directive(evaluator *e, const char *start, const char *end, source_pos at)
{
  char *text = arena_strndup(e->a, start, (size_t)(end - start));
  shell_word words[64];
  uint32_t count = 0;
  for (char *p = strtok(text, " \t\r"); p != NULL && count < 64 && *p != '#';
       p = strtok(NULL, " \t\r")) {
    words[count++] = (shell_word){ .text = p, .at = at };
  }
  for (uint32_t i = 0; i < count; i++) {
    take_launch_option(words, count, i, "srun", &e->batch);
    take_resources(e, words[i].text, i + 1 < count ? words[i + 1].text : NULL);
  }
}

/* The product of nodes and processes on each: Slurm's number of tasks where no option gives it. */
static const char *task_count(evaluator *e)
{
  int64_t nodes, per_node, tasks;
  const shell_launch *b = &e->batch;
  bool known = b->nodes.text != NULL && b->per_node.text != NULL &&
               scalar_i64(b->nodes.text, &nodes) && scalar_i64(b->per_node.text, &per_node) &&
               !__builtin_mul_overflow(nodes, per_node, &tasks);
  return known ? arena_printf(e->a, "%" PRId64, tasks) : NULL;
}

static bool export_fact(evaluator *e, const char *name, const char *text)
{
  const variable *before = find_variable(e, name);
  if (text == NULL || (before != NULL && before->preset != NULL)) return true;
  variable *v = ARENA_NEW(e->a, variable);
  *v = (variable){ .name = name, .is_set = true, .exported = true, .text = text };
  return put_variable(e, v);
}

bool read_batch_lines(evaluator *e, const shell_source *s, bool submitted)
{
  static const char directive[] = "#SBATCH";
  shell_launch given = e->batch; /* by options of sbatch */
  e->is_batch = submitted;
  e->batch_gpus = e->batch_gpus_per_node = e->batch_cpus = NULL;
  for (uint32_t i = 0; i < s->line_count; i++) {
    const char *line = s->lines[i], *end = i + 1 < s->line_count ? s->lines[i + 1] - 1 : s->end;
    if ((size_t)(end - line) < sizeof directive ||
        memcmp(line, directive, sizeof directive - 1) != 0)
      continue;
    e->is_batch = true;
    take_directive(e, line + sizeof directive - 1, end, (source_pos){ s->at.file, (int)i + 1, 1 });
  }
  shell_launch *b = &e->batch;
  if (given.nodes.text != NULL) b->nodes = given.nodes;
  if (given.per_node.text != NULL) b->per_node = given.per_node;
  if (given.processes.text != NULL) b->processes = given.processes;
  const char *tasks = b->processes.text != NULL ? b->processes.text : task_count(e);
  return !e->is_batch ||
         (export_fact(e, "SLURM_NNODES", b->nodes.text) &&
          export_fact(e, "SLURM_JOB_NUM_NODES", b->nodes.text) &&
          export_fact(e, "SLURM_NTASKS_PER_NODE", b->per_node.text) &&
          export_fact(e, "SLURM_NTASKS", tasks) && export_fact(e, "SLURM_NPROCS", tasks) &&
          export_fact(e, "SLURM_CPUS_PER_TASK", e->batch_cpus) &&
          export_fact(e, "SLURM_GPUS_PER_NODE", e->batch_gpus_per_node) &&
          export_fact(e, "SLURM_GPUS_ON_NODE", e->batch_gpus));
}

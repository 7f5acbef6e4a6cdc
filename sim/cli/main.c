#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/base/file.h"
#include "sim/base/wrap.h"
#include "sim/cli/lists.h"
#include "sim/cli/verbs.h"
#include "sim/text/suggest.h"

#define OFFSIM_VERSION "0.1.0"

/*  verb       function      what it does */
#define VERBS(X)                                                                                   \
  X("predict", verb_predict, "peak memory and overhead per rank, beside the run without offload")  \
  X("tune", verb_tune, "the fastest settings that fit: recomputation, offload, segments")          \
  X("sweep", verb_sweep, "many settings: each predicted, on all cores, the fastest that fit")      \
  X("plan", verb_plan, "what each rank's host thread issues in one iteration")                     \
  X("check", verb_check, "whether a plan, or a recorded run, is free of races")                    \
  X("run", verb_run, "real arithmetic, on the CPU or on GPUs: losses, bits, memory, times")        \
  X("compare", verb_compare, "two traces: order, memory, bits; a prediction and a run on GPUs")    \
  X("import", verb_import, "a profiler's trace and a memory snapshot of a real run: what it did")  \
  X("record", verb_record, "runs a program and writes what it gives to its GPUs, for check")       \
  X("calibrate", verb_calibrate, "measures this machine's links and kernels into a machine file")

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *meaning;
} verbs[] = {
#define X(name, run, meaning) { name, run, meaning },
  VERBS(X)
#undef X
};

enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static void print_verb(FILE *out, const char *name, const char *meaning)
{
  char head[16];
  snprintf(head, sizeof head, "  %-10s", name);
  wrap_text(out, head, (int)strlen(head) + 1, meaning, " ");
}

static int help(FILE *out, int status)
{
  wrap_text(out, "", 0, "offsim: predicts peak memory and overhead of activation offloading", " ");
  fputs("\nusage: offsim VERB [OPTION...]\n\n", out);
  for (int i = 0; i < VERB_COUNT; i++)
    print_verb(out, verbs[i].name, verbs[i].meaning);
  fputc('\n', out);
  wrap_text(out, "", 0,
            "offsim VERB --help lists a verb's options; offsim --version prints the version; "
            "--list-machines, --list-systems and --list-modules print names that settings take, "
            "--list-defects the defects of each version of Megatron-LM.",
            " ");
  wrap_text(out, "", 0,
            "Exit status: 0 success, 1 a check failed, 2 wrong usage or input, 3 a resource was "
            "refused.",
            " ");
  return status;
}

/* For the completion of shells: "predict\tits meaning". */
static int list_verbs(void)
{
  for (int i = 0; i < VERB_COUNT; i++)
    printf("%s\t%s\n", verbs[i].name, verbs[i].meaning);
  return 0;
}

static int unknown(const char *verb)
{
  const char *names[VERB_COUNT];
  for (int i = 0; i < VERB_COUNT; i++)
    names[i] = verbs[i].name;
  const char *near = suggest_nearest(verb, names, VERB_COUNT);
  diag d = { 0 };
  if (near != NULL)
    diag_error(&d, (source_pos){ 0 }, "there is no verb \"%s\"; did you mean \"%s\"?", verb, near);
  else
    diag_error(&d, (source_pos){ 0 }, "there is no verb \"%s\"; offsim --help lists them", verb);
  return diag_finish(&d);
}

static int run_verb(int argc, char **argv)
{
  for (int i = 0; i < VERB_COUNT; i++)
    if (strcmp(argv[0], verbs[i].name) == 0) return verbs[i].run(argc, argv);
  return unknown(argv[0]);
}

static int run(int argc, char **argv)
{
  if (argc < 2) return help(stderr, 2);
  bool asks = strcmp(argv[1], "help") == 0;
  if (asks && argc > 2) return run_verb(2, (char *[]){ argv[2], "--help", NULL });
  if (asks || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help(stdout, 0);
  if (strcmp(argv[1], "--list-verbs") == 0) return list_verbs();
  if (print_list(argv[1])) return 0;
  if (strcmp(argv[1], "--version") == 0) {
    printf("offsim " OFFSIM_VERSION "\n");
    return 0;
  }
  return run_verb(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
  /* Each prediction of a search asks for what the last one has released. malloc would return those
   * pages to the kernel, which clears them again. sim/base/memory.c keeps larger blocks. */
  (void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
  (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);

  /* A write beyond the file size limit fails and is reported; the signal must not end the program. */
  signal(SIGXFSZ, SIG_IGN);
  file_remove_unfinished_at_end();
  int status = run(argc, argv);
  diag d = { 0 };
  if (status != 0 || file_finish_stdout(&d)) return status;
  return diag_finish(&d);
}

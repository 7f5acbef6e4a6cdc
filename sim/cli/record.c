#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/cli/verbs.h"
#include "sim/load/options.h"

typedef struct record_options {
  const char *output, *library;
} record_options;

static const char head[] =
    "usage: offsim record [OPTION...] -- COMMAND [ARGUMENT...]\n\n"
    "Runs a program that uses CUDA, unchanged, and writes what it gives to its GPUs: kernels with\n"
    "the pointers among their arguments, copies, events, waits, allocations, and PyTorch's "
    "blocks.\n"
    "offsim check RECORD finds its races (docs/reference/issued.md), offsim compare compares its\n"
    "copies and waits with a prediction. The exit status is the command's.\n\n";

#define OPTIONS record_options
static const option_row rows[] = {
  { OPTION_ROW("output", "FILE",
               "-o FILE, the record (default run.issued); processes that the\n"
               "command starts write FILE.PID",
               OPTION_TEXT),
    MEMBER(output), .letter = 'o' },
  TEXT("library", "FILE", library,
       "the recorder (default: liboffsim_record.so beside the program)"),
  { .name = NULL },
};

/* The command may change its directory. NULL after a diag error. */
static const char *whole_path(const char *path, arena *a, diag *d)
{
  if (path[0] == '/') return path;
  char *here = getcwd(NULL, 0);
  if (here == NULL) {
    diag_refused(d, "the current directory: %s", strerror(errno));
    return NULL;
  }
  const char *whole = arena_printf(a, "%s/%s", here, path);
  free(here);
  return whole;
}

/* Beside this program, unless it was given. NULL after a diag error. */
static const char *find_library(const record_options *o, arena *a, diag *d)
{
  enum { PATH_BYTES = 4096 };
  char self[PATH_BYTES];
  const char *path = o->library;
  if (path == NULL) {
    ssize_t length = readlink("/proc/self/exe", self, sizeof self);
    while (length > 0 && self[length - 1] != '/')
      length--;
    path = arena_printf(a, "%.*sliboffsim_record.so", (int)(length > 0 ? length : 0), self);
  }
  if (access(path, R_OK) != 0) {
    diag_refused(d, "%s: %s; the recorder is built where CUDA's headers are", path,
                 strerror(errno));
    return NULL;
  }
  return whole_path(path, a, d);
}

static bool set_environment(const record_options *o, const char *output, arena *a, diag *d)
{
  const char *library = find_library(o, a, d);
  if (library == NULL) return false;
  return (setenv("CUDA_INJECTION64_PATH", library, 1) == 0 &&
          setenv("OFFSIM_RECORD", output, 1) == 0) ||
         diag_refused(d, "the environment: %s", strerror(errno));
}

/* Its exit status, or 128 and its signal. */
static int run_command(char **command, diag *d)
{
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) {
    diag_refused(d, "a process: %s", strerror(errno));
    return 3;
  }
  if (child == 0) {
    execvp(command[0], command);
    fprintf(stderr, "offsim: error: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int record(const record_options *o, char **command, arena *a, diag *d)
{
  struct stat made;
  if (strcmp(o->output, "-") == 0) {
    diag_error(d, (source_pos){ "--output", 0, 0 },
               "standard output is the program's; the record goes to a file");
    return 2;
  }
  const char *output = whole_path(o->output, a, d);
  if (output == NULL || !set_environment(o, output, a, d)) return 3;
  if (unlink(output) != 0 && errno != ENOENT) {
    diag_refused(d, "%s: %s", o->output, strerror(errno));
    return 3;
  }
  int status = run_command(command, d);
  if (stat(output, &made) == 0)
    fprintf(stderr, "offsim: %s has %lld bytes\n", o->output, (long long)made.st_size);
  else if (diag_ok(d))
    fprintf(stderr, "offsim: the command did not use CUDA; there is no %s\n", o->output);
  return status;
}

int verb_record(int argc, char **argv)
{
  record_options o = { .output = "run.issued" };
  const verb_syntax v = { "record", head, { { rows, &o } } };
  arena a = { 0 };
  diag d = { 0 };
  int rest, status = 0;
  if (options_parse(&v, argc, argv, &rest, &a, &d) == PARSED) {
    if (rest == argc)
      diag_error(&d, (source_pos){ 0 }, "give a command: offsim record -- COMMAND");
    else
      status = record(&o, argv + rest, &a, &d);
  }
  arena_release(&a);
  int wrong = diag_finish(&d);
  return wrong != 0 ? wrong : status;
}

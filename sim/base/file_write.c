#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/file.h"

/* A wrong path is wrong input; a full disk is a refused resource. */
static bool report_write(diag *d, const char *path)
{
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)
    return diag_refused(d, "cannot write %s: %s", path, strerror(errno));
  return diag_error(d, (source_pos){ path, 0, 0 }, "cannot write it: %s", strerror(errno));
}

bool file_finish_stdout(diag *d)
{
  errno = EIO;
  if (fflush(stdout) == 0 && !ferror(stdout)) return true;
  return diag_refused(d, "cannot write standard output: %s", strerror(errno));
}

bool file_is_stdout(const char *path)
{
  return path != NULL && strcmp(path, "-") == 0;
}

/* A device or pipe is written in place: a rename would replace it with a file. */
static bool is_special(const char *path)
{
  struct stat about;
  return file_is_stdout(path) || (stat(path, &about) == 0 && !S_ISREG(about.st_mode));
}

/* ---- what no end of the program but SIGKILL leaves --------------------------------------------- */

enum { OPEN_MOST = 8 };
static char *volatile temporaries[OPEN_MOST];

static void exchange_temporary(const char *old, char *new)
{
  for (int i = 0; i < OPEN_MOST; i++)
    if (temporaries[i] == old) {
      temporaries[i] = new;
      return;
    }
}

static void remove_temporaries(void)
{
  for (int i = 0; i < OPEN_MOST; i++)
    if (temporaries[i] != NULL) unlink(temporaries[i]);
}

/* Ends the program as the signal would have. */
static void end_by_signal(int number)
{
  remove_temporaries();
  raise(number);
}

void file_remove_unfinished_at_end(void)
{
  static const int ends[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGABRT, SIGBUS,  SIGFPE,
                              SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU };
  struct sigaction now = { .sa_handler = end_by_signal, .sa_flags = (int)SA_RESETHAND }, before;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
      sigaction(ends[i], &now, NULL);
  if (atexit(remove_temporaries) != 0)
    die_refused("memory: none is left to register the removal of unfinished files");
}

/* ---- what SIGKILL leaves ----------------------------------------------------------------------- */

#define TEMPORARY_FORMAT "%s.%ld.part"

/* The process of the temporary file `name` of output `base`; 0: the name is another one. */
static long process_of(const char *name, const char *base)
{
  size_t length = strlen(base);
  char *end;
  if (strncmp(name, base, length) != 0 || name[length] != '.') return 0;
  const char *digits = name + length + 1;
  if (*digits < '1' || *digits > '9') return 0;
  errno = 0;
  long process = strtol(digits, &end, 10);
  return errno == 0 && strcmp(end, ".part") == 0 ? process : 0;
}

/* Writers lock their temporary files. Another host or container has other processes, but sees the
 * lock; a file system without locks refuses it, and the file stays. */
static struct flock whole_file(void)
{
  return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
}

static bool is_unlocked(const char *path)
{
  struct flock lock = whole_file();
  int file = open(path, O_RDWR | O_NOFOLLOW);
  if (file < 0) return false;
  bool unlocked = fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  close(file);
  return unlocked;
}

/* Removes the temporary files of `path` whose process no longer exists. */
static void remove_stale(const char *path)
{
  const char *slash = strrchr(path, '/');
  const char *base = slash == NULL ? path : slash + 1;
  size_t folder_length = (size_t)(base - path), size = strlen(path) + 32;
  char *folder = slash == NULL ? strdup(".") : strndup(path, folder_length);
  char *stale = malloc(size);
  if (folder == NULL || stale == NULL)
    die_refused("memory: requested %zu bytes, the system has none left", size);
  DIR *listing = opendir(folder);
  for (struct dirent *e; listing != NULL && (e = readdir(listing)) != NULL;) {
    long process = process_of(e->d_name, base);
    if (process == 0 || (kill((pid_t)process, 0) == 0 || errno != ESRCH)) continue;
    snprintf(stale, size, TEMPORARY_FORMAT, path, process);
    if (is_unlocked(stale)) unlink(stale);
  }
  if (listing != NULL) closedir(listing);
  free(folder);
  free(stale);
}

static void release(file_writer *w)
{
  if (!w->in_place) exchange_temporary(w->temporary_path, NULL);
  free(w->path);
  free(w->temporary_path);
}

bool file_open(file_writer *w, const char *path, diag *d)
{
  size_t size = strlen(path) + 32;
  if (file_was_read(path))
    return diag_error(d, (source_pos){ path, 0, 0 },
                      "is an input of this command; write the output to another file");
  w->path = strdup(path);
  w->temporary_path = malloc(size);
  if (w->path == NULL || w->temporary_path == NULL)
    die_refused("memory: requested %zu bytes, the system has none left", size);
  w->in_place = is_special(path);
  if (w->in_place)
    snprintf(w->temporary_path, size, "%s", path);
  else
    snprintf(w->temporary_path, size, TEMPORARY_FORMAT, path, (long)getpid());
  if (!w->in_place) remove_stale(path);
  if (!w->in_place) exchange_temporary(NULL, w->temporary_path);
  w->stream =
      file_is_stdout(path) ? fdopen(dup(STDOUT_FILENO), "wb") : fopen(w->temporary_path, "wb");
  struct flock lock = whole_file();
  if (w->stream != NULL && !w->in_place) (void)fcntl(fileno(w->stream), F_SETLK, &lock);
  if (w->stream != NULL) return true;
  report_write(d, path);
  release(w);
  return false;
}

bool file_close(file_writer *w, diag *d)
{
  errno = EIO; /* the reason if an earlier write failed */
  bool written = fflush(w->stream) == 0 && !ferror(w->stream);
  written = fclose(w->stream) == 0 && written;
  written = written && (w->in_place || rename(w->temporary_path, w->path) == 0);
  if (!written) {
    report_write(d, w->path);
    if (!w->in_place) unlink(w->temporary_path);
  }
  release(w);
  return written;
}

void file_discard(file_writer *w)
{
  fclose(w->stream);
  if (!w->in_place) unlink(w->temporary_path);
  release(w);
}

#include "sim/exec/disk.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char *folder_of(const exec_disk *k)
{
  const char *temporary = getenv("TMPDIR");
  if (k->folder != NULL) return k->folder;
  return temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp";
}

/* Free bytes in a folder; -1: unknown. */
static int64_t room_in(const char *folder)
{
  struct statvfs v;
  return statvfs(folder, &v) != 0 ? -1 : (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}

static bool refuse(const exec_disk *k, const char *what, int64_t bytes, diag *d)
{
  const char *reason = strerror(errno);
  int64_t room = room_in(folder_of(k));
  if (room < 0)
    return diag_refused(d, "disk offload: cannot %s %" PRId64 " bytes in %s: %s", what, bytes,
                        folder_of(k), reason);
  return diag_refused(
      d, "disk offload: cannot %s %" PRId64 " bytes in %s (%" PRId64 " bytes free): %s", what,
      bytes, folder_of(k), room, reason);
}

/* Blocks signals: one between the two calls would leave the file. */
static int open_nameless(char *path)
{
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  int file = mkstemp(path);
  if (file >= 0) unlink(path);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return file;
}

static bool open_file(exec_disk *k, int64_t bytes, diag *d)
{
  assert(!k->open);
  static const char name[] = "/offsim-XXXXXX";
  const char *folder = folder_of(k);
  char *path = malloc(strlen(folder) + sizeof name);
  if (path == NULL) die_refused("no memory for a file name");
  strcpy(path, folder);
  strcat(path, name);
  int file = open_nameless(path);
  free(path);
  if (file < 0) return refuse(k, "make a file of", bytes, d);
  assert(k->end == 0 && k->free.count == 0 && "a new file is empty");
  k->file = file;
  k->open = true;
  return true;
}

bool disk_take(exec_disk *k, int64_t bytes, int64_t *at, diag *d)
{
  assert(bytes >= 0);
  if (!k->open && !open_file(k, bytes, d)) return false;
  for (uint32_t i = 0; i < k->free.count; i++)
    if (k->free.items[i].bytes == bytes) {
      *at = k->free.items[i].at;
      k->free.items[i] = k->free.items[--k->free.count];
      return true;
    }
  *at = k->end;
  k->end += bytes;
  assert(k->end >= *at);
  return true;
}

void disk_give(exec_disk *k, int64_t at, int64_t bytes)
{
  assert(at >= 0 && bytes >= 0 && at + bytes <= k->end);
  for (uint32_t i = 0; i < k->free.count; i++)
    assert(
        (k->free.items[i].at + k->free.items[i].bytes <= at || at + bytes <= k->free.items[i].at) &&
        "an extent is given back once");
  *ARRAY_PUSH(&k->free) = (disk_extent){ at, bytes };
}

bool disk_write(exec_disk *k, int64_t at, const void *from, int64_t bytes, diag *d)
{
  assert(k->open && at >= 0 && at + bytes <= k->end);
  for (int64_t done = 0; done < bytes;) {
    ssize_t now = pwrite(k->file, (const char *)from + done, (size_t)(bytes - done), at + done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return refuse(k, "write", bytes, d);
    done += now;
  }
  return true;
}

bool disk_read(exec_disk *k, int64_t at, void *to, int64_t bytes, diag *d)
{
  assert(k->open && at >= 0 && at + bytes <= k->end);
  for (int64_t done = 0; done < bytes;) {
    ssize_t now = pread(k->file, (char *)to + done, (size_t)(bytes - done), at + done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return refuse(k, "read", bytes, d);
    done += now;
  }
  return true;
}

void disk_release(exec_disk *k)
{
  if (k->open) close(k->file);
  ARRAY_FREE(&k->free);
  k->open = false;
}

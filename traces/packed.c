#include "traces/packed.h"

#include <zlib.h>

#include "sim/base/text.h"

enum { PIECE_BYTES = 1 << 16, GZIP_WINDOW_BITS = 15 + 16 };

bool packed_open(packed_file *p, const char *path, diag *d)
{
  *p = (packed_file){ .is_packed = ends_with(path, ".gz"), .is_stdout = file_is_stdout(path) };
  if (p->is_stdout) {
    p->stream = stdout;
    return true;
  }
  if (!file_open(&p->file, path, d)) return false;
  p->stream = p->is_packed ? tmpfile() : p->file.stream;
  if (p->stream != NULL) return true;
  file_discard(&p->file);
  return diag_refused(d, "a temporary file: the system has none");
}

/* zlib's gzip header has no time and no name. */
static bool pack(FILE *from, FILE *to)
{
  unsigned char in[PIECE_BYTES], out[PIECE_BYTES];
  z_stream z = { .zalloc = NULL };
  if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    die_refused("memory: requested by zlib, the system has none left");
  int last;
  do {
    z.avail_in = (uInt)fread(in, 1, sizeof in, from);
    z.next_in = in;
    last = feof(from) || ferror(from);
    do {
      z.next_out = out;
      z.avail_out = sizeof out;
      deflate(&z, last ? Z_FINISH : Z_NO_FLUSH);
      fwrite(out, 1, sizeof out - z.avail_out, to);
    } while (z.avail_out == 0);
  } while (!last);
  deflateEnd(&z);
  return !ferror(from);
}

bool packed_close(packed_file *p, diag *d)
{
  if (p->is_stdout) return true;
  if (p->is_packed) {
    bool whole = fflush(p->stream) == 0 && !ferror(p->stream);
    rewind(p->stream);
    whole = whole && pack(p->stream, p->file.stream);
    fclose(p->stream);
    if (!whole) {
      file_discard(&p->file);
      return diag_refused(d, "a temporary file: its disk is full");
    }
  }
  return file_close(&p->file, d);
}

void packed_discard(packed_file *p)
{
  if (p->is_stdout) return;
  if (p->is_packed) fclose(p->stream);
  file_discard(&p->file);
}

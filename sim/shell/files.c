/* Paths that a script names, and the files beside it that it runs. */
#include <string.h>

#include "sim/base/file.h"
#include "sim/shell/parts.h"
#include "sim/text/limits.h"

const char *joined_path(evaluator *e, const char *directory, const char *path)
{
  if (path[0] == '/' || directory == NULL || strcmp(directory, ".") == 0 || *directory == '\0')
    return path;
  if (strcmp(path, ".") == 0 || *path == '\0') return directory;
  while (path[0] == '.' && path[1] == '/') {
    path += 2;
  }
  return arena_printf(e->a, "%s/%s", directory, path);
}

const char *path_of(evaluator *e, const char *text)
{
  text_buffer b = { 0 };
  for (const char *p = text; *p != '\0';) {
    size_t length = is_mark(p) ? MARK_BYTES : strcspn(p, "\xFF");
    if (is_mark(p)) {
      const value_origin *o = mark_origin(e, p);
      bool unknown = o->kind == ORIGIN_UNKNOWN || o->kind == ORIGIN_SECRET;
      if (unknown && o->directory == NULL) return NULL;
      if (unknown && !buffer_add_text(e, &b, o->directory)) return NULL;
    } else if (!buffer_add(e, &b, p, length)) {
      return NULL;
    }
    p += length;
  }
  return buffer_text(e, &b);
}

const char *directory_of(evaluator *e, const char *path)
{
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') {
    length--;
  }
  while (length > 0 && path[length - 1] != '/') {
    length--;
  }
  while (length > 1 && path[length - 1] == '/') {
    length--;
  }
  return length == 0 ? "." : arena_strndup(e->a, path, length);
}

const char *unknown_path(evaluator *e, const char *what, source_pos at, const char *path)
{
  value_origin o = { .kind = ORIGIN_UNKNOWN, .what = what, .at = at, .directory = path };
  return mark_text(e, new_origin(e, o));
}

static bool is_beside(const char *path)
{
  return path[0] != '/' && path[0] != '\0';
}

/* A path that begins with the script's own directory, or is relative to it. */
static const char *file_beside(evaluator *e, const char *path)
{
  size_t length = strlen(e->directory);
  bool within = strcmp(e->directory, ".") == 0 ||
                (strncmp(path, e->directory, length) == 0 && path[length] == '/');
  if (within) return path;
  return is_beside(path) ? arena_printf(e->a, "%s/%s", e->directory, path) : NULL;
}

bool source_file(evaluator *e, const char *given, const field *arguments, uint32_t count,
                 source_pos at, file_use use, flow *out)
{
  const char *known = path_of(e, given),
             *path = known != NULL && e->directory != NULL ? file_beside(e, known) : NULL;
  const char *shown = shown_text(e, given);
  size_t length = 0;
  diag quiet = { .quiet = true };
  const char *text =
      path != NULL ? file_read(e->a, path, FILE_TEXT_LIMIT_BYTES, &length, &quiet) : NULL;
  set_unknown_status(e, NO_ORIGIN);
  *out = FLOW_NEXT;
  if (text == NULL) {
    if (use == FILE_SOURCED)
      diag_note(e->d, at,
                "%.200s is not read: %s; what it sets counts as not set (--env NAME=VALUE sets a "
                "variable)",
                shown,
                path == NULL ? "only files beside the script are"
                             : "there is no such file beside the script");
    return false;
  }
  if (++e->files > FILES_MOST) {
    diag_error(e->d, at, "the script reads more than %d files, which offsim does not follow",
               FILES_MOST);
    *out = FLOW_EXIT;
    return true;
  }
  if (!text_check_bytes(path, text, length, e->d)) {
    *out = FLOW_EXIT;
    return true;
  }
  text = text_lines(e, text, length, &length);
  bool job = use == FILE_SUBMITTED;
  if (job && !read_batch_lines(
                 e, new_source(e, text, strlen(text), (source_pos){ path, 1, 1 }, false), true)) {
    *out = FLOW_EXIT;
    return true;
  }
  if (use != FILE_SOURCED) {
    *out = run_shell(e, text, at, path, path, arguments, count);
    return true;
  }
  const char *name = e->source_name;
  field *own_arguments = e->arguments;
  uint32_t own_count = e->argument_count;
  e->source_name = path;
  if (count > 0) {
    e->arguments = ARENA_ARRAY(e->a, field, count);
    memcpy(e->arguments, arguments, count * sizeof *arguments);
    e->argument_count = count;
  }
  frame call_frame = { .outer = e->frames, .is_call = true };
  e->frames = &call_frame;
  set_status(e, 0);
  *out = run_text(e, text, at, path);
  e->frames = call_frame.outer;
  for (uint32_t i = 0; i < call_frame.pending.count && *out != FLOW_EXIT; i++) {
    if (!merge_state(e, &call_frame.pending.items[i], call_frame.pending.origins[i]))
      *out = FLOW_EXIT;
  }
  if (*out == FLOW_RETURN) *out = FLOW_NEXT;
  e->source_name = name;
  if (count > 0) {
    e->arguments = own_arguments;
    e->argument_count = own_count;
  }
  return true;
}

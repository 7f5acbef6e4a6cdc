#include "traces/import/pickle.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/array.h"

/* clang-format off */
/*  opcode  byte  name */
#define OPCODES(X)                                                                                 \
  X(MARK, '(', true) X(STOP, '.', true) X(POP, '0', true) X(POP_MARK, '1', true)                   \
  X(DUP, '2', true) X(FLOAT, 'F', false) X(INT, 'I', false) X(BININT, 'J', true)                   \
  X(BININT1, 'K', true) X(LONG, 'L', false) X(BININT2, 'M', true) X(NONE, 'N', true)               \
  X(PERSID, 'P', false) X(BINPERSID, 'Q', false) X(REDUCE, 'R', false) X(STRING, 'S', false)       \
  X(BINSTRING, 'T', true) X(SHORT_BINSTRING, 'U', true) X(UNICODE, 'V', false)                     \
  X(BINUNICODE, 'X', true) X(APPEND, 'a', true) X(BUILD, 'b', false) X(GLOBAL, 'c', false)         \
  X(DICT, 'd', true) X(EMPTY_DICT, '}', true) X(APPENDS, 'e', true) X(GET, 'g', false)             \
  X(BINGET, 'h', true) X(INST, 'i', false) X(LONG_BINGET, 'j', true) X(LIST, 'l', true)            \
  X(EMPTY_LIST, ']', true) X(OBJ, 'o', false) X(PUT, 'p', false) X(BINPUT, 'q', true)              \
  X(LONG_BINPUT, 'r', true) X(SETITEM, 's', true) X(TUPLE, 't', true) X(EMPTY_TUPLE, ')', true)    \
  X(SETITEMS, 'u', true) X(BINFLOAT, 'G', true) X(PROTO, 0x80, true) X(NEWOBJ, 0x81, false)        \
  X(EXT1, 0x82, false) X(EXT2, 0x83, false) X(EXT4, 0x84, false) X(TUPLE1, 0x85, true)             \
  X(TUPLE2, 0x86, true) X(TUPLE3, 0x87, true) X(NEWTRUE, 0x88, true) X(NEWFALSE, 0x89, true)       \
  X(LONG1, 0x8a, true) X(LONG4, 0x8b, true) X(BINBYTES, 'B', true) X(SHORT_BINBYTES, 'C', true)    \
  X(SHORT_BINUNICODE, 0x8c, true) X(BINUNICODE8, 0x8d, true) X(BINBYTES8, 0x8e, true)              \
  X(EMPTY_SET, 0x8f, false) X(ADDITEMS, 0x90, false) X(FROZENSET, 0x91, false)                     \
  X(NEWOBJ_EX, 0x92, false) X(STACK_GLOBAL, 0x93, false) X(MEMOIZE, 0x94, true)                    \
  X(FRAME, 0x95, true) X(BYTEARRAY8, 0x96, true) X(NEXT_BUFFER, 0x97, false)                       \
  X(READONLY_BUFFER, 0x98, false)
/* clang-format on */

#define X(name, byte, taken) OPCODE_##name = byte,
enum { OPCODES(X) };
#undef X

static const char *opcode_name(int byte)
{
  switch (byte) {
#define X(name, code, taken)                                                                       \
  case code: return #name;
    OPCODES(X)
#undef X
  default: return "unknown";
  }
}

/* Texts of a snapshot are paths and names; a limit keeps a damaged length from filling memory. */
enum { TEXT_LIMIT_BYTES = 1 << 24, MARKS = 1 << 16 };

typedef struct machine {
  input *in;
  arena *memory;
  pickle_list stack, memo;
  uint32_t *marks; /* [MARKS] */
  uint32_t mark_count;
  int64_t at; /* of the opcode */
} machine;

static bool wrong(machine *m, const char *what)
{
  return input_wrong(m->in, m->at, "%s", what);
}

/* ---- arguments ---- */

static bool take_bytes(machine *m, int count, uint64_t *value)
{
  *value = 0;
  for (int i = 0; i < count; i++) {
    int c = input_next(m->in);
    if (c == INPUT_END) return input_expected(m->in, "the rest of a pickle");
    *value |= (uint64_t)c << 8 * i;
  }
  return true;
}

static pickle_value *new_value(machine *m, pickle_type type)
{
  pickle_value *v = ARENA_NEW(m->memory, pickle_value);
  v->type = type;
  return v;
}

static bool push(machine *m, pickle_value *v)
{
  *ARRAY_PUSH(&m->stack) = v;
  return true;
}

static bool push_whole(machine *m, pickle_type type, int64_t whole)
{
  pickle_value *v = new_value(m, type);
  v->whole = whole;
  return push(m, v);
}

static bool push_text(machine *m, int length_bytes)
{
  uint64_t length;
  if (!take_bytes(m, length_bytes, &length)) return false;
  if (length > TEXT_LIMIT_BYTES)
    return input_wrong(m->in, m->at, "a text of %" PRIu64 " bytes; at most %d are read", length,
                       TEXT_LIMIT_BYTES);
  pickle_value *v = new_value(m, PICKLE_TEXT);
  struct {
    char *items;
    uint32_t count, capacity;
  } text = { 0 };
  /* Grows with what there is: a cut file allocates no more than it has. */
  for (uint64_t i = 0; i < length; i++) {
    int c = input_next(m->in);
    if (c == INPUT_END) {
      ARRAY_FREE(&text);
      return input_expected(m->in, "the rest of a text");
    }
    *ARRAY_PUSH(&text) = (char)c;
  }
  v->text = arena_strndup(m->memory, text.items != NULL ? text.items : "", (size_t)length);
  v->length = (size_t)length;
  ARRAY_FREE(&text);
  return push(m, v);
}

static bool push_real(machine *m)
{
  uint64_t bits = 0;
  for (int i = 0; i < 8; i++) {
    uint64_t c;
    if (!take_bytes(m, 1, &c)) return false;
    bits = bits << 8 | c;
  }
  pickle_value *v = new_value(m, PICKLE_REAL);
  memcpy(&v->real, &bits, sizeof bits);
  return push(m, v);
}

/* Little-endian two's complement of any length. */
static bool push_long(machine *m, int length_bytes)
{
  uint64_t length, value = 0;
  uint8_t last = 0;
  if (!take_bytes(m, length_bytes, &length)) return false;
  if (length > 9) return wrong(m, "a whole number of more than 64 bits");
  for (uint64_t i = 0; i < length; i++) {
    uint64_t c;
    if (!take_bytes(m, 1, &c)) return false;
    if (i < 8) value |= c << 8 * i;
    last = (uint8_t)c;
  }
  if (length == 9 && last != 0) return wrong(m, "a whole number of more than 64 bits");
  if (length < 8 && length > 0 && last >= 0x80) value |= UINT64_MAX << 8 * length;
  return push_whole(m, PICKLE_WHOLE, (int64_t)value);
}

/* ---- the stack ---- */

/* The values above the last mark, or from `above` on. */
static bool has(machine *m, uint32_t count)
{
  uint32_t floor = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
  return m->stack.count - floor >= count || wrong(m, "too few values for this opcode");
}

static bool pop_mark(machine *m, uint32_t *first)
{
  if (m->mark_count == 0) return wrong(m, "there is no mark for this opcode");
  *first = m->marks[--m->mark_count];
  return true;
}

static bool push_mark(machine *m)
{
  if (m->mark_count == MARKS) return wrong(m, "too many marks");
  m->marks[m->mark_count++] = m->stack.count;
  return true;
}

static void append(machine *m, pickle_value *list, uint32_t first)
{
  uint32_t count = m->stack.count - first, needed = list->list.count + count;
  if (needed > list->list.capacity) {
    uint32_t capacity = needed > 2 * list->list.capacity ? needed : 2 * list->list.capacity;
    pickle_value **items = ARENA_ARRAY(m->memory, pickle_value *, capacity);
    if (list->list.count > 0) memcpy(items, list->list.items, list->list.count * sizeof *items);
    list->list.items = items;
    list->list.capacity = capacity;
  }
  if (count > 0)
    memcpy(list->list.items + list->list.count, m->stack.items + first,
           count * sizeof *list->list.items);
  list->list.count = needed;
  m->stack.count = first;
}

/* The values from `first` on, into the list or dictionary under them. */
static bool append_from(machine *m, uint32_t first, pickle_type type)
{
  if (first == 0 || m->stack.items[first - 1]->type != type)
    return wrong(m, type == PICKLE_LIST ? "appends to what is no list"
                                        : "sets items of what is no dictionary");
  if (type == PICKLE_DICT && (m->stack.count - first) % 2 != 0)
    return wrong(m, "a key without a value");
  append(m, m->stack.items[first - 1], first);
  return true;
}

static bool append_marked(machine *m, pickle_type type)
{
  uint32_t first = 0;
  return pop_mark(m, &first) && append_from(m, first, type);
}

/* A new list or dictionary of the values from `first` on. */
static bool gather(machine *m, uint32_t first, pickle_type type)
{
  pickle_value *v = new_value(m, type);
  if (type == PICKLE_DICT && (m->stack.count - first) % 2 != 0)
    return wrong(m, "a key without a value");
  append(m, v, first);
  return push(m, v);
}

static bool gather_marked(machine *m, pickle_type type)
{
  uint32_t first = 0;
  return pop_mark(m, &first) && gather(m, first, type);
}

static bool gather_last(machine *m, uint32_t count)
{
  return has(m, count) && gather(m, m->stack.count - count, PICKLE_LIST);
}

/* ---- the memo ---- */

static bool put(machine *m, uint64_t number)
{
  if (!has(m, 1)) return false;
  if (number > m->memo.count) return wrong(m, "the memo's numbers are not consecutive");
  pickle_value *v = m->stack.items[m->stack.count - 1];
  if (number == m->memo.count)
    *ARRAY_PUSH(&m->memo) = v;
  else
    m->memo.items[number] = v;
  return true;
}

static bool put_numbered(machine *m, int bytes)
{
  uint64_t number;
  return take_bytes(m, bytes, &number) && put(m, number);
}

static bool get(machine *m, int bytes)
{
  uint64_t number;
  if (!take_bytes(m, bytes, &number)) return false;
  if (number >= m->memo.count) return wrong(m, "the memo has no such value");
  return push(m, m->memo.items[number]);
}

/* ---- opcodes ---- */

static bool take_protocol(machine *m)
{
  uint64_t version;
  if (!take_bytes(m, 1, &version)) return false;
  return (version >= 2 && version <= 5) ||
         input_wrong(m->in, m->at, "pickle protocol %" PRIu64 "; 2 to 5 are read", version);
}

static bool pop_marked(machine *m)
{
  uint32_t first = 0;
  if (!pop_mark(m, &first)) return false;
  m->stack.count = first;
  return true;
}

static bool push_signed(machine *m)
{
  uint64_t value;
  return take_bytes(m, 4, &value) && push_whole(m, PICKLE_WHOLE, (int32_t)(uint32_t)value);
}

static bool push_unsigned(machine *m, int bytes)
{
  uint64_t value;
  return take_bytes(m, bytes, &value) && push_whole(m, PICKLE_WHOLE, (int64_t)value);
}

static bool skip_frame(machine *m)
{
  uint64_t length;
  return take_bytes(m, 8, &length);
}

static bool pop(machine *m)
{
  if (!has(m, 1)) return false;
  m->stack.count--;
  return true;
}

static bool run_opcode(machine *m, int opcode)
{
  switch (opcode) {
  case OPCODE_PROTO: return take_protocol(m);
  case OPCODE_FRAME: return skip_frame(m);
  case OPCODE_MARK: return push_mark(m);
  case OPCODE_POP: return pop(m);
  case OPCODE_POP_MARK: return pop_marked(m);
  case OPCODE_DUP: return has(m, 1) && push(m, m->stack.items[m->stack.count - 1]);
  case OPCODE_NONE: return push(m, new_value(m, PICKLE_NONE));
  case OPCODE_NEWTRUE: return push_whole(m, PICKLE_BOOL, 1);
  case OPCODE_NEWFALSE: return push_whole(m, PICKLE_BOOL, 0);
  case OPCODE_BININT: return push_signed(m);
  case OPCODE_BININT1: return push_unsigned(m, 1);
  case OPCODE_BININT2: return push_unsigned(m, 2);
  case OPCODE_LONG1: return push_long(m, 1);
  case OPCODE_LONG4: return push_long(m, 4);
  case OPCODE_BINFLOAT: return push_real(m);
  case OPCODE_SHORT_BINSTRING:
  case OPCODE_SHORT_BINBYTES:
  case OPCODE_SHORT_BINUNICODE: return push_text(m, 1);
  case OPCODE_BINSTRING:
  case OPCODE_BINBYTES:
  case OPCODE_BINUNICODE: return push_text(m, 4);
  case OPCODE_BINUNICODE8:
  case OPCODE_BYTEARRAY8:
  case OPCODE_BINBYTES8: return push_text(m, 8);
  case OPCODE_EMPTY_LIST:
  case OPCODE_EMPTY_TUPLE: return push(m, new_value(m, PICKLE_LIST));
  case OPCODE_EMPTY_DICT: return push(m, new_value(m, PICKLE_DICT));
  case OPCODE_APPEND: return has(m, 2) && append_from(m, m->stack.count - 1, PICKLE_LIST);
  case OPCODE_APPENDS: return append_marked(m, PICKLE_LIST);
  case OPCODE_SETITEM: return has(m, 3) && append_from(m, m->stack.count - 2, PICKLE_DICT);
  case OPCODE_SETITEMS: return append_marked(m, PICKLE_DICT);
  case OPCODE_LIST:
  case OPCODE_TUPLE: return gather_marked(m, PICKLE_LIST);
  case OPCODE_DICT: return gather_marked(m, PICKLE_DICT);
  case OPCODE_TUPLE1: return gather_last(m, 1);
  case OPCODE_TUPLE2: return gather_last(m, 2);
  case OPCODE_TUPLE3: return gather_last(m, 3);
  case OPCODE_MEMOIZE: return put(m, m->memo.count);
  case OPCODE_BINPUT: return put_numbered(m, 1);
  case OPCODE_LONG_BINPUT: return put_numbered(m, 4);
  case OPCODE_BINGET: return get(m, 1);
  case OPCODE_LONG_BINGET: return get(m, 4);
  default:
    return input_wrong(m->in, m->at,
                       "opcode 0x%02x (%s), which plain data does not need, is refused",
                       (unsigned)opcode, opcode_name(opcode));
  }
}

static pickle_value *run(machine *m)
{
  for (;;) {
    m->at = input_offset(m->in);
    int opcode = input_next(m->in);
    if (opcode == INPUT_END) {
      input_expected(m->in, "the opcode STOP of a pickle");
      return NULL;
    }
    if (opcode == OPCODE_STOP) break;
    if (!run_opcode(m, opcode)) return NULL;
  }
  if (input_peek(m->in) != INPUT_END || m->in->failed) {
    input_expected(m->in, "the end of the file after the pickle's STOP");
    return NULL;
  }
  if (m->stack.count == 1 && m->mark_count == 0) return m->stack.items[0];
  wrong(m, "a pickle ends with one value");
  return NULL;
}

pickle_value *pickle_read(input *in, arena *a)
{
  machine m = { .in = in, .memory = a };
  arena marks = { 0 };
  m.marks = ARENA_ARRAY(&marks, uint32_t, MARKS);
  pickle_value *v = run(&m);
  ARRAY_FREE(&m.stack);
  ARRAY_FREE(&m.memo);
  arena_release(&marks);
  assert((v == NULL) == in->failed);
  return v;
}

pickle_value *pickle_get(const pickle_value *dict, const char *key)
{
  if (dict == NULL || dict->type != PICKLE_DICT) return NULL;
  for (uint32_t i = 0; i + 1 < dict->list.count; i += 2) {
    const pickle_value *k = dict->list.items[i];
    if (k->type == PICKLE_TEXT && strcmp(k->text, key) == 0) return dict->list.items[i + 1];
  }
  return NULL;
}

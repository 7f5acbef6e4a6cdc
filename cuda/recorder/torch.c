/*
 * Nothing of Python is linked: its functions are found in the process. The interpreter runs `watch`
 * between two instructions of its main thread, where no lock of PyTorch is held.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "cuda/recorder/torch.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/recorder/rows_file.h"

typedef struct python_object python_object;
typedef python_object *python_function(python_object *self, python_object *argument);

/* PyMethodDef. */
typedef struct python_method {
  const char *name;
  python_function *function;
  int flags;
  const char *doc;
} python_method;

enum { METH_O = 8 };

#define PYTHON_FUNCTIONS(X)                                                                        \
  X(int, Py_AddPendingCall, (int (*)(void *), void *))                                             \
  X(int, PyRun_SimpleString, (const char *))                                                       \
  X(python_object *, PyCMethod_New, (python_method *, python_object *, python_object *, void *))   \
  X(python_object *, PyImport_AddModule, (const char *))                                           \
  X(int, PyObject_SetAttrString, (python_object *, const char *, python_object *))                 \
  X(unsigned long long, PyLong_AsUnsignedLongLong, (python_object *))                              \
  X(int, PyBytes_AsStringAndSize, (python_object *, char **, long *))                              \
  X(void, Py_IncRef, (python_object *))                                                            \
  X(void, PyErr_Clear, (void))

static struct {
#define X(result, name, parameters) result(*name) parameters;
  PYTHON_FUNCTIONS(X)
#undef X
  python_object *none;
} python;

static bool find_python(void)
{
  bool all = true;
#define X(result, name, parameters)                                                                \
  *(void **)(void *)&python.name = dlsym(RTLD_DEFAULT, #name);                                     \
  all = all && python.name != NULL;
  PYTHON_FUNCTIONS(X)
#undef X
  python.none = dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
  return all && python.none != NULL;
}

static python_object *none(void)
{
  python.Py_IncRef(python.none);
  return python.none;
}

static python_object *take_block(python_object *self, python_object *address)
{
  (void)self;
  ROWS_PUT(ISSUED_BLOCK, 0, python.PyLong_AsUnsignedLongLong(address));
  return none();
}

static python_object *take_block_free(python_object *self, python_object *address)
{
  (void)self;
  ROWS_PUT(ISSUED_BLOCK_FREE, 0, python.PyLong_AsUnsignedLongLong(address));
  return none();
}

static python_object *take_snapshot(python_object *self, python_object *bytes)
{
  (void)self;
  enum { PIECE_BYTES = 8 * (ISSUED_ROW_WORDS - 2) };
  char *text = NULL;
  long length = 0;
  if (python.PyBytes_AsStringAndSize(bytes, &text, &length) != 0) python.PyErr_Clear();
  for (long at = 0; at < length; at += PIECE_BYTES) {
    uint64_t piece = (uint64_t)(length - at < PIECE_BYTES ? length - at : PIECE_BYTES);
    rows_put(ISSUED_SNAPSHOT, 0, &piece, 1, text + at, piece);
  }
  return none();
}

static atomic_bool watching;

static python_object *take_watching(python_object *self, python_object *ignored)
{
  (void)self;
  (void)ignored;
  atomic_store(&watching, true);
  return none();
}

static python_method methods[] = {
  { "block", take_block, METH_O, NULL },
  { "block_free", take_block_free, METH_O, NULL },
  { "snapshot", take_snapshot, METH_O, NULL },
  { "watching", take_watching, METH_O, NULL },
};

/* PyTorch runs its queued calls when it has initialised CUDA. Its function that adds one takes a lock
 * that it holds at that time, in this thread. */
static const char script[] =
    "def _offsim_record():\n"
    "    import sys\n"
    "    torch = sys.modules.get('torch')\n"
    "    if torch is None or not hasattr(torch, 'cuda') or not hasattr(torch.cuda, "
    "'_queued_calls'):\n"
    "        return\n"
    "    import _offsim_record as rows\n"
    "    rows.watching(None)\n"
    "    def watch():\n"
    "        import atexit, pickle\n"
    "        import torch.cuda._gpu_trace as trace\n"
    "        torch.cuda.memory._record_memory_history(max_entries=4_000_000, stacks='python')\n"
    "        torch._C._activate_gpu_trace()\n"
    "        trace.register_callback_for_memory_allocation(rows.block)\n"
    "        trace.register_callback_for_memory_deallocation(rows.block_free)\n"
    "        atexit.register(lambda: rows.snapshot(pickle.dumps(torch.cuda.memory._snapshot())))\n"
    "    if torch.cuda.is_initialized():\n"
    "        watch()\n"
    "    else:\n"
    "        torch.cuda._queued_calls.append((watch, []))\n"
    "try:\n"
    "    _offsim_record()\n"
    "except Exception as problem:\n"
    "    import sys\n"
    "    print('offsim record: PyTorch\\'s blocks are not recorded:', problem, file=sys.stderr)\n"
    "del _offsim_record\n";

static int watch(void *ignored)
{
  (void)ignored;
  if (atomic_load(&watching)) return 0;
  python_object *module = python.PyImport_AddModule("_offsim_record");
  for (size_t i = 0; module != NULL && i < sizeof methods / sizeof *methods; i++) {
    python_object *function = python.PyCMethod_New(&methods[i], NULL, NULL, NULL);
    if (function != NULL) python.PyObject_SetAttrString(module, methods[i].name, function);
  }
  python.PyRun_SimpleString(script);
  return 0;
}

void torch_watch(void)
{
  static atomic_int found; /* 1: yes, 2: no Python here */
  if (atomic_load(&watching)) return;
  if (atomic_load(&found) == 0) atomic_store(&found, find_python() ? 1 : 2);
  if (atomic_load(&found) == 1) python.Py_AddPendingCall(watch, NULL);
}

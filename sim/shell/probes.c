/*
 * Questions a script asks to learn which accelerator it runs on. offsim predicts NVIDIA's GPUs, so
 * the software of other accelerators is not there: these commands fail, and print nothing.
 */
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"

static const char *const foreign_modules[] = {
  "torch_npu",
  "torch_musa",
  "torch_mlu",
  "torch_xla",
  "habana_frameworks",
  "torch_gcu",
  "torch_sdaa",
  "intel_extension_for_pytorch",
  NULL,
};

static const char *const foreign_programs[] = {
  "npu-smi", "rocm-smi", "rocminfo", "amd-smi", "xpu-smi", "hl-smi", "cnmon", "mthreads-gmi", NULL,
};

/* `import NAME` and nothing else. */
static bool imports_foreign_module(const char *code)
{
  static const char import[] = "import ";
  if (!begins_with(code, import)) return false;
  return is_one_of(code + sizeof import - 1, foreign_modules);
}

bool finds_no_accelerator(evaluator *e, const field *words, uint32_t count)
{
  const char *name = plain_text(e, words[0].text);
  if (name == NULL) return false;
  if (is_one_of(name, foreign_programs)) return true;
  bool asks = strcmp(name, "which") == 0 || strcmp(name, "command") == 0;
  if (!asks && !begins_with(name, "python")) return false;
  const char *last = plain_text(e, words[count - 1].text);
  if (last == NULL) return false;
  if (asks) return is_one_of(last, foreign_programs);
  const char *option = count == 3 ? plain_text(e, words[1].text) : NULL;
  return option != NULL && strcmp(option, "-c") == 0 && imports_foreign_module(last);
}

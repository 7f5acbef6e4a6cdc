/*
 * What LeakSanitizer has to overlook: libfyaml 0.7.12 never frees the array of pieces of a quoted
 * text with more than some tens of escapes. A program that reads one text and ends does not care.
 */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
  return "leak:libfyaml";
}

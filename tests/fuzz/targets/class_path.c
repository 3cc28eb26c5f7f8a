/* The path of a class that a plugin brings for vLLM. What is taken is a path by a rule that is written down otherwise.
 */
#include "core/registry/class_path.h"
#include "tests/fuzz/fuzz.h"

#include <flhost/plugin.h>
#include <regex.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static regex_t rule;
  const char *lines[2];
  static int compiled;
  if (!compiled++ && regcomp(&rule, "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)+$", REG_EXTENDED | REG_NOSUB))
    fuzz_broken("the rule is no regular expression");
  fuzz_split(data, size, lines, 1);
  const char *path = lines[0] ? lines[0] : "";
  int taken = fl_class_path_check(path) == FL_OK;
  int is_path = strlen(path) <= FL_CLASS_PATH_MAX && !regexec(&rule, path, 0, NULL, 0);
  if (taken != is_path)
    fuzz_broken("'%s' is %s", path, taken ? "taken" : "refused");
  if (!taken && (!*fl_error_message() || strpbrk(fl_error_message(), "\x1b\r\a")))
    fuzz_broken("refused without words, or with what is not printable: %s", path);
  return 0;
}

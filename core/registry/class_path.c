/* Paths of Python classes: see class_path.h. */
#include "core/registry/class_path.h"

#include <string.h>

/* By the letters of ASCII: a locale may have others. */
static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* Behind the identifier that stands there; NULL: none does. */
static const char *after_identifier(const char *text) {
  if (!is_letter(*text))
    return NULL;
  while (is_letter(*text) || is_digit(*text))
    text++;
  return text;
}

fl_status fl_class_path_check(const char *path) {
  if (!path)
    return fl_error(FL_EINVAL, "functions: a null pointer, expected the path of a Python class");
  if (strnlen(path, FL_CLASS_PATH_MAX + 1) > FL_CLASS_PATH_MAX)
    return fl_error(FL_EINVAL, "functions: the path of the class is longer than %d bytes", FL_CLASS_PATH_MAX);
  uint32_t dots = 0;
  const char *at = after_identifier(path);
  for (; at && *at == '.'; dots++)
    at = after_identifier(at + 1);
  if (at && !*at && dots)
    return FL_OK;
  return fl_error(FL_EINVAL,
                  "functions: '%s' is no path of a Python class, expected \"package.module.Class\": two or more names "
                  "with dots between them, of ASCII letters, digits and '_', no digit first",
                  path);
}

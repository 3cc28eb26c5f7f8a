/* Paths of Python classes, which plugins bring for an engine. */
#ifndef FLHOST_CORE_REGISTRY_CLASS_PATH_H
#define FLHOST_CORE_REGISTRY_CLASS_PATH_H

#include "core/support.h"

/* FL_EINVAL, with words: it is none (fl_component). Looks at FL_CLASS_PATH_MAX bytes and one more at most. */
fl_status fl_class_path_check(const char *path);

#endif

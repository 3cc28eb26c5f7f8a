/* Where a call's tensors lie in memory, as JSON: strides, alignment, and which share memory (tests/golden/README.md).
 */
#ifndef FLHOST_CORE_GUARD_LAYOUT_H
#define FLHOST_CORE_GUARD_LAYOUT_H

#include "core/schema.h"

#include <jansson.h>

/* An object by name of the tensors among the first `n` values, results as "out.NAME"; NULL: out of memory. */
json_t *fl_layout_to_json(const fl_schema *schema, const fl_value *values, uint32_t n);

#endif

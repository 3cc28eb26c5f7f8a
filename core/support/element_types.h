/* The table of element types (flhost/element.h), for those that index it by bit. */
#ifndef FLHOST_CORE_SUPPORT_ELEMENT_TYPES_H
#define FLHOST_CORE_SUPPORT_ELEMENT_TYPES_H

#include <flhost/element.h>

/* Rows that have a bit, which is 1 << index. */
enum { FL_DTYPE_COUNT = 10 };
extern const fl_element_type fl_element_types[];

/* The bit of FL_FLOAT32… for an element type, 0 if it has none; and its name ("float32"), "?" if none. */
uint32_t fl_dtype_bit(DLDataType dtype);
const char *fl_dtype_name(DLDataType dtype);

#endif

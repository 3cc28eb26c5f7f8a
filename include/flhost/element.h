/*
 * flhost/element.h: element types of tensors.
 *
 * One table, which the library, the command and its files read. Rows are constant and live as long as the process; any
 * thread.
 */
#ifndef FLHOST_ELEMENT_H
#define FLHOST_ELEMENT_H

#include <flhost/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One element type. */
typedef struct fl_element_type {
  uint32_t size;
  uint32_t bit;               /* FL_FLOAT32…; 0: files may hold it, operators do not take it */
  const char *name;           /* "float32", as rules write it */
  const char *const *aliases; /* other names of it, "fp32", ended by NULL */
  const char *safetensors;    /* "F32": its name in a safetensors file */
  DLDataType dtype;
  double atol, rtol;        /* tolerance where an op says nothing else: vLLM IR's table */
  double largest, denormal; /* the largest finite value, and one below the smallest normal one; both 0 for integers */
  /* Element `i` of `data` as a double, which is exact for all but wide integers; and a value put there, rounded to the
   * nearest. `put` is NULL for a type that is only read. */
  double (*get)(const void *data, int64_t i);
  void (*put)(void *data, int64_t i, double value);
} fl_element_type;

/* Row `index`, NULL behind the last. Those with a bit come first, in the order of their bits: bit 1 << index. */
FL_API const fl_element_type *fl_element_type_at(uint32_t index);

/* The row of a DLPack type, of a name or alias, of a bit; NULL if there is none. */
FL_API const fl_element_type *fl_element_type_of(DLDataType dtype);
FL_API const fl_element_type *fl_element_type_named(const char *name);
FL_API const fl_element_type *fl_element_type_of_bit(uint32_t bit);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_ELEMENT_H */

/* Bad calls of an op: good ones, made as `flhost verify` makes them, of which one argument or result is spoilt. */
#ifndef FLHOST_TESTS_BAD_CALLS_H
#define FLHOST_TESTS_BAD_CALLS_H

#include "core/schema.h"

#include <flhost/flhost.h>
#include <flhost/testing.h>

/* A call whose memory is its own. `tensors` point into the struct: see rebase(). */
typedef struct made_call {
  fl_op *op;
  uint32_t n_arguments, n_values;
  fl_input inputs[FL_SCHEMA_MAX_VALUES];
  fl_value values[FL_SCHEMA_MAX_VALUES];
  DLTensor tensors[FL_SCHEMA_MAX_VALUES];
  int64_t shapes[FL_SCHEMA_MAX_VALUES][FL_MAX_DIMS], strides[FL_SCHEMA_MAX_VALUES][FL_MAX_DIMS];
  void *memory[FL_SCHEMA_MAX_VALUES];
  size_t bytes[FL_SCHEMA_MAX_VALUES];
} made_call;

/* The call of that number; NULL where there is none, or it is too large. free_call frees it. */
made_call *make_call(fl_op *op, uint64_t number);
void free_call(made_call *call);

bool is_tensor(const made_call *call, uint32_t index);
bool is_result(const made_call *call, uint32_t index);
bool has_elements(const made_call *call, uint32_t index);

/* A way to spoil a value: in its variant 0, 1, 2…; false: there is no such variant for it. Nothing else is touched. */
typedef struct bad_way {
  const char *name;
  bool (*spoil)(made_call *call, uint32_t index, int variant);
} bad_way;

/* What is done with a call that was spoilt. */
typedef void (*bad_call_visitor)(const made_call *good, made_call *spoilt, uint32_t index, const bad_way *way,
                                 int variant);

/* Every value in every way. */
void spoil_everything(const made_call *good, bad_call_visitor visit);

/* May the call be right even so? */
bool may_be_right(const made_call *good, uint32_t index, const bad_way *way, int variant);

#endif

/*
 * Calls of operators. An op of flhost says what it needs and which operators of CANN it is made of, by functions that
 * do nothing once something went wrong:
 *
 *     static void run_silu_and_mul(ascend_call *c) {
 *       ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT);
 *       ACLNN(c, SwiGlu, ascend_tensor(c, x), -1, ascend_tensor(c, out));
 *     }
 *
 * It is run twice: first to learn how much scratch memory it wants, then to make descriptors and to ask phase 1 of
 * every operator. Only when all of them accept their arguments phase 2 is called, in the same order: a call that is
 * refused has written nothing. Descriptors are destroyed as soon as everything is queued, and each executor is either
 * used by phase 2 or destroyed.
 */
#ifndef FLHOST_ASCEND_CALL_H
#define FLHOST_ASCEND_CALL_H

#include "plugins/ascend/libraries.h"
#include "plugins/ascend/runtime.h"
#include "plugins/ascend/view.h"
#include "plugins/ascend/workspace.h"

typedef struct ascend_op ascend_op;

enum { ASCEND_MAX_HANDLES = 128, ASCEND_MAX_STEPS = 32 };

typedef struct ascend_handle {
  void *handle;
  aclnnStatus (*destroy)(const void *handle);
} ascend_handle;

/* An operator that phase 1 accepted, or a copy on the device. */
typedef struct ascend_step {
  aclnn_operator operator_; /* ACLNN_NONE: a copy */
  aclOpExecutor *executor;
  uint64_t workspace_size;
  void *to;
  const void *from;
  size_t size;
} ascend_step;

typedef struct ascend_call {
  ascend_op *op;
  fl_call *call;
  fl_status status; /* of the first thing that went wrong */
  bool sizing;      /* the first run */
  int32_t device;
  ascend_workspace *own; /* the stream's memory, once it is needed */
  size_t scratch_size;
  char *scratch;
  int n_handles, n_steps;
  ascend_handle handles[ASCEND_MAX_HANDLES];
  ascend_step steps[ASCEND_MAX_STEPS];
} ascend_call;

/* An op of flhost. Up to `needs` all is constant, the rest is what became known of it. */
struct ascend_op {
  const char *name;
  uint32_t dtypes; /* FL_FLOAT32… */
  uint32_t chips;  /* ASCEND_A2… */
  void (*run)(ascend_call *c);
  fl_kernel_fn answer; /* in place of `run`, by an op that calls no operator; it is asked whatever its arguments */
  /* Does it take these arguments? After chip, dtype and emptiness were looked at; NULL: yes. Sets *reason. */
  bool (*supports)(const fl_call *call, ascend_chips chip, const char **reason);
  int n_results;                 /* that may be empty without the others; 0: where one is, all are */
  aclnn_operator needs[12];      /* operators without which it is not there; ended by ACLNN_NONE */
  const char *_Atomic withdrawn; /* why it turned out not to be there, NULL while it is */
  char words[256];               /* that */
};

/* ------------------------------------------------------------------------------------------- what an op is made of */

/* Something went wrong: the first time it is kept, and what follows does nothing. */
FL_PRINTF(3, 4) void ascend_fail(ascend_call *c, fl_status status, const char *format, ...);

/* The tensor at `index`, which must be there. */
ascend_view ascend_argument(const ascend_call *c, uint32_t index);

/* Compact scratch memory; of a view's shape. */
ascend_view ascend_scratch(ascend_call *c, aclDataType type, int n_dims, const int64_t *shape);
ascend_view ascend_scratch_like(ascend_call *c, const ascend_view *view, aclDataType type);

/* Descriptors; NULL in the first run. They belong to the call. A list owns its tensors. */
aclTensor *ascend_tensor(ascend_call *c, ascend_view view);
aclTensor *ascend_tensor_of_format(ascend_call *c, ascend_view view, aclFormat format);
aclTensorList *ascend_list(ascend_call *c, int n, const ascend_view *views);
aclScalar *ascend_scalar(ascend_call *c, double value);
aclScalar *ascend_integer(ascend_call *c, int64_t value);
aclIntArray *ascend_ints(ascend_call *c, const int64_t *values, uint64_t n);

/* Copies compact memory to compact memory of the same size, in the order of the steps. */
void ascend_copy(ascend_call *c, ascend_view to, ascend_view from);

/* Phase 1 of an operator, and its phase 2 later. */
#define ACLNN(c, name, ...)                                                                                            \
  do {                                                                                                                 \
    ascend_step *step_ = ascend_step_begin(c, ACLNN_##name);                                                           \
    if (step_)                                                                                                         \
      ascend_step_end(c, step_,                                                                                        \
                      ((aclnn_##name)ascend_operator(ACLNN_##name)->phase_1)(__VA_ARGS__, &step_->workspace_size,      \
                                                                             &step_->executor));                       \
  } while (0)
ascend_step *ascend_step_begin(ascend_call *c, aclnn_operator operator_);
void ascend_step_end(ascend_call *c, ascend_step *step, aclnnStatus code);

/* For supports(): says why not. */
static inline bool ascend_refuse(const char **reason, const char *words) {
  *reason = words;
  return false;
}

/* ------------------------------------------------------------------------------------ functions of an fl_impl */

/* `self` is an ascend_op. */
bool ascend_is_available(void *self, const char **reason);
bool ascend_supports_args(void *self, const fl_call *call, const char **reason);
size_t ascend_workspace_size(void *self, const fl_call *call);
fl_status ascend_run(void *self, fl_call *call);

#endif

/* Checks of attributes: see checks.h. */
#include "core/ops/checks.h"

#include "core/support.h"
#include <flhost/flhost.h>

#include <math.h>
#include <string.h>

static fl_status check_number(fl_call *call, uint32_t index, const char *name, double least, bool above,
                              const char *expected) {
  const fl_value *value = &call->values[index];
  double number = value->v.f;
  if (value->type == FL_NONE || (isfinite(number) && (above ? number > least : number >= least)))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument '%s': %g, expected a finite number%s", name, number, expected);
}

fl_status fl_check_finite(fl_call *call, uint32_t index, const char *name) {
  return check_number(call, index, name, -INFINITY, false, "");
}

fl_status fl_check_positive(fl_call *call, uint32_t index, const char *name) {
  return check_number(call, index, name, 0, true, " above 0");
}

fl_status fl_check_not_negative(fl_call *call, uint32_t index, const char *name) {
  return check_number(call, index, name, 0, false, ", 0 or more");
}

fl_status fl_check_word(fl_call *call, uint32_t index, const char *name, const char *const *words, uint32_t n) {
  const fl_value *value = &call->values[index];
  fl_text text = {0};
  if (value->type == FL_NONE)
    return FL_OK;
  for (uint32_t i = 0; i < n; i++)
    if (!strcmp(value->v.s, words[i]))
      return FL_OK;
  fl_text_add_choices(&text, words, n);
  fl_status status = fl_fail(call, FL_EINVAL, "argument '%s': \"%s\", expected %s%s", name, value->v.s,
                             fl_text_get(&text), fl_suggest(fl_nearest_word(value->v.s, words, n)).text);
  fl_text_free(&text);
  return status;
}

fl_status fl_check_block_size(fl_call *call, uint32_t index, const char *what) {
  const fl_value *given = &call->values[index];
  if (given->length != 2)
    return fl_fail(call, FL_EINVAL, "argument 'block_size': %u numbers, expected 2 (rows and columns of %s)",
                   given->length, what);
  for (int i = 0; i < 2; i++)
    if (given->v.ints[i] < 1)
      return fl_fail(call, FL_EINVAL, "argument 'block_size': [%lld, %lld], expected 1 or more",
                     (long long)given->v.ints[0], (long long)given->v.ints[1]);
  return FL_OK;
}

fl_status fl_check_sized(fl_call *call, const char *arguments, const char *what, int64_t size, int64_t given) {
  enum { FREE = 1 << 24, TIMES = 64 };
  if (size <= FREE || (size - 1) / TIMES < given)
    return FL_OK;
  return fl_fail(
      call, FL_EINVAL,
      "%s: %lld elements of %s, expected at most %lld: %d, or %d for each of the %lld that the tensors explain",
      arguments, (long long)size, what, (long long)(given > FREE / TIMES ? given * TIMES : FREE), FREE, TIMES,
      (long long)given);
}

fl_status fl_check_variance_size(fl_call *call, uint32_t index, const DLTensor *x) {
  const fl_value *value = &call->values[index];
  int64_t hidden = x->shape[x->ndim - 1];
  if (value->type == FL_NONE || (value->v.i >= 1 && value->v.i <= hidden))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'variance_size': %lld, expected 1 to %lld (the last dimension of 'x')",
                 (long long)value->v.i, (long long)hidden);
}

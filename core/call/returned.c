/* What an implementation left behind: see returned.h. */
#include "core/call/returned.h"

#include "core/call/checked_forms.h"
#include "core/call/invoke.h"
#include "core/support.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------------------------- results */

bool fl_has_results_to_judge(const fl_op *op) {
  const fl_schema *schema = op->schema;
  bool has = false;
  for (uint32_t r = 0; r < schema->n_results; r++)
    has |= schema->values[schema->n_arguments + r].type != FL_TENSOR;
  return has && op->host->checks;
}

/* Copies `size` bytes that may not be there; gives back how many are. */
static size_t read_safely(void *to, const void *from, size_t size) {
  struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};
  ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  if (n < 0 && errno != EFAULT) { /* refused, as some sandboxes do: then it is taken to be there */
    memcpy(to, from, size);
    return size;
  }
  return n < 0 ? 0 : (size_t)n;
}

/* Part by part: what lies behind the end of a string need not be there. */
static bool is_there(const char *text) {
  char part[512];
  for (size_t length = 0; length < FL_STRING_RESULT_MAX;) {
    size_t wanted = sizeof part - (uintptr_t)(text + length) % sizeof part;
    size_t n = read_safely(part, text + length, wanted);
    if (memchr(part, 0, n))
      return true;
    if (n < wanted)
      return false;
    length += n;
  }
  return false;
}

/* Most are constants: an address that was one before is not looked at by the kernel again. */
static bool is_string(const char *text) {
  fl_checked_forms *kept = fl_self.kept;
  const char **known = &kept->strings[((uintptr_t)text >> 4) % FL_CHECKED_STRINGS];
  if (text && *known == text)
    return strnlen(text, FL_STRING_RESULT_MAX) < FL_STRING_RESULT_MAX;
  if (!text || !is_there(text))
    return false;
  *known = text;
  return true;
}

static bool is_list(const fl_value *value) {
  int64_t last;
  return !value->length ||
         (value->v.ints && read_safely(&last, value->v.ints + value->length - 1, sizeof last) == sizeof last);
}

static bool is_bool(const fl_value *value) {
  unsigned char byte;
  memcpy(&byte, &value->v.b, sizeof byte);
  return byte <= 1;
}

/* What an implementation that went well wrote by value; none stays none. */
static fl_status judge_result(const fl_argument *result, const fl_value *value) {
  if (value->type == FL_NONE || result->type == FL_TENSOR)
    return FL_OK;
  if (value->type != (uint32_t)result->type)
    return fl_error(FL_EINTERNAL, "it left result '%s' as a value of type %u, expected %u", result->name,
                    (unsigned)value->type, (unsigned)result->type);
  if (value->type == FL_BOOL && !is_bool(value))
    return fl_error(FL_EINTERNAL, "it left result '%s' as a bool that is neither true nor false", result->name);
  if (value->type == FL_STRING && !is_string(value->v.s))
    return fl_error(FL_EINTERNAL, "it left result '%s' as a string that is not there, or has no end within %d bytes",
                    result->name, FL_STRING_RESULT_MAX);
  if (value->type == FL_INT_LIST && !is_list(value))
    return fl_error(FL_EINTERNAL, "it left result '%s' as a list that is not there", result->name);
  return FL_OK;
}

static fl_status judge_results(const fl_op *op, const fl_call *call) {
  const fl_argument *results = op->schema->values + op->schema->n_arguments;
  fl_status status = FL_OK;
  for (uint32_t r = 0; r < op->schema->n_results && !status; r++)
    status = judge_result(&results[r], &call->values[op->schema->n_arguments + r]);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* No result that was written by value is left over for the next. */
static void drop_results(const fl_op *op, const fl_call *call) {
  for (uint32_t i = op->schema->n_arguments; i < call->count; i++)
    if (op->schema->values[i].type != FL_TENSOR)
      call->values[i] = fl_none();
}

/* Do the values still describe a call of the op? If not, says why, behind the implementation's own words. */
static bool is_spoilt(const fl_op *op, const fl_call *call) {
  fl_kept_error own;
  if (!op->host->checks || fl_call_is_opaque(call) || fl_checked_form_has(fl_self.kept, op->schema->id, call))
    return false;
  fl_error_keep(&own);
  fl_status status = fl_schema_check(op->schema, call);
  if (status)
    fl_error(FL_EINTERNAL, "%s%sit changed what it was called with (%s)", own.message, *own.message ? "; " : "",
             fl_error_message());
  else
    fl_error_restore(&own);
  return status;
}

/* What an implementation may return. */
static bool is_good(fl_status status) {
  return status >= FL_OK && status <= FL_EINTERNAL;
}

fl_status fl_take_back(const fl_op *op, fl_call *call, const fl_call *given, fl_status status, bool *spoilt) {
  char *message = fl_self.message;
  static const char without_end[] = "… (a message without end)";
  *call = *given;
  call->message = message;
  call->message_size = FL_ERROR_MAX;
  *spoilt = false;
  if (!status)
    return op->host->checks && !fl_call_is_opaque(call) ? judge_results(op, call) : FL_OK;
  if (strlen(message) >= FL_ERROR_MAX) {
    memcpy(message + FL_ERROR_MAX - sizeof without_end, without_end, sizeof without_end);
    status = FL_EINTERNAL;
  }
  fl_show(message, FL_ERROR_MAX, message, true);
  if (!is_good(status) && !*message)
    fl_error(FL_EINTERNAL, "it returned %d, which is no status of an implementation", (int)status);
  if (!op->host->checks)
    return is_good(status) ? status : FL_EINTERNAL;
  drop_results(op, call);
  *spoilt = is_spoilt(op, call);
  return *spoilt || !is_good(status) ? FL_EINTERNAL : status;
}

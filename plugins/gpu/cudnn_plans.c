/*
 * Plans by the form of the convolution: made once, under a lock, since that takes milliseconds; found again without
 * one. A form that the library refuses is kept, too, so that it is asked for once.
 */
#include "plugins/gpu/cudnn.h"
#include "plugins/gpu/forms.h"

#include <stdlib.h>

enum { N_SLOTS = 1 << 12 };

static gpu_form_slot slots[N_SLOTS]; /* of cudnn_choice */

static gpu_form_slot *find_slot(const cudnn_form *f) {
  return gpu_form_find(slots, N_SLOTS, f, sizeof *f);
}

/* What the library does not take, as opposed to what fails in it. */
static bool is_refusal(cudnnStatus_t code) {
  return code / 1000 == CUDNN_STATUS_BAD_PARAM / 1000 || code / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

static void explain(cudnn_choice *choice, const char *what, cudnnStatus_t code) {
  snprintf(choice->reason, sizeof choice->reason, "cuDNN %s: %s (%d)", what, cudnn.error_name(code), code);
}

static cudnn_choice *make_choice(cudnnBackendDescriptor_t device, const cudnn_form *form, cudnnStatus_t *code) {
  cudnn_choice *made = calloc(1, sizeof *made);
  *code = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  if (!made)
    return NULL;
  made->of = *form;
  *code = cudnn_make_plan(form, device, &made->plan);
  if (!*code)
    return made;
  if (is_refusal(*code)) {
    explain(made, "has no engine for it that rounds once", *code);
    *code = CUDNN_STATUS_SUCCESS;
    return made;
  }
  free(made);
  return NULL;
}

/* One thread at a time, of all devices: their forms may want the same slot. */
static cudnn_choice *find_or_make(cudnn_context *context, const cudnn_form *form, cudnnStatus_t *code) {
  static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&making);
  gpu_form_slot *slot = find_slot(form);
  cudnn_choice *choice = slot ? atomic_load(slot) : NULL;
  if (slot && !choice && (choice = make_choice(context->device, form, code)))
    atomic_store_explicit(slot, choice, memory_order_release);
  pthread_mutex_unlock(&making);
  return choice;
}

static bool serves(const cudnn_choice *choice) {
  return choice->plan.n && !atomic_load_explicit(&choice->refused, memory_order_acquire);
}

cudnn_choice *cudnn_find_plan(cudnn_context *context, const cudnn_form *form, void *stream, cudnnStatus_t *code,
                              const char **reason) {
  gpu_form_slot *slot = find_slot(form);
  cudnn_choice *choice = slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
  *code = CUDNN_STATUS_SUCCESS;
  *reason = "cuDNN has plans for as many forms of convolutions as are kept";
  if (!slot)
    return NULL;
  if (!choice || (serves(choice) && !atomic_load_explicit(&choice->ran, memory_order_acquire))) {
    *reason = "cuDNN has not run this form yet, and cannot load its kernels while a stream is captured; call the op "
              "once before";
    if (gpu_is_captured(stream) || (!choice && !(choice = find_or_make(context, form, code))))
      return NULL;
  }
  *reason = choice->reason;
  return serves(choice) ? choice : NULL;
}

/* The library's word for a plan's data; it has memory of the host's, and lasts for one call. */
static cudnnStatus_t make_pack(const cudnn_choice *choice, void *const *data, void *workspace,
                               cudnnBackendDescriptor_t *pack) {
  static const int64_t ids[CUDNN_TENSORS] = {CUDNN_X, CUDNN_WEIGHT, CUDNN_OUT, CUDNN_BIAS};
  int64_t n = choice->of.bias ? CUDNN_TENSORS : CUDNN_TENSORS - 1;
  cudnnStatus_t code = cudnn.create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack);
  if (code)
    return code;
  code = cudnn.set(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
  if (!code)
    code = cudnn.set(*pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
  if (!code)
    code = cudnn.set(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  return code ? code : cudnn.finalize(*pack);
}

cudnnStatus_t cudnn_run_plan(cudnn_context *context, cudnn_choice *choice, void *const *data, void *workspace,
                             void *stream) {
  cudnnBackendDescriptor_t pack = NULL;
  cudnnStatus_t code = make_pack(choice, data, choice->plan.workspace ? workspace : NULL, &pack);
  pthread_mutex_lock(&context->lock);
  if (!code)
    code = cudnn.set_stream(context->handle, stream);
  if (!code)
    code = cudnn.execute(context->handle, choice->plan.execution, pack);
  if (!code)
    atomic_store_explicit(&choice->ran, true, memory_order_release);
  else if (is_refusal(code) && !atomic_load(&choice->refused)) {
    explain(choice, "refused to run its plan", code);
    atomic_store_explicit(&choice->refused, true, memory_order_release);
  }
  pthread_mutex_unlock(&context->lock);
  if (pack)
    cudnn.destroy_descriptor(pack);
  return code;
}

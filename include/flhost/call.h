/*
 * flhost/call.h: calling an op, and what can be known of a call without making it: shapes, errors, workspace.
 */
#ifndef FLHOST_CALL_H
#define FLHOST_CALL_H

#include <flhost/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A fl_call over an array of values. */
#ifdef __cplusplus
#define FL_CALL(values_)                                                                                               \
  fl_call {                                                                                                            \
    (uint32_t)sizeof(fl_call), (uint32_t)(sizeof(values_) / sizeof((values_)[0])), (values_), NULL, NULL, 0, NULL, 0,  \
        NULL, NULL                                                                                                     \
  }
#else
#define FL_CALL(values_)                                                                                               \
  ((fl_call){.size = sizeof(fl_call), .count = (uint32_t)(sizeof(values_) / sizeof((values_)[0])), .values = (values_)})
#endif

/*
 * Calls an op: checks the arguments against the schema, picks the implementation under the policy in force, falls back
 * when that fails and the policy allows it. `op` may be NULL (FL_ENOENT). An implementation of the engine's own may
 * call ops in its turn, up to 32 inside each other in the outermost call. Of the call's struct message, message_size
 * and results that are no tensors are written. Returns
 *   FL_OK        the outputs are written
 *   FL_EINVAL    bad arguments; nothing was called, or the implementation found them bad
 *   FL_ENOIMPL   nothing to call; the message lists every registered implementation and why it was not used
 *   FL_ENOTSUP, FL_ENOMEM, FL_EDEVICE, FL_EINTERNAL
 *                what the last implementation returned
 *   FL_ESTATE    too many calls are inside each other already; nothing was called
 * A C++ exception passes through, and so does the end of the thread (pthread_exit): nothing is held then, and what runs
 * has failed. After a longjmp out of a call the thread counts as in the call until it ends.
 */
FL_API fl_status fl_invoke(fl_op *op, fl_call *call);

/*
 * Calls an op with arguments that go another way than through values, as the objects of a language binding do: the
 * host checks none and has no device to go by. Only implementations that say they take such calls (FL_IMPL_OPAQUE)
 * are tried, with no values and the call's stream, in the order and with the fallback of every call. Of `call`
 * only its size and stream are looked at, and nothing is written. FL_EINVAL: an implementation found the
 * arguments bad; else as fl_invoke.
 */
FL_API fl_status fl_invoke_opaque(fl_op *op, fl_call *call);

/* The same as fl_invoke by name. FL_ENOENT: no such op. */
FL_API fl_status fl_call_op(fl_host *host, const char *name, fl_call *call);

/*
 * Shapes, dtypes and devices of an op's results, from the arguments' shapes and attributes; no data is read. Only the
 * arguments in call->values need to be set, and call->count may leave out the results. `results` has room for
 * `n_results` specs of `spec_size` bytes, sizeof(fl_tensor_spec), one per result of the schema (more is an error; fewer
 * gives the first ones). Errors are those of fl_check.
 */
FL_API fl_status fl_infer(const fl_op *op, const fl_call *call, fl_tensor_spec *results, uint32_t n_results,
                          size_t spec_size);

/* Checks a call's arguments and results as fl_invoke does, without calling anything. FL_EINVAL: the message names the
 * argument or result, what it is, and what was expected; FL_ENOENT: `op` is NULL. */
FL_API fl_status fl_check(const fl_op *op, const fl_call *call);

/*
 * Workspaces. Some implementations want memory besides their results for the length of a call. A call that brings none
 * (call->workspace NULL, as every typed call) gets the host's: one buffer for each device and stream, on the processor
 * for each thread, and others for calls inside a call. It grows when a call wants more, so that calls like earlier ones
 * allocate nothing; what it outgrew stays, since queued work may use it. While a stream is captured in a graph nothing
 * grows: call the op once before. A graph that was captured uses the buffer of the stream that it was captured on: it
 * must not run at the same time as calls on that one, but in its place. Where there is none to be had, implementations
 * that cannot do without pass the call on, and the log has a warning, once, with the size.
 *
 * A call may bring its own instead, for which fl_workspace_size says how much: the most that any implementation which
 * the policy in force may run for these arguments asks for, fallbacks included; 0 if none does. Another policy may want
 * more. The memory lies on the call's device, aligned to 256 (fl_device_allocate), and may be used again for the next
 * call on the same stream. Errors are those of fl_check, and FL_ENOIMPL where nothing is there to run.
 */
FL_API fl_status fl_workspace_size(fl_op *op, const fl_call *call, size_t *size);

/* Where an engine keeps device memory. Both functions may be called from any thread, and during a call. */
typedef struct fl_allocator {
  uint32_t size; /* sizeof(fl_allocator) */
  void *user;    /* given back */
  /* `size` bytes, aligned to 256, for work on that stream of the device. Not FL_OK: there are none. */
  fl_status (*allocate)(void *user, DLDevice device, size_t size, void *stream, void **memory);
  /* Nothing that was queued uses it any more, as fl_release_workspaces says. */
  void (*release)(void *user, DLDevice device, void *memory, void *stream);
} fl_allocator;

/* Workspaces that the host brings to calls on devices of that type come from there, from now on; NULL: from the
 * platform's plugin, as at first. It must stay usable until the host is destroyed. FL_EINVAL: the type has no memory of
 * its own, or a function is NULL; FL_ENOMEM. */
FL_API fl_status fl_set_workspace_allocator(fl_host *host, int32_t device_type, const fl_allocator *allocator);

/* Bytes of all workspaces on devices that the host keeps; those of threads are not counted. */
FL_API uint64_t fl_workspace_bytes(fl_host *host);

/* Gives them back. No call is in flight, all that was queued is done, and no graph that was captured with them runs
 * again. The next call that wants one makes a new one. */
FL_API void fl_release_workspaces(fl_host *host);

/*
 * Has weights prepared that will be passed again and again: laid out as the implementation likes them best that would
 * carry out this call, the first that takes it under the policy in force. Where that can make something of them
 * (`flhost explain` says which do), *prepared is to be put into fl_call.prepared of the calls with these weights:
 *
 *     fl_call call = FL_CALL(values);
 *     if (!fl_prepare(op, &call, &call.prepared)) ... fl_invoke(op, &call), as often as you like
 *
 * Else *prepared is NULL, with which calls are made as ever. What is no weight (rows of x) may be another in each call,
 * and so may what an implementation prepares nothing of.
 *
 * The weights stay in the call's values, where they are: whichever other implementation runs, now or under another
 * policy, uses those, and so does the reference that a call is compared with. A call in which they are another tensor
 * (another address, shape, strides or element type), or of another op or host, is FL_EINVAL where the host checks
 * arguments. Weights whose *bytes* change are prepared again by whoever changes them: nobody looks.
 *
 * It may be used by any number of threads at once, and in forked children. It takes about the weights' memory once more
 * (fl_prepared_bytes). The caller frees it when no call with it is in flight; what is left then ends with the host.
 * Takes as long as copying the weights, and more. Any thread may call it. FL_ENOENT: `op` is NULL; FL_EINVAL,
 * FL_ENOIMPL as fl_workspace_size; FL_ENOMEM, FL_EDEVICE, FL_EINTERNAL: there is no memory, or the implementation
 * failed, which is held against it no further: calls without *prepared, which is NULL, go on.
 */
FL_API fl_status fl_prepare(fl_op *op, const fl_call *call, const fl_prepared **prepared);

/* Before the host is destroyed, which frees what is left. NULL is ignored. */
FL_API void fl_prepared_free(const fl_prepared *prepared);

/* What fl_prepare made of a call. */
typedef struct fl_prepared_info {
  uint32_t size;       /* sizeof(fl_prepared_info) */
  const char *impl_id; /* the implementation that made it, and uses it; valid until it is freed */
  uint64_t bytes;
  uint64_t arguments; /* the tensors that it was made of, 1 << index of each: those a call has to bring again */
} fl_prepared_info;

/* info->size is set by the caller. FL_EINVAL: a null pointer, or another size. Any thread may call it. */
FL_API fl_status fl_get_prepared_info(const fl_prepared *prepared, fl_prepared_info *info);

/* Bytes of all that fl_prepare made in this host and nobody freed. For one implementation: fl_get_counters. */
FL_API uint64_t fl_prepared_bytes(fl_host *host);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_CALL_H */

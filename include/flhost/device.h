/*
 * flhost/device.h: memory and devices.
 *
 * For tools and small engines; one that has an allocator of its own needs none of this. Memory of kDLCPU is the host's
 * own; that of another device type is what a plugin's platform brings (fl_platform), of several the one in force.
 */
#ifndef FLHOST_DEVICE_H
#define FLHOST_DEVICE_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name of a DLPack device type: "cpu", "cuda", "rocm", "ext_dev"…; NULL for a number without a name. */
FL_API const char *fl_device_type_name(int32_t device_type);

/* The device type that a word means: DLPack's name, the name or an alias of a platform that a plugin says it brings
 * ("nvidia", "ascend"), or one of vLLM's words ("hip"). FL_ENOENT, with the nearest, for another. Loads no plugin. */
FL_API fl_status fl_find_device_type(fl_host *host, const char *word, int32_t *device_type);

/*
 * In all of the following FL_ENOENT: nobody brings memory of that type (the message says who brings which), the
 * platform is not active, or there is no device; FL_EINVAL: no such device; FL_ENOMEM, FL_EDEVICE: it failed, in the
 * platform's words. They may initialise the vendor's driver in this process, which a later fork does not survive.
 */

/* Devices of a type: their indices are 0 to *count - 1. FL_EDEVICE: the platform cannot count them. */
FL_API fl_status fl_device_count(fl_host *host, int32_t device_type, int32_t *count);

/* properties->size is set by the caller to sizeof(fl_device_properties). */
FL_API fl_status fl_device_get_properties(fl_host *host, DLDevice device, fl_device_properties *properties);

/* The device of that type that this thread uses. */
FL_API fl_status fl_device_current(fl_host *host, int32_t device_type, DLDevice *device);

/* Aligned to 256, not cleared; the caller frees it with fl_device_free, when no work that uses it is left. A size of 0
 * gives memory, too. */
FL_API fl_status fl_device_allocate(fl_host *host, DLDevice device, size_t size, void **memory);
FL_API fl_status fl_device_free(fl_host *host, DLDevice device, void *memory); /* NULL is ignored */

/* Copies in the order of `stream` (NULL = the device's default). `direction` is one of FL_COPY_*: with host memory on
 * either side the copy is done when this returns. */
FL_API fl_status fl_device_copy(fl_host *host, DLDevice device, void *to, const void *from, size_t size,
                                int32_t direction, void *stream);

/* Waits until all work of the stream, or of `all` streams of the device, is done. An error of earlier work shows up
 * here, as FL_EDEVICE. */
FL_API fl_status fl_device_synchronize(fl_host *host, DLDevice device, void *stream, bool all);

/*
 * What follows is a platform's own affair, and one may lack any of it: FL_ENOTSUP, with a message that says which
 * platform. kDLCPU has all but graphs: what its streams are given is done when the call returns.
 *
 * Streams, events, graphs and memory belong to the device that they were made on, and are handed back to it with the
 * same host. Each may be used by one thread at a time.
 */

/* ----------------------------------------------------------------------------------------------- streams and events */

/* A stream beside the default one, which it does not wait for. Of two the one with the lower `priority` goes first; 0
 * is the usual, and a number that the device has not becomes the nearest. One that is destroyed with work left in it
 * goes when that is done. */
FL_API fl_status fl_stream_create(fl_host *host, DLDevice device, int32_t priority, void **stream);
FL_API fl_status fl_stream_destroy(fl_host *host, DLDevice device, void *stream); /* NULL is ignored */

/* A place in the order of a stream. `timed`: fl_event_elapsed can tell how long it took, which costs a little. */
FL_API fl_status fl_event_create(fl_host *host, DLDevice device, bool timed, void **event);
FL_API fl_status fl_event_destroy(fl_host *host, DLDevice device, void *event); /* NULL is ignored */

/* Puts it behind all work that the stream has now; recorded again, it moves. */
FL_API fl_status fl_event_record(fl_host *host, DLDevice device, void *event, void *stream);

/* What the stream is given from now on runs behind the event's place, whichever stream that is in. Returns at once. An
 * event that was not recorded is waited for by nobody, here and below. */
FL_API fl_status fl_stream_wait_event(fl_host *host, DLDevice device, void *stream, void *event);

/* Is all work before its place done? Returns at once. */
FL_API fl_status fl_event_is_done(fl_host *host, DLDevice device, void *event, bool *done);

/* Waits until it is. */
FL_API fl_status fl_event_synchronize(fl_host *host, DLDevice device, void *event);

/* Microseconds between two timed events that are done. */
FL_API fl_status fl_event_elapsed(fl_host *host, DLDevice device, void *first, void *last, double *us);

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Host memory that does not move and that the device copies from and to by itself. Aligned to 64, not cleared. */
FL_API fl_status fl_device_allocate_host(fl_host *host, DLDevice device, size_t size, void **memory);
FL_API fl_status fl_device_free_host(fl_host *host, DLDevice device, void *memory); /* NULL is ignored */

/* As fl_device_copy, but with host memory, too, it may return before it is done; that memory then stays as it is until
 * the stream is there. Only of fl_device_allocate_host's memory is it sure that it does not wait. */
FL_API fl_status fl_device_copy_async(fl_host *host, DLDevice device, void *to, const void *from, size_t size,
                                      int32_t direction, void *stream);

/* Memory in the order of a stream, from the device's pool, which keeps what is given back until it is trimmed. It may
 * be used by what the stream is given between the two; other streams wait for an event. Aligned to 256, not cleared. */
FL_API fl_status fl_device_allocate_async(fl_host *host, DLDevice device, size_t size, void *stream, void **memory);
FL_API fl_status fl_device_free_async(fl_host *host, DLDevice device, void *memory, void *stream); /* NULL is ignored */

/* Gives the device what the pool holds and nobody uses, but for `keep` bytes. */
FL_API fl_status fl_device_trim_pool(fl_host *host, DLDevice device, uint64_t keep);

/* Bytes of the pool that are in use, and those that it holds, these among them. */
FL_API fl_status fl_device_pool_usage(fl_host *host, DLDevice device, uint64_t *used, uint64_t *held);

/* ----------------------------------------------------------------------------------------------------------- graphs */

/* From here to fl_graph_end the work that the stream is given does not run, but becomes a graph; so does that of
 * streams which wait for an event of its, if it waits for them before the end. `stream` is not the default one. The
 * thread that begins ends it. Ops are called once with the same shapes before: what they need is then there, and their
 * choice is made. */
FL_API fl_status fl_graph_begin(fl_host *host, DLDevice device, void *stream);

/* FL_EDEVICE: something was done that a graph cannot hold. There is no graph then, and the stream is as before
 * fl_graph_begin. */
FL_API fl_status fl_graph_end(fl_host *host, DLDevice device, void *stream, void **graph);

/* Runs it in the order of a stream, any number of times, one after the other, on the addresses of the capture. */
FL_API fl_status fl_graph_launch(fl_host *host, DLDevice device, void *graph, void *stream);
FL_API fl_status fl_graph_destroy(fl_host *host, DLDevice device, void *graph); /* NULL is ignored; it is not running */

/* ------------------------------------------------------------------------------------------------ the device itself */

/* From where the random numbers of the platform's own ops start on that device. FL_OK also where they draw none. */
FL_API fl_status fl_device_seed(fl_host *host, DLDevice device, uint64_t seed);

/* Can the device work? FL_EDEVICE with the reason where it cannot: an error that nothing but a new process cures, a
 * device that is lost. Waits for no work. FL_ENOTSUP: the platform cannot say. */
FL_API fl_status fl_device_health(fl_host *host, DLDevice device);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_DEVICE_H */

/*
 * flhost/hardware.h: what a plugin gives that brings a hardware platform. plugin.h includes it.
 *
 * A platform is a component (fl_component) of type "platform" whose `functions` are a fl_platform:
 *
 *     static const fl_platform acme = {.size = sizeof acme, .device_type = kDLExtDev, .is_active = is_active, ...};
 *     fl_component component = {.size = sizeof component, .type = "platform", .name = "acme", .functions = &acme,
 *         .functions_type = FL_FUNCTIONS_PLATFORM, .functions_size = sizeof acme};
 *     return registry->register_component(registry, &component);
 */
#ifndef FLHOST_HARDWARE_H
#define FLHOST_HARDWARE_H

#include <flhost/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One device of a platform. */
typedef struct fl_device_properties {
  uint32_t size;
  int32_t units;         /* multiprocessors, compute units, cores; 0 = unknown */
  char name[128];        /* "NVIDIA H200" */
  char arch[64];         /* "sm_90", "gfx90a:sramecc+:xnack-", "Ascend910B3"; compared with fl_impl.min_arch */
  char driver[64];       /* version of the driver, "13.0" */
  uint64_t memory_total; /* bytes */
  uint64_t memory_free;  /* 0 = unknown: to find out may take memory */
} fl_device_properties;

/*
 * A hardware platform that a plugin brings (component type "platform").
 *
 * `is_active` initialises no driver: the engine may still fork. `device_count` and `properties` are asked in a child
 * process, or in this one when its devices are in use; an initialised driver that is asked in a child answers with an
 * error, which is held against nobody.
 *
 * `device` is the device_id of its tensors, 0 for the first. The functions from `properties` to `error` let an engine,
 * and flhost's own commands, put tensors on the device; they come together: all, or none (NULL). They may be called
 * from any thread, keep the thread's current device as it was, and return FL_OK, or FL_ENOMEM or FL_EDEVICE with the
 * reason in `error`.
 */
typedef struct fl_platform {
  uint32_t size;
  int32_t device_type; /* DLDeviceType of its tensors */
  /* Is it there and usable? `reason` says why not, as in fl_impl.is_available. Called from one thread at a time, may be
   * called again. */
  bool (*is_active)(void *self, const char **reason);
  /* Number of devices; negative on error, with the reason in `error` where there is one. NULL = unknown. */
  int (*device_count)(void *self);
  /* Fills no more of it than properties->size bytes, which is the size that the host knows. */
  fl_status (*properties)(void *self, int32_t device, fl_device_properties *properties);
  /* The device that the thread uses. */
  fl_status (*current_device)(void *self, int32_t *device);
  /* Aligned to 256; not cleared. */
  fl_status (*allocate)(void *self, int32_t device, size_t size, void **memory);
  fl_status (*release)(void *self, int32_t device, void *memory);
  /* Copies in the order of `stream` (NULL = the device's default), which belongs to `device`. Between memory of that
   * device it may return before it is done; with host memory on either side (FL_COPY_*) it is done when it returns. */
  fl_status (*copy)(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                    void *stream);
  /* Waits until all work of the stream is done; `all` waits for the device's other streams, too. An error of earlier
   * work shows up here. A stream that is being captured in a graph has no work yet: there is nothing to wait for. */
  fl_status (*synchronize)(void *self, int32_t device, void *stream, bool all);
  /* Why the thread's last of these functions failed; the plugin's own, valid until the thread's next. */
  const char *(*error)(void *self);
  /* Does a device of architecture `arch` run what needs `least`, one name of a fl_impl.min_arch? Compares the two and
   * looks at nothing else; a name that it does not know is no reason to say no. NULL: equal names alone do. */
  bool (*arch_reaches)(void *self, const char *arch, const char *least);
  /* Writes the driver's version, "13.0", asking nothing that initialises it; leaves `text` alone where it is not known.
   * NULL = unknown. */
  void (*driver_version)(void *self, char *text, size_t size);
  /* Is the stream being captured in a graph? Then the host allocates no workspaces for it. NULL: there are no graphs.
   */
  fl_status (*is_captured)(void *self, int32_t device, void *stream, bool *captured);

  /*
   * From here on: what an engine needs beside kernels and memory. The functions of one paragraph come together, or are
   * NULL together: then the platform has no such thing. As those above they may be called from any thread, keep the
   * thread's current device, and return FL_OK, or FL_ENOMEM, FL_EDEVICE, or FL_ENOTSUP where this device has no such
   * thing, with the reason in `error`. What they make belongs to `device` and is given back to it.
   */

  /* A stream beside the default one, which it does not wait for. Of two the one with the lower `priority` goes first; 0
   * is the usual, and a number that the device has not becomes the nearest. One that is destroyed with work left in it
   * goes when that is done. */
  fl_status (*create_stream)(void *self, int32_t device, int32_t priority, void **stream);
  fl_status (*destroy_stream)(void *self, int32_t device, void *stream);

  /* An event is a place in the order of a stream: recorded, it is behind all work that the stream has then; recorded
   * again, it moves. `timed` for `elapsed`. What a stream is given after wait_event runs behind the event's place,
   * whichever stream that is in. An event that was not recorded is done, and nobody waits for it. */
  fl_status (*create_event)(void *self, int32_t device, bool timed, void **event);
  fl_status (*destroy_event)(void *self, int32_t device, void *event);
  fl_status (*record_event)(void *self, int32_t device, void *event, void *stream);
  fl_status (*wait_event)(void *self, int32_t device, void *event, void *stream);
  fl_status (*is_event_done)(void *self, int32_t device, void *event, bool *done);
  fl_status (*synchronize_event)(void *self, int32_t device, void *event);
  /* Microseconds between two timed events that are done. */
  fl_status (*elapsed)(void *self, int32_t device, void *first, void *last, double *us);

  /* Host memory that does not move and that the device copies from and to by itself; aligned to 64, not cleared. */
  fl_status (*allocate_host)(void *self, int32_t device, size_t size, void **memory);
  fl_status (*release_host)(void *self, int32_t device, void *memory);

  /* As `copy`, but with host memory, too, it may return before it is done; that memory then stays as it is until the
   * stream is there. Only of allocate_host's memory is it sure that it does not wait. */
  fl_status (*copy_async)(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                          void *stream);

  /* Memory in the order of a stream, from the device's pool, which keeps what is given back until trim_pool. It may be
   * used by what the stream is given between the two; others wait for an event. Aligned to 256; not cleared. */
  fl_status (*allocate_async)(void *self, int32_t device, size_t size, void *stream, void **memory);
  fl_status (*release_async)(void *self, int32_t device, void *memory, void *stream);
  /* Gives the device what the pool holds and nobody uses, but for `keep` bytes. */
  fl_status (*trim_pool)(void *self, int32_t device, uint64_t keep);
  /* Bytes that are in use, and those that the pool holds, these among them. */
  fl_status (*pool_usage)(void *self, int32_t device, uint64_t *used, uint64_t *held);

  /* Between the two the work that the stream is given does not run, but becomes a graph; so does that of streams which
   * wait for an event of its, if it waits for them before the end. `stream` is not the default one, and one thread
   * calls both. Where something was done in between that a graph cannot hold, end_capture fails, *graph is left alone,
   * and the stream is as before begin_capture. */
  fl_status (*begin_capture)(void *self, int32_t device, void *stream);
  fl_status (*end_capture)(void *self, int32_t device, void *stream, void **graph);
  /* Runs a graph in the order of a stream, any number of times, one after the other; on the addresses of the capture.
   */
  fl_status (*launch_graph)(void *self, int32_t device, void *graph, void *stream);
  fl_status (*destroy_graph)(void *self, int32_t device, void *graph);

  /* From where the random numbers of the platform's own ops start on that device. NULL: they draw none. */
  fl_status (*seed)(void *self, int32_t device, uint64_t seed);

  /* Can the device work? FL_EDEVICE with the reason where it cannot: an error that nothing but a new process cures, a
   * device that is lost. Waits for no work. NULL: nobody can say. */
  fl_status (*health)(void *self, int32_t device);
} fl_platform;

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_HARDWARE_H */

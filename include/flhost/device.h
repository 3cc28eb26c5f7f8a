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

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_DEVICE_H */

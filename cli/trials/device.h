/*
 * Devices for the commands that call operators: naming one, tensors in its memory, a call's workspace. Everything goes
 * through fl_device_*, so that the processor is a device like another.
 */
#ifndef FLHOST_CLI_TRIALS_DEVICE_H
#define FLHOST_CLI_TRIALS_DEVICE_H

#include "cli/trials/trial.h"
#include <flhost/flhost.h>

#define CLI_DEVICE_INDEX(value_)                                                                                       \
  { "device", "TYPE[:INDEX]", "tensors on that device: cpu, or a platform's: cuda, cuda:1", NULL, (value_) }

/* "cuda" or "cuda:1". false, with a message, for another word. */
bool cli_device(fl_host *host, const char *word, DLDevice *device);

/* "cuda:1" */
const char *cli_device_text(DLDevice device, char *buffer, size_t size);

/* Is it there, and can memory be had of it? Exit status; says why not. */
int cli_check_device(fl_host *host, DLDevice device);

/* The same, and how many of a type there are, asked in a child process: whoever is going to fork may not begin to use a
 * driver. 0 too where nobody says. */
int cli_check_device_apart(fl_host *host, DLDevice device, const trial_limits *limits);
int32_t cli_count_devices_apart(fl_host *host, int32_t device_type, const trial_limits *limits);

/* fl_device_health, asked in a child process as well. `words`: why the device cannot work. */
fl_status cli_health_apart(fl_host *host, DLDevice device, const trial_limits *limits, char *words, size_t size);

/* Memory of a device. Zero-initialise. On failure of these functions fl_error_message() says why. */
typedef struct device_memory {
  fl_host *host;
  DLDevice device;
  void *memory;
  size_t size;
} device_memory;

fl_status device_memory_create(device_memory *made, fl_host *host, DLDevice device, size_t size);
void device_memory_free(device_memory *memory);

/* Copies all of it; done when they return. */
fl_status device_memory_put(const device_memory *to, const void *from);
fl_status device_memory_get(const device_memory *from, void *to);

/* A tensor on a device, of the shape, strides and element type of one on the host, which must outlive it. */
typedef struct device_tensor {
  DLTensor tensor;
  device_memory memory;
} device_tensor;

fl_status device_tensor_create(device_tensor *made, fl_host *host, DLDevice device, const DLTensor *like);
void device_tensor_free(device_tensor *tensor);

/* Copies between it and the one on the host, gaps between rows included. */
fl_status device_tensor_put(const device_tensor *to, const DLTensor *from);
fl_status device_tensor_get(const device_tensor *from, const DLTensor *to);

#endif

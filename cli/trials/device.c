/* Devices for the commands that call operators: see device.h. */
#include "cli/trials/device.h"

#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool cli_device(fl_host *host, const char *word, DLDevice *device) {
  const char *colon = strchr(word, ':');
  char type[32], *end = NULL;
  int32_t device_type;
  long index = 0;
  snprintf(type, sizeof type, "%.*s", colon ? (int)(colon - word) : (int)strlen(word), word);
  errno = 0;
  if (colon)
    index = strtol(colon + 1, &end, 10);
  if (colon && (errno || end == colon + 1 || *end || index < 0 || index > INT32_MAX)) {
    cli_error("--device: '%s': '%s' is not the index of a device, expected a number from 0 on", word, colon + 1);
    return false;
  }
  if (!cli_device_type(host, type, &device_type))
    return false;
  *device = (DLDevice){(DLDeviceType)device_type, (int32_t)index};
  return true;
}

const char *cli_device_text(DLDevice device, char *buffer, size_t size) {
  if (device.device_type == kDLCPU)
    snprintf(buffer, size, "cpu");
  else
    snprintf(buffer, size, "%s:%d", cli_device_name((int32_t)device.device_type), device.device_id);
  return buffer;
}

int cli_check_device(fl_host *host, DLDevice device) {
  fl_device_properties properties = {.size = sizeof properties};
  fl_status status = fl_device_get_properties(host, device, &properties);
  return status ? cli_fail(status) : EXIT_OK;
}

/* What a child is asked, and says. */
typedef struct inquiry {
  fl_host *host;
  DLDevice device;
  int32_t count;
  fl_status status;
  char message[1024];
} inquiry;

static void check_device(void *context) {
  inquiry *i = context;
  fl_device_properties properties = {.size = sizeof properties};
  i->status = fl_device_get_properties(i->host, i->device, &properties);
  if (i->status)
    snprintf(i->message, sizeof i->message, "%s", fl_error_message());
}

static void ask_health(void *context) {
  inquiry *i = context;
  i->status = fl_device_health(i->host, i->device);
  if (i->status)
    snprintf(i->message, sizeof i->message, "%s", fl_error_message());
}

static void count_devices(void *context) {
  inquiry *i = context;
  if (fl_device_count(i->host, (int32_t)i->device.device_type, &i->count))
    i->count = 0;
}

/* NULL: out of memory. To be unshared. */
static inquiry *ask_apart(const inquiry *question, void (*ask)(void *), const trial_limits *limits,
                          trial_outcome *outcome) {
  inquiry *shared = trial_share(sizeof *shared);
  if (!shared)
    return NULL;
  *shared = *question;
  *outcome = trial_run(limits, ask, shared);
  return shared;
}

int cli_check_device_apart(fl_host *host, DLDevice device, const trial_limits *limits) {
  trial_outcome outcome;
  char text[32];
  if (device.device_type == kDLCPU)
    return cli_check_device(host, device);
  inquiry *answer = ask_apart(&(inquiry){.host = host, .device = device}, check_device, limits, &outcome);
  if (!answer)
    return cli_no_memory();
  int status = outcome.end || answer->status ? EXIT_USAGE : EXIT_OK;
  if (outcome.end)
    cli_error("%s: the driver %s", cli_device_text(device, text, sizeof text), outcome.words);
  else if (answer->status)
    cli_error("%s", answer->message);
  trial_unshare(answer, sizeof *answer);
  return status;
}

fl_status cli_health_apart(fl_host *host, DLDevice device, const trial_limits *limits, char *words, size_t size) {
  trial_outcome outcome;
  inquiry *answer = ask_apart(&(inquiry){.host = host, .device = device}, ask_health, limits, &outcome);
  if (!answer) {
    snprintf(words, size, "out of memory");
    return FL_ENOMEM;
  }
  fl_status status = outcome.end ? FL_EDEVICE : answer->status;
  if (outcome.end)
    snprintf(words, size, "asked for its health, the driver %s", outcome.words);
  else
    snprintf(words, size, "%s", answer->message);
  trial_unshare(answer, sizeof *answer);
  return status;
}

int32_t cli_count_devices_apart(fl_host *host, int32_t device_type, const trial_limits *limits) {
  trial_outcome outcome;
  const inquiry question = {.host = host, .device = {(DLDeviceType)device_type, 0}};
  inquiry *answer = ask_apart(&question, count_devices, limits, &outcome);
  int32_t count = answer && !outcome.end ? answer->count : 0;
  trial_unshare(answer, sizeof *answer);
  return count;
}

/* ---------------------------------------------------------------------------------------------------------- memory */

fl_status device_memory_create(device_memory *made, fl_host *host, DLDevice device, size_t size) {
  *made = (device_memory){.host = host, .device = device, .size = size};
  return fl_device_allocate(host, device, size, &made->memory);
}

/* Nothing is left to be done about memory that cannot be freed. */
void device_memory_free(device_memory *memory) {
  if (memory->memory)
    fl_device_free(memory->host, memory->device, memory->memory);
  *memory = (device_memory){0};
}

fl_status device_memory_put(const device_memory *to, const void *from) {
  return fl_device_copy(to->host, to->device, to->memory, from, to->size, FL_COPY_TO_DEVICE, NULL);
}

fl_status device_memory_get(const device_memory *from, void *to) {
  return fl_device_copy(from->host, from->device, to, from->memory, from->size, FL_COPY_TO_HOST, NULL);
}

/* --------------------------------------------------------------------------------------------------------- tensors */

/* Bytes from the first to behind the last element. */
static size_t span_of(const DLTensor *tensor) {
  int64_t last = 0;
  for (int i = 0; i < tensor->ndim; i++) {
    if (!tensor->shape[i])
      return 0;
    last += fl_stride(tensor, i) * (tensor->shape[i] - 1);
  }
  return (size_t)(last + 1) * (((size_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8);
}

fl_status device_tensor_create(device_tensor *made, fl_host *host, DLDevice device, const DLTensor *like) {
  *made = (device_tensor){.tensor = *like};
  fl_status status = device_memory_create(&made->memory, host, device, span_of(like));
  made->tensor.device = device;
  made->tensor.data = made->memory.memory;
  made->tensor.byte_offset = 0;
  return status;
}

void device_tensor_free(device_tensor *tensor) {
  device_memory_free(&tensor->memory);
}

fl_status device_tensor_put(const device_tensor *to, const DLTensor *from) {
  return device_memory_put(&to->memory, fl_data(from));
}

fl_status device_tensor_get(const device_tensor *from, const DLTensor *to) {
  return device_memory_get(&from->memory, fl_data(to));
}

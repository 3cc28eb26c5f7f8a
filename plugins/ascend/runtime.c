/* The ACL runtime in use: see runtime.h. */
#include "plugins/ascend/runtime.h"
#include "plugins/ascend/locks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ codes */

typedef struct code_range {
  int32_t first, last;
  ascend_code code;
} code_range;

/* The first that fits. */
static const code_range ranges[] = {
    {ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_PARAM_INVALID, {FL_ENOTSUP, ASCEND_OF_CALL, "the operator refuses arguments"}},
    {ACLNN_ERR_INNER_TILING_ERROR,
     ACLNN_ERR_INNER_TILING_ERROR,
     {FL_ENOTSUP, ASCEND_OF_CALL, "the operator has no tiling for these shapes"}},
    {ACLNN_ERR_INNER_FIND_KERNEL_ERROR,
     ACLNN_ERR_INNER_FIND_KERNEL_ERROR,
     {FL_ENOTSUP, ASCEND_OF_OPERATOR, "no kernel for this chip"}},
    {ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND,
     ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND,
     {FL_ENOTSUP, ASCEND_OF_OPERATOR, "operator package not found: is ASCEND_OPP_PATH set?"}},
    {ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND,
     ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND,
     {FL_ENOTSUP, ASCEND_OF_OPERATOR, "no kernel package for this chip is installed"}},
    {ACL_ERROR_BAD_ALLOC, ACL_ERROR_BAD_ALLOC, {FL_ENOMEM, ASCEND_OF_CALL, "out of host memory"}},
    {ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_MEMORY_ALLOCATION, {FL_ENOMEM, ASCEND_OF_CALL, "out of memory"}},
    {ACL_ERROR_RT_DEVICE_OOM, ACL_ERROR_RT_DEVICE_OOM, {FL_ENOMEM, ASCEND_OF_CALL, "out of device memory"}},
    {ACL_ERROR_RT_CONTEXT_NULL, ACL_ERROR_RT_CONTEXT_NULL, {FL_EDEVICE, ASCEND_OF_CALL, "the thread has no device"}},
    {ACL_ERROR_RT_DEVICE_TASK_ABORT, ACL_ERROR_RT_DEVICE_TASK_ABORT, {FL_EDEVICE, ASCEND_OF_CALL, "task aborted"}},
    {ACL_ERROR_RT_CAPTURE_DEPENDENCY,
     ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
     {FL_EDEVICE, ASCEND_OF_CALL, "not while a graph is captured"}},
    {ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
     ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
     {FL_EDEVICE, ASCEND_OF_CALL, "another thread began to capture"}},
    {ACL_ERROR_RT_NO_EVENT_RESOURCE,
     ACL_ERROR_RT_NO_MODEL_RESOURCE,
     {FL_EDEVICE, ASCEND_OF_CALL, "the device has no more events, streams or graphs"}},
    {ACL_ERROR_RT_LOST_HEARTBEAT,
     ACL_ERROR_RT_LOST_HEARTBEAT,
     {FL_EDEVICE, ASCEND_OF_CALL, "the device no longer answers"}},
    {ACL_ERROR_RT_DEVICE_MEM_ERROR,
     ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR,
     {FL_EDEVICE, ASCEND_OF_CALL, "the device's memory is broken"}},
    {ACL_ERROR_RT_SOCKET_CLOSE,
     ACL_ERROR_RT_SOCKET_CLOSE,
     {FL_EDEVICE, ASCEND_OF_CALL, "the connection to the device is lost"}},
    {ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
     ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
     {FL_EDEVICE, ASCEND_OF_CALL, "something was done that a graph cannot hold"}},
    {507015, 507015, {FL_EDEVICE, ASCEND_OF_CALL, "a kernel failed on an AI core"}},
    {507018, 507018, {FL_EDEVICE, ASCEND_OF_CALL, "a kernel failed on an AI CPU"}},
    {507035, 507035, {FL_EDEVICE, ASCEND_OF_CALL, "a kernel failed on a vector core"}},
    {ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
     ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
     {FL_EDEVICE, ASCEND_OF_CALL, "waiting for a stream took too long"}},
    {100037, 100037, {FL_EDEVICE, ASCEND_OF_CALL, "ACL was finalised before"}},
    {148049, 148049, {FL_ENOTSUP, ASCEND_OF_OPERATOR, "wrong operator package: is ASCEND_OPP_PATH right?"}},
    {ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
     ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
     {FL_EDEVICE, ASCEND_OF_CALL, "the runtime does not do that"}},
    {207004, 207004, {FL_EDEVICE, ASCEND_OF_CALL, "there is no such device"}},
    {207020, 207020, {FL_EDEVICE, ASCEND_OF_CALL, "the device did not answer in time"}},
    {100000, 100100, {FL_EINTERNAL, ASCEND_OF_CALL, "wrong use of ACL"}},
    {107000, 107999, {FL_EDEVICE, ASCEND_OF_CALL, "wrong device, context or stream"}},
    {200001, 207999, {FL_EDEVICE, ASCEND_OF_CALL, "the device does not do that"}},
    {361001, 361001, {FL_EDEVICE, ASCEND_OF_CALL, "the runtime failed under the operator"}},
    {500000, 507999, {FL_EDEVICE, ASCEND_OF_CALL, "the device or its driver failed"}},
    {INT32_MIN, INT32_MAX, {FL_EINTERNAL, ASCEND_OF_CALL, "internal error of CANN"}},
};

ascend_code ascend_code_of(int32_t code) {
  const code_range *range = ranges;
  while (code < range->first || code > range->last)
    range++;
  return range->code;
}

/* What nothing but a new process, or a new device, cures. */
static const int32_t fatal[] = {ACL_ERROR_RT_LOST_HEARTBEAT, ACL_ERROR_RT_DEVICE_MEM_ERROR,
                                ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR, ACL_ERROR_RT_SOCKET_CLOSE};
enum { MAX_DEVICES = 64 };
static atomic_int lost[MAX_DEVICES]; /* the first of these codes that the device had, or 0 */

static void remember(int32_t device, int32_t code) {
  int none = 0;
  size_t i = 0;
  while (i < sizeof fatal / sizeof fatal[0] && fatal[i] != code)
    i++;
  if (i < sizeof fatal / sizeof fatal[0] && device >= 0 && device < MAX_DEVICES)
    atomic_compare_exchange_strong(&lost[device], &none, code);
}

int32_t ascend_lost(int32_t device) {
  return device >= 0 && device < MAX_DEVICES ? lost[device] : 0;
}

/* ACL's own words are long and have many lines: as one, and as much as there is room for. */
void ascend_describe_of(int32_t device, char *text, size_t size, const char *function, int32_t code) {
  const char *words = acl.aclGetRecentErrMsg();
  snprintf(text, size, "%s returned %d (%s)%s%s", function, (int)code, ascend_code_of(code).meaning, words ? ": " : "",
           words ? words : "");
  for (char *c = text; *c; c++)
    if (*c == '\n' || *c == '\r' || *c == '\t')
      *c = ' ';
  remember(device, code);
}

/* The words are of the last call, so they are read before the device is asked for. */
void ascend_describe(char *text, size_t size, const char *function, int32_t code) {
  int32_t device = -1;
  ascend_describe_of(-1, text, size, function, code);
  if (!acl.aclrtGetDevice(&device))
    remember(device, code);
}

/* --------------------------------------------------------------------------------------------------- initialisation */

static atomic_bool started;

fl_status ascend_start(char *text, size_t size) {
  const char *reason = NULL;
  fl_status status = FL_OK;
  if (started)
    return FL_OK;
  if (!ascend_libraries_open(&reason)) {
    snprintf(text, size, "%s", reason);
    return FL_EDEVICE;
  }
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_RUNTIME]);
  if (!started) {
    aclError code = acl.aclInit(NULL);
    if (code && code != ACL_ERROR_REPEAT_INITIALIZE) {
      ascend_describe_of(-1, text, size, "aclInit", code);
      status = FL_EDEVICE;
    } else {
      started = true;
    }
  }
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_RUNTIME]);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------ chips */

/* Names are exact, but for those that end in a star. A bare Ascend910B is of the first generation, not an A2. */
static const struct {
  const char *name;
  ascend_chips chip;
} chips[] = {{"Ascend910B1", ASCEND_A2},    {"Ascend910B2", ASCEND_A2},    {"Ascend910B2C", ASCEND_A2},
             {"Ascend910B3", ASCEND_A2},    {"Ascend910B4", ASCEND_A2},    {"Ascend910B4-1", ASCEND_A2},
             {"Ascend910_9391", ASCEND_A3}, {"Ascend910_9392", ASCEND_A3}, {"Ascend910_9381", ASCEND_A3},
             {"Ascend910_9382", ASCEND_A3}, {"Ascend910_9372", ASCEND_A3}, {"Ascend910_9362", ASCEND_A3},
             {"Ascend910_9363", ASCEND_A3}, {"Ascend310P1", ASCEND_310P},  {"Ascend310P2", ASCEND_310P},
             {"Ascend310P3", ASCEND_310P},  {"Ascend310P4", ASCEND_310P},  {"Ascend310P5", ASCEND_310P},
             {"Ascend310P7", ASCEND_310P},  {"Ascend950*", ASCEND_950}};

static atomic_uint chip; /* an ascend_chips, 0 while it is not known */
static char chip_name[64], chip_reason[160];

static bool name_fits(const char *pattern, const char *name) {
  size_t length = strcspn(pattern, "*");
  return !strncmp(pattern, name, length) && (pattern[length] == '*' || !name[length]);
}

static unsigned find_chip(void) {
  const char *name = acl.aclrtGetSocName();
  unsigned found = 0;
  if (*chip_reason && !strcmp(name ? name : "", chip_name))
    return 0; /* still not known */
  snprintf(chip_name, sizeof chip_name, "%s", name ? name : "");
  for (size_t i = 0; name && i < sizeof chips / sizeof chips[0]; i++)
    if (name_fits(chips[i].name, name))
      found = chips[i].chip;
  if (!name)
    snprintf(chip_reason, sizeof chip_reason, "aclrtGetSocName does not know the chip");
  else if (!found)
    snprintf(chip_reason, sizeof chip_reason, "the chip is %s, expected an A2, A3, 310P or 950", name);
  return found;
}

ascend_chips ascend_chip(const char **reason) {
  if (!chip) {
    pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_RUNTIME]);
    if (!chip)
      chip = find_chip();
    pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_RUNTIME]);
  }
  if (!chip && reason)
    *reason = chip_reason;
  return (ascend_chips)chip;
}

const char *ascend_chip_name(void) {
  ascend_chip(NULL);
  return chip_name;
}

/* ----------------------------------------------------------------------------------------------------------- graphs */

bool ascend_is_captured(aclrtStream stream) {
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  aclmdlRI graph = NULL;
  return acl.aclmdlRICaptureGetInfo && !acl.aclmdlRICaptureGetInfo(stream, &status, &graph) &&
         status != ACL_MODEL_RI_CAPTURE_STATUS_NONE;
}

/* ---------------------------------------------------------------------------------------------------------- devices */

fl_status ascend_count_devices(int *count, char *text, size_t size) {
  uint32_t found = 0;
  fl_status status = ascend_start(text, size);
  if (status)
    return status;
  aclError code = acl.aclrtGetDeviceCount(&found);
  if (code) {
    ascend_describe_of(-1, text, size, "aclrtGetDeviceCount", code);
    return FL_EDEVICE;
  }
  *count = (int)found;
  return FL_OK;
}

fl_status ascend_check_number(int32_t device, char *text, size_t size) {
  int count = 0;
  fl_status status = ascend_count_devices(&count, text, size);
  if (status || (device >= 0 && device < count))
    return status;
  snprintf(text, size, "there is no Ascend device %d; the driver reports %d", (int)device, count);
  return FL_EINVAL;
}

fl_status ascend_enter(int32_t device, ascend_guard *guard, char *text, size_t size) {
  int32_t current = -1;
  aclError code;
  *guard = (ascend_guard){0};
  fl_status status = ascend_start(text, size);
  if (status)
    return status;
  bool has_device = !acl.aclrtGetDevice(&current);
  if (has_device && current == device)
    return FL_OK;
  if (has_device && !acl.aclrtGetCurrentContext(&guard->outer))
    guard->changed = true;
  code = acl.aclrtSetDevice(device);
  if (!code)
    return FL_OK;
  *guard = (ascend_guard){0};
  if (ascend_check_number(device, text, size) == FL_EINVAL)
    return FL_EINVAL;
  ascend_describe_of(device, text, size, "aclrtSetDevice", code);
  return FL_EDEVICE;
}

void ascend_leave(const ascend_guard *guard) {
  if (guard->changed)
    acl.aclrtSetCurrentContext(guard->outer);
}

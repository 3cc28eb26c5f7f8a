/* The ACL runtime in use: initialisation, the chip, the thread's device, and what its codes mean. */
#ifndef FLHOST_ASCEND_RUNTIME_H
#define FLHOST_ASCEND_RUNTIME_H

#include "plugins/ascend/acl.h"
#include <flhost/plugin.h>

/* Chips that operators tell apart. */
typedef enum ascend_chips {
  ASCEND_A2 = 1 << 0,
  ASCEND_A3 = 1 << 1,
  ASCEND_310P = 1 << 2,
  ASCEND_950 = 1 << 3,
  ASCEND_TRAINING = ASCEND_A2 | ASCEND_A3 | ASCEND_950, /* all that have bfloat16 */
  ASCEND_ALL = ASCEND_TRAINING | ASCEND_310P
} ascend_chips;

/* What a code of ACL or aclnn means for a call. */
typedef enum ascend_scope {
  ASCEND_OF_CALL,    /* these arguments */
  ASCEND_OF_OPERATOR /* the operator, on this chip or in this installation */
} ascend_scope;

typedef struct ascend_code {
  fl_status status;
  ascend_scope scope;
  const char *meaning;
} ascend_code;

ascend_code ascend_code_of(int32_t code);

/* Writes "aclrtMalloc returned 207001 (out of memory): " and what ACL has to say. A code by which a device is lost is
 * remembered of the thread's. */
void ascend_describe(char *text, size_t size, const char *function, int32_t code);
/* The same of another device, or of none: -1. */
void ascend_describe_of(int32_t device, char *text, size_t size, const char *function, int32_t code);

/* The code by which the device was lost, as far as this plugin has seen; 0 if it was not. Any thread. */
int32_t ascend_lost(int32_t device);

/* Initialises ACL, once; that somebody else did is fine. It is never finalised, as others may be using it. FL_OK, or
 * FL_EDEVICE with the reason in `text`. Any thread. */
fl_status ascend_start(char *text, size_t size);

/* The chip; 0 with a reason (a static string) for one that is not known. Any thread, after ascend_start(). */
ascend_chips ascend_chip(const char **reason);
const char *ascend_chip_name(void);

/* Is the stream being captured in a graph? Not to know counts as no. The device is the thread's. */
bool ascend_is_captured(aclrtStream stream);

/* The thread's device while something is done on `device`. Whoever set another one before gets it back; a thread that
 * had none keeps ours, as it would have to set one anyway. */
typedef struct ascend_guard {
  aclrtContext outer; /* to be put back, if `changed` */
  bool changed;
} ascend_guard;

/* FL_OK, or FL_EDEVICE with the reason in `text`. */
fl_status ascend_count_devices(int *count, char *text, size_t size);

/* FL_OK; with the reason in `text` FL_EINVAL when there is no device of that number, FL_EDEVICE when the runtime does
 * not say how many there are. */
fl_status ascend_check_number(int32_t device, char *text, size_t size);

/* FL_OK; with the reason in `text` FL_EINVAL when there is no device of that number, FL_EDEVICE when it cannot be used.
 */
fl_status ascend_enter(int32_t device, ascend_guard *guard, char *text, size_t size);
void ascend_leave(const ascend_guard *guard);

#endif

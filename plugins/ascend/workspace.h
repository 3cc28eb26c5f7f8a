/*
 * Device memory for calls that bring none, or too little: per device and stream two buffers that grow. Work on a stream
 * is done in its order, so that one call's buffer serves the next; only to grow one the stream is waited for.
 */
#ifndef FLHOST_ASCEND_WORKSPACE_H
#define FLHOST_ASCEND_WORKSPACE_H

#include "plugins/ascend/runtime.h"

typedef enum ascend_buffer { ASCEND_SCRATCH, ASCEND_WORKSPACE, ASCEND_BUFFERS } ascend_buffer;

typedef struct ascend_workspace ascend_workspace;

/* The buffers of a stream, for this thread alone until ascend_workspace_release(): what uses them is queued in between.
 * NULL without host memory. The device is the thread's. */
ascend_workspace *ascend_workspace_acquire(int32_t device, aclrtStream stream);
void ascend_workspace_release(ascend_workspace *workspace);

/* Frees the buffers of a stream that is done and about to be destroyed. The device is the thread's. */
void ascend_workspace_forget(int32_t device, aclrtStream stream);

/* Frees the locks of all, in a child process: the threads that had them are not there. */
void ascend_workspaces_unlock(void);

/* At least `size` bytes (not 0), aligned to 64. FL_ENOMEM or FL_EDEVICE with the reason in `text`. */
fl_status ascend_workspace_get(ascend_workspace *workspace, ascend_buffer buffer, size_t size, void **memory,
                               char *text, size_t text_size);

#endif

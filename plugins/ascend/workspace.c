/* Device memory for calls: see workspace.h. Of streams that the host did not make the buffers stay until the process
 * ends. */
#include "plugins/ascend/workspace.h"
#include "plugins/ascend/locks.h"

#include <stdatomic.h>
#include <stdlib.h>

struct ascend_workspace {
  ascend_workspace *next;
  int32_t device;
  aclrtStream stream;
  pthread_mutex_t lock;
  void *memory[ASCEND_BUFFERS];
  size_t size[ASCEND_BUFFERS];
};

static ascend_workspace *_Atomic first; /* whole at any time: another thread may fork */

/* With the lock of all. */
static ascend_workspace *find(int32_t device, aclrtStream stream) {
  ascend_workspace *workspace = first;
  while (workspace && (workspace->device != device || workspace->stream != stream))
    workspace = workspace->next;
  return workspace;
}

ascend_workspace *ascend_workspace_acquire(int32_t device, aclrtStream stream) {
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_WORKSPACES]);
  ascend_workspace *workspace = find(device, stream);
  if (!workspace && (workspace = calloc(1, sizeof *workspace))) {
    workspace->device = device;
    workspace->stream = stream;
    pthread_mutex_init(&workspace->lock, NULL);
    workspace->next = first;
    first = workspace;
  }
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_WORKSPACES]);
  if (workspace)
    pthread_mutex_lock(&workspace->lock);
  return workspace;
}

void ascend_workspace_release(ascend_workspace *workspace) {
  if (workspace)
    pthread_mutex_unlock(&workspace->lock);
}

/* What is left of it serves the next stream at that address. */
void ascend_workspace_forget(int32_t device, aclrtStream stream) {
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_WORKSPACES]);
  ascend_workspace *workspace = find(device, stream);
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_WORKSPACES]);
  if (!workspace)
    return;
  pthread_mutex_lock(&workspace->lock);
  for (int i = 0; i < ASCEND_BUFFERS; i++) {
    if (workspace->memory[i])
      acl.aclrtFree(workspace->memory[i]);
    workspace->memory[i] = NULL;
    workspace->size[i] = 0;
  }
  pthread_mutex_unlock(&workspace->lock);
}

void ascend_workspaces_unlock(void) {
  for (ascend_workspace *workspace = first; workspace; workspace = workspace->next)
    pthread_mutex_init(&workspace->lock, NULL);
}

/* Queued work may still use the old buffer. */
static fl_status free_buffer(ascend_workspace *workspace, ascend_buffer buffer, char *text, size_t text_size) {
  aclError code = acl.aclrtSynchronizeStream(workspace->stream);
  if (code) {
    ascend_describe(text, text_size, "aclrtSynchronizeStream", code);
    return ascend_code_of(code).status;
  }
  acl.aclrtFree(workspace->memory[buffer]);
  workspace->memory[buffer] = NULL;
  workspace->size[buffer] = 0;
  return FL_OK;
}

fl_status ascend_workspace_get(ascend_workspace *workspace, ascend_buffer buffer, size_t size, void **memory,
                               char *text, size_t text_size) {
  if (workspace->size[buffer] < size) {
    size_t twice = 2 * workspace->size[buffer], wanted = twice > size ? twice : size;
    fl_status status = workspace->memory[buffer] ? free_buffer(workspace, buffer, text, text_size) : FL_OK;
    if (status)
      return status;
    aclError code = acl.aclrtMalloc(&workspace->memory[buffer], wanted, ACL_MEM_MALLOC_HUGE_FIRST);
    if (code) {
      ascend_describe(text, text_size, "aclrtMalloc", code);
      workspace->memory[buffer] = NULL;
      return ascend_code_of(code).status;
    }
    workspace->size[buffer] = wanted;
  }
  *memory = workspace->memory[buffer];
  return FL_OK;
}

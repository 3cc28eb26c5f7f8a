/* Other processes of this machine: which one a number means, and whether it still runs. */
#ifndef FLHOST_PLUGINS_SHM_PROCESS_H
#define FLHOST_PLUGINS_SHM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* A process number is used again; together with the time of its start it is not. */
typedef struct shm_process {
  int64_t start; /* in the kernel's ticks since boot */
  int32_t pid;
  int32_t unused;
} shm_process;

/* What tells this machine, since it was started, and this container from others: process numbers mean the same where
 * it is equal. */
typedef struct shm_machine {
  char boot[40];
  uint64_t processes; /* the namespace of process numbers */
} shm_machine;

/* The calling process; its start is -1 where /proc is not there. */
shm_process shm_process_self(void);

/* False when it has ended, also while nobody has waited for it. */
bool shm_process_runs(const shm_process *process);

void shm_machine_self(shm_machine *machine);

#endif

/*
 * Faults on demand: preloaded into the harness (faults.c), inject.c stands before functions of the C library and lets
 * chosen calls of a kind fail, in all code of the process: flhost's, its libraries', its plugins'.
 */
#ifndef FLHOST_TESTS_FAULTS_INJECT_H
#define FLHOST_TESTS_FAULTS_INJECT_H

typedef enum fault_kind {
  FAULT_NONE,
  FAULT_MEMORY,      /* malloc, calloc, realloc, posix_memalign, aligned_alloc, mmap of memory: ENOMEM */
  FAULT_DESCRIPTORS, /* whatever gives a descriptor: EMFILE */
  FAULT_INTERRUPTED, /* what a signal may interrupt: EINTR */
  FAULT_READ,        /* read, pread, fread: EIO */
  FAULT_SHORT,       /* read, pread: one byte only */
  FAULT_SPACE,       /* write, mkdir, rename, creating a file: ENOSPC */
  FAULT_PROCESSES,   /* fork, posix_spawn, pthread_create: EAGAIN */
  FAULT_PROC,        /* what lies below /proc and /sys: ENOENT */
  FAULT_READ_ONLY,   /* whatever changes a file or directory: EROFS */
  FAULT_MISSING,     /* opening, stat, lstat, access, realpath of what is read: ENOENT, as if it had just gone */
  FAULT_CUT,         /* read, pread: nothing, as if the file had just been cut short */
  FAULT_CHANGED,     /* read, pread: other bytes than there were */
  FAULT_AHEAD,  /* clock_gettime of what only goes forward, as it should: a day further; nobody asks the time of day */
  FAULT_BEHIND, /* the same: a day back */
  N_FAULTS
} fault_kind;

/* From now on calls of that kind number first, first + 1… last - 1 fail, counted from 0 in all threads. */
void inject_faults(fault_kind kind, long first, long last);

/* How many calls of the kind there were since; ends the faults. */
long end_of_faults(void);

#endif

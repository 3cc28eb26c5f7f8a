#include "tests/faults/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Atomic int kind_now;
static _Atomic long first_now, last_now, calls;

void inject_faults(fault_kind kind, long first, long last) {
  atomic_store(&calls, 0);
  atomic_store(&first_now, first);
  atomic_store(&last_now, last);
  atomic_store(&kind_now, kind);
}

long end_of_faults(void) {
  atomic_store(&kind_now, FAULT_NONE);
  return atomic_load(&calls);
}

/* Is this call one that fails? */
static bool fails(fault_kind kind) {
  if (atomic_load_explicit(&kind_now, memory_order_relaxed) != (int)kind)
    return false;
  long number = atomic_fetch_add(&calls, 1);
  return number >= atomic_load(&first_now) && number < atomic_load(&last_now);
}

static bool refuses(fault_kind kind, int error) {
  if (!fails(kind))
    return false;
  errno = error;
  return true;
}

static bool of_the_system(const char *path) {
  return path && (!strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5));
}

static bool writes(int flags) {
  return flags & O_CREAT || (flags & O_ACCMODE) != O_RDONLY;
}

/* What a path that is changed may meet; what one that is looked at may. */
static bool cannot_change(void) {
  return refuses(FAULT_SPACE, ENOSPC) || refuses(FAULT_READ_ONLY, EROFS);
}

static bool cannot_see(const char *path) {
  return refuses(FAULT_MISSING, ENOENT) || (of_the_system(path) && refuses(FAULT_PROC, ENOENT));
}

/* What a path's opening may meet. */
static bool cannot_open(const char *path, int flags) {
  return refuses(FAULT_DESCRIPTORS, EMFILE) || refuses(FAULT_INTERRUPTED, EINTR) ||
         (writes(flags) && (refuses(FAULT_SPACE, ENOSPC) || refuses(FAULT_READ_ONLY, EROFS))) ||
         (!writes(flags) && refuses(FAULT_MISSING, ENOENT)) || (of_the_system(path) && refuses(FAULT_PROC, ENOENT));
}

/* The function that this library stands before. */
#define REAL(name) ((__typeof__(&name))(uintptr_t)real(#name, &real_##name))
#define KEEP(name) static _Atomic(void *) real_##name
static void *real(const char *name, _Atomic(void *) *kept) {
  void *found = atomic_load_explicit(kept, memory_order_relaxed);
  if (!found) {
    found = dlsym(RTLD_NEXT, name);
    atomic_store_explicit(kept, found, memory_order_relaxed);
  }
  return found;
}

/* ------------------------------------------------------------------------------------------------------------ memory
 * The C library's own names, since dlsym may allocate. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
  return refuses(FAULT_MEMORY, ENOMEM) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size) {
  return refuses(FAULT_MEMORY, ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size) {
  return refuses(FAULT_MEMORY, ENOMEM) ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
  return refuses(FAULT_MEMORY, ENOMEM) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
  if (fails(FAULT_MEMORY))
    return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}

KEEP(mmap);
void *mmap(void *where, size_t length, int protection, int flags, int file, off_t offset) {
  if (refuses(FAULT_MEMORY, ENOMEM))
    return MAP_FAILED;
  return REAL(mmap)(where, length, protection, flags, file, offset);
}

/* ------------------------------------------------------------------------------------------------------------ files */

KEEP(open);
int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return cannot_open(path, flags) ? -1 : REAL(open)(path, flags, mode);
}

KEEP(openat);
int openat(int directory, const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return cannot_open(path, flags) ? -1 : REAL(openat)(directory, path, flags, mode);
}

KEEP(fopen);
FILE *fopen(const char *path, const char *mode) {
  return cannot_open(path, *mode == 'r' ? 0 : O_CREAT) ? NULL : REAL(fopen)(path, mode);
}

KEEP(opendir);
DIR *opendir(const char *path) {
  return cannot_open(path, 0) ? NULL : REAL(opendir)(path);
}

KEEP(fdopendir);
DIR *fdopendir(int file) {
  return refuses(FAULT_MEMORY, ENOMEM) ? NULL : REAL(fdopendir)(file);
}

KEEP(dup);
int dup(int file) {
  return refuses(FAULT_DESCRIPTORS, EMFILE) ? -1 : REAL(dup)(file);
}

KEEP(dup2);
int dup2(int file, int other) {
  return refuses(FAULT_INTERRUPTED, EINTR) ? -1 : REAL(dup2)(file, other);
}

KEEP(pipe2);
int pipe2(int files[2], int flags) {
  return refuses(FAULT_DESCRIPTORS, EMFILE) ? -1 : REAL(pipe2)(files, flags);
}

KEEP(pipe);
int pipe(int files[2]) {
  return refuses(FAULT_DESCRIPTORS, EMFILE) ? -1 : REAL(pipe)(files);
}

KEEP(socketpair);
int socketpair(int domain, int type, int protocol, int files[2]) {
  return refuses(FAULT_DESCRIPTORS, EMFILE) ? -1 : REAL(socketpair)(domain, type, protocol, files);
}

KEEP(memfd_create);
int memfd_create(const char *name, unsigned flags) {
  return refuses(FAULT_DESCRIPTORS, EMFILE) ? -1 : REAL(memfd_create)(name, flags);
}

KEEP(mkstemp);
int mkstemp(char *name) {
  return cannot_open(NULL, O_CREAT) ? -1 : REAL(mkstemp)(name);
}

KEEP(mkdir);
int mkdir(const char *path, mode_t mode) {
  return cannot_change() ? -1 : REAL(mkdir)(path, mode);
}

KEEP(rename);
int rename(const char *from, const char *to) {
  return cannot_change() ? -1 : REAL(rename)(from, to);
}

KEEP(fsync);
int fsync(int file) {
  return refuses(FAULT_SPACE, ENOSPC) ? -1 : REAL(fsync)(file);
}

KEEP(write);
ssize_t write(int file, const void *data, size_t size) {
  if (file > STDERR_FILENO && (refuses(FAULT_SPACE, ENOSPC) || refuses(FAULT_INTERRUPTED, EINTR)))
    return -1;
  return REAL(write)(file, data, size);
}

/* What has become of the file since it was opened: how much of it is read now. */
static size_t left_of(size_t size) {
  return !size ? 0 : fails(FAULT_CUT) ? 0 : fails(FAULT_SHORT) ? 1 : size;
}

/* Each byte is another, now and then a printable one. */
static ssize_t changed(void *data, ssize_t length) {
  unsigned char *bytes = data;
  if (length > 0 && fails(FAULT_CHANGED))
    for (ssize_t i = 0; i < length; i++)
      bytes[i] ^= (unsigned char)(1 + i % 31);
  return length;
}

KEEP(read);
ssize_t read(int file, void *data, size_t size) {
  if (refuses(FAULT_READ, EIO) || refuses(FAULT_INTERRUPTED, EINTR))
    return -1;
  return changed(data, REAL(read)(file, data, left_of(size)));
}

KEEP(pread);
ssize_t pread(int file, void *data, size_t size, off_t offset) {
  if (refuses(FAULT_READ, EIO) || refuses(FAULT_INTERRUPTED, EINTR))
    return -1;
  return changed(data, REAL(pread)(file, data, left_of(size), offset));
}

KEEP(stat);
int stat(const char *path, struct stat *status) {
  return cannot_see(path) ? -1 : REAL(stat)(path, status);
}

KEEP(lstat);
int lstat(const char *path, struct stat *status) {
  return cannot_see(path) ? -1 : REAL(lstat)(path, status);
}

KEEP(realpath);
char *realpath(const char *path, char *resolved) {
  return cannot_see(path) ? NULL : REAL(realpath)(path, resolved);
}

KEEP(unlink);
int unlink(const char *path) {
  return refuses(FAULT_READ_ONLY, EROFS) ? -1 : REAL(unlink)(path);
}

KEEP(access);
int access(const char *path, int mode) {
  return cannot_see(path) ? -1 : REAL(access)(path, mode);
}

KEEP(readlink);
ssize_t readlink(const char *path, char *target, size_t size) {
  return of_the_system(path) && refuses(FAULT_PROC, ENOENT) ? -1 : REAL(readlink)(path, target, size);
}

/* ------------------------------------------------------------------------------------------ processes and the clock */

KEEP(fork);
pid_t fork(void) {
  return refuses(FAULT_PROCESSES, EAGAIN) ? -1 : REAL(fork)();
}

KEEP(posix_spawn);
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
  return fails(FAULT_PROCESSES) ? EAGAIN : REAL(posix_spawn)(pid, path, actions, attributes, arguments, environment);
}

KEEP(pthread_create);
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  return fails(FAULT_PROCESSES) ? EAGAIN : REAL(pthread_create)(thread, attributes, run, argument);
}

KEEP(waitpid);
pid_t waitpid(pid_t pid, int *status, int options) {
  return refuses(FAULT_INTERRUPTED, EINTR) ? -1 : REAL(waitpid)(pid, status, options);
}

KEEP(nanosleep);
int nanosleep(const struct timespec *time, struct timespec *left) {
  return refuses(FAULT_INTERRUPTED, EINTR) ? -1 : REAL(nanosleep)(time, left);
}

KEEP(clock_gettime);
int clock_gettime(clockid_t clock, struct timespec *time) {
  int status = REAL(clock_gettime)(clock, time);
  enum { DAY = 24 * 3600 };
  if (clock == CLOCK_MONOTONIC && fails(FAULT_AHEAD))
    time->tv_sec += DAY;
  if (clock == CLOCK_MONOTONIC && fails(FAULT_BEHIND))
    time->tv_sec -= DAY;
  return status;
}

/*
 * One memfd a communicator. Whoever makes an id keeps the descriptor, by whose number the others open it in /proc, and
 * closes it when all have joined: seen when this process next makes, joins or leaves one.
 */
#include "plugins/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "flshm 1"

/* An id of this process's whose ranks have not all joined. */
typedef struct kept {
  struct kept *next;
  shm_head *head;
  int fd;
} kept;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static kept *all_kept;
static shm_segment *segments;
static _Atomic unsigned forks;

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork(void) {
  pthread_mutex_unlock(&lock);
}

static void let_go(kept *k) {
  munmap(k->head, SHM_HEAD_BYTES);
  close(k->fd);
  free(k);
}

/* A child has what its parent had, and no part in it: it may join anew. Its copies of the parent's ranks are not looked
 * into any more (shm_is_ours). */
static void in_child(void) {
  while (all_kept) {
    kept *k = all_kept;
    all_kept = k->next;
    let_go(k);
  }
  while (segments) {
    shm_segment *segment = segments;
    segments = segment->next;
    munmap(segment->head, segment->size);
    free(segment);
  }
  forks++;
  pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, in_child);
}

unsigned shm_forks(void) {
  return forks;
}

static void sweep_locked(void) {
  for (kept **link = &all_kept; *link;) {
    kept *k = *link;
    if (atomic_load(&k->head->has_met)) {
      *link = k->next;
      let_go(k);
    } else {
      link = &k->next;
    }
  }
}

void shm_sweep(void) {
  pthread_mutex_lock(&lock);
  sweep_locked();
  pthread_mutex_unlock(&lock);
}

/* Makes the memory of an id, as long as its head is. NULL, or what failed (errno). */
static const char *make_memory(kept *k, shm_id *made) {
  if ((k->fd = memfd_create("flhost", MFD_CLOEXEC)) < 0)
    return "memfd_create";
  if (getrandom(made->cookie, sizeof made->cookie, 0) != (ssize_t)sizeof made->cookie)
    return "getrandom";
  if (ftruncate(k->fd, SHM_HEAD_BYTES))
    return "ftruncate";
  k->head = mmap(NULL, SHM_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, k->fd, 0);
  if (k->head == MAP_FAILED)
    return "mmap";
  memcpy(k->head->magic, made->magic, sizeof made->magic);
  memcpy(k->head->cookie, made->cookie, sizeof made->cookie);
  k->head->maker = made->maker;
  made->fd = k->fd;
  return NULL;
}

fl_status shm_make_id(void *self, void *id, char *message, size_t message_size) {
  shm_id made = {.magic = MAGIC, .user = geteuid(), .maker = shm_process_self()};
  kept *k = calloc(1, sizeof *k);
  (void)self;
  pthread_once(&once, watch_forks);
  if (!k)
    return fl_say(message, message_size, FL_ENOMEM, "shm: no memory for an id");
  shm_machine_self(&made.machine);
  const char *failed = make_memory(k, &made);
  if (failed) {
    fl_status status =
        fl_say(message, message_size, FL_EDEVICE, "shm: no shared memory can be made: %s: %s", failed, strerror(errno));
    if (k->fd >= 0)
      close(k->fd);
    free(k);
    return status;
  }
  memcpy(id, &made, sizeof made);
  pthread_mutex_lock(&lock);
  sweep_locked();
  k->next = all_kept;
  all_kept = k;
  pthread_mutex_unlock(&lock);
  return FL_OK;
}

#define say(...) fl_say(join->message, join->message_size, __VA_ARGS__)

/* Opens what an id names; the descriptor, or -1 with `status` and words. */
static int open_named(const fl_join *join, const shm_id *id, fl_status *status) {
  char path[64];
  struct stat file;
  shm_head head;
  shm_machine machine;
  *status = FL_EINVAL;
  if (memcmp(id->magic, MAGIC, sizeof id->magic)) {
    say(FL_EINVAL, "group '%s': this is no id that shm has made", join->name);
    return -1;
  }
  shm_machine_self(&machine);
  if (memcmp(&machine, &id->machine, sizeof machine)) {
    say(FL_EINVAL,
        "group '%s': the id was made on another machine, in another container or before this machine was started; shm "
        "joins processes that see each other's numbers",
        join->name);
    return -1;
  }
  *status = FL_EDEVICE;
  if (!shm_process_runs(&id->maker)) {
    say(FL_EDEVICE, "group '%s': process %d, which made the id, has ended; it has to run until all ranks have joined",
        join->name, (int)id->maker.pid);
    return -1;
  }
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)id->maker.pid, (int)id->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    int error = errno;
    if (error == ENOENT)
      say(FL_EDEVICE, "group '%s': process %d has closed the memory of this id: all ranks have joined already",
          join->name, (int)id->maker.pid);
    else if (id->user != geteuid())
      say(FL_EDEVICE, "group '%s': the id was made by process %d of user %u, and this is user %u: %s", join->name,
          (int)id->maker.pid, (unsigned)id->user, (unsigned)geteuid(), strerror(error));
    else
      say(FL_EDEVICE, "group '%s': the memory of process %d, which made the id, cannot be opened (%s): %s", join->name,
          (int)id->maker.pid, path, strerror(error));
    return -1;
  }
  if (fstat(fd, &file) || !S_ISREG(file.st_mode) || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
      memcmp(head.magic, MAGIC, sizeof head.magic) || memcmp(head.cookie, id->cookie, sizeof head.cookie)) {
    say(FL_EDEVICE, "group '%s': process %d has other memory where that of this id was: all ranks have joined already",
        join->name, (int)id->maker.pid);
    close(fd);
    return -1;
  }
  return fd;
}

/* The first that comes says how many ranks there are. */
static fl_status agree(const fl_join *join, int fd) {
  void *memory = mmap(NULL, SHM_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int32_t ranks = 0;
  if (memory == MAP_FAILED)
    return say(FL_EDEVICE, "group '%s': mmap: %s", join->name, strerror(errno));
  shm_head *head = memory;
  bool agrees = atomic_compare_exchange_strong(&head->ranks, &ranks, join->ranks) || ranks == join->ranks;
  munmap(memory, SHM_HEAD_BYTES);
  if (!agrees)
    return say(FL_EINVAL, "group '%s': rank %d says that there are %d ranks, those before it said %d", join->name,
               (int)join->rank, (int)join->ranks, (int)ranks);
  return FL_OK;
}

static fl_status map(const fl_join *join, const shm_id *id, shm_segment **mapped) {
  fl_status status;
  size_t size = shm_bytes(join->ranks);
  void *memory = MAP_FAILED;
  int fd = open_named(join, id, &status);
  if (fd < 0)
    return status;
  status = agree(join, fd);
  shm_segment *segment = status ? NULL : calloc(1, sizeof *segment);
  if (status) {
    /* said */
  } else if (!segment) {
    status = say(FL_ENOMEM, "group '%s': no memory for rank %d", join->name, (int)join->rank);
  } else if (ftruncate(fd, (off_t)size) ||
             (memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0)) == MAP_FAILED) {
    status = say(FL_ENOMEM, "group '%s': %zu MiB of shared memory for %d ranks cannot be had: %s", join->name,
                 size >> 20, (int)join->ranks, strerror(errno));
    free(segment);
  } else {
    memcpy(segment->cookie, id->cookie, sizeof segment->cookie);
    segment->head = memory;
    segment->size = size;
    segment->ranks = join->ranks;
    *mapped = segment;
  }
  close(fd);
  return status;
}

fl_status shm_segment_open(const fl_join *join, shm_segment **opened) {
  shm_id id;
  shm_segment *segment;
  fl_status status = FL_OK;
  memcpy(&id, join->id, sizeof id);
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lock);
  sweep_locked();
  for (segment = segments; segment; segment = segment->next)
    if (!memcmp(segment->cookie, id.cookie, sizeof id.cookie))
      break;
  if (segment && segment->ranks != join->ranks) {
    status = say(FL_EINVAL, "group '%s': rank %d says that there are %d ranks, those before it said %d", join->name,
                 (int)join->rank, (int)join->ranks, segment->ranks);
  } else if (!segment) {
    status = map(join, &id, &segment);
    if (!status) {
      segment->next = segments;
      segments = segment;
    }
  }
  if (!status) {
    segment->users++;
    *opened = segment;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void shm_segment_close(shm_segment *segment) {
  pthread_mutex_lock(&lock);
  sweep_locked();
  if (!--segment->users) {
    shm_segment **link = &segments;
    while (*link != segment)
      link = &(*link)->next;
    *link = segment->next;
    munmap(segment->head, segment->size);
    free(segment);
  }
  pthread_mutex_unlock(&lock);
}

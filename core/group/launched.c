/*
 * Ranks that somebody started together: which one a process is, from the environment of the launcher, and how the
 * group's id gets from one rank to the others.
 */
#include "core/group/communicators.h"
#include "core/group/group.h"
#include "core/settings.h"
#include "core/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------- which rank */

/* The most particular first: under Slurm the variables of an inner launcher are the ones that are meant. `with`: what
 * has to be there, too. Slurm gives a batch script rank 0 of all that the job has room for; only srun starts ranks. */
static const struct launcher {
  const char *name, *with, *rank, *ranks, *local;
} launchers[] = {
    {"flhost launch", NULL, "FLHOST_RANK", "FLHOST_RANKS", "FLHOST_LOCAL_RANK"},
    {"Open MPI", NULL, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"torchrun", NULL, "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"PMI", NULL, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

static fl_status read_number(const char *variable, const char *text, int32_t least, int32_t most, int32_t *number) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (end == text || *end || errno || value < least || value > most)
    return fl_error(FL_ECONFIG, "%s is '%s', expected a number from %d to %d", variable, text, least, most);
  *number = (int32_t)value;
  return FL_OK;
}

fl_status fl_find_launched(fl_host *host, fl_launched *given) {
  fl_launched found = {.size = sizeof found, .ranks = 1, .launcher = ""};
  fl_status status = fl_sized_check(given, offsetof(fl_launched, rank), "the result's", "fl_launched");
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !status && !*found.launcher; i++) {
    const struct launcher *l = &launchers[i];
    const char *rank = fl_config_getenv(&host->sources, l->rank), *ranks = fl_config_getenv(&host->sources, l->ranks),
               *local = fl_config_getenv(&host->sources, l->local);
    if (!rank || (l->with && !fl_config_getenv(&host->sources, l->with)))
      continue;
    found.launcher = l->name;
    if (!ranks)
      return fl_error(FL_ECONFIG, "%s is there and %s is not: how many ranks are there?", l->rank, l->ranks);
    status = read_number(l->ranks, ranks, 1, INT32_MAX, &found.ranks);
    if (!status)
      status = read_number(l->rank, rank, 0, found.ranks - 1, &found.rank);
    found.local_rank = found.rank;
    if (!status && local)
      status = read_number(l->local, local, 0, found.ranks - 1, &found.local_rank);
  }
  if (!status)
    fl_sized_give(given, &found, sizeof found);
  return status;
}

/* ------------------------------------------------------------------------------------------------------ ids as text */

/* NAME:HEX, without the zeros at the end. */
fl_status fl_group_id_to_text(const fl_group_id *id, char *text, size_t size) {
  size_t used = sizeof id->bytes, name = strnlen(id->communicator, sizeof id->communicator);
  while (used && !id->bytes[used - 1])
    used--;
  if (!name || name == sizeof id->communicator)
    return fl_error(FL_EINVAL, "the group's id is none that fl_group_make_id made: it names no communicator");
  if (size < name + 2 + 2 * used)
    return fl_error(FL_EINVAL, "an id of %zu bytes does not fit into %zu", name + 2 + 2 * used, size);
  char *at = text + sprintf(text, "%s:", id->communicator);
  for (size_t i = 0; i < used; i++)
    at += sprintf(at, "%02x", id->bytes[i]);
  return FL_OK;
}

static int digit(char c) {
  static const char digits[] = "0123456789abcdef";
  const char *found = c ? strchr(digits, c) : NULL;
  return found ? (int)(found - digits) : -1;
}

fl_status fl_group_id_from_text(const char *text, fl_group_id *id) {
  fl_group_id read = {0};
  const char *colon = strchr(text, ':'), *hex = colon ? colon + 1 : "";
  size_t name = colon ? (size_t)(colon - text) : 0, digits = strlen(hex);
  bool good = name && name < sizeof read.communicator && !(digits % 2) && digits / 2 <= sizeof read.bytes;
  for (size_t i = 0; good && i < digits / 2; i++) {
    int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    if (good)
      read.bytes[i] = (unsigned char)(high * 16 + low);
  }
  if (!good)
    return fl_error(FL_EINVAL,
                    "'%.64s%s' is no id of a group, expected the name of a communicator, a colon and bytes "
                    "as hexadecimal digits",
                    text, strlen(text) > 64 ? "…" : "");
  memcpy(read.communicator, text, name);
  *id = read;
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------------- ids through
 * files */

/* As a whole or not at all: it gets its name when it is complete. */
static fl_status write_file(const char *path, const fl_group_id *id) {
  char *text = malloc(FL_GROUP_ID_TEXT), *beside = fl_format("%s.%d", path, (int)getpid());
  fl_status status = text && beside ? fl_group_id_to_text(id, text, FL_GROUP_ID_TEXT) : fl_error_no_memory();
  if (!status) {
    unlink(beside);
    int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    size_t length = strlen(text);
    bool written = file >= 0 && write(file, text, length) == (ssize_t)length;
    int why = errno;
    if (file >= 0 && close(file))
      written = false;
    if (written && rename(beside, path)) {
      why = errno;
      written = false;
    }
    if (!written) {
      status = fl_error(FL_ECONFIG, "FLHOST_GROUP_FILE: '%s' cannot be written: %s", path, strerror(why));
      unlink(beside);
    }
  }
  free(beside);
  free(text);
  return status;
}

/* What another user put there is none of ours. */
static fl_status check_owner(const char *path, int file) {
  struct stat status;
  if (!fstat(file, &status) && S_ISREG(status.st_mode) && (status.st_uid == geteuid() || !status.st_uid))
    return FL_OK;
  return fl_error(FL_ECONFIG, "FLHOST_GROUP_FILE: '%s' is no file of this user's", path);
}

/* Waits until it is there. */
static fl_status read_file(const char *path, double timeout, fl_group_id *id) {
  enum { STEP_US = 10000 };
  fl_stopwatch watch = fl_stopwatch_start();
  int file;
  while ((file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) < 0) {
    if (errno != ENOENT)
      return fl_error(FL_ECONFIG, "FLHOST_GROUP_FILE: '%s' cannot be read: %s", path, strerror(errno));
    if (fl_stopwatch_look(&watch, STEP_US * 1e-6) > timeout && timeout > 0)
      return fl_error(FL_EDEVICE, "rank 0 did not write the group's id to '%s' (FLHOST_GROUP_FILE) within %g s", path,
                      timeout);
    usleep(STEP_US);
  }
  char *text = calloc(1, FL_GROUP_ID_TEXT + 1);
  fl_status status = text ? check_owner(path, file) : fl_error_no_memory();
  if (!status && read(file, text, FL_GROUP_ID_TEXT) < 0)
    status = fl_error(FL_ECONFIG, "FLHOST_GROUP_FILE: '%s' cannot be read: %s", path, strerror(errno));
  close(file);
  if (!status)
    status = fl_group_id_from_text(text, id);
  free(text);
  return status;
}

/* -------------------------------------------------------------------------------------------------- coming together */

static double timeout_of(fl_host *host, const fl_group_options *options) {
  bool given = options && options->size >= offsetof(fl_group_options, timeout) + sizeof options->timeout;
  return fl_group_timeout(host, given ? options->timeout : 0);
}

/* *file: through which the id came; NULL: through none. */
static fl_status find_id(fl_host *host, int32_t device_type, const fl_launched *me, const fl_group_options *options,
                         fl_group_id *id, const char **file) {
  const char *text = fl_config_getenv(&host->sources, "FLHOST_GROUP_ID");
  fl_communicator_choice choice;
  if (text) {
    fl_status status = fl_group_id_from_text(text, id);
    return status ? fl_error(FL_ECONFIG, "FLHOST_GROUP_ID: %s", fl_error_message()) : FL_OK;
  }
  *file = fl_config_getenv(&host->sources, "FLHOST_GROUP_FILE");
  if (*file && me->rank)
    return read_file(*file, timeout_of(host, options), id);
  fl_status status = fl_communicator_choose(host, device_type, NULL, &choice);
  if (status)
    return status;
  if (!*file && choice.functions.flags & FL_COMMUNICATOR_WORLD) {
    *id = (fl_group_id){0};
    snprintf(id->communicator, sizeof id->communicator, "%s", choice.name);
    return FL_OK;
  }
  if (!*file && me->ranks > 1)
    return fl_error(
        FL_ECONFIG,
        "rank %d of %d, started by %s: the ranks of communicator '%s' need an id; let FLHOST_GROUP_FILE name a "
        "file that is not there, on a file system that all ranks see",
        me->rank, me->ranks, me->launcher, choice.name);
  status = fl_group_make_id(host, device_type, id);
  if (!status && *file)
    status = write_file(*file, id);
  return status;
}

/* That of the rank's number on its machine, where the process sees so many: one that was given a device of its own sees
 * that alone. */
static int32_t choose_device(fl_host *host, int32_t device_type, const fl_launched *me) {
  int32_t count;
  bool seen = device_type != kDLCPU && !fl_device_count(host, device_type, &count) && me->local_rank < count;
  return seen ? me->local_rank : 0;
}

fl_status fl_group_create_launched(fl_host *host, int32_t device_type, const fl_group_options *options,
                                   fl_group **group) {
  fl_launched me = {.size = sizeof me};
  fl_group_options own = {.size = sizeof own};
  fl_group_id id;
  const char *file = NULL;
  fl_status status = fl_find_launched(host, &me);
  if (!status && !options) {
    own.device = choose_device(host, device_type, &me);
    options = &own;
  }
  if (!status)
    status = find_id(host, device_type, &me, options, &id, &file);
  if (status)
    return status;
  status = fl_group_create(host, &id, me.rank, me.ranks, options, group);
  if (file && !me.rank)
    unlink(file);
  return status;
}

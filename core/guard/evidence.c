/* Calls that went wrong, as files: see evidence.h. */
#include "core/guard/evidence.h"

#include "core/guard/watch.h"
#include "core/support.h"

#include <dirent.h>
#include <errno.h>
#include <flhost/testing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of one directory and of one file: what is found wrong once is found wrong often. */
enum { FILES_MAX = 64 };
static const uint64_t bytes_max = UINT64_C(256) << 20;

/* VLLM_FL_EVIDENCE, else the directory that XDG's rules give; NULL with the reason. */
static char *choose_directory(fl_host *host, char *why, size_t size) {
  const char *state = fl_config_getenv(&host->sources, "XDG_STATE_HOME"), *home;
  char *path = NULL;
  if (host->watch->evidence)
    path = fl_strdup(host->watch->evidence);
  else if (state && *state == '/')
    path = fl_format("%s/flhost/evidence", state);
  else if ((home = fl_config_getenv(&host->sources, "HOME")) && *home == '/')
    path = fl_format("%s/.local/state/flhost/evidence", home);
  else {
    snprintf(why, size, "there is neither HOME nor XDG_STATE_HOME; set VLLM_FL_EVIDENCE");
    return NULL;
  }
  if (!path)
    snprintf(why, size, "out of memory");
  return path;
}

/* mkdir -p, private. */
static bool make_directory(char *path, char *why, size_t size) {
  struct stat about;
  int made = 0;
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0700); /* where it cannot be made the last one says so */
    *slash = '/';
  }
  made = mkdir(path, 0700);
  if ((made && errno != EEXIST) || stat(path, &about)) {
    snprintf(why, size, "%s: %s", path, strerror(errno));
    return false;
  }
  bool ours = S_ISDIR(about.st_mode) && about.st_uid == geteuid() && !(about.st_mode & (S_IWGRP | S_IWOTH));
  if (!ours)
    snprintf(why, size, "%s: expected a directory of one's own that nobody else may write to", path);
  return ours;
}

static bool has_room(const char *path, char *why, size_t size) {
  DIR *directory = opendir(path);
  int n = 0;
  if (!directory) {
    snprintf(why, size, "%s: %s", path, strerror(errno));
    return false;
  }
  for (const struct dirent *entry; (entry = readdir(directory));)
    n += entry->d_name[0] != '.';
  closedir(directory);
  if (n >= FILES_MAX)
    snprintf(why, size, "%s holds %d files, and is not filled any further", path, n);
  return n < FILES_MAX;
}

static bool is_small(const fl_call *call, char *why, size_t size) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < call->count; i++)
    if (call->values[i].type == FL_TENSOR)
      bytes += (uint64_t)fl_tensor_elements(call->values[i].v.tensor) * fl_tensor_item_size(call->values[i].v.tensor);
  if (bytes > bytes_max)
    snprintf(why, size, "its tensors have %llu MiB, at most %llu are saved", (unsigned long long)(bytes >> 20),
             (unsigned long long)(bytes_max >> 20));
  return bytes <= bytes_max;
}

/* Names come from plugins. */
static void make_plain(char *name) {
  for (; *name; name++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", *name))
      *name = '_';
}

/* A name that no file in the directory has; NULL: out of memory. */
static char *choose_name(const fl_op *op, const fl_impl_record *record, const char *directory) {
  char *path = NULL;
  do {
    free(path);
    char *name = fl_format("%.100s-%.100s-%ld-%u", op->name, record->impl_id, (long)getpid(),
                           (unsigned)atomic_fetch_add(&op->host->watch->saved, 1));
    if (name)
      make_plain(name);
    path = name ? fl_format("%s/%s.safetensors", directory, name) : NULL;
    free(name);
  } while (path && !access(path, F_OK));
  return path;
}

char *fl_evidence_save(fl_op *op, const fl_impl_record *record, const fl_call *call, const fl_saved_call *about,
                       char *why, size_t size) {
  char *path = NULL, *directory = choose_directory(op->host, why, size);
  if (!directory || !is_small(call, why, size) || !make_directory(directory, why, size) ||
      !has_room(directory, why, size))
    goto out;
  path = choose_name(op, record, directory);
  if (!path)
    snprintf(why, size, "out of memory");
  if (path && fl_save_call(path, op, call, about)) {
    snprintf(why, size, "%s: %s", path, fl_error_message());
    free(path);
    path = NULL;
  }
out:
  free(directory);
  return path;
}

/* Cores that this process may use: see cores.h. */
#include "core/platform/cores.h"

#include "core/platform/probe.h"
#include "core/platform/topology.h"
#include "core/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------- affinity */

enum { PROCESSORS_MAX = 1 << 16 };

fl_processors fl_usable_processors(void) {
  fl_processors processors = {0};
  /* The kernel refuses a set that is smaller than its own. */
  for (int n = CPU_SETSIZE; n <= PROCESSORS_MAX; n *= 2) {
    cpu_set_t *first = CPU_ALLOC(n), *own = CPU_ALLOC(n);
    size_t size = CPU_ALLOC_SIZE(n);
    bool known = first && own && !sched_getaffinity(getpid(), size, first) && !sched_getaffinity(0, size, own);
    if (known) {
      CPU_OR_S(size, first, first, own);
      processors = (fl_processors){first, size};
      first = NULL;
    }
    CPU_FREE(first);
    CPU_FREE(own);
    if (known)
      break;
  }
  return processors;
}

/* Two threads of one core share what computes. */
static void count_cores(void *answer, void *user) {
  const fl_processors *processors = user;
  uint32_t *cores = answer;
  hwloc_topology_t topology;
  if (!fl_topology_load(&topology, false))
    return;
  hwloc_bitmap_t usable = hwloc_bitmap_alloc();
  for (unsigned i = 0; usable && i < processors->size * 8; i++)
    if (CPU_ISSET_S(i, processors->size, processors->set))
      hwloc_bitmap_set(usable, i);
  hwloc_obj_t core = NULL; /* of another machine's description nothing can be said here */
  while (usable && hwloc_topology_is_thissystem(topology) &&
         (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)))
    *cores += hwloc_bitmap_intersects(core->cpuset, usable) > 0;
  hwloc_bitmap_free(usable);
  hwloc_topology_destroy(topology);
}

/* ---------------------------------------------------------------------------------------------------------- quota */

/* "MAX PERIOD" of a file, or each of the two of a file of its own; 0: there is no quota. */
static double quota_of(const char *max_file, const char *period_file) {
  double max = 0, period = 0;
  char *text = NULL, *second = NULL;
  size_t length;
  if (!fl_read_file(max_file, &text, &length) && (!period_file || !fl_read_file(period_file, &second, &length))) {
    char *end = text;
    max = strtod(text, &end); /* "max" is no number, -1 is none */
    period = strtod(second ? second : end, NULL);
  }
  free(text);
  free(second);
  return max > 0 && period > 0 ? max / period : 0;
}

static double less_of(double quota, double other) {
  return other > 0 && (quota <= 0 || other < quota) ? other : quota;
}

/* A group's quota, and those of the groups that it is in: each holds. `path` is cut on the way. */
static double quota_of_groups(const char *mount, char *path, bool is_unified) {
  char max[4096], period[4096];
  double quota = 0;
  for (;;) {
    snprintf(max, sizeof max, "%s%s/%s", mount, path, is_unified ? "cpu.max" : "cpu.cfs_quota_us");
    snprintf(period, sizeof period, "%s%s/cpu.cfs_period_us", mount, path);
    quota = less_of(quota, quota_of(max, is_unified ? NULL : period));
    char *slash = strrchr(path, '/');
    if (!slash)
      return quota;
    *slash = 0;
  }
}

/* Is cpu among the names of the first version's controllers, a comma list? cpuset and cpuacct are others. */
static bool has_cpu(const char *names) {
  for (const char *at = names; (at = strstr(at, "cpu")); at++)
    if ((at == names || at[-1] == ',') && (!at[3] || at[3] == ','))
      return true;
  return false;
}

/* Processors' worth of time that the process may use, as a count of processors; 0: as much as there is. */
static double group_quota(void) {
  char *text = NULL, *rest, *line;
  size_t length;
  double quota = 0;
  if (!fl_read_file("/proc/self/cgroup", &text, &length))
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
      char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
      if (!path)
        continue;
      *path++ = 0;
      bool is_unified = !names[1];
      if (is_unified || has_cpu(names + 1))
        quota = less_of(quota, quota_of_groups(is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", path, is_unified));
    }
  free(text);
  return quota;
}

uint32_t fl_usable_cores(const fl_processors *processors) {
  char words[FL_PROBE_WORDS];
  fl_kept_error kept;
  fl_error_keep(&kept);
  uint32_t cores = 0, usable = processors->set ? (uint32_t)CPU_COUNT_S(processors->size, processors->set) : 1;
  double quota = usable > 1 ? group_quota() : 0;
  if (quota > 0 && quota < usable)
    usable = quota < 1 ? 1 : (uint32_t)quota;
  if (usable > 1)
    fl_ask_in_child("hwloc", count_cores, (void *)(uintptr_t)processors, FL_DRIVER_TIMEOUT_MS, &cores, sizeof cores,
                    words, sizeof words);
  fl_error_restore(&kept);
  return cores && cores < usable ? cores : usable;
}

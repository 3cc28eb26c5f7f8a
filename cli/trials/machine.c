/* Where and when figures were taken: see machine.h. */
#include "cli/trials/machine.h"

#include <flhost/flhost.h>

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

/* "model name" of the first processor; the machine's architecture where the kernel does not say (as on Arm). */
static void cpu_name(char *name, size_t size, const char *otherwise) {
  char *line = NULL;
  size_t capacity = 0;
  FILE *file = fopen("/proc/cpuinfo", "re");
  snprintf(name, size, "%s", otherwise);
  while (file && getline(&line, &capacity, file) > 0) {
    const char *colon = strchr(line, ':');
    if (colon && !strncmp(line, "model name", strlen("model name"))) {
      colon += 1 + strspn(colon + 1, " \t");
      snprintf(name, size, "%.*s", (int)strcspn(colon, "\n"), colon);
      break;
    }
  }
  free(line);
  if (file)
    fclose(file);
}

json_t *machine_json(void) {
  struct utsname system;
  char cpu[128], kernel[2 * sizeof system.release], date[32];
  double load[1] = {-1};
  time_t now = time(NULL);
  struct tm utc;
  if (uname(&system))
    memset(&system, 0, sizeof system);
  cpu_name(cpu, sizeof cpu, system.machine);
  snprintf(kernel, sizeof kernel, "%s %s", system.sysname, system.release);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  if (getloadavg(load, 1) != 1)
    load[0] = -1;
  return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:f}", "cpu", cpu, "architecture", system.machine, "processors",
                   (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "kernel", kernel, "compiler", compiler, "flhost",
                   fl_version(), "date", date, "load", load[0]);
}

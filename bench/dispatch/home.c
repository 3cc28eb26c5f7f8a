/* The home directory of the hosts that this program makes: its own, so that it finds no settings, and keeps verdicts
 * about plugins (VLLM_FL_PROBE) from one host to the next. */
#include "bench/dispatch/dispatch.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

bool bench_make_home(bench *b) {
  const char *parent = getenv("TMPDIR");
  snprintf(b->home, sizeof b->home, "%s/flhost-bench-XXXXXX", parent && *parent == '/' ? parent : "/tmp");
  if (mkdtemp(b->home))
    return true;
  fprintf(stderr, "dispatch: %s: %s\n", b->home, strerror(errno));
  return false;
}

static int remove_one(const char *name, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)type, (void)place;
  return remove(name);
}

void bench_remove_home(const bench *b) {
  nftw(b->home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

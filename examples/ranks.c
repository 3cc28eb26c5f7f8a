/*
 * Ranks that add up a vector. Start it with `flhost launch -n 4 -- ./ranks`, under mpirun, torchrun or Slurm (with
 * FLHOST_GROUP_FILE, see docs/ranks.md), or alone.
 *
 *     cc ranks.c $(pkg-config --cflags --libs flhost) -o ranks
 */
#include <flhost/flhost.h>
#include <stdio.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, fl_error_message());
  return 1;
}

int main(void) {
  fl_host *host;
  fl_group *group;
  const DLDataType float32 = {kDLFloat, 32, 1};
  if (fl_host_create(NULL, &host))
    return fail("host");
  if (fl_group_create_launched(host, kDLCPU, NULL, &group))
    return fail("group");
  int rank = fl_group_rank(group), ranks = fl_group_ranks(group);
  float x[4] = {1, (float)rank, (float)(rank * rank), 0};
  if (fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL))
    return fail("all_reduce");
  if (rank == 0)
    printf("%d ranks by %s: %g, the sum of their numbers is %g, of the squares %g\n", ranks,
           fl_group_communicator(group), x[0], x[1], x[2]);
  fl_group_destroy(group);
  fl_host_destroy(host);
  return 0;
}

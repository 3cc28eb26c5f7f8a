/*
 * shm: a communicator for the ranks of one machine, processes and threads, over memory that they share. It needs
 * nothing but Linux, so it is what groups have when there is nothing better.
 */
#include "plugins/shm/collectives.h"
#include "plugins/shm/membership.h"
#include "plugins/shm/reduce.h"

FL_PLUGIN("shm", FLHOST_VERSION, "flhost", "Apache-2.0", "");
FL_PLUGIN_COMMUNICATORS("shm");

static bool is_available(void *self, const char **reason) {
  (void)self;
  return shm_process_self().start >= 0 ||
         fl_reason(reason, "shm finds other ranks in /proc, which is not mounted here");
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_communicator shm = {
      .size = sizeof shm,
      .device_type = kDLCPU,
      .kind = FL_KIND_DEFAULT,
      .id_size = sizeof(shm_id),
      .most_ranks = SHM_MOST_RANKS,
      .dtypes = SHM_REDUCES,
      .reductions = (1u << FL_REDUCTIONS) - 1,
      .is_available = is_available,
      .make_id = shm_make_id,
      .join = shm_join,
      .leave = shm_leave,
      .abort = shm_abort,
      .state = shm_rank_state,
      .split = shm_split,
      .batch = shm_batch,
      .all_reduce = shm_all_reduce,
      .reduce = shm_all_reduce,
      .broadcast = shm_share,
      .all_gather = shm_share,
      .all_gather_v = shm_share,
      .reduce_scatter = shm_exchange,
      .reduce_scatter_v = shm_exchange,
      .gather = shm_share,
      .scatter = shm_exchange,
      .all_to_all = shm_exchange,
      .all_to_all_v = shm_exchange,
      .send = shm_message,
      .recv = shm_message,
      .barrier = shm_barrier,
  };
  const fl_component component = {.size = sizeof component,
                                  .type = "communicator",
                                  .name = "shm",
                                  .functions = &shm,
                                  .functions_type = FL_FUNCTIONS_COMMUNICATOR,
                                  .functions_size = sizeof shm};
  return registry->register_component(registry, &component);
}

/*
 * mpi: a communicator for the ranks that mpirun or Slurm started, on one machine or many, by Open MPI. It uses an MPI
 * that the engine has initialised, else initialises it when a first group is joined, and finalises what it initialised
 * when the process ends.
 */
#include "plugins/mpi/collectives.h"
#include "plugins/mpi/membership.h"
#include "plugins/shm/reduce.h"

FL_PLUGIN("mpi", FLHOST_VERSION, "mpi", "Apache-2.0", "");
FL_PLUGIN_COMMUNICATORS("mpi");

fl_status register_builtins(fl_registry *registry) {
  static const fl_communicator mpi = {
      .size = sizeof mpi,
      .device_type = kDLCPU,
      .kind = FL_KIND_VENDOR,
      .vendor = "mpi",
      .id_size = sizeof(mpi_id),
      .dtypes = SHM_REDUCES,
      .reductions = (1u << FL_REDUCTIONS) - 1,
      .flags = FL_COMMUNICATOR_WORLD,
      .is_available = mpi_is_available,
      .make_id = mpi_make_id,
      .join = mpi_join,
      .leave = mpi_leave,
      .abort = mpi_abort,
      .state = mpi_rank_state,
      .split = mpi_split,
      .batch = mpi_batch,
      .all_reduce = mpi_all_reduce,
      .reduce = mpi_all_reduce,
      .broadcast = mpi_broadcast,
      .all_gather = mpi_move,
      .all_gather_v = mpi_move,
      .reduce_scatter = mpi_reduce_scatter,
      .reduce_scatter_v = mpi_reduce_scatter,
      .gather = mpi_move,
      .scatter = mpi_move,
      .all_to_all = mpi_move,
      .all_to_all_v = mpi_move,
      .send = mpi_one,
      .recv = mpi_one,
      .barrier = mpi_barrier,
  };
  const fl_component component = {.size = sizeof component,
                                  .type = "communicator",
                                  .name = "mpi",
                                  .functions = &mpi,
                                  .functions_type = FL_FUNCTIONS_COMMUNICATOR,
                                  .functions_size = sizeof mpi};
  return registry->register_component(registry, &component);
}

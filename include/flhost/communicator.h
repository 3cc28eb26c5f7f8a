/*
 * flhost/communicator.h: what a plugin gives that brings collectives of several ranks, beside what is in plugin.h.
 *
 * A communicator is a component (fl_component) of type "communicator" whose `functions` are a fl_communicator:
 *
 *     static const fl_communicator acme = {.size = sizeof acme, .device_type = kDLCPU, .kind = FL_KIND_VENDOR,
 *         .vendor = "acme", .id_size = 128, .make_id = make_id, .join = join, .leave = leave, ...};
 *     fl_component component = {.size = sizeof component, .type = "communicator", .name = "acme",
 *         .functions = &acme, .functions_type = FL_FUNCTIONS_COMMUNICATOR, .functions_size = sizeof acme};
 *     return registry->register_component(registry, &component);
 *
 * and the plugin says FL_PLUGIN_COMMUNICATORS("acme"), so that it is loaded when a group of ranks is made and not
 * before.
 *
 * Ranks are numbered from 0. One rank's part of a communicator is what join makes, and one thread at a time uses it; a
 * process may be several ranks, each in a thread of its own. Every collective is described by one struct,
 * fl_collective, and has one function of one form, so that what a library lacks the host makes up from what it has.
 */
#ifndef FLHOST_COMMUNICATOR_H
#define FLHOST_COMMUNICATOR_H

#include <flhost/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What reduce, all_reduce and reduce_scatter make of the ranks' elements. Truth values: sum and max are "or", product
 * and min are "and", and there is no mean. Sums and products of integers wrap around; their mean is the sum over the
 * number of ranks, rounded towards zero. A NaN in any rank's element makes max and min NaN. */
typedef enum fl_reduction {
  FL_REDUCE_SUM = 0,
  FL_REDUCE_PROD = 1,
  FL_REDUCE_MAX = 2,
  FL_REDUCE_MIN = 3,
  FL_REDUCE_AVG = 4
} fl_reduction;
#define FL_REDUCTIONS 5

/* Which collective. With n ranks, `count` as fl_collective has it: */
typedef enum fl_collective_kind {
  FL_ALL_REDUCE = 0,       /* recv[count] = reduction of all ranks' send[count] */
  FL_REDUCE = 1,           /* the same at `root` alone; recv is NULL elsewhere */
  FL_BROADCAST = 2,        /* recv[count] = the root's send[count]; send is NULL elsewhere */
  FL_ALL_GATHER = 3,       /* recv[n * count] = the ranks' send[count], in their order */
  FL_ALL_GATHER_V = 4,     /* recv = the ranks' send[counts[rank]], each at offsets[rank] */
  FL_REDUCE_SCATTER = 5,   /* recv[count] = this rank's part of the reduction of all send[n * count] */
  FL_REDUCE_SCATTER_V = 6, /* recv[counts[rank]] = the part at offsets[rank] of the reduction */
  FL_GATHER = 7,           /* the root's recv[n * count] = the ranks' send[count]; recv is NULL elsewhere */
  FL_SCATTER = 8,          /* recv[count] = this rank's part of the root's send[n * count]; send is NULL elsewhere */
  FL_ALL_TO_ALL = 9,       /* part i of recv[n * count] = this rank's part of rank i's send[n * count] */
  FL_ALL_TO_ALL_V = 10,    /* the same, with counts and offsets */
  FL_SEND = 11,            /* send[count] to rank `root` */
  FL_RECV = 12,            /* recv[count] from rank `root` */
  FL_BARRIER = 13          /* returns, or lets the stream go on, when all ranks have come to it */
} fl_collective_kind;
#define FL_COLLECTIVES 14

/* What a kind is called, "all_reduce"; NULL for a number that is no fl_collective_kind. */
static inline const char *fl_collective_kind_name(int32_t kind) {
  static const char *const names[FL_COLLECTIVES] = {
      "all_reduce", "reduce",  "broadcast",  "all_gather",   "all_gather_v", "reduce_scatter", "reduce_scatter_v",
      "gather",     "scatter", "all_to_all", "all_to_all_v", "send",         "recv",           "barrier",
  };
  return kind >= 0 && kind < FL_COLLECTIVES ? names[kind] : NULL;
}

/*
 * One rank's part of one collective. All ranks of a communicator make the same collectives in the same order, with the
 * same count, counts, dtype, reduction and root (FL_ALL_TO_ALL_V: what one sends to another is what that receives from
 * it). A count may be 0, and the pointers of 0 elements NULL. Buffers lie on the communicator's device, aligned to
 * their elements.
 *
 * In place: `send == recv` where both have the same elements (ALL_REDUCE, REDUCE at the root, BROADCAST); of ALL_GATHER
 * and GATHER's root send may be this rank's place in recv, of REDUCE_SCATTER and SCATTER's root recv this rank's place
 * in send (with offsets for _V). Other overlaps are the caller's error, which the host finds.
 */
typedef struct fl_collective {
  uint32_t size;     /* sizeof(fl_collective) of the caller */
  int32_t kind;      /* fl_collective_kind */
  const void *send;  /* what this rank gives */
  void *recv;        /* where its result goes */
  int64_t count;     /* elements, as fl_collective_kind says */
  DLDataType dtype;  /* of the elements; one of those in fl_impl.dtypes, lanes 1 */
  int32_t reduction; /* fl_reduction, of those that reduce */
  int32_t root;      /* a rank, of those that have one: the root, or who is sent to or received from */
  /* Of _V, one an element a rank, in elements. ALL_GATHER_V and REDUCE_SCATTER_V: recv_counts and recv_offsets alone,
   * equal on all ranks. ALL_TO_ALL_V: send_counts[i] elements from send + send_offsets[i] go to rank i. */
  const int64_t *send_counts, *send_offsets, *recv_counts, *recv_offsets;
  void *stream; /* the device's stream; NULL = the default one, or a device without streams */
} fl_collective;

/* Longest id of a communicator, in bytes. */
#define FL_COMMUNICATOR_ID_MAX 4224

/* What join is given. */
typedef struct fl_join {
  uint32_t size;    /* sizeof(fl_join) of the host */
  int32_t rank;     /* 0 to ranks - 1 */
  int32_t ranks;    /* how many there are */
  int32_t device;   /* this rank's device of the communicator's type */
  const void *id;   /* what make_id gave one of the ranks, id_size bytes */
  const char *name; /* of the group, "tp", for messages; valid as long as the rank's part */
  double timeout;   /* seconds that a collective, and joining, may wait for other ranks; 0 = without end */
  char *message;    /* where join says why it failed, and this rank's later calls do: fl_say */
  size_t message_size;
} fl_join;

/* Says why a function of a communicator fails, in the `message` that it or its join was given, and gives back `status`.
 */
static inline FL_PRINTF(4, 5) fl_status
    fl_say(char *message, size_t message_size, fl_status status, const char *format, ...) {
  if (message && message_size) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, message_size, format, arguments);
    va_end(arguments);
  }
  return status;
}

/* An id of zeros means all ranks that a launcher started together, which find each other without (mpirun's). */
#define FL_COMMUNICATOR_WORLD 1u

/* A rank's part of a communicator, the plugin's own. */
typedef struct fl_rank fl_rank;

/* Carries out one collective; of kDLCPU when it returns, else on the stream. FL_ENOTSUP, before anything was sent: not
 * with this dtype, reduction or size (every rank says so, or none), and the host composes it. After another error the
 * communicator is of no use any more. `self` is the component's. */
typedef fl_status (*fl_collective_fn)(void *self, fl_rank *rank, const fl_collective *collective);

/*
 * The functions of a communicator. Required are make_id, join, leave, all_reduce, broadcast, send and recv; what else
 * is NULL is made up by the host from these (all_gather from broadcasts, all_to_all from sends and receives in an order
 * without deadlock, the mean from the sum).
 */
typedef struct fl_communicator {
  uint32_t size;       /* sizeof(fl_communicator) */
  int32_t device_type; /* DLDeviceType: where buffers lie */
  int32_t kind;        /* fl_kind */
  int32_t priority;    /* as of fl_impl; 0 = that of the kind */
  const char *vendor;  /* required for FL_KIND_VENDOR, as of fl_impl */
  uint32_t id_size;    /* bytes of an id, 1 to FL_COMMUNICATOR_ID_MAX */
  int32_t most_ranks;  /* how many there may be; 0 = any number */
  uint32_t dtypes; /* set of FL_FLOAT32…: what it reduces; FL_FLOAT32 at least. Others it is given as bytes (uint8)
                      to be moved, and the host reduces them from what it gathers */
  uint32_t reductions; /* set of 1 << FL_REDUCE_SUM…: what it knows; FL_REDUCE_SUM at least */
  uint64_t flags;      /* FL_COMMUNICATOR_* */
  /* As of fl_impl: library and device are there. NULL = yes. */
  bool (*is_available)(void *self, const char **reason);
  /* Writes an id that all ranks of one communicator are given, however they get it; made by one of them, or by a
   * process that outlives their joining. `message` as in fl_join. */
  fl_status (*make_id)(void *self, void *id, char *message, size_t message_size);
  /* Makes this rank's part; returns when all ranks have joined. */
  fl_status (*join)(void *self, const fl_join *join, fl_rank **rank);
  /* This rank's part ends, in order: all ranks come here, and what is on streams is done. NULL `rank` is not given. */
  void (*leave)(void *self, fl_rank *rank);
  /* This rank's part ends at once, whatever the others do: they get an error. From any thread, also while another is
   * in a collective, which returns; `leave` follows. NULL: it cannot be done. */
  void (*abort)(void *self, fl_rank *rank);
  /* FL_OK, or what happened to work on streams since. NULL: collectives themselves say. */
  fl_status (*state)(void *self, fl_rank *rank);
  /* Makes of the ranks with one `color` (≥ 0) a communicator of their own, in the order of `key` and then of their
   * ranks; all ranks call it. -1: this rank is in none, and *part is NULL. NULL: the host joins anew. `join` has name,
   * timeout, message and device. */
  fl_status (*split)(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *join, fl_rank **part);
  /* Several at once, as if at the same time: sends and receives among them do not wait for each other. NULL: one after
   * another, sends and receives in an order that cannot deadlock. */
  fl_status (*batch)(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size);
  fl_collective_fn all_reduce, reduce, broadcast, all_gather, all_gather_v, reduce_scatter, reduce_scatter_v, gather,
      scatter, all_to_all, all_to_all_v, send, recv, barrier;
} fl_communicator;

/*
 * Beside FL_PLUGIN, once at most: the communicators that the plugin brings, a comma list.
 *
 *     FL_PLUGIN_COMMUNICATORS("acme");
 *
 * The host then loads it when a group of ranks is made, or communicators are listed; one that has FL_PLUGIN_OPS, too,
 * also when one of those is looked for. Without that list it brings no ops. A host that is older than this macro loads
 * the plugin at once, and refuses the component.
 */
#define FL_PLUGIN_COMMUNICATORS(names_) FL_PLUGIN_TEXT_NOTE(flhost_plugin_communicators, 6, names_)

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_COMMUNICATOR_H */

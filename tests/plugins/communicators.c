/*
 * Communicators for tests, between threads of one process, as simple as can be: `bare` has what is required and nothing
 * else, and reduces float32 by sum alone; its send waits until it is received. `acme` is the same of a vendor, `choosy`
 * knows products, too, but not with this element type. The
 * others misbehave, each as its name says.
 */
#include <flhost/communicator.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FL_PLUGIN("communicators", "1.0", "tests", "Apache-2.0", "");
FL_PLUGIN_COMMUNICATORS("bare,acme,absent,silent,odd_status,no_end,bare_device,wrong,crossed,choosy");

enum { MOST = 16 };

/* Set by a test: lets the memory of the test device be touched, or not any more (test_device_open). */
FL_EXPORT void (*test_open_device)(int32_t index, bool opens);

/* Where ranks meet. Never freed: a rank may leave while another looks. */
typedef struct room {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t id, turn;
  int ranks, joined, arrived;
  const void *sent[MOST];
  struct {
    const void *from;
    size_t size;
  } mail[MOST][MOST];
  struct room *next;
} room;

static pthread_mutex_t rooms_lock = PTHREAD_MUTEX_INITIALIZER;
static room *rooms;
static uint64_t last_id;

struct fl_rank {
  room *room;
  int rank, ranks;
  char *message;
  size_t message_size;
};

static fl_status make_id(void *self, void *id, char *message, size_t message_size) {
  (void)self, (void)message, (void)message_size;
  room *made = calloc(1, sizeof *made);
  if (!made)
    return FL_ENOMEM;
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->changed, NULL);
  pthread_mutex_lock(&rooms_lock);
  made->id = ++last_id;
  made->next = rooms;
  rooms = made;
  pthread_mutex_unlock(&rooms_lock);
  memcpy(id, &made->id, sizeof made->id);
  return FL_OK;
}

static room *find(const void *id) {
  uint64_t wanted;
  memcpy(&wanted, id, sizeof wanted);
  pthread_mutex_lock(&rooms_lock);
  room *r = rooms;
  while (r && r->id != wanted)
    r = r->next;
  pthread_mutex_unlock(&rooms_lock);
  return r;
}

static void meet(fl_rank *me) {
  room *r = me->room;
  pthread_mutex_lock(&r->lock);
  uint64_t turn = r->turn;
  if (++r->arrived == me->ranks) {
    r->arrived = 0;
    r->turn++;
    pthread_cond_broadcast(&r->changed);
  }
  while (r->turn == turn)
    pthread_cond_wait(&r->changed, &r->lock);
  pthread_mutex_unlock(&r->lock);
}

static fl_status join(void *self, const fl_join *join, fl_rank **rank) {
  (void)self;
  room *r = find(join->id);
  if (!r || join->ranks > MOST)
    return fl_say(join->message, join->message_size, FL_EINVAL, "nobody made that id");
  fl_rank *me = malloc(sizeof *me);
  if (!me)
    return FL_ENOMEM;
  *me = (fl_rank){r, join->rank, join->ranks, join->message, join->message_size};
  meet(me);
  *rank = me;
  return FL_OK;
}

static void leave(void *self, fl_rank *rank) {
  (void)self;
  free(rank);
}

static void open_devices(bool opens) {
  test_open_device(0, opens);
  test_open_device(1, opens);
}

/* Copies what may lie on a device. */
static void copy(void *self, void *to, const void *from, size_t size) {
  if (self)
    open_devices(true);
  memcpy(to, from, size);
  if (self)
    open_devices(false);
}

static fl_status all_reduce(void *self, fl_rank *me, const fl_collective *c) {
  size_t n = (size_t)c->count;
  float *sums = calloc(n + 1, sizeof *sums);
  if (self)
    open_devices(true);
  me->room->sent[me->rank] = c->send;
  meet(me);
  for (int r = 0; r < me->ranks && sums; r++)
    for (size_t i = 0; i < n; i++)
      sums[i] = r ? sums[i] + ((const float *)me->room->sent[r])[i] : ((const float *)me->room->sent[r])[i];
  meet(me);
  if (sums)
    memcpy(c->recv, sums, n * sizeof *sums);
  if (self)
    open_devices(false);
  free(sums);
  return sums ? FL_OK : FL_ENOMEM;
}

static fl_status broadcast(void *self, fl_rank *me, const fl_collective *c) {
  if (me->rank == c->root)
    me->room->sent[c->root] = c->send;
  meet(me);
  const void *from = me->room->sent[c->root];
  if (from != c->recv)
    copy(self, c->recv, from, (size_t)c->count * c->dtype.bits / 8);
  meet(me);
  return FL_OK;
}

static fl_status send_message(void *self, fl_rank *me, const fl_collective *c) {
  room *r = me->room;
  (void)self;
  pthread_mutex_lock(&r->lock);
  r->mail[me->rank][c->root].from = c->send;
  r->mail[me->rank][c->root].size = (size_t)c->count * c->dtype.bits / 8;
  pthread_cond_broadcast(&r->changed);
  while (r->mail[me->rank][c->root].from)
    pthread_cond_wait(&r->changed, &r->lock);
  pthread_mutex_unlock(&r->lock);
  return FL_OK;
}

static fl_status receive_message(void *self, fl_rank *me, const fl_collective *c) {
  room *r = me->room;
  pthread_mutex_lock(&r->lock);
  while (!r->mail[c->root][me->rank].from)
    pthread_cond_wait(&r->changed, &r->lock);
  copy(self, c->recv, r->mail[c->root][me->rank].from, r->mail[c->root][me->rank].size);
  r->mail[c->root][me->rank].from = NULL;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------ misbehaving */

static bool absent(void *self, const char **reason) {
  return fl_reason(reason, "%s", (const char *)self);
}

static fl_status odd_status(void *self, fl_rank *me, const fl_collective *c) {
  if (c->count != 13)
    return all_reduce(self, me, c);
  return fl_say(me->message, me->message_size, 77, "the wire is \x1b[31mred");
}

static fl_status no_end(void *self, fl_rank *me, const fl_collective *c) {
  if (c->count != 13)
    return all_reduce(self, me, c);
  memset(me->message, 'x', me->message_size);
  return FL_EDEVICE;
}

static fl_status wrong(void *self, fl_rank *me, const fl_collective *c) {
  fl_status status = all_reduce(self, me, c);
  if (!status && c->count == 1)
    *(float *)c->recv += 1;
  return status;
}

/* Groups are not kept apart: two that reduce one element at the same time get one too much. */
static fl_status crossed(void *self, fl_rank *me, const fl_collective *c) {
  static atomic_int inside;
  bool meets = false;
  fl_status status = all_reduce(self, me, c);
  if (status || c->count != 1)
    return status;
  atomic_fetch_add(&inside, 1);
  for (int i = 0; i < 50 && !meets; i++) {
    usleep(100);
    meets = atomic_load(&inside) > 1;
  }
  usleep(200); /* the other sees it, too */
  atomic_fetch_sub(&inside, 1);
  *(float *)c->recv += meets ? 1 : 0;
  return FL_OK;
}

static fl_status choosy(void *self, fl_rank *me, const fl_collective *c) {
  return c->reduction == FL_REDUCE_SUM ? all_reduce(self, me, c) : FL_ENOTSUP;
}

fl_status register_builtins(fl_registry *registry) {
  static char wire[] = "the wire is cut", nothing[] = "";
  const struct {
    const char *name;
    void *self;
    bool (*is_available)(void *self, const char **reason);
    fl_collective_fn all_reduce;
    int32_t kind, priority;
    int32_t device_type;
  } rows[] = {{"bare", NULL, NULL, all_reduce, FL_KIND_REFERENCE, 60, kDLCPU},
              {"acme", NULL, NULL, all_reduce, FL_KIND_VENDOR, 0, kDLCPU},
              {"absent", wire, absent, all_reduce, FL_KIND_DEFAULT, 200, kDLCPU},
              {"silent", nothing, absent, all_reduce, FL_KIND_DEFAULT, 199, kDLCPU},
              {"odd_status", NULL, NULL, odd_status, FL_KIND_REFERENCE, 10, kDLCPU},
              {"no_end", NULL, NULL, no_end, FL_KIND_REFERENCE, 10, kDLCPU},
              {"bare_device", wire, NULL, all_reduce, FL_KIND_REFERENCE, 10, kDLExtDev},
              {"wrong", NULL, NULL, wrong, FL_KIND_REFERENCE, 5, kDLCPU},
              {"crossed", NULL, NULL, crossed, FL_KIND_REFERENCE, 4, kDLCPU},
              {"choosy", NULL, NULL, choosy, FL_KIND_REFERENCE, 5, kDLCPU}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const fl_communicator functions = {.size = sizeof functions,
                                       .device_type = rows[i].device_type,
                                       .kind = rows[i].kind,
                                       .priority = rows[i].priority,
                                       .vendor = rows[i].kind == FL_KIND_VENDOR ? "acme" : NULL,
                                       .id_size = sizeof(uint64_t),
                                       .most_ranks = MOST,
                                       .dtypes = FL_FLOAT32,
                                       .reductions = 1u << FL_REDUCE_SUM |
                                                     (rows[i].all_reduce == choosy ? 1u << FL_REDUCE_PROD : 0),
                                       .is_available = rows[i].is_available,
                                       .make_id = make_id,
                                       .join = join,
                                       .leave = leave,
                                       .all_reduce = rows[i].all_reduce,
                                       .broadcast = broadcast,
                                       .send = send_message,
                                       .recv = receive_message};
    const fl_component component = {.size = sizeof component,
                                    .type = "communicator",
                                    .name = rows[i].name,
                                    .functions = &functions,
                                    .self = rows[i].self,
                                    .functions_type = FL_FUNCTIONS_COMMUNICATOR,
                                    .functions_size = sizeof functions};
    fl_status status = registry->register_component(registry, &component);
    if (status)
      return status;
  }
  return FL_OK;
}

/*
 * Sends and receives: a ring of bytes for each ordered pair of ranks. A message begins with its length. Of a batch all
 * messages go on in turn, each as far as its ring lets it, so no order of them waits for itself; those between the same
 * two ranks follow each other in the order of the batch.
 */
#include "plugins/shm/collectives.h"

#include <string.h>

/* Comes in one piece. */
typedef struct header {
  uint64_t bytes;
  uint64_t unused;
} header;

typedef struct batch {
  const fl_collective *items;
  uint32_t n, size;
} batch;

static const fl_collective *item_at(const batch *b, uint32_t i) {
  return (const fl_collective *)((const char *)b->items + (size_t)i * b->size);
}

static shm_channel *channel(fl_rank *rank, int from, int to) {
  return (shm_channel *)(rank->channels + ((size_t)from * (size_t)rank->n + (size_t)to) * shm_channel_bytes(rank->n));
}

static void put(shm_channel *channel, size_t ring, uint64_t at, const void *from, size_t bytes) {
  size_t place = at % ring, first = bytes < ring - place ? bytes : ring - place;
  memcpy(channel->ring + place, from, first);
  memcpy(channel->ring, (const char *)from + first, bytes - first);
}

static void take(const shm_channel *channel, size_t ring, uint64_t at, void *to, size_t bytes) {
  size_t place = at % ring, first = bytes < ring - place ? bytes : ring - place;
  memcpy(to, channel->ring + place, first);
  memcpy((char *)to + first, channel->ring, bytes - first);
}

/* Bytes that can go on now, sent or received. */
static size_t can_send(fl_rank *rank, int peer) {
  const shm_channel *c = channel(rank, rank->me, peer);
  size_t room = shm_ring_bytes(rank->n) - (size_t)(atomic_load(&c->written) - atomic_load(&c->read));
  return rank->out[peer].done || room >= sizeof(header) ? room : 0;
}

static size_t can_receive(fl_rank *rank, int peer) {
  const shm_channel *c = channel(rank, peer, rank->me);
  size_t there = (size_t)(atomic_load(&c->written) - atomic_load(&c->read));
  return rank->in[peer].done || there >= sizeof(header) ? there : 0;
}

static bool is_held_up(fl_rank *rank, shm_wait *wait, int peer) {
  (void)wait;
  return (rank->out[peer].active && !can_send(rank, peer)) || (rank->in[peer].active && !can_receive(rank, peer));
}

static bool goes_on(fl_rank *rank, shm_wait *wait) {
  (void)wait;
  for (int peer = 0; peer < rank->n; peer++)
    if ((rank->out[peer].active && can_send(rank, peer)) || (rank->in[peer].active && can_receive(rank, peer)))
      return true;
  return false;
}

/* The next message of a lane. */
static void follow(shm_lane *lane, const batch *b, uint32_t first, int32_t kind, int peer) {
  *lane = (shm_lane){.item = first};
  for (; lane->item < b->n && !lane->active; lane->item += !lane->active) {
    const fl_collective *c = item_at(b, lane->item);
    lane->active = c->kind == kind && c->root == peer;
  }
}

static size_t bytes_of(const fl_collective *c) {
  return (size_t)c->count * shm_element_bytes(c->dtype);
}

static void push(fl_rank *rank, const batch *b, int peer, size_t room) {
  shm_lane *lane = &rank->out[peer];
  shm_channel *ch = channel(rank, rank->me, peer);
  const fl_collective *c = item_at(b, lane->item);
  const size_t ring = shm_ring_bytes(rank->n), bytes = bytes_of(c);
  uint64_t written = atomic_load(&ch->written);
  if (!lane->done) {
    const header h = {.bytes = bytes};
    put(ch, ring, written, &h, sizeof h);
    lane->done = sizeof h;
    written += sizeof h;
    room -= sizeof h;
  }
  size_t sent = (size_t)lane->done - sizeof(header), m = bytes - sent < room ? bytes - sent : room;
  if (m)
    put(ch, ring, written, (const char *)c->send + sent, m);
  lane->done += m;
  atomic_store(&ch->written, written + m);
  shm_ring(rank, peer);
  if (sent + m == bytes)
    follow(lane, b, lane->item + 1, FL_SEND, peer);
}

static fl_status pull(fl_rank *rank, const batch *b, int peer, size_t there) {
  shm_lane *lane = &rank->in[peer];
  shm_channel *ch = channel(rank, peer, rank->me);
  const fl_collective *c = item_at(b, lane->item);
  const size_t ring = shm_ring_bytes(rank->n), bytes = bytes_of(c);
  uint64_t read = atomic_load(&ch->read);
  if (!lane->done) {
    header h;
    take(ch, ring, read, &h, sizeof h);
    if (h.bytes != bytes)
      return shm_break(rank, FL_EINVAL, "rank %d sends %llu bytes to rank %d, which expects %llu", peer,
                       (unsigned long long)h.bytes, rank->me, (unsigned long long)bytes);
    lane->done = sizeof h;
    read += sizeof h;
    there -= sizeof h;
  }
  size_t received = (size_t)lane->done - sizeof(header), m = bytes - received < there ? bytes - received : there;
  if (m)
    take(ch, ring, read, (char *)c->recv + received, m);
  lane->done += m;
  atomic_store(&ch->read, read + m);
  shm_ring(rank, peer);
  if (received + m == bytes)
    follow(lane, b, lane->item + 1, FL_RECV, peer);
  return FL_OK;
}

/* All lanes once. `active`: whether any has more to do; `moved`: whether any did something; `others`: whether it is not
 * all with itself. */
static fl_status advance(fl_rank *rank, const batch *b, bool *active, bool *moved, bool *others) {
  fl_status status = FL_OK;
  *active = *moved = *others = false;
  for (int peer = 0; peer < rank->n && !status; peer++) {
    size_t m;
    if (rank->out[peer].active && (m = can_send(rank, peer))) {
      push(rank, b, peer, m);
      *moved = true;
    }
    if (rank->in[peer].active && (m = can_receive(rank, peer))) {
      status = pull(rank, b, peer, m);
      *moved = true;
    }
    bool more = rank->out[peer].active || rank->in[peer].active;
    *active |= more;
    *others |= more && peer != rank->me;
  }
  return status;
}

static fl_status transfer(fl_rank *rank, const batch *b) {
  shm_wait wait = {.is_over = goes_on, .awaits = is_held_up};
  bool active = true, moved, others;
  fl_status status = FL_OK;
  for (int peer = 0; peer < rank->n; peer++) {
    follow(&rank->out[peer], b, 0, FL_SEND, peer);
    follow(&rank->in[peer], b, 0, FL_RECV, peer);
  }
  while (active && !status) {
    status = advance(rank, b, &active, &moved, &others);
    if (status || !active || moved)
      continue;
    status = others ? shm_wait_for(rank, &wait)
                    : shm_break(rank, FL_EINVAL, "rank %d %s itself more than it %s in the same batch", rank->me,
                                rank->out[rank->me].active ? "sends to" : "receives from",
                                rank->out[rank->me].active ? "receives" : "sends");
  }
  return status;
}

fl_status shm_message(void *self, fl_rank *rank, const fl_collective *c) {
  const batch b = {.items = c, .n = 1, .size = sizeof *c};
  fl_status status = shm_check(rank, c);
  (void)self;
  if (!status && c->root == rank->me)
    status = fl_say(rank->message, rank->message_size, FL_EINVAL,
                    "%s of group '%s': rank %d and itself; that is for a batch, which has the other end, too",
                    rank->calling, rank->name, rank->me);
  return status ? status : transfer(rank, &b);
}

static const fl_collective_fn functions[FL_COLLECTIVES] = {
    [FL_ALL_REDUCE] = shm_all_reduce,     [FL_REDUCE] = shm_all_reduce,     [FL_BROADCAST] = shm_share,
    [FL_ALL_GATHER] = shm_share,          [FL_ALL_GATHER_V] = shm_share,    [FL_REDUCE_SCATTER] = shm_exchange,
    [FL_REDUCE_SCATTER_V] = shm_exchange, [FL_GATHER] = shm_share,          [FL_SCATTER] = shm_exchange,
    [FL_ALL_TO_ALL] = shm_exchange,       [FL_ALL_TO_ALL_V] = shm_exchange, [FL_BARRIER] = shm_barrier,
};

fl_status shm_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size) {
  const batch b = {.items = collectives, .n = n, .size = item_size};
  fl_status status = FL_OK;
  /* Nothing is sent of a batch that cannot be made. */
  for (uint32_t i = 0; i < n && !status; i++)
    status = shm_check(rank, item_at(&b, i));
  for (uint32_t i = 0; i < n && !status; i++)
    if (!shm_is_message(item_at(&b, i)))
      status = functions[item_at(&b, i)->kind](self, rank, item_at(&b, i));
  if (!status && n) {
    rank->calling = "batch";
    status = transfer(rank, &b);
  }
  return status;
}

/*
 * Collectives, in rounds through the boxes (layout.h): each rank writes, all meet, each reads what the others wrote.
 * Where all ranks are threads of one process, large ones hand addresses about instead, and nothing is copied twice; a
 * second meeting at the end lets no rank go while its buffers are in use. Which way it is follows from what is equal on
 * all ranks. Both reduce with the same loops in the same order, so results have the same bits.
 */
#include "plugins/shm/collectives.h"

#include "plugins/shm/reduce.h"

#include <string.h>

enum {
  SMALL = 16 * 1024,  /* up to here everybody reduces everything: one meeting; and addresses are not worth two */
  PORTION = 4 * 1024, /* of a reduction: copied to where else it belongs while it is in the cache */
};

/* What is to be checked of each kind. */
enum { HAS_ROOT = 1, REDUCES = 2, HAS_COUNTS = 4, HAS_SEND_COUNTS = 8 };
static const uint8_t traits[FL_COLLECTIVES] = {
    [FL_ALL_REDUCE] = REDUCES,
    [FL_REDUCE] = REDUCES | HAS_ROOT,
    [FL_BROADCAST] = HAS_ROOT,
    [FL_ALL_GATHER_V] = HAS_COUNTS,
    [FL_REDUCE_SCATTER] = REDUCES,
    [FL_REDUCE_SCATTER_V] = REDUCES | HAS_COUNTS,
    [FL_GATHER] = HAS_ROOT,
    [FL_SCATTER] = HAS_ROOT,
    [FL_ALL_TO_ALL_V] = HAS_COUNTS | HAS_SEND_COUNTS,
    [FL_SEND] = HAS_ROOT,
    [FL_RECV] = HAS_ROOT,
};

const char *shm_kind_name(int32_t kind) {
  const char *name = fl_collective_kind_name(kind);
  return name ? name : "an unknown collective";
}

#define say(...) fl_say(rank->message, rank->message_size, __VA_ARGS__)

fl_status shm_check(fl_rank *rank, const fl_collective *c) {
  if (!shm_is_ours(rank))
    return say(FL_ESTATE, "group '%s': a process that was forked has no part in its parent's group", rank->name);
  rank->calling = shm_kind_name(c->kind);
  fl_status status = shm_state(rank);
  if (status)
    return status;
  if (c->kind < 0 || c->kind >= FL_COLLECTIVES)
    return say(FL_EINVAL, "group '%s': there is no collective %d", rank->name, (int)c->kind);
  uint8_t has = traits[c->kind];
  if ((has & HAS_ROOT) && (c->root < 0 || c->root >= rank->n))
    return say(FL_EINVAL, "%s of group '%s': there is no rank %d, they are 0 to %d", rank->calling, rank->name,
               (int)c->root, rank->n - 1);
  if (c->count < 0)
    return say(FL_EINVAL, "%s of group '%s': %lld elements", rank->calling, rank->name, (long long)c->count);
  if (((has & HAS_COUNTS) && (!c->recv_counts || !c->recv_offsets)) ||
      ((has & HAS_SEND_COUNTS) && (!c->send_counts || !c->send_offsets)))
    return say(FL_EINVAL, "%s of group '%s': counts and offsets are missing", rank->calling, rank->name);
  if ((has & REDUCES) && !shm_reduce_of(c->dtype, c->reduction))
    return say(FL_ENOTSUP, "%s of group '%s': no reduction %d of elements of code %d and %d bits", rank->calling,
               rank->name, (int)c->reduction, (int)c->dtype.code, (int)c->dtype.bits);
  return FL_OK;
}

/* Do all ranks call the same? The first meeting of each collective has it, since what follows counts on it. */
static fl_status compare(fl_rank *rank) {
  const shm_call *mine = shm_call_of(rank, rank->me, rank->meeting);
  for (int peer = 0; peer < rank->n; peer++) {
    const shm_call *call = shm_call_of(rank, peer, rank->meeting);
    if (memcmp(mine, call, offsetof(shm_call, send)))
      return shm_break(rank, FL_EINVAL,
                       "ranks do not call the same: rank %d %s(count %lld, type %d of %d bits, reduction %d, root %d), "
                       "rank %d %s(count %lld, type %d of %d bits, reduction %d, root %d)",
                       rank->me, shm_kind_name(mine->kind), (long long)mine->count, mine->code, mine->bits,
                       mine->reduction, (int)mine->root, peer, shm_kind_name(call->kind), (long long)call->count,
                       call->code, call->bits, call->reduction, (int)call->root);
  }
  return FL_OK;
}

static fl_status meet_first(fl_rank *rank, const fl_collective *c, int64_t greatest) {
  uint8_t has = traits[c->kind];
  shm_call *call = shm_call_of(rank, rank->me, rank->meeting + 1);
  call->kind = (uint8_t)c->kind;
  call->reduction = (uint8_t)(has & REDUCES ? c->reduction : 0);
  call->code = c->dtype.code;
  call->bits = c->dtype.bits;
  call->root = has & HAS_ROOT ? c->root : 0;
  call->count = has & HAS_COUNTS ? 0 : c->count;
  call->send = c->send;
  call->recv = c->recv;
  call->counts = c->send_counts;
  call->offsets = c->send_offsets;
  call->greatest = greatest;
  fl_status status = shm_meet(rank);
  return status ? status : compare(rank);
}

static const char *at(const void *memory, size_t offset) {
  return memory ? (const char *)memory + offset : NULL;
}

/* Pointers of nothing may be NULL, and what is in place needs no copy. */
static void copy(void *to, const void *from, size_t bytes) {
  if (bytes && to != from)
    memcpy(to, from, bytes);
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

/* The rest of `bytes` behind `done`, up to `most`. */
static size_t rest(size_t bytes, size_t done, size_t most) {
  return done < bytes ? least(bytes - done, most) : 0;
}

/* --------------------------------------------------------------------------------------------------------- parts */

/* Buffers in parts, one a rank, in bytes. */
typedef struct parts {
  const int64_t *counts, *offsets; /* NULL: all have `bytes`; one is behind the other */
  size_t size, bytes;
} parts;

static parts parts_of(const fl_collective *c, const int64_t *counts, const int64_t *offsets) {
  size_t size = shm_element_bytes(c->dtype);
  return (parts){.counts = counts, .offsets = offsets, .size = size, .bytes = (size_t)c->count * size};
}

static size_t part_bytes(const parts *p, int i) {
  return p->counts ? (size_t)p->counts[i] * p->size : p->bytes;
}

static size_t part_offset(const parts *p, int i) {
  return p->offsets ? (size_t)p->offsets[i] * p->size : (size_t)i * p->bytes;
}

static size_t greatest_part(const parts *p, int n) {
  size_t greatest = 0;
  for (int i = 0; i < n; i++)
    if (part_bytes(p, i) > greatest)
      greatest = part_bytes(p, i);
  return greatest;
}

/* ---------------------------------------------------------------------------- one gives the same to all who receive */

typedef struct sharing {
  parts parts;   /* of recv */
  int giver;     /* -1: all give */
  bool receives; /* this rank */
} sharing;

static bool gives(int giver, int peer) {
  return giver < 0 || giver == peer;
}

static fl_status share_addresses(fl_rank *rank, const fl_collective *c, const sharing *s) {
  fl_status status = meet_first(rank, c, 0);
  if (status)
    return status;
  if (s->receives) {
    if (!shm_touch(rank))
      return shm_state(rank);
    for (int peer = 0; peer < rank->n; peer++)
      if (peer != rank->me && gives(s->giver, peer))
        copy((char *)c->recv + part_offset(&s->parts, peer), shm_call_of(rank, peer, rank->meeting)->send,
             part_bytes(&s->parts, peer));
    shm_touched(rank);
  }
  return shm_meet(rank);
}

static fl_status share_boxes(fl_rank *rank, const fl_collective *c, const sharing *s, size_t greatest) {
  fl_status status = FL_OK;
  size_t mine = gives(s->giver, rank->me) ? part_bytes(&s->parts, rank->me) : 0;
  for (size_t done = 0; done < greatest && !status; done += SHM_BOX_BYTES) {
    copy(shm_box(rank, rank->me, rank->meeting + 1), at(c->send, done), rest(mine, done, SHM_BOX_BYTES));
    status = done ? shm_meet(rank) : meet_first(rank, c, 0);
    for (int peer = 0; peer < rank->n && s->receives && !status; peer++)
      if (peer != rank->me && gives(s->giver, peer))
        copy((char *)c->recv + part_offset(&s->parts, peer) + done, shm_box(rank, peer, rank->meeting),
             rest(part_bytes(&s->parts, peer), done, SHM_BOX_BYTES));
  }
  return status;
}

fl_status shm_share(void *self, fl_rank *rank, const fl_collective *c) {
  fl_status status = shm_check(rank, c);
  (void)self;
  if (status)
    return status;
  sharing s = {.parts = parts_of(c, NULL, NULL), .giver = -1, .receives = true};
  static const int64_t none[SHM_MOST_RANKS];
  if (c->kind == FL_BROADCAST) {
    s.giver = c->root;
    s.parts.offsets = none;
  } else if (c->kind == FL_GATHER) {
    s.receives = c->root == rank->me;
  } else if (c->kind == FL_ALL_GATHER_V) {
    s.parts = parts_of(c, c->recv_counts, c->recv_offsets);
  }
  size_t greatest = greatest_part(&s.parts, rank->n);
  if (!greatest)
    return FL_OK;
  if (s.receives && gives(s.giver, rank->me))
    copy((char *)c->recv + (c->kind == FL_BROADCAST ? 0 : part_offset(&s.parts, rank->me)), c->send,
         part_bytes(&s.parts, rank->me));
  if (rank->n == 1)
    return FL_OK;
  return rank->threads && greatest > SMALL ? share_addresses(rank, c, &s) : share_boxes(rank, c, &s, greatest);
}

/* ------------------------------------------------------------------------------- each gives something else to each */

typedef struct exchanging {
  parts send, recv; /* `recv` of what is reduced: that of one part */
  int giver;        /* -1: all give */
  bool reduces;
} exchanging;

/* What a rank gives this one: its address, by what it said of its call. */
static const char *given(fl_rank *rank, const exchanging *x, int peer) {
  const shm_call *call = shm_call_of(rank, peer, rank->meeting);
  size_t offset = call->offsets && call->kind == FL_ALL_TO_ALL_V ? (size_t)call->offsets[rank->me] * x->send.size
                                                                 : part_offset(&x->send, rank->me);
  return at(call->send, offset);
}

static fl_status exchange_addresses(fl_rank *rank, const fl_collective *c, const exchanging *x) {
  fl_status status = meet_first(rank, c, 0);
  if (status)
    return status;
  if (!shm_touch(rank))
    return shm_state(rank);
  int wrong = -1;
  for (int peer = 0; peer < rank->n; peer++) {
    const shm_call *call = shm_call_of(rank, peer, rank->meeting);
    if (c->kind == FL_ALL_TO_ALL_V && call->counts[rank->me] != c->recv_counts[peer])
      wrong = peer;
    else if (x->reduces)
      rank->operands[peer] = given(rank, x, peer);
    else if (peer != rank->me && gives(x->giver, peer))
      copy((char *)c->recv + part_offset(&x->recv, peer), given(rank, x, peer), part_bytes(&x->recv, peer));
  }
  if (x->reduces)
    shm_reduce_of(c->dtype, c->reduction)(c->recv, rank->operands, rank->n,
                                          part_bytes(&x->send, rank->me) / x->send.size);
  shm_touched(rank);
  if (wrong >= 0)
    return shm_break(rank, FL_EINVAL, "rank %d sends %lld elements to rank %d, which expects %lld", wrong,
                     (long long)shm_call_of(rank, wrong, rank->meeting)->counts[rank->me], rank->me,
                     (long long)c->recv_counts[wrong]);
  return shm_meet(rank);
}

static void read_slots(fl_rank *rank, const fl_collective *c, const exchanging *x, size_t done, size_t slot) {
  size_t place = (size_t)rank->me * slot;
  if (x->reduces) {
    size_t bytes = rest(part_bytes(&x->send, rank->me), done, slot);
    for (int peer = 0; peer < rank->n; peer++)
      rank->operands[peer] = shm_box(rank, peer, rank->meeting) + place;
    rank->operands[rank->me] = at(c->send, part_offset(&x->send, rank->me) + done);
    if (bytes)
      shm_reduce_of(c->dtype, c->reduction)((char *)c->recv + done, rank->operands, rank->n, bytes / x->send.size);
    return;
  }
  for (int peer = 0; peer < rank->n; peer++)
    if (peer != rank->me && gives(x->giver, peer))
      copy((char *)c->recv + part_offset(&x->recv, peer) + done, shm_box(rank, peer, rank->meeting) + place,
           rest(part_bytes(&x->recv, peer), done, slot));
}

/* All parts move at the same time, each through its slot of the sender's box. */
static fl_status exchange_boxes(fl_rank *rank, const fl_collective *c, const exchanging *x, size_t greatest) {
  const size_t slot = SHM_BOX_BYTES / (size_t)rank->n / SHM_LINE * SHM_LINE;
  fl_status status = FL_OK;
  for (size_t done = 0; (done == 0 || done < greatest) && !status; done += slot) {
    unsigned char *box = shm_box(rank, rank->me, rank->meeting + 1);
    for (int peer = 0; peer < rank->n && gives(x->giver, rank->me); peer++)
      if (peer != rank->me)
        copy(box + (size_t)peer * slot, at(c->send, part_offset(&x->send, peer) + done),
             rest(part_bytes(&x->send, peer), done, slot));
    status = done ? shm_meet(rank) : meet_first(rank, c, (int64_t)greatest);
    /* Of an all_to_all_v each rank knows its own parts alone. */
    for (int peer = 0; peer < rank->n && !done && !status; peer++) {
      size_t theirs = (size_t)shm_call_of(rank, peer, rank->meeting)->greatest;
      greatest = theirs > greatest ? theirs : greatest;
    }
    if (!status)
      read_slots(rank, c, x, done, slot);
  }
  return status;
}

fl_status shm_exchange(void *self, fl_rank *rank, const fl_collective *c) {
  fl_status status = shm_check(rank, c);
  (void)self;
  if (status)
    return status;
  exchanging x = {.send = parts_of(c, NULL, NULL), .recv = parts_of(c, NULL, NULL), .giver = -1};
  x.reduces = traits[c->kind] & REDUCES;
  if (c->kind == FL_SCATTER) {
    static const int64_t none[SHM_MOST_RANKS];
    x.giver = c->root;
    x.recv.offsets = none;
  } else if (c->kind == FL_REDUCE_SCATTER_V) {
    x.send = parts_of(c, c->recv_counts, c->recv_offsets);
  } else if (c->kind == FL_ALL_TO_ALL_V) {
    x.send = parts_of(c, c->send_counts, c->send_offsets);
    x.recv = parts_of(c, c->recv_counts, c->recv_offsets);
  }
  size_t greatest = greatest_part(&x.send, rank->n);
  if (!greatest && c->kind != FL_ALL_TO_ALL_V)
    return FL_OK;
  if (!x.reduces && gives(x.giver, rank->me))
    copy((char *)c->recv + part_offset(&x.recv, rank->me), at(c->send, part_offset(&x.send, rank->me)),
         part_bytes(&x.send, rank->me));
  if (rank->n == 1 && x.reduces) {
    rank->operands[0] = at(c->send, part_offset(&x.send, 0));
    shm_reduce_of(c->dtype, c->reduction)(c->recv, rank->operands, 1, part_bytes(&x.send, 0) / x.send.size);
  }
  if (rank->n == 1)
    return FL_OK;
  return rank->threads && (greatest > SMALL || c->kind == FL_ALL_TO_ALL_V) ? exchange_addresses(rank, c, &x)
                                                                           : exchange_boxes(rank, c, &x, greatest);
}

/* ----------------------------------------------------------------------------------------------- reduce, all_reduce */

static fl_status reduce_small(fl_rank *rank, const fl_collective *c, shm_reduce_fn reduce, void *recv) {
  copy(shm_box(rank, rank->me, rank->meeting + 1), c->send, (size_t)c->count * shm_element_bytes(c->dtype));
  fl_status status = meet_first(rank, c, 0);
  for (int peer = 0; peer < rank->n; peer++)
    rank->operands[peer] = peer == rank->me ? c->send : shm_box(rank, peer, rank->meeting);
  if (!status && recv)
    reduce(recv, rank->operands, rank->n, (size_t)c->count);
  return status;
}

/* Each rank reduces a part of all ranks' elements, and puts it where all have it. */
static fl_status reduce_addresses(fl_rank *rank, const fl_collective *c, shm_reduce_fn reduce, size_t size) {
  fl_status status = meet_first(rank, c, 0);
  if (status)
    return status;
  if (!shm_touch(rank))
    return shm_state(rank);
  const size_t line = SHM_LINE / size, count = (size_t)c->count, n = (size_t)rank->n;
  size_t part = ((count + n - 1) / n + line - 1) / line * line;
  size_t first = least((size_t)rank->me * part, count), end = least(first + part, count);
  for (size_t m; first < end; first += m) {
    m = least(PORTION / size, end - first);
    for (int peer = 0; peer < rank->n; peer++)
      rank->operands[peer] = at(shm_call_of(rank, peer, rank->meeting)->send, first * size);
    char *result = (char *)shm_call_of(rank, c->kind == FL_REDUCE ? c->root : rank->me, rank->meeting)->recv;
    result += first * size;
    reduce(result, rank->operands, rank->n, m);
    for (int peer = 0; peer < rank->n && c->kind == FL_ALL_REDUCE; peer++)
      copy((char *)shm_call_of(rank, peer, rank->meeting)->recv + first * size, result, m * size);
  }
  shm_touched(rank);
  return shm_meet(rank);
}

/*
 * In chunks of a box, in which each rank has a slot. A chunk takes three rounds, and three chunks are under way at the
 * same time: of chunk t each rank writes what others reduce, of t - 1 it reduces its own slot and leaves the result in
 * the slot of its own box, of t - 2 it takes the others' results. Chunk t is read before anything of it is written, so
 * recv may be send.
 */
typedef struct reducing {
  shm_reduce_fn reduce;
  size_t size, count, chunk; /* of an element; elements in all; elements of a chunk */
} reducing;

/* Elements of slot `i` of chunk t, and where they begin: in the box, and in all. */
static size_t slot_of(const reducing *r, size_t t, int i, int n, size_t *in_box, size_t *in_all) {
  const size_t line = SHM_LINE / r->size, m = rest(r->count, t * r->chunk, r->chunk);
  size_t slot = ((m + (size_t)n - 1) / (size_t)n + line - 1) / line * line;
  size_t first = least((size_t)i * slot, m);
  *in_box = r->chunk / (size_t)n * (size_t)i * r->size;
  *in_all = (t * r->chunk + first) * r->size;
  return least(slot, m - first);
}

static void give_slots(fl_rank *rank, const fl_collective *c, const reducing *r, size_t t) {
  size_t in_box, in_all;
  for (int peer = 0; peer < rank->n; peer++) {
    size_t m = slot_of(r, t, peer, rank->n, &in_box, &in_all);
    if (peer != rank->me)
      copy(shm_box(rank, rank->me, rank->meeting + 1) + in_box, at(c->send, in_all), m * r->size);
  }
}

static void reduce_slot(fl_rank *rank, const fl_collective *c, const reducing *r, size_t t, char *recv) {
  size_t in_box, in_all, m = slot_of(r, t, rank->me, rank->n, &in_box, &in_all);
  unsigned char *result = shm_box(rank, rank->me, rank->meeting + 1);
  for (size_t done = 0, k; done < m; done += k) {
    const size_t offset = done * r->size;
    k = least(PORTION / r->size, m - done);
    for (int peer = 0; peer < rank->n; peer++)
      rank->operands[peer] = shm_box(rank, peer, rank->meeting) + in_box + offset;
    rank->operands[rank->me] = at(c->send, in_all + offset);
    r->reduce(result + in_box + offset, rank->operands, rank->n, k);
    if (recv)
      copy(recv + in_all + offset, result + in_box + offset, k * r->size);
  }
}

static void take_slots(fl_rank *rank, const reducing *r, size_t t, char *recv) {
  size_t in_box, in_all;
  for (int peer = 0; peer < rank->n && recv; peer++) {
    size_t m = slot_of(r, t, peer, rank->n, &in_box, &in_all);
    if (peer != rank->me)
      copy(recv + in_all, shm_box(rank, peer, rank->meeting) + in_box, m * r->size);
  }
}

static fl_status reduce_boxes(fl_rank *rank, const fl_collective *c, shm_reduce_fn reduce, size_t size, void *recv) {
  const size_t line = SHM_LINE / size, n = (size_t)rank->n;
  reducing r = {.reduce = reduce, .size = size, .count = (size_t)c->count};
  r.chunk = SHM_BOX_BYTES / SHM_LINE / n * n * line;
  const size_t chunks = (r.count + r.chunk - 1) / r.chunk;
  fl_status status = FL_OK;
  for (size_t t = 0; t < chunks + 2 && !status; t++) {
    if (t < chunks)
      give_slots(rank, c, &r, t);
    if (t >= 1 && t - 1 < chunks)
      reduce_slot(rank, c, &r, t - 1, recv);
    if (t >= 2)
      take_slots(rank, &r, t - 2, recv);
    if (t < chunks + 1)
      status = t ? shm_meet(rank) : meet_first(rank, c, 0);
  }
  return status;
}

fl_status shm_all_reduce(void *self, fl_rank *rank, const fl_collective *c) {
  fl_status status = shm_check(rank, c);
  (void)self;
  if (status || !c->count)
    return status;
  const size_t size = shm_element_bytes(c->dtype), bytes = (size_t)c->count * size;
  shm_reduce_fn reduce = shm_reduce_of(c->dtype, c->reduction);
  /* NULL: the result is another rank's, whatever stands there. */
  void *recv = c->kind == FL_REDUCE && c->root != rank->me ? NULL : c->recv;
  if (rank->n == 1) {
    reduce(recv, &c->send, 1, (size_t)c->count);
    return FL_OK;
  }
  if (bytes <= SMALL)
    return reduce_small(rank, c, reduce, recv);
  return rank->threads ? reduce_addresses(rank, c, reduce, size) : reduce_boxes(rank, c, reduce, size, recv);
}

fl_status shm_barrier(void *self, fl_rank *rank, const fl_collective *asked) {
  const fl_collective c = {.size = sizeof c, .kind = FL_BARRIER};
  fl_status status = shm_check(rank, &c);
  (void)self;
  (void)asked;
  return status ? status : meet_first(rank, &c, 0);
}

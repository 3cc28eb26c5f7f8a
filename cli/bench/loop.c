/*
 * A plain loop that moves as many bytes as a call: how fast this machine could be at it. Vectors as wide as the
 * processor has them; what is read is combined and written over and over, so that nothing can be left out.
 */
#include "cli/bench/peer.h"

#include "cli/bench/measure.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

/* Of a vector; of reads before writes come; bytes that both ways to store are tried with. */
enum { WIDTH = 64, BLOCK = 8, TRIED = 8 << 20, TRIALS = 5 };

typedef uint64_t vector __attribute__((vector_size(WIDTH)));

byte_mix byte_mix_of(const timed_call *call) {
  double written = 0;
  for (uint32_t i = 0; i < call->n_values; i++) {
    bool is_result = i >= call->n_arguments, changes = is_result || fl_op_argument(call->op, i)->mutates;
    /* What may be changed in place is not, where the result has memory of its own. */
    for (uint32_t r = call->n_arguments; r < call->n_values && !is_result; r++)
      changes &= fl_op_argument(call->op, r)->alias != (int32_t)i;
    written += changes ? timed_call_tensor_bytes(call, i) : 0;
  }
  if (written > call->cost.bytes)
    written = call->cost.bytes;
  return (byte_mix){.read = (size_t)(call->cost.bytes - written), .written = (size_t)written};
}

/* ------------------------------------------------------------------------------------------------------- one thread */

static inline __attribute__((always_inline)) void store(vector *to, const vector *value, bool streams) {
#ifdef __x86_64__
  if (streams) {
    const __m128i part = {(long long)(*value)[0], (long long)(*value)[1]};
    for (int i = 0; i < WIDTH / 16; i++)
      _mm_stream_si128((__m128i *)to + i, part);
    return;
  }
#endif
  (void)streams;
  *to = *value;
}

static inline __attribute__((always_inline)) void combine(const vector *from, size_t n, vector *sum) {
  vector a = *sum, b = a, c = a, d = a;
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    a |= from[i];
    b |= from[i + 1];
    c |= from[i + 2];
    d |= from[i + 3];
  }
  for (; i < n; i++)
    a |= from[i];
  *sum = a | b | c | d;
}

/* Reads and writes so many vectors, in turn. */
static inline __attribute__((always_inline)) void move(const vector *from, size_t reads, vector *to, size_t writes,
                                                       bool streams) {
  size_t most = reads > writes ? reads : writes, blocks = most / BLOCK ? most / BLOCK : 1;
  size_t read = reads / blocks, written = writes / blocks;
  vector sum = {0};
  for (size_t i = 0; i < blocks; i++) {
    combine(from + i * read, read, &sum);
    for (size_t j = 0; j < written; j++)
      store(to + i * written + j, &sum, streams);
  }
  combine(from + blocks * read, reads - blocks * read, &sum);
  for (size_t j = blocks * written; j < writes; j++)
    store(to + j, &sum, streams);
  __asm__ volatile("" : : "r"(sum[0])); /* it is wanted, so that nothing is left out */
#ifdef __x86_64__
  if (streams)
    _mm_sfence();
#endif
}

static void move_plainly(const vector *from, size_t reads, vector *to, size_t writes, bool streams) {
  move(from, reads, to, writes, streams);
}

typedef void (*move_fn)(const vector *from, size_t reads, vector *to, size_t writes, bool streams);

#ifdef __x86_64__
__attribute__((target("avx2"))) static void move_avx2(const vector *from, size_t reads, vector *to, size_t writes,
                                                      bool streams) {
  move(from, reads, to, writes, streams);
}

__attribute__((target("avx512f"))) static void move_avx512(const vector *from, size_t reads, vector *to, size_t writes,
                                                           bool streams) {
  move(from, reads, to, writes, streams);
}

static move_fn choose_move(void) {
  return __builtin_cpu_supports("avx512f") ? move_avx512 : __builtin_cpu_supports("avx2") ? move_avx2 : move_plainly;
}
#else
static move_fn choose_move(void) {
  return move_plainly;
}
#endif

/* ---------------------------------------------------------------------------------------------------- all of them */

/* Vectors that so many bytes are, at least. */
static size_t vectors_of(size_t bytes) {
  return (bytes + WIDTH - 1) / WIDTH;
}

/* What one thread does: its part of each of n calls. */
typedef struct part {
  const byte_loop *loop;
  int number;
  long n;
} part;

static void *run_part(void *user) {
  const part *p = user;
  const byte_loop *loop = p->loop;
  size_t reads = vectors_of(loop->mix.read), writes = vectors_of(loop->mix.written), at = loop->at;
  size_t threads = (size_t)loop->threads, number = (size_t)p->number;
  size_t read = reads * number / threads, written = writes * number / threads;
  move_fn function = choose_move();
  for (long i = 0; i < p->n; i++) {
    function((const vector *)loop->from + at * reads + read, reads * (number + 1) / threads - read,
             (vector *)loop->to + at * writes + written, writes * (number + 1) / threads - written, loop->streams);
    at = at + 1 < loop->copies ? at + 1 : 0;
  }
  return NULL;
}

fl_status byte_loop_run(byte_loop *loop, long n) {
  pthread_t threads[BENCH_THREADS_MOST];
  part parts[BENCH_THREADS_MOST];
  int started = 1, n_threads = loop->threads > 1 ? loop->threads : 1;
  for (int i = 1; i < n_threads; i++)
    parts[i] = (part){.loop = loop, .number = i, .n = n};
  for (; started < n_threads; started++)
    if (pthread_create(&threads[started], NULL, run_part, &parts[started]))
      break;
  run_part(&(part){.loop = loop, .number = 0, .n = n});
  for (int i = 1; i < n_threads; i++)
    if (i < started)
      pthread_join(threads[i], NULL);
    else
      run_part(&parts[i]);
  loop->at = (loop->at + (size_t)n) % loop->copies;
  return FL_OK;
}

static double fastest(byte_loop *loop, bool streams) {
  double least = 0;
  long n = 1 + (long)(TRIED / (loop->mix.read + loop->mix.written + 1));
  loop->streams = streams;
  for (int i = 0; i < TRIALS; i++) {
    double start = bench_now();
    byte_loop_run(loop, n);
    double took = bench_now() - start;
    least = i && least < took ? least : took;
  }
  return least;
}

bool byte_loop_create(byte_loop *loop, byte_mix mix, size_t copies, int threads) {
  *loop =
      (byte_loop){.mix = mix, .copies = copies, .threads = threads < BENCH_THREADS_MOST ? threads : BENCH_THREADS_MOST};
  size_t read = (vectors_of(mix.read) + 1) * WIDTH * copies, written = (vectors_of(mix.written) + 1) * WIDTH * copies;
  loop->from = aligned_alloc(WIDTH, read);
  loop->to = aligned_alloc(WIDTH, written);
  if (!loop->from || !loop->to) {
    byte_loop_free(loop);
    return false;
  }
  memset(loop->from, 1, read); /* a page that nobody has written to would be made during the first call */
  memset(loop->to, 1, written);
  double plain = fastest(loop, false);
  loop->streams = fastest(loop, true) < plain;
  return true;
}

void byte_loop_free(byte_loop *loop) {
  free(loop->from);
  free(loop->to);
  *loop = (byte_loop){0};
}

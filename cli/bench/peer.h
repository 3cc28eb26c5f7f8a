/*
 * What `flhost bench --peer` puts beside the implementations: a loop that reads and writes as many bytes as the call
 * does, and PyTorch, which a Python in another process calls when it is told to (peers/torch_peer.py).
 */
#ifndef FLHOST_CLI_BENCH_PEER_H
#define FLHOST_CLI_BENCH_PEER_H

#include "cli/bench/bench.h"

/* Reads a list of words into asked->peers. false, with a message: one of them is none. */
bool bench_peers_parse(const char *words, bench_request *asked);
bool bench_peer_is_loop(const char *name);
const char *bench_peer_title(const char *name); /* of its column */
bool bench_needs_torch(const bench_request *asked);

/* -------------------------------------------------------------------------------------------------------- the loop */

/* One call's share: so many bytes read, and so many written. */
typedef struct byte_mix {
  size_t read, written;
} byte_mix;

/* Memory to read and write, for `copies` calls that take turns. */
typedef struct byte_loop {
  byte_mix mix;
  char *from, *to;
  size_t copies, at;
  int threads;
  bool streams; /* stores go past the caches: that was the faster way */
} byte_loop;

/* What a call reads and writes: results and arguments that it changes are written, the rest of its bytes read. */
byte_mix byte_mix_of(const timed_call *call);

/* false: out of memory. */
bool byte_loop_create(byte_loop *loop, byte_mix mix, size_t copies, int threads);
void byte_loop_free(byte_loop *loop);
fl_status byte_loop_run(byte_loop *loop, long n);

/* ------------------------------------------------------------------------------------------------------ the process */

enum { TORCH_PEER_WORDS = 512 };

typedef struct torch_peer torch_peer;

/* Starts it, and waits until torch is loaded; NULL, with a message, where that cannot be. To be ended by the process
 * that started it; its children may speak to it, one at a time. */
torch_peer *torch_peer_start(DLDevice device, int threads, double seconds);
void torch_peer_end(torch_peer *peer);
const char *torch_peer_version(const torch_peer *peer);

/* What is made ready from now on is another call, with tensors of its own, which it shares with nothing before. */
void torch_peer_next_call(torch_peer *peer);

/* Has it make a call's arguments, and warm up. FL_ENOTSUP, with why not in `words`: it does not make that call.
 * FL_EINTERNAL: it makes none any more. */
fl_status torch_peer_ready(torch_peer *peer, const char *name, const timed_call *call, char words[TORCH_PEER_WORDS]);

/* Nanoseconds for one of `n` calls, by its own clock; errors as above. */
fl_status torch_peer_time(torch_peer *peer, const char *name, long n, double *ns, char words[TORCH_PEER_WORDS]);

#endif

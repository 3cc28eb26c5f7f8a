/*
 * Causal convolution and Mamba's scan over the sequences of a batch. Where sequences begin and which states are theirs
 * is in device memory: whatever is there, positions are brought into the batch, and a sequence without a state of its
 * own is skipped as one of index -1 is.
 */
#include "plugins/gpu/kernels/arguments/state_space.h"
#include "plugins/gpu/kernels/functions.h"

/* ------------------------------------------------------------------------------------------------------- sequences */

/* What one sequence is about; tokens from `begin` to before `end`. */
struct sequence {
  int64_t begin, end, slot;
  bool skipped, continues;
};

GPU_DEVICE int64_t start_of(const gpu_sequences &all, int64_t i) {
  if (!all.starts)
    return i ? all.tokens : 0;
  return gpu_clamp(gpu_load_index(all.wide_starts, all.starts, i), 0, all.tokens);
}

GPU_DEVICE sequence sequence_at(const gpu_sequences &all, int64_t i) {
  sequence s;
  s.begin = start_of(all, i);
  s.end = start_of(all, i + 1);
  s.slot = all.indices ? gpu_load_index(all.wide_indices, all.indices, i) : i;
  s.skipped = s.slot < 0 || (all.slots >= 0 && s.slot >= all.slots);
  s.continues = !s.skipped && all.initial && all.initial[i];
  return s;
}

/* The sequence that a token is of: its start is the token or before it, the next one's behind it. -1: none. */
GPU_DEVICE int64_t find_sequence(const gpu_sequences &all, int64_t token) {
  int64_t low = 0, high = all.n + 1;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (start_of(all, middle) > token)
      high = middle;
    else
      low = middle + 1;
  }
  return low <= all.n ? low - 1 : -1;
}

/* A block's share of the sequences, by a kernel that has scan() and clear(), and what lies behind them all. */
template <typename K> GPU_DEVICE void run_sequences(const gpu_sequences &all, K &kernel) {
#pragma unroll 1
  for (int64_t i = blockIdx.y; i < all.n; i += gridDim.y) {
    sequence s = sequence_at(all, i);
    if (s.skipped)
      kernel.clear(s.begin, s.end);
    else
      kernel.scan(s);
  }
  if (blockIdx.y == 0)
    kernel.clear(start_of(all, all.n), all.tokens);
}

/* Lane i of `n` neighbours gets the sum of all lanes' shares of token i: at each step a lane gives half of its tokens
 * away, so that n tokens cost n - 1 shuffles. */
template <int n> GPU_DEVICE float sum_shares(float (&shares)[n], int lane) {
#pragma unroll
  for (int half = n / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; i++) {
      bool upper = lane & half;
      float kept = upper ? shares[i + half] : shares[i], given = upper ? shares[i] : shares[i + half];
      shares[i] = kept + gpu_shuffle_xor(given, half);
    }
  return shares[0];
}

/* --------------------------------------------------------------------------------------------------- causal_conv1d */

GPU_DEVICE int64_t state_at(const gpu_conv_arguments &a, int64_t slot, int64_t channel, int64_t k) {
  return slot * a.state.stride[0] + channel * a.state.stride[1] + k;
}

/* Input `t` of a sequence; before its first one the state, oldest first. */
template <typename T>
GPU_DEVICE float conv_input(const gpu_conv_arguments &a, const sequence &s, int64_t channel, int64_t t) {
  if (t >= 0)
    return gpu_load<T>(a.x, channel * a.x_channel + s.begin + t);
  if (!s.continues)
    return 0;
  return gpu_load_as(a.state.dtype, a.state.data, state_at(a, s.slot, channel, a.width - 1 + t));
}

GPU_DEVICE float conv_weight(const gpu_conv_arguments &a, int64_t channel, int j) {
  return gpu_load_as(a.weight.dtype, a.weight.data, channel * a.weight.stride[0] + j);
}

GPU_DEVICE float conv_bias(const gpu_conv_arguments &a, int64_t channel) {
  return a.bias.data ? gpu_load_as(a.bias.dtype, a.bias.data, channel) : 0.0f;
}

template <typename T> GPU_DEVICE float conv_activate(const gpu_conv_arguments &a, float sum) {
  return a.silu ? gpu_silu<T>(sum) : sum;
}

/* Element by element: anywhere in a sequence. */
template <typename T>
GPU_DEVICE void convolve(const gpu_conv_arguments &a, const sequence &s, int64_t channel, int64_t t) {
  float sum = conv_bias(a, channel);
#pragma unroll 1
  for (int j = 0; j < a.width; j++)
    sum = fmaf(conv_weight(a, channel, j), conv_input<T>(a, s, channel, t - (a.width - 1) + j), sum);
  gpu_store<T>(a.out, channel * a.out_channel + s.begin + t, conv_activate<T>(a, sum));
}

/* The last inputs, oldest first. An entry is read before it is overwritten: what it becomes lies behind it. */
template <typename T> GPU_DEVICE void leave_inputs(const gpu_conv_arguments &a, const sequence &s, int64_t channel) {
  int64_t length = s.end - s.begin;
  if (!a.state.data || s.skipped || length <= 0)
    return;
#pragma unroll 1
  for (int k = 0; k < a.width - 1; k++)
    gpu_store_as(a.state.dtype, a.state.data, state_at(a, s.slot, channel, k),
                 conv_input<T>(a, s, channel, length - (a.width - 1) + k));
}

/* Behind the last sequence, results are 0. */
template <typename T> GPU_DEVICE void clear(void *out, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++)
    gpu_store<T>(out, i, 0);
}

/* Short sequences: a thread makes all of one channel, and then leaves its inputs, which no other thread reads. */
template <typename T> GPU_DEVICE void conv_by_sequences(const gpu_conv_arguments &a, bool makes_results) {
  int64_t channel = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= a.channels)
    return;
  for (int64_t i = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; i < a.sequences.n; i += gridDim.y * blockDim.y) {
    sequence s = sequence_at(a.sequences, i);
    int64_t row = channel * a.out_channel;
    if (makes_results && s.skipped)
      clear<T>(a.out, row + s.begin, row + s.end);
    else if (makes_results)
      for (int64_t t = 0; t < s.end - s.begin; t++)
        convolve<T>(a, s, channel, t);
    if (makes_results && i == a.sequences.n - 1)
      clear<T>(a.out, row + s.end, row + a.sequences.tokens);
    leave_inputs<T>(a, s, channel);
  }
}

/* N results from `t` on, of which all inputs are of one sequence and in x. */
template <typename T> GPU_DEVICE void convolve_vector(const gpu_conv_arguments &a, int64_t channel, int64_t t) {
  const int N = T::vector, W = GPU_CONV_WIDTH;
  float before[W - 1], in[N], weight[W], made[N], bias = conv_bias(a, channel);
  int64_t from = channel * a.x_channel + t, to = channel * a.out_channel + t;
#pragma unroll
  for (int k = 0; k < W; k++)
    weight[k] = k < W - a.width ? 0.0f : conv_weight(a, channel, k - (W - a.width));
#pragma unroll
  for (int k = 0; k < W - 1; k++)
    before[k] = k < W - a.width ? 0.0f : gpu_load<T>(a.x, from - (W - 1) + k);
  if (a.vectorised)
    gpu_load_floats<T>(a.x, from, in);
  else
#pragma unroll
    for (int k = 0; k < N; k++)
      in[k] = gpu_load<T>(a.x, from + k);
#pragma unroll
  for (int k = 0; k < N; k++) {
    float sum = bias;
#pragma unroll
    for (int j = 0; j < W; j++)
      if (j >= W - a.width)
        sum = fmaf(weight[j], k + j < W - 1 ? before[k + j] : in[k + j - (W - 1)], sum);
    made[k] = conv_activate<T>(a, sum);
  }
  if (a.vectorised)
    gpu_store_floats<T>(a.out, to, made);
  else
#pragma unroll
    for (int k = 0; k < N; k++)
      gpu_store<T>(a.out, to + k, made[k]);
}

/* Long sequences: a thread makes the results that 16 bytes hold, of a channel. */
template <typename T> GPU_DEVICE void conv_by_tokens(const gpu_conv_arguments &a) {
  const int N = T::vector;
  int64_t first = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N, behind = first + N;
  if (first >= a.sequences.tokens)
    return;
  behind = behind < a.sequences.tokens ? behind : a.sequences.tokens;
  int64_t at = find_sequence(a.sequences, first);
  sequence s = {};
  if (at >= 0)
    s = sequence_at(a.sequences, at);
  bool inside =
      a.width <= GPU_CONV_WIDTH && at >= 0 && !s.skipped && s.begin <= first - (a.width - 1) && first + N <= s.end;
  for (int64_t channel = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; channel < a.channels;
       channel += gridDim.y * blockDim.y) {
    if (inside) {
      convolve_vector<T>(a, channel, first);
      continue;
    }
#pragma unroll 1
    for (int64_t token = first; token < behind; token++) {
      int64_t i = token == first ? at : find_sequence(a.sequences, token);
      sequence of = {};
      if (i >= 0)
        of = sequence_at(a.sequences, i);
      if (i < 0 || of.skipped)
        gpu_store<T>(a.out, channel * a.out_channel + token, 0);
      else
        convolve<T>(a, of, channel, token - of.begin);
    }
  }
}

#define CONV(type)                                                                                                     \
  GPU_KERNEL(gpu_conv_arguments, causal_conv1d_short_##type, GPU_CONV_THREADS) {                                       \
    conv_by_sequences<gpu_##type>(a, true);                                                                            \
  }                                                                                                                    \
  GPU_KERNEL(gpu_conv_arguments, causal_conv1d_##type, GPU_CONV_THREADS) {                                             \
    conv_by_tokens<gpu_##type>(a);                                                                                     \
  }                                                                                                                    \
  GPU_KERNEL(gpu_conv_arguments, causal_conv1d_state_##type, GPU_CONV_THREADS) {                                       \
    conv_by_sequences<gpu_##type>(a, false);                                                                           \
  }
CONV(f32)
CONV(f16)
CONV(bf16)

/* -------------------------------------------------------------------------------------------------- selective_scan
 * A block makes 16 channels of one group over one sequence, a channel by GPU_SCAN_LANES threads, of which each keeps
 * PER_LANE numbers of the state in registers. Step sizes, B and C of some tokens at a time come through shared memory,
 * where they serve all channels and are float. The sum over the states of a token crosses the lanes once for
 * GPU_SCAN_LANES tokens: each lane ends up with the sum of one of them, and writes its result.
 */

template <typename T, int PER_LANE> struct scanner {
  static constexpr int LANES = GPU_SCAN_LANES, CHANNELS = GPU_SCAN_THREADS / LANES, STATES = LANES * PER_LANE;
  static constexpr int TOKENS = PER_LANE == 1 ? 4 * LANES : LANES;

  struct step {
    float delta, input; /* delta * u */
  };
  struct memory {
    step steps[CHANNELS][TOKENS + 1]; /* 1, here and below: neighbours are in different banks */
    float b[TOKENS][STATES + 1], c[TOKENS][STATES + 1];
  };

  const gpu_scan_arguments &a;
  memory &m;
  int64_t channel; /* of the thread */
  int64_t group;
  int64_t block_channel; /* the first of the block */
  int row, lane;
  int n;        /* how many states the lane has */
  int channels; /* of the block */
  float h[PER_LANE], rate[PER_LANE];

  GPU_METHOD scanner(const gpu_scan_arguments &arguments, memory &shared) : a(arguments), m(shared) {
    group = blockIdx.x / a.group_blocks;
    int64_t in_group = int64_t(blockIdx.x % a.group_blocks) * CHANNELS, left = a.group_channels - in_group;
    block_channel = group * a.group_channels + in_group;
    channels = left < CHANNELS ? int(left) : CHANNELS;
    row = int(threadIdx.x) / LANES;
    lane = int(threadIdx.x) % LANES;
    channel = block_channel + row;
    n = gpu_divide_up(a.states - lane, LANES);
  }

  /* State number k of the lane: neighbours in memory belong to neighbours in the block. */
  GPU_METHOD int state(int k) const {
    return k * LANES + lane;
  }

  GPU_METHOD bool has_state(int k) const {
    return row < channels && k < n;
  }

  GPU_METHOD int64_t state_at(int64_t slot, int k) const {
    return slot * a.state.stride[0] + channel * a.state.stride[1] + state(k);
  }

  GPU_METHOD void load_steps(int64_t token, int64_t end) {
#pragma unroll 1
    for (int i = int(threadIdx.x); i < CHANNELS * TOKENS; i += GPU_SCAN_THREADS) {
      int mine = i / TOKENS, t = i % TOKENS;
      int64_t of = block_channel + mine;
      step made = {0, 0};
      if (mine < channels && token + t < end) {
        float delta = gpu_load<T>(a.delta, of * a.delta_channel + token + t);
        if (a.delta_bias.data)
          delta += gpu_load_as(a.delta_bias.dtype, a.delta_bias.data, of);
        if (a.softplus)
          delta = gpu_softplus(delta);
        made.delta = delta;
        made.input = delta * gpu_load<T>(a.u, of * a.u_channel + token + t);
      }
      m.steps[mine][t] = made;
    }
  }

  GPU_METHOD void load_factors(int64_t token, int64_t end) {
#pragma unroll 1
    for (int i = int(threadIdx.x); i < STATES * TOKENS; i += GPU_SCAN_THREADS) {
      int n = i / TOKENS, t = i % TOKENS;
      bool there = n < a.states && token + t < end;
      m.b[t][n] = there ? gpu_load<T>(a.b, group * a.b_group + n * a.b_state + token + t) : 0.0f;
      m.c[t][n] = there ? gpu_load<T>(a.c, group * a.c_group + n * a.c_state + token + t) : 0.0f;
    }
  }

  /* One token; the lane's share of the sum. */
  GPU_METHOD float advance(int t) {
    step now = m.steps[row][t];
    float y = 0;
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
      if (k >= n) /* an infinite u would make NaN of it */
        continue;
      h[k] = fmaf(gpu_exp<T>(now.delta * rate[k]), h[k], now.input * m.b[t][state(k)]);
      y = fmaf(m.c[t][state(k)], h[k], y);
    }
    return y;
  }

  /* LANES tokens; each lane gets the sum of one. With many states a token's own exchange costs little, and the code of
   * all tokens in a row much. */
  GPU_METHOD float make_tokens(int first, int64_t left) {
    if constexpr (PER_LANE <= 4) {
      float shares[LANES];
#pragma unroll
      for (int t = 0; t < LANES; t++)
        shares[t] = first + t < left ? advance(first + t) : 0.0f;
      return sum_shares(shares, lane);
    } else {
      float mine = 0;
#pragma unroll 1
      for (int t = 0; t < LANES && first + t < left; t++) {
        float sum = gpu_lanes_reduce<gpu_sum, LANES>(advance(first + t));
        mine = lane == t ? sum : mine;
      }
      return mine;
    }
  }

  GPU_METHOD void store(int64_t token, float y) {
    if (a.d.data)
      y = fmaf(gpu_load_as(a.d.dtype, a.d.data, channel), gpu_load<T>(a.u, channel * a.u_channel + token), y);
    if (a.z)
      y *= gpu_silu<T>(gpu_load<T>(a.z, channel * a.z_channel + token));
    gpu_store<T>(a.out, channel * a.out_channel + token, y);
  }

  GPU_METHOD void begin(const sequence &s) {
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
      rate[k] = has_state(k) ? gpu_load_as(a.a.dtype, a.a.data, channel * a.a.stride[0] + state(k)) : 0.0f;
      h[k] = s.continues && has_state(k) ? gpu_load_as(a.state.dtype, a.state.data, state_at(s.slot, k)) : 0.0f;
    }
  }

  GPU_METHOD void leave(const sequence &s) {
    if (!a.state.data || s.begin >= s.end)
      return;
#pragma unroll
    for (int k = 0; k < PER_LANE; k++)
      if (has_state(k))
        gpu_store_as(a.state.dtype, a.state.data, state_at(s.slot, k), h[k]);
  }

  GPU_METHOD void scan(const sequence &s) {
    begin(s);
#pragma unroll 1
    for (int64_t tile = s.begin; tile < s.end; tile += TOKENS) {
      int64_t left = s.end - tile < TOKENS ? s.end - tile : TOKENS;
      load_steps(tile, s.end);
      load_factors(tile, s.end);
      gpu_barrier();
#pragma unroll 1
      for (int first = 0; first < left; first += LANES) {
        float y = make_tokens(first, left);
        if (row < channels && first + lane < left)
          store(tile + first + lane, y);
      }
      gpu_barrier();
    }
    leave(s);
  }

  /* By all lanes of a channel. */
  GPU_METHOD void clear(int64_t from, int64_t to) {
    for (int64_t token = from + lane; row < channels && token < to; token += LANES)
      gpu_store<T>(a.out, channel * a.out_channel + token, 0);
  }

  GPU_METHOD void run() {
    run_sequences(a.sequences, *this);
  }
};

#define SCAN(type)                                                                                                     \
  GPU_KERNEL(gpu_scan_arguments, selective_scan_##type, GPU_SCAN_THREADS) {                                            \
    GPU_SHARED scanner<gpu_##type, 1>::memory memory;                                                                  \
    scanner<gpu_##type, 1>(a, memory).run();                                                                           \
  }                                                                                                                    \
  GPU_KERNEL(gpu_scan_arguments, selective_scan_64_##type, GPU_SCAN_THREADS) {                                         \
    GPU_SHARED scanner<gpu_##type, 4>::memory memory;                                                                  \
    scanner<gpu_##type, 4>(a, memory).run();                                                                           \
  }                                                                                                                    \
  GPU_KERNEL(gpu_scan_arguments, selective_scan_256_##type, GPU_SCAN_THREADS) {                                        \
    GPU_SHARED scanner<gpu_##type, 16>::memory memory;                                                                 \
    scanner<gpu_##type, 16>(a, memory).run();                                                                          \
  }
SCAN(f32)
SCAN(f16)
SCAN(bf16)

/* ------------------------------------------------------------------------------------------------ mamba_chunk_scan
 * A block makes GPU_SSD_ROWS rows of one head over one sequence, token after token. A row's state is spread over LANES
 * threads, in pieces of four numbers; a thread has the same pieces of two rows, for which it reads B and C once.
 */

template <typename T, int PIECES> struct ssd {
  static constexpr int LANES = GPU_SCAN_LANES, SLOTS = GPU_SCAN_THREADS / LANES, ROWS = GPU_SSD_ROWS, R = ROWS / SLOTS;
  static constexpr int TOKENS = LANES, STATES = PIECES * LANES * 4;
  static constexpr int STEP = LANES / R;

  struct alignas(16) memory {
    float b[TOKENS][STATES], c[TOKENS][STATES];
    float x[TOKENS][ROWS + 1], y[TOKENS][ROWS + 1];
    float dt[TOKENS], decay[TOKENS];
  };
  struct alignas(16) four {
    float v[4];
  };

  const gpu_ssd_arguments &a;
  memory &m;
  int64_t head, group;
  int first, slot, lane; /* row of the block; of the thread: slot and slot + SLOTS */
  float h[R][PIECES][4];

  GPU_METHOD ssd(const gpu_ssd_arguments &arguments, memory &shared) : a(arguments), m(shared) {
    head = blockIdx.x / a.row_blocks;
    group = head / a.group_heads;
    first = int(blockIdx.x % a.row_blocks) * ROWS;
    slot = int(threadIdx.x) / LANES;
    lane = int(threadIdx.x) % LANES;
  }

  /* The first number of a piece: neighbours in memory belong to neighbours in the block. */
  GPU_METHOD int piece_at(int piece) const {
    return (piece * LANES + lane) * 4;
  }

  GPU_METHOD int64_t state_at(const sequence &s, int row, int piece) const {
    return s.slot * a.state.stride[0] + head * a.state.stride[1] + row * a.state.stride[2] + piece_at(piece);
  }

  GPU_METHOD void begin(const sequence &s) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int piece = 0; piece < PIECES; piece++) {
        int row = first + slot + r * SLOTS, left = row < a.rows && s.continues ? a.states - piece_at(piece) : 0;
        if (a.vectorised && left > 0)
          gpu_load_floats<gpu_f32>(a.state.data, state_at(s, row, piece), h[r][piece]);
        else
#pragma unroll
          for (int k = 0; k < 4; k++)
            h[r][piece][k] = k < left ? gpu_load_as(a.state.dtype, a.state.data, state_at(s, row, piece) + k) : 0.0f;
      }
  }

  GPU_METHOD void leave(const sequence &s) {
    if (!a.state.data || s.begin >= s.end)
      return;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int piece = 0; piece < PIECES; piece++) {
        int row = first + slot + r * SLOTS, left = row < a.rows ? a.states - piece_at(piece) : 0;
        if (a.vectorised && left > 0)
          gpu_store_floats<gpu_f32>(a.state.data, state_at(s, row, piece), h[r][piece]);
        else
#pragma unroll
          for (int k = 0; k < 4; k++)
            if (k < left)
              gpu_store_as(a.state.dtype, a.state.data, state_at(s, row, piece) + k, h[r][piece][k]);
      }
  }

  GPU_METHOD void load_steps(int64_t token) {
    float dt = gpu_load_as(a.dt.dtype, a.dt.data, token * a.dt.stride[0] + head);
    if (a.dt_bias.data)
      dt += gpu_load_as(a.dt_bias.dtype, a.dt_bias.data, head);
    if (a.softplus)
      dt = gpu_softplus(dt);
    dt = dt < a.dt_min ? a.dt_min : dt > a.dt_max ? a.dt_max : dt;
    m.dt[threadIdx.x] = dt;
    m.decay[threadIdx.x] = expf(dt * gpu_load_as(a.a.dtype, a.a.data, head));
  }

  GPU_METHOD void load_tile(int64_t token, int left) {
    if (int(threadIdx.x) < left)
      load_steps(token + threadIdx.x);
#pragma unroll 2
    for (int i = int(threadIdx.x); i < left * STATES; i += GPU_SCAN_THREADS) {
      int t = i / STATES, n = i % STATES;
      bool there = n < a.states;
      m.b[t][n] = there ? gpu_load<T>(a.b, (token + t) * a.b_token + group * a.b_group + n) : 0.0f;
      m.c[t][n] = there ? gpu_load<T>(a.c, (token + t) * a.c_token + group * a.c_group + n) : 0.0f;
    }
#pragma unroll 1
    for (int i = int(threadIdx.x); i < left * ROWS; i += GPU_SCAN_THREADS) {
      int t = i / ROWS, row = i % ROWS;
      m.x[t][row] =
          first + row < a.rows ? gpu_load<T>(a.x, (token + t) * a.x_token + head * a.x_head + first + row) : 0.0f;
    }
  }

  /* One token: the thread's shares of the rows' sums. */
  GPU_METHOD void advance(int t, float (&share)[R]) {
    float decay = m.decay[t], input[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
      input[r] = m.dt[t] * m.x[t][slot + r * SLOTS];
      share[r] = 0;
    }
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
      four b = *reinterpret_cast<const four *>(&m.b[t][piece_at(piece)]);
      four c = *reinterpret_cast<const four *>(&m.c[t][piece_at(piece)]);
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
          if (piece_at(piece) + k >= a.states) /* an infinite x would make NaN of it */
            continue;
          h[r][piece][k] = fmaf(decay, h[r][piece][k], input[r] * b.v[k]);
          share[r] = fmaf(c.v[k], h[r][piece][k], share[r]);
        }
    }
  }

  /* STEP tokens of R rows are as many sums as there are lanes. */
  GPU_METHOD void make_step(int first, int left) {
    float shares[LANES] = {}, share[R];
#pragma unroll
    for (int t = 0; t < STEP; t++)
      if (first + t < left) {
        advance(first + t, share);
#pragma unroll
        for (int r = 0; r < R; r++)
          shares[r * STEP + t] = share[r];
      }
    m.y[first + lane % STEP][slot + lane / STEP * SLOTS] = sum_shares(shares, lane);
  }

  /* Of many states: as scanner does. */
  GPU_METHOD void make_token(int t) {
    float share[R];
    advance(t, share);
#pragma unroll
    for (int r = 0; r < R; r++) {
      float sum = gpu_lanes_reduce<gpu_sum, LANES>(share[r]);
      if (lane == 0)
        m.y[t][slot + r * SLOTS] = sum;
    }
  }

  GPU_METHOD void make_tile(int left) {
    if constexpr (PIECES <= 2)
#pragma unroll 1
      for (int t = 0; t < left; t += STEP)
        make_step(t, left);
    else
#pragma unroll 1
      for (int t = 0; t < left; t++)
        make_token(t);
  }

  /* Along rows, as they lie in memory. */
  GPU_METHOD void store_tile(int64_t token, int left) {
#pragma unroll 1
    for (int i = int(threadIdx.x); i < left * ROWS; i += GPU_SCAN_THREADS) {
      int t = i / ROWS, row = first + i % ROWS;
      if (row >= a.rows)
        continue;
      float y = m.y[t][i % ROWS];
      if (a.d.data)
        y = fmaf(gpu_load_as(a.d.dtype, a.d.data, head * a.d.stride[0] + row * a.d.stride[1]), m.x[t][i % ROWS], y);
      if (a.z)
        y *= gpu_silu<T>(gpu_load<T>(a.z, (token + t) * a.z_token + head * a.z_head + row));
      gpu_store<T>(a.out, (token + t) * a.out_token + head * a.out_head + row, y);
    }
  }

  GPU_METHOD void scan(const sequence &s) {
    begin(s);
#pragma unroll 1
    for (int64_t token = s.begin; token < s.end; token += TOKENS) {
      int left = s.end - token < TOKENS ? int(s.end - token) : TOKENS;
      load_tile(token, left);
      gpu_barrier();
      make_tile(left);
      gpu_barrier();
      store_tile(token, left);
      gpu_barrier();
    }
    leave(s);
  }

  GPU_METHOD void clear(int64_t from, int64_t to) {
#pragma unroll 1
    for (int64_t token = from + slot; token < to; token += SLOTS)
      for (int row = first + lane; row < first + ROWS && row < a.rows; row += LANES)
        gpu_store<T>(a.out, token * a.out_token + head * a.out_head + row, 0);
  }

  GPU_METHOD void run() {
    run_sequences(a.sequences, *this);
  }
};

#define SSD(type)                                                                                                      \
  GPU_KERNEL(gpu_ssd_arguments, mamba_chunk_scan_##type, GPU_SCAN_THREADS) {                                           \
    GPU_SHARED ssd<gpu_##type, 1>::memory memory;                                                                      \
    ssd<gpu_##type, 1>(a, memory).run();                                                                               \
  }                                                                                                                    \
  GPU_KERNEL(gpu_ssd_arguments, mamba_chunk_scan_128_##type, GPU_SCAN_THREADS) {                                       \
    GPU_SHARED ssd<gpu_##type, 2>::memory memory;                                                                      \
    ssd<gpu_##type, 2>(a, memory).run();                                                                               \
  }                                                                                                                    \
  GPU_KERNEL(gpu_ssd_arguments, mamba_chunk_scan_256_##type, GPU_SCAN_THREADS) {                                       \
    GPU_SHARED ssd<gpu_##type, 4>::memory memory;                                                                      \
    ssd<gpu_##type, 4>(a, memory).run();                                                                               \
  }
SSD(f32)
SSD(f16)
SSD(bf16)

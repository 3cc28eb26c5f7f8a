/*
 * Ranks that share a layer: a gated feed-forward network, of which each has a part of the weights. Start it with
 * `flhost launch -n 4 -- ./ranks`, under mpirun, torchrun or Slurm (with FLHOST_GROUP_FILE, see docs/ranks.md), or
 * alone.
 *
 *     cc ranks.c $(pkg-config --cflags --libs flhost) -lm -o ranks
 */
#include <flhost/group.h>
#include <flhost/ops.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 3, HIDDEN = 64, INNER = 840 }; /* 840: divided by 1 to 8 */

static const DLDataType float32 = {kDLFloat, 32, 1};

static void check(fl_status status) {
  if (status) {
    fprintf(stderr, "ranks: %s\n", fl_error_message());
    exit(1);
  }
}

/* A matrix of numbers that only their places decide, or of zeros. */
typedef struct matrix {
  DLTensor tensor;
  int64_t shape[2];
  float *data;
} matrix;

static void make(matrix *m, int64_t rows, int64_t columns, float size) {
  m->shape[0] = rows;
  m->shape[1] = columns;
  m->data = calloc((size_t)(rows * columns), sizeof *m->data);
  if (!m->data)
    abort();
  for (int64_t i = 0; size > 0 && i < rows * columns; i++)
    m->data[i] = size * sinf((float)i * 0.7f + (float)columns);
  m->tensor = (DLTensor){m->data, {kDLCPU, 0}, 2, float32, m->shape, NULL, 0};
}

/* Rows or columns of `of`, copied: what a rank reads from a checkpoint. */
static void take(matrix *m, const matrix *of, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t at) {
  for (int64_t i = 0; i < rows; i++)
    memcpy(m->data + (at + i) * m->shape[1], of->data + (row + i) * of->shape[1] + column,
           (size_t)columns * sizeof *m->data);
}

/* down(silu(gate(x)) * up(x)): in a scope with a group the last product is the sum of all ranks'. */
static void feed_forward(const fl_ops *ops, matrix *x, matrix *gate_up, matrix *down, matrix *out) {
  matrix both, inner;
  make(&both, TOKENS, gate_up->shape[0], 0);
  make(&inner, TOKENS, gate_up->shape[0] / 2, 0);
  check(fl_column_parallel_linear(ops, NULL, &x->tensor, &gate_up->tensor, NULL, false, false, &both.tensor));
  check(fl_silu_and_mul(ops, NULL, &both.tensor, &inner.tensor));
  check(fl_row_parallel_linear(ops, NULL, &inner.tensor, &down->tensor, NULL, true, true, false, &out->tensor));
  free(both.data);
  free(inner.data);
}

int main(void) {
  const fl_group_options options = {.size = sizeof options, .name = "tp"};
  matrix x, gate_up, down, own_gate_up, own_down, out, alone;
  fl_host *host;
  fl_group *group;
  fl_scope scope;
  fl_ops ops;
  float worst = 0;
  check(fl_host_create(NULL, &host));
  check(fl_ops_init(&ops, host));
  check(fl_group_create_launched(host, kDLCPU, &options, &group));
  int64_t rank = fl_group_rank(group), n = INNER / fl_group_ranks(group);
  make(&x, TOKENS, HIDDEN, 1);
  make(&gate_up, 2 * INNER, HIDDEN, 0.1f);
  make(&down, HIDDEN, INNER, 0.1f);
  make(&own_gate_up, 2 * n, HIDDEN, 0);
  make(&own_down, HIDDEN, n, 0);
  take(&own_gate_up, &gate_up, rank * n, n, 0, HIDDEN, 0);         /* gate */
  take(&own_gate_up, &gate_up, INNER + rank * n, n, 0, HIDDEN, n); /* up */
  take(&own_down, &down, 0, HIDDEN, rank * n, n, 0);
  make(&out, TOKENS, HIDDEN, 0);
  make(&alone, TOKENS, HIDDEN, 0);

  check(fl_scope_group(host, group, &scope));
  feed_forward(&ops, &x, &own_gate_up, &own_down, &out);
  check(fl_scope_leave(&scope));
  feed_forward(&ops, &x, &gate_up, &down, &alone);

  for (int64_t i = 0; i < TOKENS * HIDDEN; i++)
    worst = fmaxf(worst, fabsf(out.data[i] - alone.data[i]) / (1 + fabsf(alone.data[i])));
  if (rank == 0)
    printf("%d ranks by %s, %d of %d inner features each: as one rank alone, within %s\n", fl_group_ranks(group),
           fl_group_communicator(group), (int)n, INNER, worst < 1e-5f ? "1e-5" : "more than 1e-5");
  const matrix *made[] = {&x, &gate_up, &down, &own_gate_up, &own_down, &out, &alone};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++)
    free(made[i]->data);
  fl_group_destroy(group);
  fl_host_destroy(host);
  return worst < 1e-5f ? 0 : 1;
}

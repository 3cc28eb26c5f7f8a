/*
 * conv2d and conv3d as matrix products: for a block of output positions the inputs under the kernel are gathered into
 * rows, which the weights of a group are multiplied with. Elements are moved, not converted, by the gathering. A block
 * lies in one image, whose outputs it then computes in place, or, where images have few positions, as patches do, in
 * as many as fill it. Threads have blocks of their own.
 */
#include "plugins/cpu/convolution.h"
#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

#include <string.h>

/* Most positions of one product; those of a run, with fewer of which the product of one image is too thin. */
enum { POSITION_BLOCK = 512, LEAST_RUN = 64 };

/* A convolution and what is the same for all its blocks. */
typedef struct plan {
  cpu_convolution c;
  int64_t item, taps, k; /* bytes of an element; taps of the kernel; those of all channels of a group */
  int64_t positions;     /* of an output plane */
  int64_t run;           /* positions whose outputs follow each other in memory */
  int64_t rows;          /* positions of all images */
  int64_t blocks, block; /* of a run, or where runs are short of all rows; positions of each, the last perhaps less */
} plan;

/* Taps along the last dimension of space, from `x` on; zeros outside. */
static void gather_line(const plan *p, char *to, const char *x, int64_t origin) {
  const cpu_convolution *c = &p->c;
  int64_t taps = c->weight.space[2], size = c->x.space[2], dilation = c->dilation[2];
  if (dilation == 1 && origin >= 0 && origin + taps <= size) {
    memcpy(to, x + origin * p->item, (size_t)(taps * p->item));
    return;
  }
  for (int64_t tap = 0; tap < taps; tap++, origin += dilation, to += p->item)
    if (origin >= 0 && origin < size)
      memcpy(to, x + origin * p->item, (size_t)p->item);
    else
      memset(to, 0, (size_t)p->item);
}

/* The k inputs that one output position is made of. */
static void gather_position(const plan *p, char *to, const char *x, int64_t position) {
  const cpu_convolution *c = &p->c;
  const int64_t *kernel = c->weight.space, *out = c->out.space;
  int64_t line = kernel[2] * p->item;
  int64_t origin0 = cpu_convolution_origin(c, 0, position / (out[1] * out[2]));
  int64_t origin1 = cpu_convolution_origin(c, 1, position / out[2] % out[1]);
  int64_t origin2 = cpu_convolution_origin(c, 2, position % out[2]);
  for (int64_t channel = 0; channel < c->weight.b; channel++, x += c->x.b_stride * p->item)
    for (int64_t i = 0; i < kernel[0]; i++)
      for (int64_t j = 0; j < kernel[1]; j++, to += line) {
        int64_t at0 = origin0 + i * c->dilation[0], at1 = origin1 + j * c->dilation[1];
        if (at0 < 0 || at0 >= c->x.space[0] || at1 < 0 || at1 >= c->x.space[1])
          memset(to, 0, (size_t)line);
        else
          gather_line(p, to, x + (at0 * c->x.strides[0] + at1 * c->x.strides[1]) * p->item, origin2);
      }
}

static int64_t offset_of(const cpu_volume *volume, int64_t position) {
  const int64_t *space = volume->space, *strides = volume->strides;
  return position / (space[1] * space[2]) * strides[0] + position / space[2] % space[1] * strides[1] +
         position % space[2] * strides[2];
}

/* Outputs of one group at positions first to first + n - 1, which follow each other; by way of columns [n, k]. */
static fl_status one_block(const plan *p, int64_t batch, int64_t group, int64_t first, int64_t n, char *columns) {
  const cpu_convolution *c = &p->c;
  int64_t output = group * c->group_outputs;
  int64_t offset = offset_of(&c->out, first);
  const char *x = (const char *)c->x.data + (batch * c->x.a_stride + group * c->weight.b * c->x.b_stride) * p->item;
  for (int64_t i = 0; i < n; i++)
    gather_position(p, columns + i * p->k * p->item, x, first + i);
  const cpu_product product = {
      .m = c->group_outputs,
      .n = n,
      .k = p->k,
      .a = {(char *)c->weight.data + output * c->weight.a_stride * p->item, c->dtype, c->weight.a_stride * p->item},
      .b = cpu_matrix_in(columns, c->dtype, p->k),
      .bias_by_row = true,
      .bias_dtype = c->dtype,
      .bias = c->bias ? (const char *)c->bias + output * p->item : NULL,
      .out = {(char *)c->out.data + (batch * c->out.a_stride + output * c->out.b_stride + offset) * p->item, c->dtype,
              c->out.b_stride * p->item}};
  return cpu_product_share(&product);
}

/* Outputs of one group at n positions from `first` on, counted through all images: results [n, outputs] by way of
 * columns [n, k]. */
static fl_status many_images(const plan *p, int64_t group, int64_t first, int64_t n, char *columns, char *results) {
  const cpu_convolution *c = &p->c;
  int64_t output = group * c->group_outputs, b_stride = c->out.b_stride * p->item;
  const char *x = (const char *)c->x.data + group * c->weight.b * c->x.b_stride * p->item;
  char *out = (char *)c->out.data + output * b_stride;
  for (int64_t i = 0; i < n; i++)
    gather_position(p, columns + i * p->k * p->item, x + (first + i) / p->positions * c->x.a_stride * p->item,
                    (first + i) % p->positions);
  const cpu_product product = {
      .m = n,
      .n = c->group_outputs,
      .k = p->k,
      .a = cpu_matrix_in(columns, c->dtype, p->k),
      .b = {(char *)c->weight.data + output * c->weight.a_stride * p->item, c->dtype, c->weight.a_stride * p->item},
      .bias_dtype = c->dtype,
      .bias = c->bias ? (const char *)c->bias + output * p->item : NULL,
      .out = cpu_matrix_in(results, c->dtype, c->group_outputs)};
  fl_status status = cpu_product_share(&product);
  for (int64_t i = 0; i < n && !status; i++) {
    char *to =
        out + ((first + i) / p->positions * c->out.a_stride + offset_of(&c->out, (first + i) % p->positions)) * p->item;
    const char *from = results + i * c->group_outputs * p->item;
    for (int64_t o = 0; o < c->group_outputs; o++)
      memcpy(to + o * b_stride, from + o * p->item, (size_t)p->item);
  }
  return status;
}

/* Blocks are numbered by group and block of rows. */
static fl_status run_images(void *user, int64_t i, int64_t end) {
  const plan *p = user;
  float *columns = cpu_scratch_take((size_t)(p->block * (p->k + p->c.group_outputs)));
  fl_status status = columns ? FL_OK : FL_ENOMEM;
  for (; i < end && !status; i++) {
    int64_t first = i % p->blocks * p->block;
    status = many_images(p, i / p->blocks, first, least(p->block, p->rows - first), (char *)columns,
                         (char *)(columns + p->block * p->k));
  }
  cpu_scratch_give(columns);
  return status;
}

static bool is_compact(const cpu_volume *volume) {
  return volume->strides[2] == 1 && volume->strides[1] == volume->space[2] &&
         (volume->space[0] == 1 || volume->strides[0] == volume->space[1] * volume->space[2]);
}

/* Blocks are numbered by batch, group, run and block of the run. */
static fl_status run_blocks(void *user, int64_t i, int64_t end) {
  const plan *p = user;
  int64_t runs = p->positions / p->run;
  char *columns = (char *)cpu_scratch_take((size_t)(p->block * p->k));
  fl_status status = columns ? FL_OK : FL_ENOMEM;
  for (; i < end && !status; i++) {
    int64_t first = i % p->blocks * p->block, run = i / p->blocks % runs, plane = i / p->blocks / runs;
    status = one_block(p, plane / p->c.groups, plane % p->c.groups, run * p->run + first,
                       least(p->block, p->run - first), columns);
  }
  cpu_scratch_give(columns);
  return status;
}

static fl_status run_plan(plan *p) {
  enum { GRAIN_FACTORS = 1 << 19 }; /* multiplications of some ten microseconds */
  p->rows = p->c.out.a * p->positions;
  if (!p->rows)
    return FL_OK;
  bool thin = p->run < LEAST_RUN;
  int64_t n = thin ? p->rows : p->run, runs = p->c.groups * (p->rows / n);
  /* About as large as each other: a thread that got a small last one would have nothing to do. */
  p->block = divide_up(n, divide_up(n, POSITION_BLOCK));
  p->blocks = divide_up(n, p->block);
  int64_t factors = p->c.group_outputs * p->block * p->k + 1;
  return cpu_parallel_for(runs * p->blocks, divide_up(GRAIN_FACTORS, factors), thin ? run_images : run_blocks, p);
}

/* conv2d and conv3d(x, weight, bias, stride, padding, dilation, groups) -> out */
static fl_status convolution(void *self, fl_call *call) {
  plan p;
  fl_status status = cpu_convolution_read(call, &p.c);
  const cpu_convolution *c = &p.c;
  (void)self;
  if (status)
    return status;
  p.item = cpu_dtype_size(c->dtype);
  p.taps = c->weight.space[0] * c->weight.space[1] * c->weight.space[2];
  p.k = c->weight.b * p.taps;
  p.positions = c->out.space[0] * c->out.space[1] * c->out.space[2];
  p.run = is_compact(&c->out) ? p.positions : c->out.space[2];
  if (!is_compact(&c->weight) || (c->weight.b > 1 && c->weight.b_stride != p.taps))
    return fl_fail(call, FL_ENOTSUP, "argument 'weight': the kernels of an output do not follow each other in memory");
  status = run_plan(&p);
  return status == FL_ENOMEM ? fl_fail(call, status, "out of memory") : status;
}

static const fl_impl ops[] = {
    {.op_name = "conv2d", CPU_FLAGOS, .fn = convolution},
    {.op_name = "conv3d", CPU_FLAGOS, .fn = convolution},
};
OP_LIST(ops);

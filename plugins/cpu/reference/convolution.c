/* conv2d and conv3d by their definition: one output after the other, summed in double, rounded once. */
#include "plugins/cpu/convolution.h"
#include "plugins/cpu/support/element.h"

static bool inside(const cpu_volume *volume, const int64_t *at) {
  for (int d = 0; d < CPU_SPACE; d++)
    if (at[d] < 0 || at[d] >= volume->space[d])
      return false;
  return true;
}

static int64_t offset_of(const cpu_volume *volume, int64_t a, int64_t b, const int64_t *at) {
  int64_t offset = a * volume->a_stride + b * volume->b_stride;
  for (int d = 0; d < CPU_SPACE; d++)
    offset += at[d] * volume->strides[d];
  return offset;
}

/* Moves on to the next position of a volume; false behind the last. */
static bool next(const cpu_volume *volume, int64_t *at) {
  for (int d = CPU_SPACE - 1; d >= 0; d--) {
    if (++at[d] < volume->space[d])
      return true;
    at[d] = 0;
  }
  return false;
}

/* What one channel adds to the output at `out`. Taps outside of x meet zeros. */
static double sum_channel(const cpu_convolution *c, int64_t batch, int64_t channel, int64_t output, int64_t of_group,
                          const int64_t *out) {
  int64_t tap[CPU_SPACE] = {0}, in[CPU_SPACE];
  double sum = 0;
  do {
    for (int d = 0; d < CPU_SPACE; d++)
      in[d] = cpu_convolution_origin(c, d, out[d]) + tap[d] * c->dilation[d];
    if (inside(&c->x, in))
      sum += (double)load(c->dtype, c->x.data, offset_of(&c->x, batch, channel, in)) *
             (double)load(c->dtype, c->weight.data, offset_of(&c->weight, output, of_group, tap));
  } while (next(&c->weight, tap));
  return sum;
}

static void one_output(const cpu_convolution *c, int64_t batch, int64_t output, const int64_t *at) {
  double sum = c->bias ? (double)load(c->dtype, c->bias, output) : 0;
  int64_t first = output / c->group_outputs * c->weight.b;
  for (int64_t i = 0; i < c->weight.b; i++)
    sum += sum_channel(c, batch, first + i, output, i, at);
  store(c->dtype, c->out.data, offset_of(&c->out, batch, output, at), (float)sum);
}

/* conv2d and conv3d(x, weight, bias, stride, padding, dilation, groups) -> out */
static fl_status convolution(void *self, fl_call *call) {
  cpu_convolution c;
  fl_status status = cpu_convolution_read(call, &c);
  (void)self;
  for (int64_t batch = 0; !status && batch < c.out.a; batch++)
    for (int64_t output = 0; output < c.out.b; output++) {
      int64_t at[CPU_SPACE] = {0};
      do
        one_output(&c, batch, output, at);
      while (next(&c.out, at));
    }
  return status;
}

static const fl_impl ops[] = {
    {.op_name = "conv2d", CPU_REFERENCE, .fn = convolution},
    {.op_name = "conv3d", CPU_REFERENCE, .fn = convolution},
};
OP_LIST(ops);

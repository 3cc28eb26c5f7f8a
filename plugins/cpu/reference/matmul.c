/* out = x W^T + b with one rounding: see matmul.h. */
#include "plugins/cpu/reference/matmul.h"
#include "plugins/cpu/support/element.h"

double cpu_reference_dot(cpu_dtype a_dtype, const void *a, cpu_dtype b_dtype, const void *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)load(a_dtype, a, i) * (double)load(b_dtype, b, i);
  return sum;
}

void cpu_reference_linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_dtype bias_dtype,
                          const void *bias, cpu_matrix out) {
  for (int64_t row = 0; row < m; row++) {
    for (int64_t column = 0; column < n; column++) {
      double sum = cpu_reference_dot(x.dtype, cpu_matrix_row(x, row), weight.dtype, cpu_matrix_row(weight, column), k);
      if (bias)
        sum += (double)load(bias_dtype, bias, column);
      store(out.dtype, cpu_matrix_row(out, row), column, (float)sum);
    }
  }
}

void cpu_reference_product(int64_t m, int64_t n, int64_t k, cpu_matrix a, cpu_matrix b, cpu_matrix out) {
  for (int64_t row = 0; row < m; row++)
    for (int64_t column = 0; column < n; column++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++)
        sum += (double)load(a.dtype, cpu_matrix_row(a, row), i) * (double)load(b.dtype, cpu_matrix_row(b, i), column);
      store(out.dtype, cpu_matrix_row(out, row), column, (float)sum);
    }
}

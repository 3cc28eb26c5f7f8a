/* The Ascend plugin's ops on paged caches: what slots do that are not in the cache, of either type. */
#include "tests/kernels.h"
#include "tests/npu.h"

enum { TOKENS = 4, ROWS = 6, WIDTH = 16 };

static void number_rows(npu_tensor *tensor, float first) {
  float numbers[ROWS * WIDTH];
  for (int64_t i = 0; i < npu_count(tensor); i++)
    numbers[i] = first + (float)(i / WIDTH);
  npu_write(tensor, numbers);
}

/* Tokens 1 to 4 to slots 2, -1, the first behind the cache, 5; row r of the cache was r - 6. */
START_TEST(slots_outside_the_cache_write_nothing) {
  static const int64_t wide[TOKENS] = {2, INT64_MIN + 1, ROWS, 5}, far[TOKENS] = {2, -1, INT64_MAX, 5};
  static const int32_t narrow[TOKENS] = {2, -1, INT32_MAX, 5};
  static const struct {
    DLDataType type;
    const void *slots;
  } cases[] = {{{kDLInt, 64, 1}, wide}, {{kDLInt, 64, 1}, far}, {{kDLInt, 32, 1}, narrow}};
  float found[ROWS * WIDTH];
  npu_tensor *key = npu_make(float32, 3, (int64_t[]){TOKENS, 1, WIDTH}, 0);
  npu_tensor *cache = npu_make(float32, 4, (int64_t[]){2, ROWS / 2, 1, WIDTH}, 0);
  npu_tensor *values = npu_make(float32, 4, (int64_t[]){2, ROWS / 2, 1, WIDTH}, 0);
  npu_tensor *slots = npu_make(cases[_i].type, 1, (int64_t[]){TOKENS}, 0);
  fl_value arguments[] = {fl_tensor(&key->tensor),
                          fl_tensor(&key->tensor),
                          fl_tensor(&cache->tensor),
                          fl_tensor(&values->tensor),
                          fl_tensor(&slots->tensor),
                          fl_none(),
                          fl_none()};
  number_rows(key, 1);
  number_rows(cache, -6);
  number_rows(values, -6);
  npu_write(slots, cases[_i].slots);
  ck_assert_msg(npu_call(npu_find("reshape_and_cache"), arguments, 7) == FL_OK, "%s", npu_message);
  npu_wait();
  npu_read(cache, found);
  for (int i = 0; i < ROWS * WIDTH; i++) {
    int row = i / WIDTH;
    ck_each(found[i] == (row == 2 ? 1 : row == 5 ? 4 : (float)(row - 6)), "row %d has %g", row, (double)found[i]);
  }
  npu_free(key);
  npu_free(cache);
  npu_free(values);
  npu_free(slots);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, npu_open, npu_check_clean);
  tcase_add_loop_test(tests, slots_outside_the_cache_write_nothing, 0, 3);
}

int main(void) {
  return run_suite("ascend_caches", add_tests, 30);
}

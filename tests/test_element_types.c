/*
 * Element types stand in one table (core/support/element_types.c). These tests go through all rows, so that a new one
 * is tested as it is added: its names and its bit, its conversions, and that rules, generated data, files and
 * comparison know it.
 */
#include "cli/run/safetensors.h"
#include "cli/trials/compare.h"
#include "cli/trials/fill.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <flhost/element.h>
#include <math.h>

#define EACH(type)                                                                                                     \
  uint32_t i_ = 0;                                                                                                     \
  ((type) = fl_element_type_at(i_));                                                                                   \
  i_++
enum { N = 64 };

static const fl_element_type *type;

START_TEST(each_is_found_by_its_dtype_bit_and_names) {
  bool behind_bits = false;
  for (EACH(type)) {
    ck_assert_uint_eq(type->size, sizeof *type);
    ck_assert_ptr_eq(fl_element_type_of(type->dtype), type);
    ck_assert_ptr_eq(fl_element_type_named(type->name), type);
    for (const char *const *alias = type->aliases; *alias; alias++)
      ck_assert_ptr_eq(fl_element_type_named(*alias), type);
    ck_assert_msg(!type->bit || (type->bit == 1u << i_ && !behind_bits), "%s has bit %x", type->name, type->bit);
    ck_assert(!type->bit || fl_element_type_of_bit(type->bit) == type);
    behind_bits |= !type->bit;
  }
  ck_assert_ptr_null(fl_element_type_of_bit(0));
  ck_assert_ptr_null(fl_element_type_of((DLDataType){kDLFloat, 32, 4}));
  ck_assert_ptr_null(fl_element_type_named("float31"));
}
END_TEST

/* Of one byte all there are, of others many; of a bool the two that are written. */
START_TEST(what_each_holds_comes_back_through_a_double) {
  for (EACH(type)) {
    unsigned char from[8], to[8];
    size_t bytes = type->dtype.bits / 8u;
    for (uint64_t bits = 0; bits < (type->bit == FL_BOOLEAN ? 2 : 256) && type->put; bits++) {
      memset(from, 0, sizeof from);
      for (size_t byte = 0; byte < bytes && byte < 6; byte++) /* integers of 48 bits are exact in a double */
        from[byte] = (unsigned char)(bits * (byte + 1));
      double value = type->get(from, 0);
      memset(to, 0x5a, sizeof to);
      type->put(to, 0, value);
      if (isnan(value))
        ck_assert_msg(isnan(type->get(to, 0)), "%s", type->name);
      else
        ck_assert_msg(!memcmp(from, to, bytes), "%s: %02x becomes %.17g, and that %02x", type->name, from[0], value,
                      to[0]);
    }
  }
}
END_TEST

/* An engine's comparison may leave 0xff. */
START_TEST(a_bool_is_true_whatever_byte_but_0_it_is) {
  const unsigned char bytes[] = {0, 1, 2, 0x80, 0xff};
  unsigned char written = 7;
  const fl_element_type *boolean = fl_element_type_named("bool");
  for (int i = 0; i < 5; i++)
    ck_assert(boolean->get(bytes, i) == (i > 0));
  boolean->put(&written, 0, 0.25);
  ck_assert_uint_eq(written, 1);
}
END_TEST

START_TEST(the_limits_of_each_are_its_own) {
  for (EACH(type)) {
    unsigned char data[8];
    ck_assert_msg(!type->largest == !type->denormal, "%s", type->name);
    for (int i = 0; i < 2 && type->largest != 0 && type->put; i++) {
      double limit = i ? type->denormal : type->largest;
      type->put(data, 0, limit);
      ck_assert_msg(type->get(data, 0) == limit, "%s: %.17g is %.17g", type->name, limit, type->get(data, 0));
      double beyond = i ? limit / 1e6 : limit * 1.5;
      type->put(data, 0, beyond);
      ck_assert_msg(type->dtype.bits == 64 || type->get(data, 0) != beyond, "%s holds %g", type->name, beyond);
    }
  }
}
END_TEST

/* Rules name it, cases draw it, verify fills it. */
START_TEST(an_op_can_be_of_each_that_has_a_bit) {
  for (EACH(type)) {
    char rules[128], name[32], schema[96];
    fl_host *host = test_host(NULL, 0);
    fl_input input;
    unsigned char data[N * 8];
    snprintf(name, sizeof name, "op_of_%s", type->name);
    snprintf(schema, sizeof schema, "%s(Tensor x) -> Tensor out", name);
    snprintf(rules, sizeof rules, "x: %s[n]; out: %s[n]", type->name, type->name);
    const fl_op_def def = {.size = sizeof def, .schema = schema, .rules = rules, .cases = "n: 64; x: 0..1"};
    fl_status status = fl_register_op(host, &def);
    ck_assert_msg(!status == !!type->bit, "%s: %s", type->name, fl_error_message());
    if (!status) {
      fl_op *op = fl_find_op(host, name);
      double atol, rtol;
      fl_op_tolerance(op, type->dtype, &atol, &rtol);
      ck_assert(atol == type->atol && rtol == type->rtol);
      ck_ok(fl_generate_inputs(op, type->bit, 1, 0, &input, 1, sizeof input));
      ck_assert(!memcmp(&input.spec.dtype, &type->dtype, sizeof type->dtype));
      ck_assert_msg(fill_tensor(&input, 7, false, data), "%s", type->name);
    }
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(a_file_of_each_is_read_as_it_was_written) {
  int64_t shape[] = {N};
  char path[PATH_MAX + 16], error[SAFETENSORS_ERROR_MAX];
  scratch_make();
  snprintf(path, sizeof path, "%s/file", scratch);
  for (EACH(type)) {
    safetensors_entry entry;
    safetensors back;
    ck_assert(safetensors_entry_create(&entry, "x", type->dtype, 1, shape));
    unsigned char *data = fl_data(&entry.tensor);
    for (size_t i = 0; i < N * type->dtype.bits / 8u; i++)
      data[i] = (unsigned char)(i % 0x70);
    safetensors file = {.metadata = json_object(), .entries = &entry, .n = 1};
    ck_assert_msg(safetensors_write(path, &file, error), "%s: %s", type->name, error);
    ck_assert_msg(safetensors_read(path, &back, error), "%s: %s", type->name, error);
    comparison same = compare_tensors(safetensors_find(&back, "x"), &entry.tensor, 0, 0, true);
    ck_assert_msg(same.pass, "%s: %s", type->name, same.problem);
    data[0] ^= 0x11;
    comparison other = compare_tensors(safetensors_find(&back, "x"), &entry.tensor, 0, 0, true);
    ck_assert_msg(!other.pass && other.failures == 1, "%s", type->name);
    ck_assert_msg(other.wanted == type->get(data, 0), "%s", type->name);
    safetensors_free(&back);
    safetensors_entry_free(&entry);
    json_decref(file.metadata);
  }
  scratch_remove();
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, each_is_found_by_its_dtype_bit_and_names);
  tcase_add_test(tests, what_each_holds_comes_back_through_a_double);
  tcase_add_test(tests, a_bool_is_true_whatever_byte_but_0_it_is);
  tcase_add_test(tests, the_limits_of_each_are_its_own);
  tcase_add_test(tests, an_op_can_be_of_each_that_has_a_bit);
  tcase_add_test(tests, a_file_of_each_is_read_as_it_was_written);
}

int main(void) {
  return run_suite("element_types", add_tests, 30);
}

/* Safetensors files: what is written comes back; what is malformed is refused with the tensor and the reason. */
#include "cli/run/safetensors.h"
#include "tests/suite.h"

#include <unistd.h>

static char directory[] = "/tmp/flhost-safetensors-XXXXXX", path[64], error[SAFETENSORS_ERROR_MAX];

static void make_directory(void) {
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/file", directory);
}

static void remove_directory(void) {
  unlink(path);
  rmdir(directory);
}

/* Writes a file of that header and `n` bytes of data. */
static void write_file(const char *header, const void *data, size_t n) {
  FILE *stream = fopen(path, "wb");
  uint64_t size = strlen(header);
  ck_assert_ptr_nonnull(stream);
  for (int i = 0; i < 8; i++)
    fputc((int)(size >> (8 * i) & 255), stream);
  fwrite(header, 1, size, stream);
  fwrite(data, 1, n, stream);
  ck_assert_int_eq(fclose(stream), 0);
}

/* The file is refused with a message that has these words. */
static void check_refused(const char *words) {
  safetensors file;
  error[0] = 0;
  ck_assert(!safetensors_read(path, &file, error));
  ck_assert_msg(strstr(error, words), "message '%s' does not say '%s'", error, words);
  ck_assert_ptr_null(file.entries);
}

static void check_header_refused(const char *header, size_t data_size, const char *words) {
  static const char data[64];
  write_file(header, data, data_size);
  check_refused(words);
}

START_TEST(what_is_written_comes_back) {
  safetensors_entry entries[3];
  safetensors file = {.metadata = json_pack("{s:s}", "op", "rms_norm"), .entries = entries, .n = 3}, back;
  int64_t matrix[] = {2, 3}, empty[] = {0, 5};
  ck_assert(safetensors_entry_create(&entries[0], "x", (DLDataType){kDLFloat, 32, 1}, 2, matrix));
  ck_assert(safetensors_entry_create(&entries[1], "empty", (DLDataType){kDLBfloat, 16, 1}, 2, empty));
  ck_assert(safetensors_entry_create(&entries[2], "scalar", (DLDataType){FL_DTYPE_BOOL, 8, 1}, 0, NULL));
  for (int i = 0; i < 6; i++)
    ((float *)entries[0].tensor.data)[i] = (float)i * 0.5f;
  *(char *)entries[2].tensor.data = 1;
  ck_assert_msg(safetensors_write(path, &file, error), "%s", error);
  ck_assert_msg(safetensors_read(path, &back, error), "%s", error);
  ck_assert_uint_eq(back.n, 3);
  ck_assert_str_eq(safetensors_metadata(&back, "op"), "rms_norm");
  ck_assert_ptr_null(safetensors_metadata(&back, "attrs"));
  DLTensor *x = safetensors_find(&back, "x"), *scalar = safetensors_find(&back, "scalar");
  ck_assert_int_eq(x->ndim, 2);
  ck_assert_int_eq(x->shape[1], 3);
  ck_assert_mem_eq(x->data, entries[0].tensor.data, 24);
  ck_assert_int_eq(safetensors_find(&back, "empty")->shape[1], 5);
  ck_assert_int_eq(scalar->ndim, 0);
  ck_assert_int_eq(scalar->dtype.code, FL_DTYPE_BOOL);
  ck_assert_int_eq(*(char *)scalar->data, 1);
  ck_assert_ptr_null(safetensors_find(&back, "y"));
  safetensors_free(&back);
  for (int i = 0; i < 3; i++)
    safetensors_entry_free(&entries[i]);
  json_decref(file.metadata);
}
END_TEST

START_TEST(a_file_without_tensors_is_a_file) {
  safetensors file;
  write_file("{\"__metadata__\": {\"op\": \"attention_backend\"}}", "", 0);
  ck_assert_msg(safetensors_read(path, &file, error), "%s", error);
  ck_assert_uint_eq(file.n, 0);
  ck_assert_str_eq(safetensors_metadata(&file, "op"), "attention_backend");
  safetensors_free(&file);
}
END_TEST

START_TEST(files_that_are_no_safetensors_files_are_refused) {
  safetensors file;
  ck_assert(!safetensors_read("/nonexistent/file", &file, error));
  ck_assert_ptr_nonnull(strstr(error, "No such file"));
  ck_assert(!safetensors_read(directory, &file, error));
  FILE *stream = fopen(path, "wb");
  fputs("short", stream);
  fclose(stream);
  check_refused("too few");
  stream = fopen(path, "wb");
  fputs("this is a text file and no tensor", stream);
  fclose(stream);
  check_refused("not a safetensors file");
  check_header_refused("[]", 0, "not a JSON object");
  check_header_refused("{\"x\": ", 0, "header: ");
  check_header_refused("{\"x\": {}, \"x\": {}}", 0, "duplicate");
}
END_TEST

START_TEST(bad_entries_are_refused_and_named) {
  check_header_refused("{\"x\": 1}", 0, "tensor 'x': its entry is not an object");
  check_header_refused("{\"x\": {\"dtype\": \"F31\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4,
                       "tensor 'x': dtype F31 is not one of F32, F16");
  check_header_refused("{\"x\": {\"dtype\": 3, \"shape\": [1], \"data_offsets\": [0, 4]}}", 4, "tensor 'x': dtype");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"data_offsets\": [0, 4]}}", 4, "tensor 'x': shape");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,1], \"data_offsets\": [0, 4]}}", 4,
                       "at most 8");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [-1], \"data_offsets\": [0, 4]}}", 4,
                       "tensor 'x': size 0 of shape");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [1.0], \"data_offsets\": [0, 4]}}", 4,
                       "tensor 'x': size 0 of shape");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 8], \"data_offsets\": [0, 4]}}",
                       4, "tensor 'x': shape is too large");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0]}}", 4, "data_offsets");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 0]}}", 4, "data_offsets");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 4]}}", 4,
                       "tensor 'x': 4 bytes of data, but dtype and shape need 8");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 4,
                       "tensor 'x': data ends at byte 8, but the file has 4");
  check_header_refused("{\"__metadata__\": {\"op\": 1}}", 0, "__metadata__: 'op' is not a string");
  check_header_refused("{\"__metadata__\": []}", 0, "__metadata__ is not an object");
}
END_TEST

START_TEST(holes_and_overlaps_are_refused) {
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 8]}}", 8, "leaving a hole");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 8,
                       "4 bytes of data belong to no tensor");
  check_header_refused("{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]},"
                       " \"y\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [2, 6]}}",
                       6, "tensor 'y': data begins at byte 2, but the tensor before it ends at 4");
}
END_TEST

START_TEST(a_tensor_that_is_not_aligned_in_the_file_is_aligned_in_memory) {
  unsigned char data[] = {7, 0, 0, 0x80, 0x3f};
  safetensors file;
  write_file("{\"b\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]},"
             " \"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [1, 5]}}",
             data, sizeof data);
  ck_assert_msg(safetensors_read(path, &file, error), "%s", error);
  DLTensor *x = safetensors_find(&file, "x");
  ck_assert_uint_eq((uintptr_t)x->data % 64, 0);
  ck_assert_float_eq(*(float *)x->data, 1.0f);
  safetensors_free(&file);
}
END_TEST

START_TEST(a_failed_write_leaves_nothing_behind) {
  safetensors file = {.metadata = json_object()};
  ck_assert(!safetensors_write("/nonexistent/directory/file", &file, error));
  ck_assert_ptr_nonnull(strstr(error, "cannot write: No such file"));
  safetensors_entry entry;
  ck_assert(safetensors_entry_create(&entry, "x", (DLDataType){kDLUInt, 64, 1}, 0, NULL));
  safetensors odd = {.metadata = file.metadata, .entries = &entry, .n = 1};
  ck_assert(!safetensors_write(path, &odd, error));
  ck_assert_ptr_nonnull(strstr(error, "tensor 'x'"));
  ck_assert_int_ne(access(path, F_OK), 0);
  safetensors_entry_free(&entry);
  json_decref(file.metadata);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, make_directory, remove_directory);
  tcase_add_test(tests, what_is_written_comes_back);
  tcase_add_test(tests, a_file_without_tensors_is_a_file);
  tcase_add_test(tests, files_that_are_no_safetensors_files_are_refused);
  tcase_add_test(tests, bad_entries_are_refused_and_named);
  tcase_add_test(tests, holes_and_overlaps_are_refused);
  tcase_add_test(tests, a_tensor_that_is_not_aligned_in_the_file_is_aligned_in_memory);
  tcase_add_test(tests, a_failed_write_leaves_nothing_behind);
}

int main(void) {
  return run_suite("safetensors", add_tests, 10);
}

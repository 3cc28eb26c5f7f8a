/* Reads safetensors files: see safetensors.h. Relies on jansson for the header; trusts nothing in a file. */
#include "cli/run/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <flhost/element.h>
#include <flhost/flhost.h>
#include <flhost/testing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The format's own limit for the header. */
#define HEADER_MAX 100000000

/* Where a tensor's data lies, for the check that the tensors cover all data. */
typedef struct data_span {
  uint64_t begin, end;
  const char *name;
} data_span;

static FL_PRINTF(2, 3) bool fail(char *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, SAFETENSORS_ERROR_MAX, format, arguments);
  va_end(arguments);
  return false;
}

size_t safetensors_data_size(const DLTensor *tensor) {
  size_t size = tensor->dtype.bits / 8u;
  for (int d = 0; d < tensor->ndim; d++)
    size *= (size_t)tensor->shape[d];
  return size;
}

bool safetensors_entry_create(safetensors_entry *entry, const char *name, DLDataType dtype, int32_t ndim,
                              const int64_t *shape) {
  enum { ALIGNMENT = 64 };
  size_t size = dtype.bits / 8u;
  void *data = NULL;
  *entry = (safetensors_entry){0};
  if (ndim < 0 || ndim > FL_MAX_DIMS)
    return false;
  for (int32_t d = 0; d < ndim; d++) {
    if (shape[d] < 0 || __builtin_mul_overflow(size, (size_t)shape[d], &size))
      return false;
    entry->shape[d] = shape[d];
  }
  entry->name = strdup(name);
  if (!entry->name || posix_memalign(&data, ALIGNMENT, size ? size : 1)) {
    free(entry->name);
    *entry = (safetensors_entry){0};
    return false;
  }
  memset(data, 0, size);
  entry->tensor = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = entry->shape};
  return true;
}

void safetensors_entry_free(safetensors_entry *entry) {
  free(entry->name);
  free(entry->tensor.data);
  *entry = (safetensors_entry){0};
}

void safetensors_free(safetensors *file) {
  for (size_t i = 0; i < file->n; i++)
    safetensors_entry_free(&file->entries[i]);
  free(file->entries);
  json_decref(file->metadata);
  *file = (safetensors){0};
}

DLTensor *safetensors_find(safetensors *file, const char *name) {
  for (size_t i = 0; i < file->n; i++)
    if (!strcmp(file->entries[i].name, name))
      return &file->entries[i].tensor;
  return NULL;
}

const char *safetensors_metadata(const safetensors *file, const char *key) {
  return json_string_value(json_object_get(file->metadata, key));
}

bool safetensors_says(const safetensors *file, const char *key, const char *word) {
  const char *said = safetensors_metadata(file, key);
  return said && !strcmp(said, word);
}

/* -------------------------------------------------------------------------------------------------------- reading */

static bool parse_dtype(const char *name, json_t *json, DLDataType *dtype, char *error) {
  const char *text = json_string_value(json);
  const fl_element_type *type;
  char known[256] = "";
  for (uint32_t i = 0; (type = fl_element_type_at(i)); i++) {
    if (text && !strcmp(text, type->safetensors)) {
      *dtype = type->dtype;
      return true;
    }
    size_t length = strlen(known);
    snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "", type->safetensors);
  }
  return fail(error, "tensor '%s': dtype %s is not one of %s", name, text ? text : "(not a string)", known);
}

static bool parse_shape(const char *name, json_t *json, DLDataType dtype, int64_t *shape, uint64_t *size, char *error) {
  json_t *item;
  size_t d;
  if (!json_is_array(json) || json_array_size(json) > FL_MAX_DIMS)
    return fail(error, "tensor '%s': shape is not a list of at most %d sizes", name, FL_MAX_DIMS);
  *size = dtype.bits / 8u;
  json_array_foreach(json, d, item) {
    shape[d] = json_integer_value(item);
    if (!json_is_integer(item) || shape[d] < 0)
      return fail(error, "tensor '%s': size %zu of shape is not an integer from 0", name, d);
    if (__builtin_mul_overflow(*size, (uint64_t)shape[d], size) || *size > PTRDIFF_MAX)
      return fail(error, "tensor '%s': shape is too large", name);
  }
  return true;
}

static bool parse_offsets(const char *name, json_t *json, uint64_t size, uint64_t data_size, data_span *span,
                          char *error) {
  json_t *begin = json_array_get(json, 0), *end = json_array_get(json, 1);
  if (!json_is_array(json) || json_array_size(json) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
      json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
    return fail(error, "tensor '%s': data_offsets is not [begin, end]", name);
  span->begin = (uint64_t)json_integer_value(begin);
  span->end = (uint64_t)json_integer_value(end);
  span->name = name;
  if (span->end > data_size)
    return fail(error, "tensor '%s': data ends at byte %llu, but the file has %llu bytes of data", name,
                (unsigned long long)span->end, (unsigned long long)data_size);
  if (span->end - span->begin != size)
    return fail(error, "tensor '%s': %llu bytes of data, but dtype and shape need %llu", name,
                (unsigned long long)(span->end - span->begin), (unsigned long long)size);
  return true;
}

static bool read_fully(FILE *stream, uint64_t offset, void *to, size_t size, char *error) {
  if (fseeko(stream, (off_t)offset, SEEK_SET) || fread(to, 1, size, stream) != size)
    return fail(error, "cannot read %zu bytes at %llu: %s", size, (unsigned long long)offset,
                ferror(stream) ? strerror(errno) : "the file ends before");
  return true;
}

static bool read_tensor(FILE *stream, uint64_t data_start, uint64_t data_size, const char *name, json_t *json,
                        safetensors_entry *entry, data_span *span, char *error) {
  int64_t shape[FL_MAX_DIMS];
  DLDataType dtype;
  uint64_t size = 0;
  json_t *dims = json_object_get(json, "shape");
  if (!json_is_object(json))
    return fail(error, "tensor '%s': its entry is not an object", name);
  if (!parse_dtype(name, json_object_get(json, "dtype"), &dtype, error) ||
      !parse_shape(name, dims, dtype, shape, &size, error) ||
      !parse_offsets(name, json_object_get(json, "data_offsets"), size, data_size, span, error))
    return false;
  if (!safetensors_entry_create(entry, name, dtype, (int32_t)json_array_size(dims), shape))
    return fail(error, "tensor '%s': out of memory for %llu bytes", name, (unsigned long long)size);
  return read_fully(stream, data_start + span->begin, entry->tensor.data, (size_t)size, error);
}

static int compare_spans(const void *a, const void *b) {
  const data_span *x = a, *y = b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

/* The format allows neither holes nor overlaps. */
static bool check_coverage(data_span *spans, size_t n, uint64_t data_size, char *error) {
  uint64_t covered = 0;
  if (n)
    qsort(spans, n, sizeof *spans, compare_spans);
  for (size_t i = 0; i < n; i++) {
    if (spans[i].begin != covered)
      return fail(error, "tensor '%s': data begins at byte %llu, %s at %llu", spans[i].name,
                  (unsigned long long)spans[i].begin,
                  spans[i].begin < covered ? "but the tensor before it ends" : "leaving a hole that begins",
                  (unsigned long long)covered);
    covered = spans[i].end;
  }
  if (covered != data_size)
    return fail(error, "%llu bytes of data belong to no tensor", (unsigned long long)(data_size - covered));
  return true;
}

static bool take_metadata(json_t *header, json_t **metadata, char *error) {
  json_t *found = json_object_get(header, "__metadata__"), *value;
  const char *key;
  if (found && !json_is_object(found))
    return fail(error, "__metadata__ is not an object");
  json_object_foreach(found, key, value) {
    if (!json_is_string(value))
      return fail(error, "__metadata__: '%s' is not a string", key);
  }
  *metadata = found ? json_incref(found) : json_object();
  json_object_del(header, "__metadata__");
  return *metadata || fail(error, "out of memory");
}

static bool read_header(FILE *stream, uint64_t file_size, json_t **header, uint64_t *data_start, char *error) {
  unsigned char length[8];
  uint64_t size = 0;
  json_error_t problem;
  char *text = NULL;
  bool ok = false;
  if (file_size < sizeof length)
    return fail(error, "%llu bytes are too few for a safetensors file", (unsigned long long)file_size);
  if (!read_fully(stream, 0, length, sizeof length, error))
    return false;
  for (int i = 7; i >= 0; i--)
    size = size << 8 | length[i];
  if (size > HEADER_MAX || size > file_size - sizeof length)
    return fail(error, "not a safetensors file: a header of %llu bytes in a file of %llu", (unsigned long long)size,
                (unsigned long long)file_size);
  text = malloc(size + 1);
  if (!text)
    return fail(error, "out of memory");
  if (!read_fully(stream, sizeof length, text, (size_t)size, error))
    goto out;
  *header = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &problem);
  *data_start = sizeof length + size;
  ok = *header && json_is_object(*header);
  if (!ok)
    fail(error, "header: %s", *header ? "not a JSON object" : problem.text);
out:
  free(text);
  return ok;
}

static bool read_tensors(FILE *stream, json_t *header, uint64_t data_start, uint64_t data_size, safetensors *file,
                         char *error) {
  size_t n = json_object_size(header);
  data_span *spans = calloc(n + 1, sizeof *spans);
  const char *name;
  json_t *json;
  bool ok = false;
  file->entries = calloc(n + 1, sizeof *file->entries);
  if (!spans || !file->entries) {
    fail(error, "out of memory");
    goto out;
  }
  json_object_foreach(header, name, json) {
    safetensors_entry *entry = &file->entries[file->n];
    bool read = read_tensor(stream, data_start, data_size, name, json, entry, &spans[file->n], error);
    if (entry->name)
      file->n++;
    if (!read)
      goto out;
  }
  ok = check_coverage(spans, n, data_size, error);
out:
  free(spans);
  return ok;
}

bool safetensors_read(const char *path, safetensors *file, char error[SAFETENSORS_ERROR_MAX]) {
  /* O_NONBLOCK: a pipe in place of a file is refused below, not waited for. */
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
  json_t *header = NULL;
  struct stat status;
  uint64_t data_start = 0;
  bool ok = false;
  *file = (safetensors){0};
  if (!stream || fstat(fileno(stream), &status)) {
    fail(error, "cannot open: %s", strerror(errno));
    goto out;
  }
  if (!S_ISREG(status.st_mode)) {
    fail(error, "not a regular file");
    goto out;
  }
  uint64_t size = (uint64_t)status.st_size;
  ok = read_header(stream, size, &header, &data_start, error) && take_metadata(header, &file->metadata, error) &&
       read_tensors(stream, header, data_start, size - data_start, file, error);
out:
  json_decref(header);
  if (stream)
    fclose(stream);
  else if (descriptor >= 0)
    close(descriptor);
  if (!ok)
    safetensors_free(file);
  return ok;
}

/* -------------------------------------------------------------------------------------------------------- writing */

bool safetensors_write(const char *path, const safetensors *file, char error[SAFETENSORS_ERROR_MAX]) {
  size_t n_metadata = json_object_size(file->metadata), at = 0;
  const char **names = calloc(file->n + 1, sizeof *names), **metadata = calloc(2 * n_metadata + 1, sizeof *metadata);
  const DLTensor **tensors = calloc(file->n + 1, sizeof *tensors);
  const char *key;
  json_t *value;
  bool ok = names && metadata && tensors;
  if (!ok)
    fail(error, "out of memory");
  for (size_t i = 0; ok && i < file->n; i++) {
    names[i] = file->entries[i].name;
    tensors[i] = &file->entries[i].tensor;
  }
  json_object_foreach(file->metadata, key, value) {
    if (ok) {
      metadata[at++] = key;
      metadata[at++] = json_string_value(value);
    }
  }
  if (ok && fl_save_tensors(path, names, tensors, (uint32_t)file->n, metadata, (uint32_t)n_metadata))
    ok = fail(error, "%s", fl_error_message());
  free(names);
  free(metadata);
  free(tensors);
  return ok;
}

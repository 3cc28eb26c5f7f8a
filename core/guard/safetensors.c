/*
 * Writes safetensors files: tensors by name, with string-to-string metadata. The one writer of library and command;
 * public as fl_save_tensors. Relies on jansson for the header.
 */
#include "core/support.h"

#include <errno.h>
#include <fcntl.h>
#include <flhost/element.h>
#include <flhost/testing.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t data_size(const DLTensor *tensor) {
  return (uint64_t)fl_tensor_elements(tensor) * fl_tensor_item_size(tensor);
}

static fl_status check_tensor(const char *name, const DLTensor *tensor) {
  const fl_element_type *type = fl_element_type_of(tensor->dtype);
  if (!type || !type->safetensors)
    return fl_error(FL_EINVAL, "tensor '%s': its element type has no name in safetensors", name);
  return fl_tensor_is_on_host(tensor)
             ? FL_OK
             : fl_error(FL_EINVAL, "tensor '%s': it lies on a device, expected memory of the host", name);
}

/* One tensor's entry of the header, NULL when out of memory. */
static json_t *make_entry(const DLTensor *tensor, uint64_t begin, uint64_t end) {
  json_t *shape = json_array();
  for (int d = 0; d < tensor->ndim; d++)
    json_array_append_new(shape, json_integer(tensor->shape[d]));
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", fl_element_type_of(tensor->dtype)->safetensors, "shape", shape,
                   "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* The header's text, padded with spaces so that the data behind it is aligned. */
static fl_status make_header(const char *const *names, const DLTensor *const *tensors, uint32_t n,
                             const char *const *metadata, uint32_t n_metadata, char **header) {
  json_t *json = json_object(), *about = json_object();
  char *text = NULL;
  uint64_t offset = 0;
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < n_metadata; i++)
    json_object_set_new(about, metadata[2 * i], json_string(metadata[2 * i + 1]));
  if (n_metadata)
    json_object_set(json, "__metadata__", about);
  for (uint32_t i = 0; i < n && !status; i++) {
    uint64_t end = offset + data_size(tensors[i]);
    status = check_tensor(names[i], tensors[i]);
    if (!status)
      json_object_set_new(json, names[i], make_entry(tensors[i], offset, end));
    offset = end;
  }
  if (status)
    goto out;
  text = json_dumps(json, JSON_COMPACT);
  size_t length = text ? strlen(text) : 0, aligned = (length + 7) / 8 * 8;
  bool whole = json_object_size(json) == (size_t)n + (n_metadata != 0) && json_object_size(about) == n_metadata;
  *header = text && whole ? malloc(aligned + 1) : NULL;
  if (!*header) {
    status = fl_error(FL_EINVAL, "out of memory, or a name or a metadata string is not UTF-8 or stands twice");
    goto out;
  }
  memset(*header, ' ', aligned);
  memcpy(*header, text, length);
  (*header)[aligned] = 0;
out:
  free(text);
  json_decref(about);
  json_decref(json);
  return status;
}

static fl_status write_run(void *stream, void *to, const void *from, size_t size) {
  (void)to;
  return fwrite(from, 1, size, stream) == size ? FL_OK : FL_EINTERNAL;
}

/* The elements in order, whatever the strides. */
static bool write_tensor(FILE *stream, const DLTensor *tensor) {
  DLTensor compact = *tensor;
  compact.strides = NULL;
  return !fl_tensor_copy_with(&compact, tensor, write_run, stream);
}

static bool write_stream(FILE *stream, const char *header, const DLTensor *const *tensors, uint32_t n) {
  uint64_t size = strlen(header);
  unsigned char length[8];
  for (int i = 0; i < 8; i++)
    length[i] = (unsigned char)(size >> (8 * i));
  bool written = fwrite(length, 1, sizeof length, stream) == sizeof length && fwrite(header, 1, size, stream) == size;
  for (uint32_t i = 0; i < n && written; i++)
    written = write_tensor(stream, tensors[i]);
  return written;
}

/* Never through a link. */
static FILE *open_new(const char *path) {
  int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
  if (!stream && descriptor >= 0)
    close(descriptor);
  return stream;
}

fl_status fl_save_tensors(const char *path, const char *const *names, const DLTensor *const *tensors, uint32_t n,
                          const char *const *metadata, uint32_t n_metadata) {
  char *header = NULL, *temporary = NULL;
  FILE *stream = NULL;
  fl_status status = make_header(names, tensors, n, metadata, n_metadata, &header);
  if (status)
    return status;
  temporary = fl_format("%s.part", path);
  if (!temporary) {
    status = fl_error_no_memory();
    goto out;
  }
  stream = open_new(temporary);
  bool written = stream && write_stream(stream, header, tensors, n);
  int error = errno;
  if (stream && fclose(stream) && written) {
    written = false;
    error = errno;
  }
  if (written && rename(temporary, path)) {
    written = false;
    error = errno;
  }
  if (!written) {
    status = fl_error(FL_EINTERNAL, "cannot write: %s", strerror(error));
    if (stream)
      unlink(temporary);
  }
out:
  free(temporary);
  free(header);
  return status;
}

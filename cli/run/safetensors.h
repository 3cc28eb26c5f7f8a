/*
 * Safetensors files: tensors by name, with a string-to-string metadata object. Each tensor is read into an allocation
 * of its own, aligned, so that a kernel that leaves its bounds is found out by the usual tools.
 */
#ifndef FLHOST_CLI_RUN_SAFETENSORS_H
#define FLHOST_CLI_RUN_SAFETENSORS_H

#include <flhost/plugin.h>
#include <jansson.h>

/* Stays where it is: `tensor.shape` points to `shape`. */
typedef struct safetensors_entry {
  char *name;
  DLTensor tensor; /* compact, on the CPU */
  int64_t shape[FL_MAX_DIMS];
} safetensors_entry;

typedef struct safetensors {
  json_t *metadata; /* object of strings, maybe empty */
  safetensors_entry *entries;
  size_t n;
} safetensors;

enum { SAFETENSORS_ERROR_MAX = 512 };

/* Reads a file and checks all of it: header, types, shapes, offsets that cover the data without hole or overlap. On
 * failure: false, and `error` says what is wrong and in which tensor (without the path). */
bool safetensors_read(const char *path, safetensors *file, char error[SAFETENSORS_ERROR_MAX]);

/* Writes compact tensors on the CPU under the names of the entries. The file appears whole or not at all. */
bool safetensors_write(const char *path, const safetensors *file, char error[SAFETENSORS_ERROR_MAX]);

/* The tensor of that name, or NULL. */
DLTensor *safetensors_find(safetensors *file, const char *name);

/* A metadata string, or NULL. */
const char *safetensors_metadata(const safetensors *file, const char *key);

/* False, too, where the file has no such metadata. */
bool safetensors_says(const safetensors *file, const char *key, const char *word);

void safetensors_free(safetensors *file);

/* A new compact tensor on the CPU in `entry`, its data zero; the entry takes a copy of `name`. */
bool safetensors_entry_create(safetensors_entry *entry, const char *name, DLDataType dtype, int32_t ndim,
                              const int64_t *shape);
void safetensors_entry_free(safetensors_entry *entry);

/* Bytes of a compact tensor's data. */
size_t safetensors_data_size(const DLTensor *tensor);

#endif

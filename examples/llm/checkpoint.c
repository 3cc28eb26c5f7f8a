/* Hugging Face directories: see llm.h. Weights stay where files are mapped: a page is read when it is first used. */
#include "llm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static json_t *read_json(const char *path) {
  json_error_t problem;
  json_t *object = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
  if (!json_is_object(object))
    fail("%s: %s", path, object ? "not a JSON object" : problem.text);
  return object;
}

/* The tensor that an entry of the header describes; `room` bytes follow the header. */
static DLTensor *describe(const char *path, const char *name, json_t *entry, char *memory, size_t room, arena *kept) {
  const char *dtype = "";
  json_int_t begin = -1, end = -1;
  json_t *shape = NULL, *size;
  int64_t sizes[FL_MAX_DIMS];
  const fl_element_type *type;
  size_t d;
  if (json_unpack(entry, "{s:s, s:o, s:[I, I]}", "dtype", &dtype, "shape", &shape, "data_offsets", &begin, &end))
    fail("%s: '%s' has no dtype, shape and data_offsets", path, name);
  for (uint32_t i = 0; (type = fl_element_type_at(i)) && strcmp(type->safetensors, dtype); i++)
    ;
  if (!type || json_array_size(shape) > FL_MAX_DIMS)
    fail("%s: '%s' is of %s with %zu dimensions, which is not known here", path, name, dtype, json_array_size(shape));
  size_t wanted = type->dtype.bits / 8u;
  json_array_foreach(shape, d, size) {
    sizes[d] = json_integer_value(size);
    if (!json_is_integer(size) || sizes[d] < 0 || __builtin_mul_overflow(wanted, (size_t)sizes[d], &wanted))
      fail("%s: size %zu of '%s' is not possible", path, d, name);
  }
  if (begin < 0 || end < begin || (size_t)end > room || (size_t)(end - begin) != wanted)
    fail("%s: '%s' takes %zu bytes, but lies at %lld to %lld of %zu", path, name, wanted, LL(begin), LL(end), room);
  DLTensor whole = {.data = memory + begin, .device = cpu, .dtype = type->dtype};
  if ((uintptr_t)whole.data % (type->dtype.bits / 8u))
    whole.data = memcpy(arena_take(kept, wanted), whole.data, wanted); /* old writers did not align */
  return view(kept, &whole, 0, NULL, (int)json_array_size(shape), sizes);
}

static void add_file(checkpoint *c, const char *path, arena *kept) {
  struct mapped_file *f = arena_take(kept, sizeof *f);
  struct stat status;
  uint64_t length = 0;
  json_error_t problem;
  const char *name;
  json_t *entry;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &status))
    fail("%s: %s", path, strerror(errno));
  *f = (struct mapped_file){c->files, MAP_FAILED, (size_t)status.st_size};
  if (S_ISREG(status.st_mode) && f->size >= sizeof length)
    f->memory = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, file, 0);
  if (f->memory == MAP_FAILED)
    fail("%s: not a safetensors file that can be mapped", path);
  close(file);
  c->files = f;
  c->size += f->size;
  for (int i = 7; i >= 0; i--)
    length = length << 8 | (unsigned char)f->memory[i];
  if (length > f->size - 8)
    fail("%s: not a safetensors file: a header of %llu bytes", path, (unsigned long long)length);
  json_t *header = json_loadb(f->memory + 8, length, JSON_REJECT_DUPLICATES, &problem);
  if (!json_is_object(header))
    fail("%s: header: %s", path, header ? "not a JSON object" : problem.text);
  json_object_del(header, "__metadata__");
  json_object_foreach(header, name, entry) {
    DLTensor *t = describe(path, name, entry, f->memory + 8 + length, f->size - 8 - length, kept);
    json_object_set_new(c->tensors, name, json_integer((json_int_t)(uintptr_t)t));
  }
  json_decref(header);
}

/* The files that the index names, or the one. */
void checkpoint_open(checkpoint *c, const char *directory, arena *kept) {
  char path[4096];
  const char *name;
  json_t *file, *files = json_object();
  snprintf(path, sizeof path, "%s/config.json", directory);
  *c = (checkpoint){.config = read_json(path), .tensors = json_object()};
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", directory);
  json_t *index = access(path, R_OK) ? json_pack("{s:{s:s}}", "weight_map", "", "model.safetensors") : read_json(path);
  json_object_foreach(json_object_get(index, "weight_map"), name, file)
      json_object_set(files, json_is_string(file) ? json_string_value(file) : "/", file);
  json_object_foreach(files, name, file) {
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (strchr(name, '/'))
      fail("the index of %s names a file elsewhere, '%s'", directory, name);
    add_file(c, path, kept);
  }
  json_decref(index);
  json_decref(files);
}

void checkpoint_close(checkpoint *c) {
  for (struct mapped_file *f = c->files; f; f = f->next)
    munmap(f->memory, f->size);
  json_decref(c->config);
  json_decref(c->tensors);
}

DLTensor *checkpoint_find(const checkpoint *c, const char *name) {
  return (DLTensor *)(uintptr_t)json_integer_value(json_object_get(c->tensors, name));
}

void checkpoint_release(const checkpoint *c) {
  for (struct mapped_file *f = c->files; f; f = f->next)
    madvise(f->memory, f->size, MADV_DONTNEED);
}

double config_number(const json_t *config, const char *key, double fallback) {
  const json_t *value = json_object_get(config, key);
  if (json_is_boolean(value))
    return json_is_true(value);
  if ((!value || json_is_null(value)) && !isnan(fallback))
    return fallback;
  if (!json_is_number(value) || json_number_value(value) < 0)
    fail("config.json: '%s' is %s, expected a number from 0 on", key, value ? "something else" : "not there");
  return json_number_value(value);
}

/*
 * Launches of what writes rows of tokens to a paged cache. Slots lie in the device's memory, so that those the cache
 * does not have, which are refused on the CPU, are left out by the kernel.
 */
#include "plugins/gpu/kernels/arguments/cache.h"
#include "plugins/gpu/launch.h"

GPU_MODULE(cache);

static gpu_kernel of_16_bits = {.module = &gpu_module_cache, .name = "cache_16"};
static gpu_kernel of_32_bits = {.module = &gpu_module_cache, .name = "cache_32"};
static gpu_kernel to_float8[] = GPU_KERNELS(cache, "cache_float8");

/* ----------------------------------------------------------------------------------------------------------- parts */

/* Does every row begin with a vector, where it is read and where it is written? */
static bool is_vectorised(const gpu_cache_part *p, const DLTensor *from, const DLTensor *cache) {
  int64_t item = gpu_item_size(from), code = gpu_item_size(cache);
  return p->columns % gpu_vector_length(from) == 0 && gpu_is_aligned(p->from, p->from_token * item) &&
         gpu_is_aligned(p->from, p->from_head * item) && gpu_is_aligned(p->to, p->to_block * code) &&
         gpu_is_aligned(p->to, p->to_row * code) && gpu_is_aligned(p->to, p->to_head * code);
}

/* Rows `from` [tokens, columns] or [tokens, heads, columns], to columns `first` on of a cache [blocks, size, columns]
 * or [blocks, size, heads, columns]. Heads that follow each other are one. */
static gpu_cache_part part_of(const DLTensor *from, const DLTensor *cache, int64_t first, const DLTensor *scale) {
  bool of_heads = from->ndim == 3, to_heads = cache->ndim == 4;
  gpu_cache_part p = {.from = fl_data(from),
                      .to = (char *)fl_data(cache) + first * gpu_item_size(cache),
                      .from_token = fl_stride(from, 0),
                      .from_head = of_heads ? fl_stride(from, 1) : 0,
                      .to_block = fl_stride(cache, 0),
                      .to_row = fl_stride(cache, 1),
                      .to_head = to_heads ? fl_stride(cache, 2) : 0,
                      .heads = of_heads ? (uint32_t)from->shape[1] : 1,
                      .columns = (uint32_t)from->shape[from->ndim - 1],
                      .scale = scale ? fl_data(scale) : NULL,
                      .scale_step = scale && scale->ndim && scale->shape[0] > 1 ? fl_stride(scale, 0) : 0};
  if (p.heads == 1) {
    p.from_head = p.to_head = 0;
  } else if (!p.scale_step && p.from_head == p.columns && p.to_head == p.columns) {
    p.columns *= p.heads;
    p.heads = 1;
    p.from_head = p.to_head = 0;
  }
  p.vectorised = is_vectorised(&p, from, cache);
  return p;
}

/* What threads write at a time. */
static int64_t count_units(const gpu_cache_part *p, const DLTensor *from) {
  return (int64_t)p->heads * p->columns / (p->vectorised ? gpu_vector_length(from) : 1);
}

/* ---------------------------------------------------------------------------------------------------------- launch */

static bool is_too_long(const DLTensor *from) {
  int64_t n = from->shape[from->ndim - 1];
  return (from->ndim == 3 && __builtin_mul_overflow(n, from->shape[1], &n)) || n > INT32_MAX;
}

static gpu_kernel *kernel_for(gpu_dtype dtype, const DLTensor *cache) {
  if (cache->dtype.code == FL_DTYPE_FLOAT8_E4M3FN)
    return &to_float8[dtype];
  return dtype == GPU_FLOAT32 ? &of_32_bits : &of_16_bits;
}

/* `from` are the tensors of the parts; `a` has them. Few blocks where there are many tokens: each then has several, and
 * compares them all while it goes through the slots once. */
static fl_status write_rows(const gpu_op *op, fl_call *call, gpu_cache_arguments *a, const DLTensor *const *from,
                            const DLTensor *cache, const DLTensor *slots) {
  enum { THREADS = GPU_CACHE_THREADS, TOKENS = GPU_CACHE_TOKENS, BLOCKS_OF_UNIT = 4 };
  gpu_dtype dtype = gpu_dtype_of(from[0]);
  fl_status status;
  if (dtype == GPU_OTHER)
    return fl_fail(call, FL_ENOTSUP, "%s: element types: float32, float16 or bfloat16 expected", op->name);
  a->tokens = slots->shape[0];
  a->slots = fl_data(slots);
  a->wide_slots = gpu_is_wide(slots);
  a->slot_stride = fl_stride(slots, 0);
  a->block_size = cache->shape[1];
  if (__builtin_mul_overflow(cache->shape[0], cache->shape[1], &a->n_slots))
    a->n_slots = INT64_MAX;
  int64_t units = 0;
  for (int i = 0; i < GPU_CACHE_PARTS; i++) {
    if (is_too_long(from[i]))
      return fl_fail(call, FL_ENOTSUP, "%s: a token of more than %d elements", op->name, INT32_MAX);
    units += count_units(&a->parts[i], from[i]);
  }
  if (!a->tokens || !a->n_slots || !units)
    return FL_OK;
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  int64_t share = divide_up(a->tokens, (int64_t)device->properties.units * BLOCKS_OF_UNIT);
  a->at_once = (uint32_t)least(share, TOKENS);
  a->lanes = gpu_power_of_two(divide_up(units, GPU_CACHE_PARTS), THREADS);
  int64_t blocks = divide_up(a->tokens, a->at_once);
  if (blocks > INT32_MAX)
    return fl_fail(call, FL_ENOTSUP, "%s: %lld tokens", op->name, (long long)a->tokens);
  gpu_shape shape = {.grid = {(unsigned)blocks, 1, 1}, .block = {THREADS, 1, 1}};
  return gpu_launch(op, call, kernel_for(dtype, cache), &shape, a);
}

/* ------------------------------------------------------------------------------------------------------------- ops */

/* reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, k_scale, v_scale) -> () */
static fl_status reshape_and_cache(void *self, fl_call *call) {
  enum { KEY, VALUE, KEY_CACHE, VALUE_CACHE, SLOT_MAPPING, K_SCALE, V_SCALE };
  const DLTensor *const from[] = {gpu_tensor(call, KEY), gpu_tensor(call, VALUE)};
  const DLTensor *keys = gpu_tensor(call, KEY_CACHE), *values = gpu_tensor(call, VALUE_CACHE);
  gpu_cache_arguments a = {.parts = {part_of(from[0], keys, 0, gpu_tensor(call, K_SCALE)),
                                     part_of(from[1], values, 0, gpu_tensor(call, V_SCALE))}};
  return write_rows(self, call, &a, from, keys, gpu_tensor(call, SLOT_MAPPING));
}

/* concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping) -> () */
static fl_status concat_and_cache_mla(void *self, fl_call *call) {
  enum { KV_C, K_PE, KV_CACHE, SLOT_MAPPING };
  const DLTensor *const from[] = {gpu_tensor(call, KV_C), gpu_tensor(call, K_PE)};
  const DLTensor *cache = gpu_tensor(call, KV_CACHE);
  gpu_cache_arguments a = {
      .parts = {part_of(from[0], cache, 0, NULL), part_of(from[1], cache, from[0]->shape[1], NULL)}};
  return write_rows(self, call, &a, from, cache, gpu_tensor(call, SLOT_MAPPING));
}

static const gpu_op ops[] = {
    {.name = "reshape_and_cache", .run = reshape_and_cache, .module = &gpu_module_cache},
    {.name = "concat_and_cache_mla", .run = concat_and_cache_mla, .module = &gpu_module_cache},
};
OP_LIST(ops);

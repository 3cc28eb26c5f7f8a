/* Products by oneDNN: see onednn.h. */
#include "plugins/cpu/support/onednn.h"

#if __has_include(<dnnl.h>)
#include <dnnl.h>
#include <dnnl_version.h>
#endif

#if defined(DNNL_VERSION_MAJOR) && DNNL_VERSION_MAJOR == 2
#include "plugins/cpu/support/scratch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define FUNCTIONS(f)                                                                                                   \
  f(engine_create) f(stream_create) f(stream_destroy) f(stream_wait) f(memory_desc_init_by_strides)                    \
      f(memory_desc_init_by_tag) f(memory_desc_equal) f(reorder_primitive_desc_create) f(memory_desc_get_size)         \
          f(memory_create) f(memory_destroy) f(memory_set_data_handle) f(matmul_desc_init) f(primitive_attr_create)    \
              f(primitive_attr_destroy) f(primitive_attr_set_scratchpad_mode) f(primitive_desc_create)                 \
                  f(primitive_desc_destroy) f(primitive_desc_query) f(primitive_desc_query_md) f(primitive_create)     \
                      f(primitive_destroy) f(primitive_execute) f(version)

#define FIELD(name) __typeof__(dnnl_##name) *name;
static struct {
  bool usable;
  dnnl_engine_t engine;
  FUNCTIONS(FIELD)
  int (*omp_get_max_threads)(void);
  void (*omp_set_num_threads)(int);
} dnnl;

/* --------------------------------------------------------------------------------------------------------- opening */

static bool find(void *library, const char *name, void *slot) {
  void *symbol = dlsym(library, name);
  memcpy(slot, &symbol, sizeof symbol);
  return symbol;
}

/* The OpenMP that the library is bound to: what the process has for all, else what came with the library. */
static bool find_openmp(void *library) {
  void *from = dlsym(RTLD_DEFAULT, "omp_set_num_threads") ? RTLD_DEFAULT : library;
  return find(from, "omp_set_num_threads", &dnnl.omp_set_num_threads) &&
         find(from, "omp_get_max_threads", &dnnl.omp_get_max_threads);
}

/* What a thread's OpenMP is told while it computes, and told again as it was. */
static int begin_alone(void) {
  int threads = dnnl.omp_get_max_threads();
  dnnl.omp_set_num_threads(1);
  return threads;
}

static void end_alone(int threads) {
  dnnl.omp_set_num_threads(threads);
}

static void open_library(void) {
  const char *path = secure_getenv("FLHOST_ONEDNN");
  void *library = dlopen(path ? path : "libdnnl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  bool found = library && (!path || *path);
#define FIND(name) found = found && find(library, "dnnl_" #name, &dnnl.name);
  FUNCTIONS(FIND)
  if (!found || dnnl.version()->major != 2 || dnnl.version()->cpu_runtime != DNNL_RUNTIME_OMP || !find_openmp(library))
    return;
  int threads = begin_alone();
  dnnl.usable = dnnl.engine_create(&dnnl.engine, dnnl_cpu, 0) == dnnl_success;
  end_alone(threads);
}

bool cpu_onednn_is_there(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return dnnl.usable;
}

/* --------------------------------------------------------------------------------------------------------- product */

enum { A, B, OUT, SCRATCHPAD, N_MEMORIES };

struct cpu_onednn {
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_memory_t memories[N_MEMORIES];
  size_t scratchpad; /* bytes */
  size_t offset;     /* of what b points to */
};

/* Version 2 of the library computes no float16. */
static const dnnl_data_type_t types[CPU_N_DTYPES] = {
    [CPU_FLOAT32] = dnnl_f32, [CPU_FLOAT16] = dnnl_data_type_undef, [CPU_BFLOAT16] = dnnl_bf16};

static bool describe(dnnl_memory_desc_t *desc, dnnl_data_type_t type, int64_t rows, int64_t columns, int64_t row_stride,
                     int64_t column_stride) {
  const dnnl_dims_t shape = {rows, columns}, strides = {row_stride, column_stride};
  return dnnl.memory_desc_init_by_strides(desc, 2, shape, type, strides) == dnnl_success;
}

static int64_t elements(cpu_matrix matrix) {
  return matrix.stride / cpu_dtype_size(matrix.dtype);
}

static bool describe_b(dnnl_memory_desc_t *desc, const cpu_product *p) {
  bool across = p->b_is_k_by_n;
  return describe(desc, types[p->b.dtype], p->k, p->n, across ? elements(p->b) : 1, across ? 1 : elements(p->b));
}

static bool describe_others(dnnl_memory_desc_t *descs, const cpu_product *p) {
  return describe(&descs[A], types[p->b.dtype], p->m, p->k, elements(p->a), 1) &&
         describe(&descs[OUT], dnnl_f32, p->m, p->n, p->n, 1);
}

/* Its reference code is slower than ours, and so is bfloat16 without instructions for it. */
static bool is_fast(const cpu_product *product, const_dnnl_primitive_desc_t desc) {
  const char *name = NULL;
  if (dnnl.primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success)
    return false;
  return product->b.dtype == CPU_BFLOAT16 ? strstr(name, "bf16") || strstr(name, "amx") : !strstr(name, "ref");
}

/* NULL: there is no fast kernel. */
static dnnl_primitive_desc_t choose_kernel(const cpu_product *product, const dnnl_memory_desc_t *descs) {
  dnnl_matmul_desc_t matmul;
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_primitive_desc_t desc = NULL;
  bool ok = dnnl.matmul_desc_init(&matmul, &descs[A], &descs[B], NULL, &descs[OUT]) == dnnl_success &&
            dnnl.primitive_attr_create(&attributes) == dnnl_success &&
            dnnl.primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success &&
            dnnl.primitive_desc_create(&desc, &matmul, attributes, dnnl.engine, NULL) == dnnl_success &&
            is_fast(product, desc);
  if (desc && !ok) {
    dnnl.primitive_desc_destroy(desc);
    desc = NULL;
  }
  if (attributes)
    dnnl.primitive_attr_destroy(attributes);
  return desc;
}

static bool make_primitive(cpu_onednn *made, const cpu_product *product, dnnl_memory_desc_t *descs) {
  dnnl_primitive_desc_t desc = choose_kernel(product, descs);
  bool ok = desc && dnnl.primitive_create(&made->primitive, desc) == dnnl_success;
  if (ok) {
    descs[SCRATCHPAD] = *dnnl.primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    made->scratchpad = dnnl.memory_desc_get_size(&descs[SCRATCHPAD]);
  }
  if (desc)
    dnnl.primitive_desc_destroy(desc);
  return ok;
}

static bool make_parts(cpu_onednn *made, const cpu_product *product, const dnnl_memory_desc_t *b) {
  dnnl_memory_desc_t descs[N_MEMORIES] = {[B] = *b};
  if (!describe_others(descs, product) || !make_primitive(made, product, descs) ||
      dnnl.stream_create(&made->stream, dnnl.engine, dnnl_stream_default_flags) != dnnl_success)
    return false;
  for (int i = 0; i < N_MEMORIES; i++)
    if (dnnl.memory_create(&made->memories[i], &descs[i], dnnl.engine, DNNL_MEMORY_NONE) != dnnl_success)
      return false;
  return true;
}

/* What stands before packed memory: how it is laid out. In version 2 a description is plain bytes. */
typedef union packed_head {
  dnnl_memory_desc_t desc;
  char lines[(sizeof(dnnl_memory_desc_t) + 63) / 64 * 64];
} packed_head;

static bool computes(const cpu_product *like) {
  return like->a.dtype == like->b.dtype && types[like->b.dtype] && cpu_onednn_is_there();
}

cpu_onednn *cpu_onednn_begin(const cpu_product *like, const void *packed) {
  dnnl_memory_desc_t b;
  if (!computes(like) || !(packed || describe_b(&b, like)))
    return NULL;
  cpu_onednn *made = calloc(1, sizeof *made);
  if (!made)
    return NULL;
  made->offset = packed ? sizeof(packed_head) : 0;
  int threads = begin_alone();
  bool ok = make_parts(made, like, packed ? &((const packed_head *)packed)->desc : &b);
  end_alone(threads);
  if (ok)
    return made;
  cpu_onednn_end(made);
  return NULL;
}

bool cpu_onednn_run(cpu_onednn *made, const void *a, const void *b, float *out) {
  static const int arguments[N_MEMORIES] = {
      [A] = DNNL_ARG_SRC, [B] = DNNL_ARG_WEIGHTS, [OUT] = DNNL_ARG_DST, [SCRATCHPAD] = DNNL_ARG_SCRATCHPAD};
  void *scratchpad = cpu_scratch_take_bytes(made->scratchpad);
  void *data[N_MEMORIES] = {[A] = (void *)a, [B] = (char *)b + made->offset, [OUT] = out, [SCRATCHPAD] = scratchpad};
  dnnl_exec_arg_t list[N_MEMORIES];
  bool ok = scratchpad;
  for (int i = 0; i < N_MEMORIES && ok; i++) {
    ok = dnnl.memory_set_data_handle(made->memories[i], data[i]) == dnnl_success;
    list[i] = (dnnl_exec_arg_t){arguments[i], made->memories[i]};
  }
  int threads = begin_alone();
  ok = ok && dnnl.primitive_execute(made->primitive, made->stream, N_MEMORIES, list) == dnnl_success &&
       dnnl.stream_wait(made->stream) == dnnl_success;
  end_alone(threads);
  cpu_scratch_give(scratchpad);
  return ok;
}

/* Asks which layout of b it likes best; false: that which b has, or nobody knows. */
static bool find_layout(const cpu_product *like, dnnl_memory_desc_t *best) {
  const dnnl_dims_t shape = {like->k, like->n};
  dnnl_memory_desc_t descs[N_MEMORIES], given;
  if (!computes(like) || !describe_b(&given, like) || !describe_others(descs, like) ||
      dnnl.memory_desc_init_by_tag(&descs[B], 2, shape, types[like->b.dtype], dnnl_format_tag_any) != dnnl_success)
    return false;
  int threads = begin_alone();
  dnnl_primitive_desc_t desc = choose_kernel(like, descs);
  if (desc) {
    *best = *dnnl.primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
    dnnl.primitive_desc_destroy(desc);
  }
  end_alone(threads);
  return desc && !dnnl.memory_desc_equal(best, &given);
}

size_t cpu_onednn_packed_size(const cpu_product *like) {
  dnnl_memory_desc_t best;
  return find_layout(like, &best) ? sizeof(packed_head) + (dnnl.memory_desc_get_size(&best) + 63) / 64 * 64 : 0;
}

/* Memory and primitive of a copy into another layout. */
typedef struct reorder {
  dnnl_memory_t from, to;
  dnnl_primitive_desc_t desc;
  dnnl_primitive_t primitive;
  dnnl_stream_t stream;
} reorder;

static bool run_reorder(reorder *r, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, void *b,
                        void *packed) {
  if (dnnl.memory_create(&r->from, from, dnnl.engine, b) != dnnl_success ||
      dnnl.memory_create(&r->to, to, dnnl.engine, packed) != dnnl_success ||
      dnnl.reorder_primitive_desc_create(&r->desc, from, dnnl.engine, to, dnnl.engine, NULL) != dnnl_success ||
      dnnl.primitive_create(&r->primitive, r->desc) != dnnl_success ||
      dnnl.stream_create(&r->stream, dnnl.engine, dnnl_stream_default_flags) != dnnl_success)
    return false;
  const dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, r->from}, {DNNL_ARG_TO, r->to}};
  return dnnl.primitive_execute(r->primitive, r->stream, 2, list) == dnnl_success &&
         dnnl.stream_wait(r->stream) == dnnl_success;
}

static void end_reorder(reorder *r) {
  if (r->stream)
    dnnl.stream_destroy(r->stream);
  if (r->primitive)
    dnnl.primitive_destroy(r->primitive);
  if (r->desc)
    dnnl.primitive_desc_destroy(r->desc);
  if (r->to)
    dnnl.memory_destroy(r->to);
  if (r->from)
    dnnl.memory_destroy(r->from);
}

bool cpu_onednn_pack(const cpu_product *like, void *packed) {
  packed_head *head = packed;
  dnnl_memory_desc_t given;
  reorder r = {0};
  if (!find_layout(like, &head->desc) || !describe_b(&given, like))
    return false;
  int threads = begin_alone();
  bool ok = run_reorder(&r, &given, &head->desc, like->b.data, head + 1);
  end_reorder(&r);
  end_alone(threads);
  return ok;
}

void cpu_onednn_end(cpu_onednn *made) {
  for (int i = 0; made && i < N_MEMORIES; i++)
    if (made->memories[i])
      dnnl.memory_destroy(made->memories[i]);
  if (made && made->stream)
    dnnl.stream_destroy(made->stream);
  if (made && made->primitive)
    dnnl.primitive_destroy(made->primitive);
  free(made);
}

#else

bool cpu_onednn_is_there(void) {
  return false;
}

cpu_onednn *cpu_onednn_begin(const cpu_product *like, const void *packed) {
  return (void)like, (void)packed, NULL;
}

bool cpu_onednn_run(cpu_onednn *made, const void *a, const void *b, float *out) {
  return (void)made, (void)a, (void)b, (void)out, false;
}

size_t cpu_onednn_packed_size(const cpu_product *like) {
  return (void)like, 0;
}

bool cpu_onednn_pack(const cpu_product *like, void *packed) {
  return (void)like, (void)packed, false;
}

void cpu_onednn_end(cpu_onednn *made) {
  (void)made;
}

#endif

/*
 * The CPU plugin's memory: a call like the one before it takes none from the C library. What allocates is counted here,
 * in front of the C library: the linker exports these functions to the plugin, too (tests.mk). oneDNN, which has
 * objects of its own for each product, is left out.
 */
#include "core/ops.h"
#include "tests/bad_calls.h"
#include "tests/fixture.h"
#include "tests/op_case.h"

#include <malloc.h>

static _Thread_local volatile int allocations; /* compilers know what malloc changes, and this is not of it */

/* Sanitizers and valgrind have such functions of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED

static void *allocate(size_t alignment, size_t size) {
  void *memory = NULL;
  allocations++;
  return posix_memalign(&memory, alignment, size) ? NULL : memory;
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t size) {
  return allocate(alignment, size);
}

__attribute__((visibility("default"))) void *malloc(size_t size) {
  return allocate(16, size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size) {
  size_t bytes;
  void *memory = __builtin_mul_overflow(n, size, &bytes) ? NULL : allocate(16, bytes);
  return memory ? memset(memory, 0, bytes) : NULL;
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t size) {
  void *memory = allocate(16, size);
  size_t had = malloc_usable_size(old);
  if (memory && old) {
    memcpy(memory, old, had < size ? had : size);
    free(old);
  }
  return memory;
}

#endif

static bool is_counted(void) {
  allocations = 0;
  void *(*volatile take)(size_t) = malloc; /* which compilers leave out when they know it */
  free(take(1));
  return allocations > 0;
}

static bool skips(const char *test) {
  if (!is_counted())
    printf("skip: %s: allocations are a tool's here\n", test);
  return !is_counted();
}

static fl_host *host;

static void set_up(void) {
  ck_assert_int_eq(setenv("FLHOST_ONEDNN", "", 1), 0);
  registry_parallel_for = NULL; /* the calling thread alone: what each of a pool's does, and no other's first time */
  load_plugin();
  host = test_host(NULL, 0);
}

static void tear_down(void) {
  fl_host_destroy(host);
}

static int count_builtin(void) {
  int n = 0;
  while (fl_builtin_ops[n])
    n++;
  return n;
}

static const char *name_of(int index) {
  static char name[FL_NAME_MAX + 1];
  const char *schema = fl_builtin_ops[index]->schema;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(schema, "("), schema);
  return name;
}

/* Of one call. Nothing of Check's stands between: that allocates. */
static int allocated(const char *op, const char *id, fl_value *values, uint32_t n) {
  allocations = 0;
  fl_status status = call_impl(op, id, values, n);
  int counted = allocations;
  ck_assert_msg(status == FL_OK, "%s, %s: status %d, %s", op, id, status, message);
  return counted;
}

/* Of the calls of `flhost verify`. */
START_TEST(a_second_call_of_an_op_allocates_nothing) {
  enum { CALLS = 12, NUMBERS = 300 };
  const char *id = both[_i % 2], *name = name_of(_i / 2);
  fl_op *op = fl_find_op(host, name);
  int made = 0;
  if (skips("a_second_call_of_an_op_allocates_nothing"))
    return;
  ck_assert_ptr_nonnull(op);
  for (uint64_t number = 0; number < NUMBERS && made < CALLS; number++) {
    made_call *call = make_call(op, number);
    if (!call)
      continue;
    if (!call_impl(name, id, call->values, call->n_values)) { /* not all take all element types */
      int n = allocated(name, id, call->values, call->n_values);
      ck_assert_msg(n == 0, "%s, %s, call %d: %d allocations, expected none", name, id, (int)number, n);
      made++;
    }
    free_call(call);
  }
  ck_assert_msg(made >= 4, "%s, %s: %d calls, expected several", name, id, made);
}
END_TEST

/* Of several blocks, with the products that are cut into parts. */
static const char *const large[] = {
    "mm_encoder_attn query=f1x500x3x20 key=f1x500x3x20 value=f1x500x3x20",
    "mla_prefill query=f301x3x24 kv_c=f301x32 k_pe=f301x8 kv_b_proj=f96x32 v_head_dim=16 scale=0.3",
    "mla_decode query=f3x4x72 kv_cache=f64x16x72 block_table=i3x20%64 seq_lens=i3%301 scale=0.3 kv_lora_rank=56",
    "replicated_linear x=f1x1024 weight=f1024x1024",
    "replicated_linear x=f300x512 weight=f600x512",
    "unquantized_fused_moe x=f200x96 w13=f7x160x96 w2=f7x96x80 topk_weights=w200x3 topk_ids=i200x3%7",
    "moe_align_block_size topk_ids=i700x3%61 num_experts=61 block_size=16",
    "grouped_topk gating_output=f301x256 topk=8 renormalize=true num_expert_group=8 topk_group=4",
    "causal_conv1d x=f203x1003 weight=f203x4 bias=f203 conv_state=f1x203x3",
    "selective_scan u=f99x90 delta=f99x90 A=f99x5 B=f1x5x90 C=f1x5x90 D=f99 delta_softplus=true ssm_state=f1x99x5",
    "mamba_chunk_scan x=f300x5x40 dt=f300x5 A=f5 B=f300x1x7 C=f300x1x7 D=f5 dt_softplus=true ssm_state=f1x5x40x7",
};
enum { N_LARGE = sizeof large / sizeof large[0] };

START_TEST(a_second_large_call_allocates_nothing) {
  if (skips("a_second_large_call_allocates_nothing"))
    return;
  op_case *made = op_case_make(large[_i], bfloat16, 0);
  const fl_schema *schema = made->schema;
  ck_assert_int_eq(op_case_check(made), FL_OK);
  for (int call = 0; call < 3; call++) {
    int n = allocated(schema->op_name, "default.flagos", made->values, schema->n_arguments + schema->n_results);
    /* Were nothing counted in a first call, the tests would see nothing. */
    ck_assert_msg(call ? n == 0 : n > 0, "%s: %d allocations in call %d", large[_i], n, call);
  }
  op_case_free(made);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, a_second_call_of_an_op_allocates_nothing, 0, is_counted() ? 2 * count_builtin() : 1);
  tcase_add_loop_test(tests, a_second_large_call_allocates_nothing, 0, is_counted() ? N_LARGE : 1);
}

int main(void) {
  return run_suite("cpu_memory", add_tests, 60);
}

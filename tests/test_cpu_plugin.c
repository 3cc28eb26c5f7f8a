/*
 * The CPU backend without a host: a registry of this file's own collects its implementations, and each is run over the
 * golden files and over cases that these do not have (strides, in place, bad indices). O4, O5, O6, O8 are the
 * rules for implementations of operators.
 */
#include "core/cases.h"
#include "core/ops.h"
#include "core/schema.h"
#include "core/support.h"
#include "tests/golden_files.h"
#include "tests/kernels.h"

#include <dlfcn.h>
#include <flhost/dtype.h>
#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------------------- golden files */

/* One has no tensors, of the others no software that offers them alone runs on a CPU: suites of their own test them. */
static bool has_no_golden_files(const char *op) {
  static const char *const names[] = {"attention_backend", "multi_head_latent_attention", "plamo2_mamba_mixer"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (!strcmp(names[i], op))
      return true;
  return false;
}

static void call_impl_of(void *id, const fl_schema *schema, fl_value *values, uint32_t n) {
  check_call(schema->op_name, id, values, n);
}

/* Each op that has golden files, with the implementation `id`. */
static void check_golden_files(const char *id) {
  for (const fl_op_def *const *entry = fl_builtin_ops; *entry; entry++) {
    fl_schema *schema = NULL;
    ck_assert_msg(fl_schema_create_checked(*entry, &schema) == FL_OK, "%s", fl_error_message());
    int compared = check_golden_op(schema, !strcmp(id, "reference.c"), call_impl_of, (void *)id);
    ck_assert_msg(has_no_golden_files(schema->op_name) || compared > 0, "no golden file of %s", schema->op_name);
    fl_schema_free(schema);
  }
}

START_TEST(O4_reference_reproduces_the_golden_files_bit_for_bit_where_they_say_so) {
  check_golden_files("reference.c");
}
END_TEST

/* Of each instruction set that this machine has. */
START_TEST(O5_default_agrees_with_the_golden_files_within_tolerance) {
  static const char *const variants[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", variants[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal) {
    ck_assert_int_ne(_i, 0);
    printf("skip: O5_default_agrees_with_the_golden_files: %s\n", refusal);
    return;
  }
  ck_assert_str_eq(find_impl("rms_norm", "default.flagos")->variant, variants[_i]);
  ck_assert_ptr_null(find_impl("rms_norm", "reference.c")->variant);
  check_golden_files("default.flagos");
}
END_TEST

START_TEST(a_word_that_is_no_instruction_set_is_the_hosts_to_report) {
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", "avx1024", 1), 0);
  ck_assert_ptr_null(try_plugin());
  ck_assert_ptr_nonnull(find_impl("rms_norm", "default.flagos")->variant);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- registration */

START_TEST(every_op_has_a_reference_and_a_default_implementation_for_the_cpu) {
  int n = 0;
  for (const fl_op_def *const *entry = fl_builtin_ops; *entry; entry++, n += 2) {
    fl_schema *schema = NULL;
    ck_assert_msg(fl_schema_create_checked(*entry, &schema) == FL_OK, "%s", fl_error_message());
    const fl_impl *reference = find_impl(schema->op_name, "reference.c");
    const fl_impl *flagos = find_impl(schema->op_name, "default.flagos");
    ck_assert_int_eq(reference->kind, FL_KIND_REFERENCE);
    ck_assert_int_eq(flagos->kind, FL_KIND_DEFAULT);
    const uint64_t host_memory = FL_DEVICE(kDLCPU) | FL_DEVICE(kDLCUDAHost) | FL_DEVICE(kDLROCMHost);
    ck_assert_uint_eq(reference->devices, host_memory);
    ck_assert_uint_eq(flagos->devices, host_memory);
    fl_schema_free(schema);
  }
  ck_assert_int_eq(count_impls(), n);
}
END_TEST

static fl_status refuse(fl_registry *registry, const fl_impl *impl) {
  (void)registry;
  (void)impl;
  return FL_EEXIST;
}

START_TEST(a_refused_implementation_is_passed_on) {
  char path[512];
  fl_registry registry = {.size = sizeof registry, .abi_major = FL_ABI_MAJOR, .register_impl = refuse};
  snprintf(path, sizeof path, "%s/plugins/cpu.so", build_dir());
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  fl_register_fn entry = NULL;
  *(void **)&entry = dlsym(library, "register_builtins");
  ck_assert_int_eq(entry(&registry), FL_EEXIST);
}
END_TEST

/* What lies in memory that a GPU's driver has pinned, the processor can compute; what lies on the GPU it cannot. */
START_TEST(tensors_in_pinned_memory_are_taken_and_those_on_a_device_are_not) {
  const int32_t types[] = {kDLCUDAHost, kDLROCMHost, kDLCUDA, kDLCUDAManaged};
  char plugins[512];
  snprintf(plugins, sizeof plugins, "%s/plugins", build_dir());
  const fl_host_options options = {
      .size = sizeof options, .platform = "cpu", .flags = FL_HOST_SYNCHRONOUS, .plugin_path = realpath(plugins, NULL)};
  const int64_t in_shape[] = {4}, out_shape[] = {2};
  fl_host *host;
  ck_assert_msg(!fl_host_create(&options, &host), "%s", fl_error_message());
  free((char *)options.plugin_path);
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    owned *x = make(float32, 1, in_shape, 0), *out = make(float32, 1, out_shape, 0);
    for (int64_t j = 0; j < 4; j++)
      set(&x->tensor, j, 1);
    x->tensor.device.device_type = out->tensor.device.device_type = (DLDeviceType)types[i];
    fl_value values[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
    fl_call call = FL_CALL(values);
    fl_status status = fl_call_op(host, "silu_and_mul", &call);
    if (i < 2)
      ck_assert_msg(status == FL_OK && fabs(get(&out->tensor, 0) - 0.731059) < 1e-5, "%s", fl_error_message());
    else
      ck_assert_int_ne(status, FL_OK);
    unmake(x);
    unmake(out);
  }
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- activation */

START_TEST(silu_and_gelu_at_infinity_are_what_pytorch_gives) {
  const int64_t in_shape[] = {4}, out_shape[] = {2};
  owned *x = make(float32, 1, in_shape, 0), *out = make(float32, 1, out_shape, 0);
  for (int64_t i = 0; i < 4; i++)
    set(&x->tensor, i, i == 0 ? INFINITY : i == 1 ? -INFINITY : 1);
  fl_value silu[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
  fl_value none[] = {fl_tensor(&x->tensor), fl_string("none"), fl_tensor(&out->tensor)};
  fl_value tanh[] = {fl_tensor(&x->tensor), fl_string("tanh"), fl_tensor(&out->tensor)};
  for (int which = 0; which < 2; which++) {
    check_call("silu_and_mul", both[which], silu, 2);
    ck_assert(isinf(get(&out->tensor, 0)) && isnan(get(&out->tensor, 1)));
    check_call("gelu_and_mul", both[which], none, 3);
    ck_assert(isinf(get(&out->tensor, 0)) && isnan(get(&out->tensor, 1)));
    check_call("gelu_and_mul", both[which], tanh, 3);
    ck_assert(isinf(get(&out->tensor, 0)) && isnan(get(&out->tensor, 1)));
  }
  unmake(x);
  unmake(out);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- norms */

START_TEST(rms_norm_takes_strided_tensors_and_works_in_place) {
  const int64_t shape[] = {2, 3, 301}, weight_shape[] = {301};
  const DLDataType dtypes[] = {float32, float16, bfloat16};
  DLDataType dtype = dtypes[_i % 3];
  const char *id = both[_i / 3];
  owned *x = make(dtype, 3, shape, 0), *residual = make(dtype, 3, shape, 0), *weight = make(dtype, 1, weight_shape, 0);
  owned *out = make(dtype, 3, shape, 0), *residual_out = make(dtype, 3, shape, 0);
  owned *strided_x = make(dtype, 3, shape, 7), *strided_residual = make(dtype, 3, shape, 2);
  fill(&x->tensor, 1);
  fill(&strided_x->tensor, 1);
  fill(&residual->tensor, 2);
  fill(&strided_residual->tensor, 2);
  fill(&weight->tensor, 3);
  fl_value functional[] = {
      fl_tensor(&x->tensor),   fl_tensor(&residual->tensor),    fl_tensor(&weight->tensor), fl_float(1e-6), fl_none(),
      fl_tensor(&out->tensor), fl_tensor(&residual_out->tensor)};
  fl_value in_place[] = {fl_tensor(&strided_x->tensor),
                         fl_tensor(&strided_residual->tensor),
                         fl_tensor(&weight->tensor),
                         fl_float(1e-6),
                         fl_none(),
                         fl_tensor(&strided_x->tensor),
                         fl_tensor(&strided_residual->tensor)};
  check_call("fused_add_rms_norm", id, functional, 7);
  check_call("rms_norm", id, in_place, 7);
  check_same_elements(&out->tensor, strided_x);
  check_same_elements(&residual_out->tensor, strided_residual);
  owned *all[] = {x, residual, weight, out, residual_out, strided_x, strided_residual};
  for (size_t i = 0; i < 7; i++)
    unmake(all[i]);
}
END_TEST

/* A float32 weight (Gemma) means one rounding of (x * scale) * weight; one of x's type means two. */
START_TEST(O4_the_weights_type_decides_where_the_reference_rounds) {
  enum { N = 64 };
  const int64_t shape[] = {1, N}, weight_shape[] = {N};
  owned *x = make(bfloat16, 2, shape, 0), *out = make(bfloat16, 2, shape, 0);
  owned *wide = make(float32, 1, weight_shape, 0), *narrow = make(bfloat16, 1, weight_shape, 0);
  double sum = 0;
  int differ = 0;
  fill(&x->tensor, 4);
  fill(&narrow->tensor, 5);
  for (int64_t i = 0; i < N; i++) {
    set(&wide->tensor, i, get(&narrow->tensor, i));
    sum += get(&x->tensor, i) * get(&x->tensor, i);
  }
  float scale = 1 / sqrtf((float)sum / N + 1e-5f);
  fl_value values[] = {fl_tensor(&x->tensor),   fl_none(), fl_tensor(&wide->tensor), fl_float(1e-5), fl_none(),
                       fl_tensor(&out->tensor), fl_none()};
  for (int pass = 0; pass < 2; pass++) {
    check_call("rms_norm", "reference.c", values, 7);
    for (int64_t i = 0; i < N; i++) {
      float normed = (float)get(&x->tensor, i) * scale, w = (float)get(&wide->tensor, i);
      uint16_t once = fl_float_to_bf16(normed * w);
      uint16_t twice = fl_float_to_bf16(fl_bf16_to_float(fl_float_to_bf16(normed)) * w);
      ck_assert_uint_eq(((uint16_t *)out->tensor.data)[i], pass ? twice : once);
      differ += once != twice;
    }
    values[2] = fl_tensor(&narrow->tensor);
  }
  ck_assert_int_gt(differ, 0);
  owned *all[] = {x, out, wide, narrow};
  for (size_t i = 0; i < 4; i++)
    unmake(all[i]);
}
END_TEST

START_TEST(a_variance_size_outside_the_row_is_a_bad_argument) {
  const int64_t shape[] = {2, 8};
  owned *x = make(float32, 2, shape, 0), *out = make(float32, 2, shape, 0);
  fill(&x->tensor, 1);
  fl_value values[] = {fl_tensor(&x->tensor),   fl_none(), fl_none(), fl_float(1e-6), fl_int(9),
                       fl_tensor(&out->tensor), fl_none()};
  for (int which = 0; which < 2; which++) {
    values[4] = fl_int(9);
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_EINVAL);
    ck_assert_str_eq(message, "argument 'variance_size' is 9, expected 1 to 8 (the size of a row of 'x')");
    values[4] = fl_int(0);
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_EINVAL);
    values[4] = fl_int(8);
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_OK);
  }
  unmake(x);
  unmake(out);
}
END_TEST

START_TEST(a_weight_of_another_kind_is_not_supported_and_nothing_is_written) {
  const int64_t shape[] = {2, 8}, weight_shape[] = {8};
  owned *x = make(float32, 2, shape, 0), *out = make(float32, 2, shape, 0), *weight = make(int32, 1, weight_shape, 0);
  owned *untouched = make(float32, 2, shape, 0);
  fill(&x->tensor, 1);
  fl_value values[] = {fl_tensor(&x->tensor),   fl_none(), fl_tensor(&weight->tensor), fl_float(1e-6), fl_none(),
                       fl_tensor(&out->tensor), fl_none()};
  for (int which = 0; which < 2; which++) {
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_ENOTSUP);
    ck_assert_mem_eq(out->tensor.data, untouched->tensor.data, out->bytes);
  }
  owned *all[] = {x, out, weight, untouched};
  for (size_t i = 0; i < 4; i++)
    unmake(all[i]);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- rotary */

enum { TOKENS = 5, HEADS = 3, SIZE = 24, PAIRS = 4, POSITIONS = 16 };

typedef struct rotary {
  owned *query, *key, *cos, *sin, *ids, *query_out, *key_out;
  fl_value values[10];
} rotary;

static rotary make_rotary(DLDataType dtype, DLDataType table, DLDataType index, int64_t padding) {
  const int64_t query[] = {TOKENS, HEADS, SIZE}, key[] = {TOKENS, 1, SIZE}, angles[] = {POSITIONS, PAIRS};
  const int64_t ids[] = {TOKENS};
  rotary r = {.query = make(dtype, 3, query, padding),
              .key = make(dtype, 3, key, padding),
              .cos = make(table, 2, angles, padding),
              .sin = make(table, 2, angles, padding),
              .ids = make(index, 1, ids, 0),
              .query_out = make(dtype, 3, query, 0),
              .key_out = make(dtype, 3, key, 0)};
  fill(&r.query->tensor, 1);
  fill(&r.key->tensor, 2);
  for (int64_t i = 0; i < POSITIONS * PAIRS; i++) {
    set(&r.cos->tensor, element_offset(&r.cos->tensor, i), cos(0.3 * (double)i));
    set(&r.sin->tensor, element_offset(&r.sin->tensor, i), sin(0.3 * (double)i));
  }
  for (int64_t i = 0; i < TOKENS; i++)
    set(&r.ids->tensor, i, (double)(i * 7 % POSITIONS));
  const fl_value values[] = {fl_tensor(&r.query->tensor),
                             fl_tensor(&r.key->tensor),
                             fl_tensor(&r.cos->tensor),
                             fl_tensor(&r.sin->tensor),
                             fl_tensor(&r.ids->tensor),
                             fl_bool(false),
                             fl_int(0),
                             fl_bool(false),
                             fl_tensor(&r.query_out->tensor),
                             fl_tensor(&r.key_out->tensor)};
  memcpy(r.values, values, sizeof values);
  return r;
}

static void unmake_rotary(rotary *r) {
  owned *all[] = {r->query, r->key, r->cos, r->sin, r->ids, r->query_out, r->key_out};
  for (size_t i = 0; i < 7; i++)
    unmake(all[i]);
}

START_TEST(rotary_in_place_on_strided_tensors_gives_what_it_gives_out_of_place) {
  const DLDataType dtypes[] = {float32, float16, bfloat16};
  DLDataType dtype = dtypes[_i % 3];
  const char *id = both[_i / 3];
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    rotary compact = make_rotary(dtype, float32, int32, 0), strided = make_rotary(dtype, float32, int64, 5);
    compact.values[5] = strided.values[5] = fl_bool(interleaved);
    compact.values[6] = strided.values[6] = fl_int(6);
    strided.values[8] = strided.values[0];
    strided.values[9] = strided.values[1];
    check_call("rotary_embedding", id, compact.values, 10);
    check_call("rotary_embedding", id, strided.values, 10);
    check_same_elements(&compact.query_out->tensor, strided.query);
    check_same_elements(&compact.key_out->tensor, strided.key);
    /* Elements outside [6, 6 + 8) pass through; inside something happened. */
    const DLTensor *in = &compact.query->tensor, *out = &compact.query_out->tensor;
    for (int64_t i = 0; i < SIZE; i++) {
      int64_t at = (1 * HEADS + 2) * SIZE + i; /* token 1 is at position 7 */
      ck_assert_msg((get(in, at) == get(out, at)) == (i < 6 || i >= 14), "element %d", (int)i);
    }
    unmake_rotary(&compact);
    unmake_rotary(&strided);
  }
}
END_TEST

START_TEST(rotary_computes_the_rotation_and_its_inverse_takes_it_back) {
  const char *id = both[_i];
  rotary r = make_rotary(float32, float32, int64, 0);
  check_call("rotary_embedding", id, r.values, 10);
  int64_t position = 7, head = (1 * HEADS + 1) * SIZE;
  for (int64_t i = 0; i < PAIRS; i++) {
    double c = get(&r.cos->tensor, position * PAIRS + i), s = get(&r.sin->tensor, position * PAIRS + i);
    double x1 = get(&r.query->tensor, head + i), x2 = get(&r.query->tensor, head + PAIRS + i);
    ck_assert_double_eq_tol(get(&r.query_out->tensor, head + i), x1 * c - x2 * s, 1e-6);
    ck_assert_double_eq_tol(get(&r.query_out->tensor, head + PAIRS + i), x2 * c + x1 * s, 1e-6);
  }
  r.values[7] = fl_bool(true);
  r.values[0] = r.values[8];
  r.values[1] = r.values[9];
  check_call("rotary_embedding", id, r.values, 10);
  for (int64_t i = 0; i < TOKENS * HEADS * SIZE; i++)
    ck_assert_double_eq_tol(get(&r.query_out->tensor, i), get(&r.query->tensor, i), 1e-5);
  unmake_rotary(&r);
}
END_TEST

/* [T, heads * size] with size from cos, and no key. */
START_TEST(rotary_takes_flat_queries_and_no_key) {
  const char *id = both[_i];
  const int64_t flat[] = {TOKENS, HEADS * 2 * PAIRS}, split[] = {TOKENS, HEADS, 2 * PAIRS};
  rotary r = make_rotary(bfloat16, bfloat16, int64, 0);
  owned *a = make(bfloat16, 2, flat, 0), *a_out = make(bfloat16, 2, flat, 0);
  owned *b = make(bfloat16, 3, split, 0), *b_out = make(bfloat16, 3, split, 0);
  fill(&a->tensor, 9);
  fill(&b->tensor, 9);
  r.values[1] = r.values[9] = fl_none();
  r.values[0] = fl_tensor(&a->tensor);
  r.values[8] = fl_tensor(&a_out->tensor);
  check_call("rotary_embedding", id, r.values, 10);
  r.values[0] = fl_tensor(&b->tensor);
  r.values[8] = fl_tensor(&b_out->tensor);
  check_call("rotary_embedding", id, r.values, 10);
  ck_assert_mem_eq(a_out->tensor.data, b_out->tensor.data, a_out->bytes);
  owned *all[] = {a, a_out, b, b_out};
  for (size_t i = 0; i < 4; i++)
    unmake(all[i]);
  unmake_rotary(&r);
}
END_TEST

START_TEST(rotary_heads_longer_than_a_block_agree_between_the_implementations) {
  const int64_t query[] = {2, 1, 1300}, angles[] = {4, 600}, ids[] = {2};
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    owned *x = make(float16, 3, query, 0), *c = make(float16, 2, angles, 0), *s = make(float16, 2, angles, 0);
    owned *positions = make(int64, 1, ids, 0), *out[] = {make(float16, 3, query, 0), make(float16, 3, query, 0)};
    fill(&x->tensor, 1);
    fill(&c->tensor, 2);
    fill(&s->tensor, 3);
    set(&positions->tensor, 0, 3);
    set(&positions->tensor, 1, 1);
    for (int which = 0; which < 2; which++) {
      fl_value values[] = {fl_tensor(&x->tensor),
                           fl_none(),
                           fl_tensor(&c->tensor),
                           fl_tensor(&s->tensor),
                           fl_tensor(&positions->tensor),
                           fl_bool(interleaved),
                           fl_int(100),
                           fl_bool(true),
                           fl_tensor(&out[which]->tensor),
                           fl_none()};
      check_call("rotary_embedding", both[which], values, 10);
    }
    ck_assert_mem_eq(out[0]->tensor.data, out[1]->tensor.data, out[0]->bytes);
    owned *all[] = {x, c, s, positions, out[0], out[1]};
    for (size_t i = 0; i < 6; i++)
      unmake(all[i]);
  }
}
END_TEST

START_TEST(O6_a_position_out_of_range_is_a_bad_argument_and_nothing_is_written) {
  const char *id = both[_i];
  const double bad[] = {POSITIONS, -1};
  for (int wide = 0; wide < 2; wide++)
    for (int which = 0; which < 2; which++) {
      char expected[128];
      rotary r = make_rotary(float32, float32, wide ? int64 : int32, 0);
      owned *untouched = make(float32, 3, r.query->shape, 0);
      set(&r.ids->tensor, TOKENS - 1, bad[which]);
      ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_EINVAL);
      snprintf(expected, sizeof expected, "argument 'position_ids'[4] is %d, expected 0 to 15 (rows of 'cos')",
               (int)bad[which]);
      ck_assert_str_eq(message, expected);
      ck_assert_mem_eq(r.query_out->tensor.data, untouched->tensor.data, untouched->bytes);
      unmake(untouched);
      unmake_rotary(&r);
    }
}
END_TEST

START_TEST(O6_a_rope_offset_beyond_the_head_is_a_bad_argument) {
  const char *id = both[_i];
  rotary r = make_rotary(float32, float32, int64, 0);
  r.values[6] = fl_int(SIZE - 2 * PAIRS + 1);
  ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(message, "argument 'rope_dim_offset' is 17, expected 0 to 16"));
  r.values[6] = fl_int(-1);
  ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_EINVAL);
  r.values[6] = fl_int(SIZE - 2 * PAIRS);
  ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_OK);
  unmake_rotary(&r);
}
END_TEST

/* ------------------------------------------------------------------------------------------- attention, no tokens */

START_TEST(O8_attention_backend_names_vllms_cpu_class_and_knows_its_limits) {
  fl_value values[] = {fl_bool(false), fl_bool(false), fl_none()};
  for (int which = 0; which < 2; which++) {
    values[0] = values[1] = fl_bool(false);
    check_call("attention_backend", both[which], values, 3);
    ck_assert_str_eq(values[2].v.s, "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend");
    values[0] = fl_bool(true);
    ck_assert_int_eq(call_impl("attention_backend", both[which], values, 3), FL_ENOTSUP);
    ck_assert_str_eq(message, "vLLM has no MLA attention backend for CPUs");
    values[0] = fl_bool(false);
    values[1] = fl_bool(true);
    ck_assert_int_eq(call_impl("attention_backend", both[which], values, 3), FL_EINVAL);
    ck_assert_ptr_nonnull(strstr(message, "argument 'use_sparse' is true"));
  }
}
END_TEST

START_TEST(O2_no_tokens_succeed_and_write_nothing) {
  const int64_t shape[] = {3, 0, 8}, half[] = {3, 0, 4}, query[] = {0, 2, 8}, angles[] = {4, 4}, ids[] = {0};
  for (int which = 0; which < 2; which++) {
    owned *x = make(float16, 3, shape, 0), *out = make(float16, 3, shape, 0), *short_out = make(float16, 3, half, 0);
    owned *q = make(float16, 3, query, 0), *angle = make(float16, 2, angles, 0), *positions = make(int64, 1, ids, 0);
    fl_value silu[] = {fl_tensor(&x->tensor), fl_tensor(&short_out->tensor)};
    fl_value norm[] = {fl_tensor(&x->tensor),   fl_none(), fl_none(), fl_float(1e-6), fl_none(),
                       fl_tensor(&out->tensor), fl_none()};
    fl_value rotate[] = {fl_tensor(&q->tensor),
                         fl_none(),
                         fl_tensor(&angle->tensor),
                         fl_tensor(&angle->tensor),
                         fl_tensor(&positions->tensor),
                         fl_bool(false),
                         fl_int(0),
                         fl_bool(false),
                         fl_tensor(&q->tensor),
                         fl_none()};
    check_call("silu_and_mul", both[which], silu, 2);
    check_call("rms_norm", both[which], norm, 7);
    check_call("rotary_embedding", both[which], rotate, 10);
    owned *all[] = {x, out, short_out, q, angle, positions};
    for (size_t i = 0; i < 6; i++)
      unmake(all[i]);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_test(tests, O4_reference_reproduces_the_golden_files_bit_for_bit_where_they_say_so);
  tcase_add_loop_test(tests, O5_default_agrees_with_the_golden_files_within_tolerance, 0, 5);
  tcase_add_test(tests, a_word_that_is_no_instruction_set_is_the_hosts_to_report);
  tcase_add_test(tests, every_op_has_a_reference_and_a_default_implementation_for_the_cpu);
  tcase_add_test(tests, a_refused_implementation_is_passed_on);
  tcase_add_test(tests, tensors_in_pinned_memory_are_taken_and_those_on_a_device_are_not);
  tcase_add_test(tests, silu_and_gelu_at_infinity_are_what_pytorch_gives);
  tcase_add_loop_test(tests, rms_norm_takes_strided_tensors_and_works_in_place, 0, 6);
  tcase_add_test(tests, O4_the_weights_type_decides_where_the_reference_rounds);
  tcase_add_test(tests, a_variance_size_outside_the_row_is_a_bad_argument);
  tcase_add_test(tests, a_weight_of_another_kind_is_not_supported_and_nothing_is_written);
  tcase_add_loop_test(tests, rotary_in_place_on_strided_tensors_gives_what_it_gives_out_of_place, 0, 6);
  tcase_add_loop_test(tests, rotary_computes_the_rotation_and_its_inverse_takes_it_back, 0, 2);
  tcase_add_loop_test(tests, rotary_takes_flat_queries_and_no_key, 0, 2);
  tcase_add_test(tests, rotary_heads_longer_than_a_block_agree_between_the_implementations);
  tcase_add_loop_test(tests, O6_a_position_out_of_range_is_a_bad_argument_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, O6_a_rope_offset_beyond_the_head_is_a_bad_argument, 0, 2);
  tcase_add_test(tests, O8_attention_backend_names_vllms_cpu_class_and_knows_its_limits);
  tcase_add_test(tests, O2_no_tokens_succeed_and_write_nothing);
}

int main(void) {
  return run_suite("cpu_plugin", add_tests, 20);
}

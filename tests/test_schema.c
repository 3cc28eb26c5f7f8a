/* The schema parser: what it accepts, what it makes of it, what it says about mistakes; identity; tolerances. */
#include "tests/tensors.h"

/* The ops of vLLM. */
static const char *const vllm_schemas[] = {
    "silu_and_mul(Tensor x) -> Tensor out",
    "mul_and_silu(Tensor x) -> Tensor out",
    "gelu_and_mul(Tensor x, str approximate=\"none\") -> Tensor out",
    "gelu_and_mul_sparse(Tensor x, float activation_sparsity, str approximate=\"none\") -> Tensor out",
    "swigluoai_and_mul(Tensor x, float alpha=1.702, float limit=7.0) -> Tensor out",
    "fatrelu_and_mul(Tensor x, float threshold=0.0) -> Tensor out",
    "silu_and_mul_with_clamp(Tensor x, float limit, float alpha=1.0, float beta=0.0) -> Tensor out",
    "swiglustep_and_mul(Tensor x, float limit=7.0) -> Tensor out",
    "situ_and_mul(Tensor x, float beta=1.0, float? linear_beta=None) -> Tensor out",
    "gelu(Tensor(a!) x, str approximate=\"none\") -> Tensor(a) out",
    "gelu_new(Tensor(a!) x) -> Tensor(a) out",
    "gelu_fast(Tensor(a!) x) -> Tensor(a) out",
    "quick_gelu(Tensor(a!) x) -> Tensor(a) out",
    "relu2(Tensor(a!) x) -> Tensor(a) out",
    "xielu(Tensor(a!) x, Tensor alpha_p, Tensor alpha_n, float beta=0.5, float eps=-1e-6) -> Tensor(a) out",
    "rms_norm(Tensor(a!) x, Tensor(b!)? residual=None, Tensor? weight=None, float epsilon=1e-6, int? "
    "variance_size=None) -> (Tensor(a) out, Tensor(b)? residual_out)",
    "fused_add_rms_norm(Tensor(a!) x, Tensor(b!) x_residual, Tensor? weight, float epsilon, int? variance_size=None) "
    "-> (Tensor(a) out, Tensor(b) residual_out)",
    "gemma_rms_norm(Tensor(a!) x, Tensor(b!)? residual, Tensor weight, float epsilon=1e-6) -> (Tensor(a) out, "
    "Tensor(b)? residual_out)",
    "rms_norm_gated(Tensor x, Tensor? z, Tensor weight, float epsilon=1e-5, int? group_size=None, bool "
    "norm_before_gate=False, str activation=\"swish\") -> Tensor out",
    "mixer2_gated_rms_norm(Tensor x, Tensor gate, Tensor? weight, float epsilon=1e-6, int n_groups=1, bool "
    "use_rms_norm=True) -> Tensor out",
    "rotary_embedding(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor position_ids, bool "
    "interleaved=False, int rope_dim_offset=0, bool inverse=False) -> (Tensor(a) query_out, Tensor(b)? key_out)",
    "apply_rotary_emb(Tensor x, Tensor cos, Tensor sin, bool is_neox_style=True, bool enable_fp32_compute=False) -> "
    "Tensor out",
    "dual_chunk_rotary_embedding(Tensor position_ids, Tensor query, Tensor key, Tensor q_cache, Tensor qc_cache, "
    "Tensor k_cache, Tensor qc_no_clamp_cache, Tensor q_inter_cache, int head_size, int rotary_dim, int chunk_size, "
    "int local_size, bool is_neox_style=True) -> (Tensor query_out, Tensor key_out)",
    "quant_fp8(Tensor x, Tensor? scale=None, Tensor? scale_ub=None, int[] group_shape=[-1,-1], bool use_ue8m0=False, "
    "int num_token_padding=0) -> (Tensor q, Tensor scale_out)",
    "attention_backend(bool use_mla=False, bool use_sparse=False) -> str",
    "mm_encoder_attn(Tensor query, Tensor key, Tensor value, float? scale=None, Tensor? cu_seqlens=None, int? "
    "max_seqlen=None) -> Tensor out",
    "mla_prefill(Tensor query, Tensor kv_c, Tensor k_pe, Tensor kv_b_proj, int v_head_dim, float scale, int "
    "query_offset=0) -> Tensor out",
    "mla_decode(Tensor query, Tensor kv_cache, Tensor block_table, Tensor seq_lens, float scale, int kv_lora_rank) -> "
    "(Tensor out, Tensor lse)",
    "merge_attn_states(Tensor prefix_output, Tensor prefix_lse, Tensor suffix_output, Tensor suffix_lse) -> (Tensor "
    "out, Tensor lse)",
    "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor query_start_loc, "
    "Tensor seq_lens, float scale, bool causal=True, int window_left=-1, int window_right=-1, float soft_cap=0.0, "
    "Tensor? alibi_slopes=None, Tensor? sinks=None, Tensor? k_scale=None, Tensor? v_scale=None) -> (Tensor out, Tensor "
    "lse)",
    "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_mapping, "
    "Tensor? k_scale=None, Tensor? v_scale=None) -> ()",
    "replicated_linear(Tensor x, Tensor weight, Tensor? bias=None, bool skip_bias_add=False) -> Tensor out",
    "column_parallel_linear(Tensor x, Tensor weight, Tensor? bias=None, bool gather_output=False, bool "
    "skip_bias_add=False) -> Tensor out",
    "row_parallel_linear(Tensor x, Tensor weight, Tensor? bias=None, bool input_is_parallel=True, bool "
    "reduce_results=True, bool skip_bias_add=False) -> Tensor out",
    "vocab_parallel_embedding(Tensor input_ids, Tensor weight, int org_vocab_start=0, int? org_vocab_end=None, int "
    "num_org_vocab_padding=0, int added_vocab_start=0, int added_vocab_end=0) -> Tensor out",
    "parallel_lm_head(Tensor hidden_states, Tensor weight, Tensor? bias=None) -> Tensor logits",
    "logits_processor(Tensor hidden_states, Tensor weight, Tensor? bias=None, int? org_vocab_size=None, float? "
    "soft_cap=None, float scale=1.0) -> Tensor logits",
    "conv2d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1,1], int[] padding=[0,0], int[] dilation=[1,1], "
    "int groups=1) -> Tensor out",
    "conv3d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1,1,1], int[] padding=[0,0,0], int[] "
    "dilation=[1,1,1], int groups=1) -> Tensor out",
    "grouped_topk(Tensor gating_output, int topk, bool renormalize, int num_expert_group=1, int topk_group=1, str "
    "scoring_func=\"softmax\", float routed_scaling_factor=1.0, Tensor? e_score_correction_bias=None) -> (Tensor "
    "topk_weights, Tensor topk_ids)",
    "topk_softmax(Tensor gating_output, int topk, bool renormalize=False) -> (Tensor topk_weights, Tensor topk_ids)",
    "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size) -> (Tensor sorted_token_ids, Tensor "
    "expert_ids, Tensor num_tokens_post_pad)",
    "moe_sum(Tensor x) -> Tensor out",
    "unquantized_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_weights, Tensor topk_ids, str "
    "activation=\"silu\", bool apply_router_weight_on_input=False, Tensor? expert_map=None, Tensor? w13_bias=None, "
    "Tensor? w2_bias=None) -> Tensor out",
    "transformers_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_ids, Tensor topk_weights, str "
    "activation=\"silu\") -> Tensor out",
    "fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor router_logits, int top_k, bool renormalize=True, bool "
    "use_grouped_topk=False, int num_expert_group=1, int topk_group=1, str scoring_func=\"softmax\", float "
    "routed_scaling_factor=1.0, Tensor? e_score_correction_bias=None, str activation=\"silu\", bool "
    "apply_router_weight_on_input=False, Tensor? expert_map=None, Tensor? w13_bias=None, Tensor? w2_bias=None) -> "
    "Tensor out",
    "causal_conv1d(Tensor x, Tensor weight, Tensor? bias, Tensor(a!)? conv_state, Tensor? query_start_loc=None, "
    "Tensor? cache_indices=None, Tensor? has_initial_state=None, str activation=\"silu\") -> Tensor out",
    "selective_scan(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias, "
    "bool delta_softplus, Tensor(a!)? ssm_state, Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? "
    "has_initial_state=None) -> Tensor out",
    "mamba_chunk_scan(Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? dt_bias, bool "
    "dt_softplus, Tensor(a!)? ssm_state, int chunk_size=256, Tensor? query_start_loc=None, Tensor? cache_indices=None, "
    "Tensor? has_initial_state=None, float dt_min=0.0, float? dt_max=None) -> Tensor out",
    "mamba_mixer(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor x_proj, Tensor "
    "dt_proj, Tensor dt_bias, Tensor A, Tensor D, Tensor out_proj, Tensor? dt_norm, Tensor? b_norm, Tensor? c_norm, "
    "Tensor(a!)? conv_state, Tensor(b!)? ssm_state, Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? "
    "has_initial_state=None, float epsilon=1e-5) -> Tensor out",
    "mamba_mixer2(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor dt_bias, Tensor "
    "A, Tensor D, Tensor norm_weight, Tensor out_proj, Tensor(a!)? conv_state, Tensor(b!)? ssm_state, int n_groups, "
    "int head_dim, int chunk_size=256, Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? "
    "has_initial_state=None, float epsilon=1e-5) -> Tensor out",
    "plamo2_mamba_mixer(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor bcdt_proj, Tensor dt_proj, "
    "Tensor dt_bias, Tensor A, Tensor D, Tensor b_norm, Tensor c_norm, Tensor dt_norm, Tensor out_proj, Tensor(a!)? "
    "conv_state, Tensor(b!)? ssm_state, int num_heads, Tensor? query_start_loc=None, Tensor? cache_indices=None, "
    "Tensor? has_initial_state=None, float epsilon=1e-6) -> Tensor out",
    "short_conv(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor out_proj, "
    "Tensor(a!)? conv_state, Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? has_initial_state=None) "
    "-> Tensor out",
};
enum { N_SCHEMAS = sizeof vllm_schemas / sizeof vllm_schemas[0] };

/* Shapes are not the subject here. */
static fl_status any_results(fl_call *call, fl_tensor_spec *results) {
  (void)call;
  (void)results;
  return FL_OK;
}

static fl_status parse(const char *text, fl_schema **schema) {
  fl_op_def def = {.size = sizeof def, .schema = text, .infer = any_results};
  return fl_schema_create_checked(&def, schema);
}

static fl_schema *parsed(const char *text) {
  fl_schema *schema = NULL;
  ck_assert_msg(parse(text, &schema) == FL_OK, "%s", fl_error_message());
  return schema;
}

static bool equal_but_for_spaces(const char *a, const char *b) {
  for (;; a++, b++) {
    a += strspn(a, " ");
    b += strspn(b, " ");
    if (*a != *b || !*a)
      return *a == *b;
  }
}

START_TEST(O1_every_op_of_vllm_parses_to_its_own_text) {
  fl_schema *schema = parsed(vllm_schemas[_i]);
  ck_assert_msg(equal_but_for_spaces(schema->text, vllm_schemas[_i]), "%s", schema->text);
  fl_schema *again = parsed(schema->text);
  ck_assert_str_eq(again->text, schema->text);
  ck_assert(fl_schema_same(schema, again));
  fl_schema_free(again);
  fl_schema_free(schema);
}
END_TEST

START_TEST(canonical_text_has_one_space_after_commas_and_defaults_as_given) {
  fl_schema *schema = parsed(" f (Tensor( a! )?x ,int [ ] s=[ 1,-2 ],\n float e = 1e-6,str t=\"a, b\",bool b=True) "
                             "->(Tensor (a)? y , Tensor)");
  ck_assert_str_eq(schema->text, "f(Tensor(a!)? x, int[] s=[1, -2], float e=1e-6, str t=\"a, b\", bool b=True) -> "
                                 "(Tensor(a)? y, Tensor)");
  fl_schema_free(schema);
  schema = parsed("f(Tensor x) -> (Tensor y)");
  ck_assert_str_eq(schema->text, "f(Tensor x) -> Tensor y");
  fl_schema_free(schema);
  schema = parsed("f_(Tensor(a!) x)->( )");
  ck_assert_str_eq(schema->text, "f_(Tensor(a!) x) -> ()");
  fl_schema_free(schema);
}
END_TEST

START_TEST(O1_types_and_marks_are_read) {
  static const struct {
    fl_type type;
    bool optional, mutates;
    int32_t alias;
    const char *name;
  } expected[] = {
      {FL_TENSOR, false, false, -1, "a"}, {FL_TENSOR, true, false, -1, "b"},    {FL_TENSOR, false, true, -1, "c"},
      {FL_TENSOR, true, true, -1, "d"},   {FL_INT, false, false, -1, "e"},      {FL_INT, true, false, -1, "f"},
      {FL_FLOAT, false, false, -1, "g"},  {FL_FLOAT, true, false, -1, "h"},     {FL_BOOL, false, false, -1, "i"},
      {FL_STRING, false, false, -1, "j"}, {FL_INT_LIST, false, false, -1, "k"}, {FL_TENSOR, false, false, 2, "l"},
      {FL_TENSOR, true, false, 3, "m"},   {FL_STRING, false, false, -1, "n"},
  };
  fl_schema *schema = parsed("f(Tensor a, Tensor? b, Tensor(a!) c, Tensor(b!)? d, int e, int? f, float g, float? h, "
                             "bool i, str j, int[] k) -> (Tensor(a) l, Tensor(b)? m, str n)");
  ck_assert_uint_eq(schema->n_arguments, 11);
  ck_assert_uint_eq(schema->n_results, 3);
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    ck_assert_str_eq(schema->values[i].name, expected[i].name);
    ck_assert_int_eq(schema->values[i].type, expected[i].type);
    ck_assert_int_eq(schema->values[i].optional, expected[i].optional);
    ck_assert_int_eq(schema->values[i].mutates, expected[i].mutates);
    ck_assert_int_eq(schema->values[i].alias, expected[i].alias);
    ck_assert(!schema->values[i].has_default);
  }
  fl_schema_free(schema);
}
END_TEST

START_TEST(O1_defaults_are_read) {
  fl_schema *schema =
      parsed("f(int a=-3, float b=-1e-6, float c=2, bool d=True, bool e=False, str f=\"no \\\"ne\\\\\", "
             "int[] g=[1,-1], int[] h=[], int? i=None, Tensor? j=None, float? k=0.5, "
             "int l=9223372036854775807) -> ()");
  const fl_argument *v = schema->values;
  for (uint32_t i = 0; i < schema->n_arguments; i++)
    ck_assert(v[i].has_default);
  ck_assert_int_eq(v[0].default_value.v.i, -3);
  ck_assert_int_eq(v[1].default_value.type, FL_FLOAT);
  ck_assert(v[1].default_value.v.f == -1e-6);
  ck_assert(v[2].default_value.v.f == 2);
  ck_assert(v[3].default_value.v.b && !v[4].default_value.v.b);
  ck_assert_str_eq(v[5].default_value.v.s, "no \"ne\\");
  ck_assert_uint_eq(v[6].default_value.length, 2);
  ck_assert_int_eq(v[6].default_value.v.ints[0], 1);
  ck_assert_int_eq(v[6].default_value.v.ints[1], -1);
  ck_assert_int_eq(v[7].default_value.type, FL_INT_LIST);
  ck_assert_uint_eq(v[7].default_value.length, 0);
  ck_assert_int_eq(v[8].default_value.type, FL_NONE);
  ck_assert_int_eq(v[9].default_value.type, FL_NONE);
  ck_assert(v[10].default_value.v.f == 0.5);
  ck_assert_int_eq(v[11].default_value.v.i, INT64_MAX);
  fl_schema_free(schema);
}
END_TEST

START_TEST(unnamed_results_are_called_out_and_are_the_same_as_named_so) {
  fl_schema *one = parsed("f(Tensor x) -> Tensor"), *named = parsed("f(Tensor x) -> (Tensor out)");
  ck_assert_str_eq(one->values[1].name, "out");
  ck_assert(fl_schema_same(one, named));
  fl_schema_free(one);
  fl_schema_free(named);
  one = parsed("f(Tensor x) -> (Tensor, Tensor y, Tensor)");
  ck_assert_str_eq(one->values[1].name, "out0");
  ck_assert_str_eq(one->values[2].name, "y");
  ck_assert_str_eq(one->values[3].name, "out2");
  fl_schema_free(one);
}
END_TEST

static const struct {
  const char *schema, *message; /* what follows "schema '…', " */
} mistakes[] = {
    {"f(tensor x) -> Tensor",
     "column 3: found 'tensor', expected a type (Tensor, int, float, bool or str); did you mean 'Tensor'?"},
    {"f(Tensor x) -> Tensr",
     "column 16: found 'Tensr', expected a type (Tensor, int, float, bool or str); did you mean 'Tensor'?"},
    {"f(string x) -> ()", "column 3: found 'string', expected a type (Tensor, int, float, bool or str)"},
    {"f(Tensors x) -> ()",
     "column 3: found 'Tensors', expected a type (Tensor, int, float, bool or str); did you mean 'Tensor'?"},
    {"", "column 1: found the end, expected the op's name"},
    {"1f() -> ()", "column 1: found '1f', expected the op's name"},
    {"f Tensor x", "column 3: found 'Tensor', expected '(' and the arguments"},
    {"f(Tensor) -> ()", "column 9: found ')', expected the argument's name"},
    {"f(Tensor x Tensor y) -> ()", "column 12: found 'Tensor', expected ',' or ')'"},
    {"f(Tensor x", "column 11: found the end, expected ',' or ')'"},
    {"f(Tensor x,) -> ()", "column 12: found ')', expected a type (Tensor, int, float, bool or str)"},
    {"f(Tensor x)", "column 12: found the end, expected '->' and the results, '-> ()' for none"},
    {"f(Tensor x) -> Tensor y z", "column 25: found 'z', expected the end of the schema"},
    {"f(Tensor x, int x) -> ()", "column 17: there are two values named 'x'"},
    {"f(Tensor x) -> Tensor x", "column 23: there are two values named 'x'"},
    {"f(Tensor out) -> Tensor", "column 24: there are two values named 'out'"},
    {"f() -> (Tensor, Tensor out0)", "column 29: there are two values named 'out0'"},
    {"f(int x=1.5) -> ()", "column 9: found '1.5', expected an integer of 64 bits"},
    {"f(int x=9223372036854775808) -> ()", "column 9: found '9223372036854775808', expected an integer of 64 bits"},
    {"f(int x=010) -> ()", "column 9: found '010', expected a decimal number without leading zeros"},
    {"f(int x=-010) -> ()", "column 9: found '-010', expected a decimal number without leading zeros"},
    {"f(int[] x=[1, 00]) -> ()", "column 15: found '00', expected a decimal number without leading zeros"},
    {"f(float x=010.5) -> ()", "column 11: found '010.5', expected a decimal number without leading zeros"},
    {"f(float x=0x10) -> ()", "column 11: found '0x10', expected a decimal number without leading zeros"},
    {"f(float x=1e) -> ()", "column 11: found '1e', expected a number"},
    {"f(float x=None) -> ()", "column 11: 'x' cannot be None: its type has no '?'"},
    {"f(bool x=true) -> ()", "column 10: found 'true', expected True or False; did you mean 'True'?"},
    {"f(str x=none) -> ()", "column 9: found 'none', expected a text in \"quotes\""},
    {"f(str x=\"none) -> ()", "column 21: found the end, expected '\"' at the end of the text"},
    {"f(int[] x=1) -> ()", "column 11: found '1', expected a list of integers in []"},
    {"f(int[] x=[1 2]) -> ()", "column 14: found '2', expected ',' or ']' in the list"},
    {"f(int[2] x) -> ()", "column 7: found '2', expected ']' of int[]"},
    {"f(Tensor? x=0) -> ()", "column 13: found '0', expected None"},
    {"f(int a=1, int b) -> ()", "column 12: 'b' has no default but comes after 'a', which has one"},
    {"f(Tensor(a!) x, Tensor(a!) y) -> ()", "column 17: there are two arguments of alias 'a'"},
    {"f(Tensor(A!) x) -> ()", "column 10: found 'A', expected an alias, one lower-case letter"},
    {"f(Tensor(ab!) x) -> ()", "column 10: found 'ab', expected an alias, one lower-case letter"},
    {"f(Tensor(a) x) -> ()",
     "column 11: found no '!': an argument that may be overwritten is written Tensor(a!), any other Tensor"},
    {"f(Tensor(a! x) -> ()", "column 13: found 'x', expected ')' after the alias"},
    {"f(Tensor x) -> Tensor(a)", "column 16: no argument is written Tensor(a!)"},
    {"f(Tensor(a!) x) -> Tensor(a!)",
     "column 28: found '!', expected ')': a result that may be an argument is written Tensor(a)"},
    {"f(Tensor(a!) x) -> (Tensor(a) y, Tensor(a) z)", "column 34: two results may be argument 'x'"},
    {"f(Tensor(a!)? x) -> Tensor(a) y", "column 21: argument 'x' may be none, so this result is written Tensor(a)?"},
    {"f(\xe2\x80\xa6) -> ()", "column 3: found '\xe2\x80\xa6', expected a type (Tensor, int, float, bool or str)"},
};

START_TEST(a_mistake_is_answered_with_column_found_and_expected) {
  fl_schema *schema = NULL;
  char expected[1024];
  snprintf(expected, sizeof expected, "schema '%s', %s", mistakes[_i].schema, mistakes[_i].message);
  ck_assert_int_eq(parse(mistakes[_i].schema, &schema), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), expected);
  ck_assert_ptr_null(schema);
}
END_TEST

START_TEST(too_many_values_are_refused) {
  char text[2048] = "f(";
  fl_schema *schema = NULL;
  for (int i = 0; i < FL_SCHEMA_MAX_VALUES; i++)
    snprintf(text + strlen(text), 32, "%sint a%d", i ? ", " : "", i);
  size_t length = strlen(text);
  strcpy(text + length, ") -> ()");
  fl_schema_free(parsed(text));
  strcpy(text + length, ", int more) -> ()");
  ck_assert_int_eq(parse(text, &schema), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(fl_error_message(), "more than 64 arguments and results"));
  strcpy(text, "f() -> (");
  for (int i = 0; i <= FL_SCHEMA_MAX_RESULTS; i++)
    strcat(text, i ? ", Tensor" : "Tensor");
  strcat(text, ")");
  ck_assert_int_eq(parse(text, &schema), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(fl_error_message(), "more than 16 results"));
}
END_TEST

START_TEST(a_name_longer_than_the_limit_is_refused) {
  char text[FL_NAME_MAX + 16];
  fl_schema *schema = NULL;
  memset(text, 'f', sizeof text);
  strcpy(text + FL_NAME_MAX, "() -> ()");
  fl_schema_free(parsed(text));
  strcpy(text + FL_NAME_MAX, "f() -> ()");
  ck_assert_int_eq(parse(text, &schema), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(fl_error_message(), "longer than 127 bytes"));
}
END_TEST

static const struct {
  const char *a, *b;
  bool same;
} pairs[] = {
    {"f(Tensor x) -> Tensor", "f(Tensor  x)->Tensor out", true},
    {"f(float e=1e-6) -> ()", "f(float e=0.000001) -> ()", true},
    {"f(int[] a=[1,2]) -> ()", "f(int[] a=[1, 2]) -> ()", true},
    {"f(Tensor(a!) x) -> Tensor(a)", "f(Tensor(z!) x) -> Tensor(z)", true},
    {"f(Tensor x) -> Tensor", "g(Tensor x) -> Tensor", false},
    {"f(Tensor x) -> Tensor", "f(Tensor y) -> Tensor", false},
    {"f(Tensor x) -> Tensor", "f(Tensor x) -> Tensor y", false},
    {"f(Tensor x) -> Tensor", "f(Tensor x) -> ()", false},
    {"f(Tensor x) -> Tensor", "f(Tensor? x) -> Tensor", false},
    {"f(Tensor(a!) x) -> Tensor", "f(Tensor x) -> Tensor", false},
    {"f(Tensor(a!) x) -> Tensor", "f(Tensor(a!) x) -> Tensor(a)", false},
    {"f(int x) -> ()", "f(float x) -> ()", false},
    {"f(int x) -> ()", "f(int x=0) -> ()", false},
    {"f(int x=1) -> ()", "f(int x=0) -> ()", false},
    {"f(bool x=True) -> ()", "f(bool x=False) -> ()", false},
    {"f(str x=\"a\") -> ()", "f(str x=\"b\") -> ()", false},
    {"f(int[] x=[1]) -> ()", "f(int[] x=[1,1]) -> ()", false},
    {"f(int[] x=[1,2]) -> ()", "f(int[] x=[1,1]) -> ()", false},
    {"f(int? x=None) -> ()", "f(int? x=0) -> ()", false},
};

START_TEST(identity_is_names_types_defaults_and_aliases) {
  fl_schema *a = parsed(pairs[_i].a), *b = parsed(pairs[_i].b);
  ck_assert_int_eq(fl_schema_same(a, b), pairs[_i].same);
  ck_assert_int_eq(fl_schema_same(b, a), pairs[_i].same);
  fl_schema_free(a);
  fl_schema_free(b);
}
END_TEST

START_TEST(the_first_required_tensor_says_the_device) {
  static const struct {
    const char *schema;
    int32_t argument;
  } rows[] = {{"f(int n, Tensor? a, Tensor b, Tensor c) -> ()", 2},
              {"f(int n, Tensor? a, Tensor? b) -> ()", 1},
              {"f(int n) -> str", -1}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fl_schema *schema = parsed(rows[i].schema);
    ck_assert_int_eq(schema->device_argument, rows[i].argument);
    fl_schema_free(schema);
  }
}
END_TEST

START_TEST(strings_are_copied_and_missing_ones_are_empty) {
  char text[] = "f(Tensor x) -> Tensor", doc[] = "Does f.";
  fl_op_def def = {.size = sizeof def, .schema = text, .doc = doc};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_OK);
  memset(text, '?', sizeof text - 1);
  memset(doc, '?', sizeof doc - 1);
  ck_assert_str_eq(schema->op_name, "f");
  ck_assert_str_eq(schema->text, "f(Tensor x) -> Tensor");
  ck_assert_str_eq(schema->doc, "Does f.");
  ck_assert_str_eq(schema->rules, "");
  ck_assert_str_eq(schema->category, "");
  ck_assert_str_eq(schema->formula, "");
  fl_schema_free(schema);
}
END_TEST

START_TEST(fields_behind_an_older_callers_size_read_as_zero) {
  fl_op_def def = {.size = offsetof(fl_op_def, rules), .schema = "f(Tensor x) -> Tensor", .rules = "nonsense"};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_OK);
  ck_assert_str_eq(schema->rules, "");
  fl_schema_free(schema);
}
END_TEST

START_TEST(an_entry_without_size_or_schema_or_with_unknown_flags_is_refused) {
  fl_op_def no_size = {.schema = "f() -> ()"}, no_schema = {.size = sizeof no_schema};
  fl_op_def flags = {.size = sizeof flags, .schema = "f() -> ()", .flags = 4};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&no_size, &schema), FL_EINVAL);
  ck_assert_int_eq(fl_schema_create_checked(&no_schema, &schema), FL_EINVAL);
  ck_assert_int_eq(fl_schema_create_checked(&flags, &schema), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: flags 0x4, expected 0 or FL_OP_NOT_FINITE (0x1)");
  ck_assert_ptr_null(schema);
}
END_TEST

START_TEST(O5_tolerances_are_the_entrys_else_the_default_tables) {
  static const fl_tolerance own[] = {{FL_FLOAT16, 1e-2, 2e-3}, {0}};
  fl_op_def def = {.size = sizeof def, .schema = "f(Tensor x) -> Tensor", .tolerance = own};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_OK);
  static const struct {
    DLDataType dtype;
    double atol, rtol;
  } rows[] = {{{kDLFloat, 32, 1}, 1e-5, 1.3e-6},
              {{kDLFloat, 16, 1}, 1e-2, 2e-3},
              {{kDLBfloat, 16, 1}, 1e-3, 1.6e-2},
              {{FL_DTYPE_FLOAT8_E4M3FN, 8, 1}, 0.1, 0.1},
              {{kDLFloat, 64, 1}, 1e-8, 1e-8},
              {{kDLInt, 8, 1}, 1, 0},
              {{kDLInt, 64, 1}, 0, 0},
              {{kDLComplex, 64, 1}, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fl_tolerance tolerance = fl_schema_tolerance(schema, rows[i].dtype);
    ck_assert_uint_eq(tolerance.dtype, fl_dtype_bit(rows[i].dtype));
    ck_assert(tolerance.atol == rows[i].atol && tolerance.rtol == rows[i].rtol);
  }
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_senseless_tolerance_is_refused) {
  static const fl_tolerance two_types[] = {{FL_FLOAT16 | FL_FLOAT32, 1, 1}, {0}},
                            negative[] = {{FL_FLOAT16, -1, 0}, {0}};
  fl_op_def def = {.size = sizeof def, .schema = "f(Tensor x) -> Tensor", .tolerance = two_types};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: tolerance 0 is for dtype 0x3, expected one of FL_FLOAT32...");
  def.tolerance = negative;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: tolerance 0 is negative or not a number");
}
END_TEST

START_TEST(element_types_have_bits_and_names) {
  for (int i = 0; i < FL_DTYPE_COUNT; i++) {
    ck_assert_uint_eq(fl_dtype_bit(fl_element_types[i].dtype), 1u << i);
    ck_assert_str_eq(fl_dtype_name(fl_element_types[i].dtype), fl_element_types[i].name);
  }
  ck_assert_uint_eq(fl_dtype_bit(bf16), FL_BFLOAT16);
  ck_assert_uint_eq(fl_dtype_bit((DLDataType){FL_DTYPE_BOOL, 8, 1}), FL_BOOLEAN);
  ck_assert_uint_eq(fl_dtype_bit((DLDataType){kDLFloat, 32, 4}), 0);
  ck_assert_str_eq(fl_dtype_name((DLDataType){kDLFloat, 32, 4}), "?");
}
END_TEST

START_TEST(a_mistake_in_a_very_long_schema_is_shown_with_what_stands_around_it) {
  enum { LENGTH = 20000 };
  char *text = malloc(LENGTH + 32);
  fl_schema *schema = NULL;
  memset(text, ' ', LENGTH);
  memcpy(text, "f(", 2);
  strcpy(text + LENGTH, "Tensr x) -> ()");
  const fl_op_def def = {.size = sizeof def, .schema = text};
  ck_assert_int_eq(fl_schema_create(&def, &schema), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(fl_error_message(), "schema '… "));
  ck_assert_ptr_nonnull(strstr(fl_error_message(), " Tensr x) -> ()', column 20001: found 'Tensr', expected a type"));
  free(text);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, O1_every_op_of_vllm_parses_to_its_own_text, 0, N_SCHEMAS);
  tcase_add_test(tests, canonical_text_has_one_space_after_commas_and_defaults_as_given);
  tcase_add_test(tests, O1_types_and_marks_are_read);
  tcase_add_test(tests, O1_defaults_are_read);
  tcase_add_test(tests, unnamed_results_are_called_out_and_are_the_same_as_named_so);
  tcase_add_loop_test(tests, a_mistake_is_answered_with_column_found_and_expected, 0,
                      sizeof mistakes / sizeof mistakes[0]);
  tcase_add_test(tests, too_many_values_are_refused);
  tcase_add_test(tests, a_name_longer_than_the_limit_is_refused);
  tcase_add_loop_test(tests, identity_is_names_types_defaults_and_aliases, 0, sizeof pairs / sizeof pairs[0]);
  tcase_add_test(tests, the_first_required_tensor_says_the_device);
  tcase_add_test(tests, strings_are_copied_and_missing_ones_are_empty);
  tcase_add_test(tests, fields_behind_an_older_callers_size_read_as_zero);
  tcase_add_test(tests, an_entry_without_size_or_schema_or_with_unknown_flags_is_refused);
  tcase_add_test(tests, O5_tolerances_are_the_entrys_else_the_default_tables);
  tcase_add_test(tests, a_senseless_tolerance_is_refused);
  tcase_add_test(tests, element_types_have_bits_and_names);
  tcase_add_test(tests, a_mistake_in_a_very_long_schema_is_shown_with_what_stands_around_it);
}

int main(void) {
  return run_suite("schema", add_tests, 10);
}

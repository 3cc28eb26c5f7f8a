/* The vocabulary: embedding of token ids, and logits. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#define FLOATS "T = float32|float16|bfloat16"
/* What is timed: the vocabulary of Llama 3. */
#define TOKENS "...: [1] [128] [4096]; "

/* ------------------------------------------------------------------------------------------------------- embedding */

enum { INPUT_IDS, WEIGHT, ORG_START, ORG_END, ORG_PADDING, ADDED_START, ADDED_END };
static const char *const shard_names[] = {[ORG_START] = "org_vocab_start",
                                          [ORG_END] = "org_vocab_end",
                                          [ORG_PADDING] = "num_org_vocab_padding",
                                          [ADDED_START] = "added_vocab_start",
                                          [ADDED_END] = "added_vocab_end"};

static fl_status check_least(fl_call *call, uint32_t index, int64_t least, const char *what) {
  if (call->values[index].v.i >= least)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument '%s': %lld, expected %lld or more%s", shard_names[index],
                 (long long)call->values[index].v.i, (long long)least, what);
}

/* Without org_vocab_end the weight is the whole table, and there is no shard to describe. */
static fl_status check_whole(fl_call *call) {
  for (uint32_t i = ORG_START; i <= ADDED_END; i++)
    if (i != ORG_END && call->values[i].v.i)
      return fl_fail(call, FL_EINVAL, "argument '%s': %lld, expected 0 while 'org_vocab_end' is none", shard_names[i],
                     (long long)call->values[i].v.i);
  return FL_OK;
}

static fl_status check_vocab_parallel_embedding(fl_call *call) {
  const fl_value *values = call->values;
  int64_t rows = values[WEIGHT].v.tensor->shape[0];
  if (values[ORG_END].type == FL_NONE)
    return check_whole(call);
  int64_t org_start = values[ORG_START].v.i, org_end = values[ORG_END].v.i, padding = values[ORG_PADDING].v.i;
  int64_t added_start = values[ADDED_START].v.i, added_end = values[ADDED_END].v.i;
  fl_status status = check_least(call, ORG_START, 0, "");
  if (!status)
    status = check_least(call, ORG_END, org_start, " (argument 'org_vocab_start')");
  if (!status)
    status = check_least(call, ORG_PADDING, 0, "");
  if (!status)
    status = check_least(call, ADDED_START, 0, "");
  if (!status)
    status = check_least(call, ADDED_END, added_start, " (argument 'added_vocab_start')");
  if (status)
    return status;
  int64_t org = org_end - org_start, added = added_end - added_start;
  if (org > rows || padding > rows - org || added > rows - org - padding)
    return fl_fail(call, FL_EINVAL,
                   "argument 'weight': %lld rows, expected at least those of the shard: %lld of 'org_vocab_start' to "
                   "'org_vocab_end', %lld of 'num_org_vocab_padding', %lld of 'added_vocab_start' to 'added_vocab_end'",
                   (long long)rows, (long long)org, (long long)padding, (long long)added);
  return added ? check_least(call, ADDED_START, org_end, " (argument 'org_vocab_end')") : FL_OK;
}

const fl_op_def fl_op_vocab_parallel_embedding = {
    .size = sizeof(fl_op_def),
    .schema = "vocab_parallel_embedding(Tensor input_ids, Tensor weight, int org_vocab_start=0, "
              "int? org_vocab_end=None, int num_org_vocab_padding=0, int added_vocab_start=0, int added_vocab_end=0) "
              "-> Tensor out",
    .layers = "VocabParallelEmbedding",
    .rules = "input_ids: int32|int64[...]; weight: T[v, h]; out: T[..., h]; " FLOATS,
    .ranks = "tp: out = all_reduce(out) if org_vocab_end",
    .category = "embedding and logits",
    .doc = "The rows of weight for token ids; of a shard (org_vocab_end given), zeros for the ids of other shards.",
    .formula = "out = weight[row]; row = id without shard; with one, id - org_vocab_start for org_vocab_start <= id < "
               "org_vocab_end, id - added_vocab_start + (org_vocab_end - org_vocab_start) + num_org_vocab_padding for "
               "added_vocab_start <= id < added_vocab_end, else out = 0 (vLLM: VocabParallelEmbedding)",
    .check = check_vocab_parallel_embedding,
    .cases = "v: 64 100; h: 1 64 129; input_ids: 0..v-1; org_vocab_end: none 40; org_vocab_start: 0 8; "
             "num_org_vocab_padding: 0 4; "
             "added_vocab_start: 0 64; added_vocab_end: 0 64 70",
    /* Of the table only the rows of the tokens are read. */
    .flops = "0",
    .bytes = "default - nbytes(weight) + min(numel(input_ids), v)*h*itemsize(weight)",
    .bench = TOKENS "v: 128256; h: 4096",
};

/* ---------------------------------------------------------------------------------------------------------- logits */

const fl_op_def fl_op_parallel_lm_head = {
    .size = sizeof(fl_op_def),
    .schema = "parallel_lm_head(Tensor hidden_states, Tensor weight, Tensor? bias=None) -> Tensor logits",
    .layers = "ParallelLMHead",
    .rules = "hidden_states: T[..., h]; weight: T[v, h]; bias: T[v]; logits: T[..., v*ranks]; " FLOATS,
    .ranks = "tp: logits = all_gather(logits, -1)",
    .category = "embedding and logits",
    .doc = "The logits of this rank's part of the vocabulary; with a group those of all ranks.",
    .formula =
        "logits = hidden_states W^T + bias, rounded to T once (vLLM: ParallelLMHead, as LogitsProcessor uses it)",
    .cases = "h: 1 33 128; v: 1 17 256; hidden_states: moderate; weight: -0.2..0.2; bias: none -1..1",
    .flops = "(2*h + given(bias))*numel(logits)",
    .bench = TOKENS "v: 128256; h: 4096",
};

static fl_status check_logits_processor(fl_call *call) {
  enum { HIDDEN_STATES, HEAD, BIAS, ORG_VOCAB_SIZE, SOFT_CAP, SCALE };
  const fl_value *size = &call->values[ORG_VOCAB_SIZE];
  const fl_ranks *group = fl_call_ranks(call);
  int64_t rows = call->values[HEAD].v.tensor->shape[0];
  if (group && __builtin_mul_overflow(rows, group->ranks, &rows))
    return fl_fail(call, FL_EINVAL, "argument 'weight': more rows over the ranks than 64 bits can say");
  if (size->type == FL_INT && (size->v.i < 1 || size->v.i > rows))
    return fl_fail(call, FL_EINVAL, "argument 'org_vocab_size': %lld, expected 1 to %lld (rows of 'weight'%s)",
                   (long long)size->v.i, (long long)rows, group ? ", of all ranks" : "");
  fl_status status = fl_check_positive(call, SOFT_CAP, "soft_cap");
  return status ? status : fl_check_finite(call, SCALE, "scale");
}

const fl_op_def fl_op_logits_processor = {
    .size = sizeof(fl_op_def),
    .schema = "logits_processor(Tensor hidden_states, Tensor weight, Tensor? bias=None, int? org_vocab_size=None, "
              "float? soft_cap=None, float scale=1.0) -> Tensor logits",
    .layers = "LogitsProcessor",
    .rules = "hidden_states: T[..., h]; weight: T[v, h]; bias: T[v]; logits: T[..., org_vocab_size] or "
             "T[..., v*ranks]; " FLOATS,
    .ranks = "tp: org_vocab_size = none; logits = all_gather(logits, -1)",
    .category = "embedding and logits",
    .doc = "The logits of the first org_vocab_size entries of the vocabulary (all, if none), capped and scaled.",
    .formula = "l = (hidden_states W^T + bias)[..., :org_vocab_size]; with soft_cap l = tanh(l / soft_cap) * soft_cap; "
               "logits = l * scale; rounded to T after each step (vLLM: LogitsProcessor)",
    .check = check_logits_processor,
    .cases = "h: 1 33 128; v: 17 256; org_vocab_size: none 16; soft_cap: none 30; scale: 1 0.5; hidden_states: "
             "moderate; weight: -0.2..0.2; bias: none -1..1",
    /* Rows of weight behind org_vocab_size are not read. */
    .flops = "(2*h + given(bias) + 3*given(soft_cap))*numel(logits)",
    .bytes = "default - given(org_vocab_size)*(v - org_vocab_size)*(h*itemsize(weight) + itemsize(bias))",
    .bench = TOKENS "v: 128256; h: 4096",
};

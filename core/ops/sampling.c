/* Sampling: what is done to logits before a token is taken from them, ways to take one, and the logprobs of tokens. */
#include "core/ops/entries.h"

#define LOGITS "logits: float32[n, v]; "
/* Rows of Llama 3's vocabulary. */
#define ROWS "n: 1 16 64; v: 128256; logits: -10..10; "

/* Ids are int32, and there is a first entry. */
static fl_status check_logits(fl_call *call) {
  int64_t v = call->values[0].v.tensor->shape[1];
  if (v >= 1 && v <= INT32_MAX)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'logits': rows of %lld entries, expected 1 to %d", (long long)v, INT32_MAX);
}

/* -------------------------------------------------------------------------------------------- changes to the logits */

const fl_op_def fl_op_apply_penalties = {
    .size = sizeof(fl_op_def),
    .schema = "apply_penalties(Tensor(a!) logits, Tensor prompt_token_ids, Tensor output_token_ids, "
              "Tensor presence_penalties, Tensor frequency_penalties, Tensor repetition_penalties) -> Tensor(a) out",
    .rules = LOGITS "prompt_token_ids: int32|int64[n, p]; output_token_ids: int32|int64[n, o]; "
                    "presence_penalties: float32[n]; frequency_penalties: float32[n]; repetition_penalties: float32[n]",
    .category = "sampling",
    .doc = "Makes tokens of the prompt and the output less likely; ids outside 0 to v - 1 are padding.",
    .formula = "count = how often a token is in the row's output; l = l / repetition where l > 0, else l * repetition, "
               "of tokens in prompt or output; l = l - frequency * count; l = l - presence where count > 0 (vLLM: "
               "apply_penalties)",
    .check = check_logits,
    .cases = "n: 0 1 3 7; v: 1 33 100 129; p: 0 1 5 40; o: 0 1 6 70; prompt_token_ids: -1..v; output_token_ids: -1..v; "
             "presence_penalties: -1..1; frequency_penalties: -1..1; repetition_penalties: 0.5..2",
    .flops = "n*(p + 4*o)",
    /* Where the result is in the logits' place, the rest of these is not touched. */
    .bench = ROWS "p: 512; o: 512",
};

const fl_op_def fl_op_apply_temperature = {
    .size = sizeof(fl_op_def),
    .schema = "apply_temperature(Tensor(a!) logits, Tensor temperature) -> Tensor(a) out",
    .rules = LOGITS "temperature: float32[n]",
    .category = "sampling",
    .doc = "Divides each row by its temperature; below 1e-5, which stands for greedy sampling, it stays.",
    .formula = "out = logits / t; t = 1 where temperature < 1e-5 (vLLM: Sampler.apply_temperature)",
    .check = check_logits,
    .cases = "n: 0 1 3 7; v: 1 33 100 1024; temperature: 0..0.00002 0.1..2",
    .flops = "numel(logits)",
    .bench = ROWS "temperature: 0.5..1.5",
};

const fl_op_def fl_op_apply_min_p = {
    .size = sizeof(fl_op_def),
    .flags = FL_OP_NOT_FINITE,
    .schema = "apply_min_p(Tensor(a!) logits, Tensor min_p) -> Tensor(a) out",
    .rules = LOGITS "min_p: float32[n]",
    .category = "sampling",
    .doc = "Closes the tokens (-inf) that are less probable than min_p times the most probable one.",
    .formula = "p = softmax(logits); out = -inf where p < min_p * max(p), else logits (vLLM: MinPLogitsProcessor); "
               "where p is NaN, logits",
    .check = check_logits,
    .cases = "n: 0 1 3 7; v: 1 33 100 1024; min_p: 0..0 0..0.5 1..1 0.9..1.1",
    .flops = "3*numel(logits)",
    .bench = ROWS "min_p: 0.01..0.1",
};

const fl_op_def fl_op_apply_top_k_top_p = {
    .size = sizeof(fl_op_def),
    .flags = FL_OP_NOT_FINITE,
    .schema = "apply_top_k_top_p(Tensor(a!) logits, Tensor? top_k=None, Tensor? top_p=None) -> Tensor(a) out",
    .rules = LOGITS "top_k: int32|int64[n]; top_p: float32[n]",
    .category = "sampling",
    .doc = "Closes (-inf) all tokens but the top_k most probable ones, and of these all but the first that together "
           "have probability top_p. Of equal logits the lowest token comes first.",
    .formula = "the first top_k stay (all, if that is below 1); p = softmax of these; a token stays if the sum of p "
               "over those before it is below top_p, the first always, all where top_p >= 1 (vLLM: "
               "apply_top_k_top_p, whose PyTorch form keeps all that are equal to the last)",
    .check = check_logits,
    .cases = "n: 0 1 3 7; v: 1 33 100 1024; top_k: none 0..v -1..4 1..50; top_p: none 0..1 0.5..1.1",
    /* Softmax takes 4, the choice a comparison. */
    .flops = "(given(top_k) + 5*given(top_p))*numel(logits)",
    .bench = ROWS "top_k: 50..50; top_p: 0.9..0.9",
};

/* --------------------------------------------------------------------------------------------------- taking a token */

const fl_op_def fl_op_greedy_argmax = {
    .size = sizeof(fl_op_def),
    .schema = "greedy_argmax(Tensor logits) -> Tensor ids",
    .rules = "logits: T[n, v]; ids: int64[n]; T = float32|float16|bfloat16",
    .category = "sampling",
    .doc = "The token of the greatest logit, the lowest of equal ones; NaN counts as greatest.",
    .formula = "ids = argmax(logits) (vLLM: Sampler.greedy_sample)",
    .check = check_logits,
    .cases = "n: 0 1 3 7; v: 1 33 100 1024",
    .flops = "numel(logits)",
    .bench = ROWS,
};

const fl_op_def fl_op_exponential_sample = {
    .size = sizeof(fl_op_def),
    .schema = "exponential_sample(Tensor logits, Tensor noise) -> Tensor ids",
    .rules = LOGITS "noise: float32[n, v]; ids: int64[n]",
    .category = "sampling",
    .doc = "A token drawn by softmax(logits) with exponential noise (above 0). A token of -inf is never taken, unless "
           "all are (0 then).",
    .formula = "ids = argmax(softmax(logits) / noise) = argmax(logits - log(noise)), the lowest of equal ones (vLLM: "
               "random_sample)",
    .check = check_logits,
    .cases = "n: 0 1 3 7; v: 1 33 100 1024; noise: 1e-6..4",
    .flops = "2*numel(logits)",
    .bench = ROWS "noise: 1e-3..4",
};

const fl_op_def fl_op_gumbel_sample = {
    .size = sizeof(fl_op_def),
    .schema = "gumbel_sample(Tensor logits, Tensor uniform, Tensor temperature) -> Tensor ids",
    .rules = LOGITS "uniform: float32[n, v]; temperature: float32[n]; ids: int64[n]",
    .category = "sampling",
    .doc = "A token drawn by softmax(logits / temperature) with uniform noise (above 0, below 1); of temperature 0 the "
           "token of the greatest logit.",
    .formula = "ids = argmax(logits / temperature - log(-log1p(-uniform))), the lowest of equal ones (vLLM: "
               "gumbel_sample); a token of -inf as in exponential_sample",
    .check = check_logits,
    .cases = "n: 0 1 3 7; v: 1 33 100 1024; uniform: 1e-7..0.999999; temperature: 0..0 0.1..2",
    .flops = "4*numel(logits)",
    .bench = ROWS "uniform: 1e-7..0.999999; temperature: 0.5..1.5",
};

/* --------------------------------------------------------------------------------------------------------- logprobs */

static fl_status check_gather_logprobs(fl_call *call) {
  enum { LOGITS_AT, TOKEN_IDS, NUM_LOGPROBS };
  int64_t v = call->values[LOGITS_AT].v.tensor->shape[1], wanted = call->values[NUM_LOGPROBS].v.i;
  fl_status status = check_logits(call);
  if (status || (wanted >= 0 && wanted <= v))
    return status;
  return fl_fail(call, FL_EINVAL,
                 "argument 'num_logprobs': %lld, expected 0 to %lld (the entries of a row of 'logits')",
                 (long long)wanted, (long long)v);
}

const fl_op_def fl_op_gather_logprobs = {
    .size = sizeof(fl_op_def),
    .schema = "gather_logprobs(Tensor logits, Tensor token_ids, int num_logprobs=0) -> (Tensor logprob_token_ids, "
              "Tensor logprobs, Tensor ranks)",
    .rules = "logits: T[n, v]; token_ids: int32|int64[n]; logprob_token_ids: int32[n, num_logprobs+1]; "
             "logprobs: float32[n, num_logprobs+1]; ranks: int64[n]; T = float32|float16|bfloat16",
    .category = "sampling",
    .doc =
        "The logprobs of a token of each row and, behind it, of the num_logprobs most probable ones, with their ids; "
        "the token's rank is how many are as probable or more.",
    .formula =
        "lp = logits - logsumexp(logits) in float32; column 0: the given token; columns from 1 on: the greatest, "
        "of equal logits the lowest token first; ranks = the number of tokens with lp >= that of the given one "
        "(vLLM: Sampler.gather_logprobs)",
    .check = check_gather_logprobs,
    .cases = "n: 0 1 3 7; v: 1 33 100 1024; token_ids: 0..v-1; num_logprobs: 0 1 5 20 v",
    .flops = "5*numel(logits)",
    .bench = ROWS "num_logprobs: 20",
};

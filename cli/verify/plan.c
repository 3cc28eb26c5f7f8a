/* Calls to test with: see plan.h. The parent makes them, since all children are to see the same ones. */
#include "cli/verify/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of one op with one element type: calls from the op's cases, numbers that are tried for them, elements of all and of
 * one. With these an op takes about a second. */
enum { CALLS = 48, NUMBERS = 1000, ELEMENTS = 8000000, ELEMENTS_OF_ONE = 2000000 };
/* Beyond the cases, of each dimension: RESIDUES small sizes in a row, so that each remainder that a vector's width can
 * leave is there; a size beyond each of `beyond`. What is added up grows with a size, so the tolerance does beyond
 * USUAL. Then the sizes that the op is timed with. What one call may take. */
enum { RESIDUES = 16, SMALLEST_MOST = 40, TRIES = 6, DIMENSIONS = 8, SPREAD = 500, TIMED = 3, USUAL = 64 };
enum { SMALL_ELEMENTS = 40000, LARGE_ELEMENTS = 600000, SMALL_OPERATIONS = 400000, LARGE_OPERATIONS = 20000000 };
static const int64_t beyond[] = {2048, 8192};

static bool add_call(verify_plan *plan, const test_call *call) {
  test_call *grown = realloc(plan->calls, (plan->n + 1) * sizeof *grown);
  if (!grown)
    return false;
  plan->calls = grown;
  plan->calls[plan->n++] = *call;
  return true;
}

/* ------------------------------------------------------------------------------------------------- the reference */

/* What the child does: the reference computes calls `first` to the last. */
typedef struct asking {
  const verify_impl *reference;
  const verify_plan *plan;
  uint32_t first;
} asking;

static void ask(void *context) {
  const asking *a = context;
  for (uint32_t i = a->first; i < a->plan->n; i++) {
    const test_call *call = &a->plan->calls[i];
    attempt made;
    if (!attempt_create(&made, a->reference->at, call, (arrangement){false, EDGE_NONE}))
      continue;
    if (attempt_is_allowed(&made)) {
      char *number = attempt_number(&made), *described = attempt_describe(&made);
      if (number && described)
        trial_doing(number, described);
      free(number);
      free(described);
      attempt_run(&made, a->reference->policy);
      call->kept->useful = made.status != FL_ENOIMPL && made.status != FL_ENOTSUP;
      if (call->kept->useful)
        attempt_keep(&made);
    } else {
      snprintf(call->kept->message, sizeof call->kept->message, "%s", fl_error_message());
    }
    attempt_free(&made);
  }
}

/* Shared memory for what the reference gives for calls from `first` on. */
static bool place_results(verify_plan *plan, uint32_t first) {
  size_t size = 0;
  for (uint32_t i = first; i < plan->n; i++)
    size += kept_call_bytes(&plan->calls[i]);
  struct kept_memory *grown = realloc(plan->kept, (plan->n_kept + 1) * sizeof *grown);
  char *memory = grown ? trial_share(size) : NULL;
  if (grown)
    plan->kept = grown;
  if (!memory)
    return false;
  plan->kept[plan->n_kept++] = (struct kept_memory){memory, size};
  for (uint32_t i = first; i < plan->n; i++) {
    plan->calls[i].kept = kept_call_place(&plan->calls[i], memory);
    memory += kept_call_bytes(&plan->calls[i]);
  }
  return true;
}

/* Asks about the calls from `first` on, and leaves those out that the reference does not take. false: out of memory. */
static bool ask_reference(verify_plan *plan, const verify_impl *reference, const trial_limits *limits, uint32_t first) {
  asking a = {.reference = reference, .plan = plan, .first = first};
  uint32_t useful = first;
  if (!place_results(plan, first))
    return false;
  trial_outcome outcome = trial_run(limits, ask, &a);
  for (uint32_t i = first; i < plan->n; i++)
    if (plan->calls[i].kept->useful && !outcome.end)
      plan->calls[useful++] = plan->calls[i];
    else
      test_call_free(&plan->calls[i]);
  plan->n = useful;
  if (outcome.end && !plan->trouble) {
    plan->end = outcome.end;
    plan->trouble = strdup(outcome.words);
  }
  return !outcome.end || plan->trouble;
}

/* --------------------------------------------------------------------------------------------------- the op's cases */

/* false: out of memory. */
static bool add_cases(verify_plan *plan, const verify_impl *reference, const verify_request *asked, call_source from) {
  int64_t left = ELEMENTS;
  uint64_t number = 0;
  uint32_t wanted = plan->n + CALLS;
  char *reason = NULL;
  while (number < NUMBERS && plan->n < wanted && !plan->trouble) {
    uint32_t first = plan->n;
    int64_t room = left;
    for (; number < NUMBERS && plan->n < wanted; number++) {
      test_call call;
      from.number = number;
      call_outcome outcome =
          test_call_create(&call, plan->op, &from, room < ELEMENTS_OF_ONE ? room : ELEMENTS_OF_ONE, 1e18);
      if (outcome == CALL_NO_MEMORY || (outcome == CALL_MADE && !add_call(plan, &call))) {
        free(reason);
        return false;
      }
      if (outcome == CALL_MADE) {
        room -= call.elements;
      } else {
        free(reason);
        reason = strdup(fl_error_message());
      }
    }
    if (plan->n > first && !ask_reference(plan, reference, &asked->limits, first)) {
      free(reason);
      return false;
    }
    for (uint32_t i = first; i < plan->n; i++)
      left -= plan->calls[i].elements;
  }
  if (!plan->n && !plan->trouble &&
      asprintf(&plan->trouble,
               "no call to test it with: of %d generated ones none passes the op's checks and the reference; the last: "
               "%s",
               NUMBERS, reason ? reason : "") < 0)
    plan->trouble = NULL;
  free(reason);
  return plan->n || plan->trouble;
}

/* ------------------------------------------------------------------------------------------------- beyond the cases */

static uint64_t next_random(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* A call with one dimension of that size, and the others of the cases'. false: out of memory. */
static bool add_sized(verify_plan *plan, call_source from, const fl_dimension *dimension, int64_t size,
                      uint64_t *random) {
  bool leading = !strcmp(dimension->name, "..."), small = size < beyond[0];
  snprintf(from.sizes, sizeof from.sizes, leading ? "%s: [%" PRId64 "]" : "%s: %" PRId64, dimension->name, size);
  from.slack = leading ? 1 : (double)size / USUAL;
  for (int i = 0; i < TRIES; i++) {
    test_call call;
    from.number = next_random(random) % NUMBERS;
    call_outcome outcome = test_call_create(&call, plan->op, &from, small ? SMALL_ELEMENTS : LARGE_ELEMENTS,
                                            small ? SMALL_OPERATIONS : LARGE_OPERATIONS);
    if (outcome != CALL_IMPOSSIBLE)
      return outcome == CALL_MADE && add_call(plan, &call);
  }
  return true;
}

/* Sizes that the cases do not have. */
static bool add_sizes(verify_plan *plan, call_source from) {
  fl_dimension dimension = {.size = sizeof dimension};
  uint64_t random = from.seed;
  for (uint32_t d = 0; d < DIMENSIONS && !fl_free_dimension(plan->op, d, &dimension); d++) {
    int64_t step = dimension.step, least = 1 + (int64_t)(next_random(&random) % SMALLEST_MOST);
    for (int64_t i = 0; i < RESIDUES; i++)
      if (!add_sized(plan, from, &dimension, (least + i) * step, &random))
        return false;
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
      int64_t size = beyond[i] + 1 + (int64_t)(next_random(&random) % SPREAD);
      if (!add_sized(plan, from, &dimension, (size + step - 1) / step * step, &random))
        return false;
    }
  }
  return true;
}

/* The sizes of models, as far as the reference is not too slow for them. */
static bool add_timed(verify_plan *plan, call_source from) {
  from.timed = true;
  for (from.number = 0; from.number < TIMED; from.number++) {
    test_call call;
    call_outcome outcome = test_call_create(&call, plan->op, &from, LARGE_ELEMENTS, LARGE_OPERATIONS);
    if (outcome == CALL_NO_MEMORY || (outcome == CALL_MADE && !add_call(plan, &call)))
      return false;
  }
  return true;
}

bool verify_plan_make(verify_plan *plan, const verify_impl *reference, const verify_request *asked, uint64_t seed) {
  const call_source from = {.dtype = plan->dtype, .seed = seed, .other_seed = seed != asked->seed};
  if (!add_cases(plan, reference, asked, from))
    return false;
  uint32_t first = plan->n;
  if (plan->trouble || asked->quick)
    return true;
  if (!add_sizes(plan, from) || !add_timed(plan, from))
    return false;
  return plan->n == first || ask_reference(plan, reference, &asked->limits, first);
}

bool verify_plan_one(verify_plan *plan, const verify_impl *reference, const trial_limits *limits,
                     const call_source *source) {
  test_call call;
  call_outcome outcome = test_call_create(&call, plan->op, source, ELEMENTS_OF_ONE, 1e18);
  if (outcome == CALL_IMPOSSIBLE)
    return true;
  return outcome == CALL_MADE && add_call(plan, &call) && ask_reference(plan, reference, limits, 0);
}

void verify_plan_free(verify_plan *plan) {
  for (uint32_t i = 0; i < plan->n; i++)
    test_call_free(&plan->calls[i]);
  for (uint32_t i = 0; i < plan->n_kept; i++)
    trial_unshare(plan->kept[i].memory, plan->kept[i].size);
  free(plan->calls);
  free(plan->kept);
  free(plan->trouble);
  memset(plan, 0, sizeof *plan);
}

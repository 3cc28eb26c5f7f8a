/*
 * Root-mean-square normalisations with a gate, for which CANN has no operator: in steps, in float32. Norms of groups
 * are those of the last dimension split in two.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

#include <string.h>

enum { X, GATE, WEIGHT, EPSILON };
enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };

static bool supports_split(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  if (ascend_tensor_at(call, X)->ndim >= FL_MAX_DIMS)
    return ascend_refuse(reason, "there is no dimension left to tell groups apart, of 8 that CANN knows");
  return true;
}

/* The gate's activation, in float32 scratch memory. */
static ascend_view activated(ascend_call *c, ascend_view gate, bool sigmoid) {
  ascend_view wide = ascend_in_float(c, gate), out = ascend_scratch_like(c, &gate, ACL_FLOAT);
  if (sigmoid)
    ACLNN(c, Sigmoid, ascend_tensor(c, wide), ascend_tensor(c, out));
  else
    ACLNN(c, Silu, ascend_tensor(c, wide), ascend_tensor(c, out));
  return out;
}

/* x / sqrt(mean(x^2) + epsilon) of groups of that size, in scratch memory. x is in float32. */
static ascend_view normalised(ascend_call *c, ascend_view x, int64_t group, double epsilon) {
  ascend_view out = ascend_scratch_like(c, &x, ACL_FLOAT);
  ascend_view groups = ascend_view_split(&x, x.n_dims - 1, group), split = ascend_view_split(&out, x.n_dims - 1, group);
  ascend_view root = groups;
  const int64_t last[] = {groups.n_dims - 1};
  root.shape[last[0]] = 1;
  root = ascend_scratch(c, ACL_FLOAT, root.n_dims, root.shape);
  ascend_mul(c, groups, groups, split);
  ACLNN(c, Mean, ascend_tensor(c, split), ascend_ints(c, last, 1), true, ACL_FLOAT, ascend_tensor(c, root));
  ascend_adds(c, root, epsilon);
  ascend_rsqrt(c, root);
  ACLNN(c, Mul, ascend_tensor(c, groups), ascend_tensor(c, root), ascend_tensor(c, split));
  return out;
}

/* The last step: where a result of 16 bits is cast, one of 32 is written by the product itself. */
static void mul_into(ascend_call *c, ascend_view a, ascend_view b, ascend_view out) {
  if (out.type == ACL_FLOAT) {
    ACLNN(c, Mul, ascend_tensor(c, a), ascend_tensor(c, b), ascend_tensor(c, out));
    return;
  }
  ascend_mul(c, a, b, a);
  ascend_cast(c, a, out);
}

static void run_rms_norm_gated(ascend_call *c) {
  enum { GROUP_SIZE = 4, NORM_BEFORE_GATE, ACTIVATION, OUT };
  const fl_value *values = c->call->values;
  bool has_gate = ascend_tensor_at(c->call, GATE) != NULL, gate_last = has_gate && values[NORM_BEFORE_GATE].v.b;
  ascend_view x = ascend_in_float(c, ascend_argument(c, X)), gate = x;
  ascend_view weight = ascend_in_float(c, ascend_argument(c, WEIGHT)), out = ascend_argument(c, OUT);
  int64_t group = values[GROUP_SIZE].type == FL_INT ? values[GROUP_SIZE].v.i : x.shape[x.n_dims - 1];
  if (has_gate)
    gate = activated(c, ascend_argument(c, GATE), !strcmp(values[ACTIVATION].v.s, "sigmoid"));
  if (has_gate && !gate_last) {
    ascend_mul(c, gate, x, gate);
    x = gate;
  }
  ascend_view norm = normalised(c, x, group, values[EPSILON].v.f);
  if (gate_last)
    ascend_mul(c, norm, weight, norm);
  mul_into(c, norm, gate_last ? gate : weight, out);
}

/* The norm is rounded to x's type before the weight comes in. */
static void weigh_rounded(ascend_call *c, ascend_view norm, ascend_view weight, aclDataType type, ascend_view out) {
  if (type != ACL_FLOAT) {
    ascend_view narrow = ascend_scratch_like(c, &norm, type);
    ascend_cast(c, norm, narrow);
    if (weight.type == type) {
      ACLNN(c, Mul, ascend_tensor(c, narrow), ascend_tensor(c, weight), ascend_tensor(c, out));
      return;
    }
    ascend_cast(c, narrow, norm);
  }
  mul_into(c, norm, ascend_in_float(c, weight), out);
}

static void run_mixer2_gated_rms_norm(ascend_call *c) {
  enum { N_GROUPS = 4, USE_RMS_NORM, OUT };
  const fl_value *values = c->call->values;
  ascend_view given = ascend_argument(c, X), x = ascend_in_float(c, given), out = ascend_argument(c, OUT);
  ascend_view product = activated(c, ascend_argument(c, GATE), false);
  if (!values[USE_RMS_NORM].v.b) {
    mul_into(c, product, x, out);
    return;
  }
  ascend_mul(c, product, x, product);
  ascend_view norm = normalised(c, product, x.shape[x.n_dims - 1] / values[N_GROUPS].v.i, values[EPSILON].v.f);
  weigh_rounded(c, norm, ascend_argument(c, WEIGHT), given.type, out);
}

#define NORM_IN_STEPS                                                                                                  \
  ACLNN_Cast, ACLNN_Mul, ACLNN_InplaceMul, ACLNN_Silu, ACLNN_Mean, ACLNN_InplaceAdds, ACLNN_InplaceRsqrt

static ascend_op ops[] = {
    {.name = "rms_norm_gated",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_rms_norm_gated,
     .supports = supports_split,
     .needs = {NORM_IN_STEPS, ACLNN_Sigmoid}},
    {.name = "mixer2_gated_rms_norm",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_mixer2_gated_rms_norm,
     .supports = supports_split,
     .needs = {NORM_IN_STEPS}},
};
OP_LIST(ops);

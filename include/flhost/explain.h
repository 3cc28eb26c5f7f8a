/*
 * flhost/explain.h: what an op resolves to, and why.
 */
#ifndef FLHOST_EXPLAIN_H
#define FLHOST_EXPLAIN_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In place of a device type, in this header: an opaque call, which has none (fl_invoke_opaque). */
enum { FL_DEVICE_OPAQUE = -1 };

/* The winner for an op. */
typedef struct fl_resolution {
  uint32_t size; /* sizeof(fl_resolution) of the caller */
  fl_kernel_fn fn;
  void *self;
  fl_kind kind;
  int32_t priority;
  char impl_id[FL_NAME_MAX + 1];
  char vendor[FL_NAME_MAX + 1]; /* "" if none */
} fl_resolution;

/* The implementation that the policy in force puts first for tensors on a device type (kDLCPU…), whether or not it
 * failed before. FL_ENOENT: no such op; FL_ENOIMPL: none; FL_EINVAL: no such device type. */
FL_API fl_status fl_resolve_op(fl_host *host, const char *op, int32_t device_type, fl_resolution *resolution);

/* Its impl_id, into `buffer`. FL_EINVAL: that is too small (the message says what it takes), or as above. */
FL_API fl_status fl_get_selected_impl_id(fl_host *host, const char *op, int32_t device_type, char *buffer, size_t size);

/* What became of an implementation when one was selected. */
typedef enum fl_verdict { FL_SELECTED = 1, FL_CANDIDATE = 2, FL_REJECTED = 3 } fl_verdict;

/* One registered implementation and what became of it. */
typedef struct fl_explained {
  const char *impl_id;
  const char *kind;   /* "flagos", "vendor", "reference" */
  const char *vendor; /* NULL if none */
  int32_t priority;
  const char *plugin; /* who registered it */
  fl_verdict verdict;
  const char *reason;  /* the rule that decided, with the setting and where it comes from */
  const char *variant; /* fl_impl.variant; NULL if none */
  bool prepares;       /* it makes prepared weights of some arguments (fl_prepare) */
} fl_explained;

/* A layer class of vLLM's that the op replaces, if the switches and lists for out-of-tree replacement allow it. */
typedef struct fl_replaced {
  const char *class_name;
  bool allowed;
  const char *reason; /* why not, with the setting and where it comes from; NULL when allowed */
} fl_replaced;

/* A plugin that was found, and of which the op has nothing though its file lists the op, or does not say: it failed,
 * its vendor is denied, it is withdrawn, or its rows were refused. Not one that gave way to another build of itself. */
typedef struct fl_missing_plugin {
  const char *plugin, *file;
  const char *status; /* as fl_plugin_info has it: "failed", "skipped", "deferred", "loaded" */
  bool lists_op;      /* false: its file has no list of ops, or could not be read, so that it may have the op or not */
  const char *reason;
} fl_missing_plugin;

/* Why an op resolves as it does: candidates in the order they are tried, then the rejected ones. */
typedef struct fl_explanation {
  uint32_t size; /* sizeof(fl_explanation) of the library */
  const char *op;
  const char *const *order; /* tokens */
  uint32_t n_order;
  const char *order_origin; /* "VLLM_FL_PER_OP", "policy.yaml:4", … */
  const char *selected;     /* impl_id or NULL */
  const char *error;        /* NULL, or why nothing is selected */
  const void *impls;        /* fl_explained_at */
  uint32_t n_impls, impl_size;
  const void *replaces; /* fl_replaced_at */
  uint32_t n_replaces, replaced_size;
  const void *missing; /* fl_missing_plugin_at */
  uint32_t n_missing, missing_size;
} fl_explanation;

/* Implementation i; NULL: there are fewer. */
static inline const fl_explained *fl_explained_at(const fl_explanation *explanation, uint32_t i) {
  return (const fl_explained *)fl_item_at(explanation->impls, explanation->n_impls, explanation->impl_size, i);
}

/* Layer i that the op replaces; NULL: there are fewer. */
static inline const fl_replaced *fl_replaced_at(const fl_explanation *explanation, uint32_t i) {
  return (const fl_replaced *)fl_item_at(explanation->replaces, explanation->n_replaces, explanation->replaced_size, i);
}

/* Plugin i of which the op lacks something; NULL: there are fewer. */
static inline const fl_missing_plugin *fl_missing_plugin_at(const fl_explanation *explanation, uint32_t i) {
  return (const fl_missing_plugin *)fl_item_at(explanation->missing, explanation->n_missing, explanation->missing_size,
                                               i);
}

/* `op` may also be the name of a layer class that an op replaces, or the one that lists had for it before. The caller
 * frees it. FL_ENOENT: no such op; FL_EINVAL: no such device type. */
FL_API fl_status fl_explain(fl_host *host, const char *op, int32_t device_type, fl_explanation **explanation);
FL_API void fl_explanation_free(fl_explanation *explanation);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_EXPLAIN_H */

/*
 * A host and its parts, as the core sees them: registry, policy and bindings.
 *
 * One lock a host, for writers and for everything that is not on the call path. It is never held while code of a plugin
 * or of the engine runs: availability checks, kernels and log callbacks are called without it. What readers see
 * (fl_op.slots, fl_op.impls, the table of names) is immutable once published and retired when replaced (thread.h).
 */
#ifndef FLHOST_CORE_REGISTRY_RECORDS_H
#define FLHOST_CORE_REGISTRY_RECORDS_H

#include "core/platform/device.h"
#include "core/plugins/loader.h"
#include "core/registry/registry.h"
#include "core/schema/schema.h"
#include "core/settings/config.h"
#include "core/settings/policy.h"
#include "core/support/arena.h"
#include "core/support/log.h"
#include "core/support/tensor.h"
#include "core/support/thread.h"

/* Who registers implementations. Lives as long as the host, so that a plugin's name is kept once, not in each. */
typedef struct fl_provider {
  struct fl_provider *next;
  const char *build_id; /* of the plugin's file, "" if it has none */
  char plugin[];
} fl_provider;

/* F8: what went wrong with an implementation; made when something does. */
typedef enum fl_event { FL_EVENT_NOT_SUPPORTED, FL_EVENT_FALLBACK, FL_EVENT_FAILURE, FL_EVENTS } fl_event;
typedef struct fl_tally {
  _Atomic uint64_t events[FL_EVENTS];
} fl_tally;

/* One registered implementation: what fl_impl says, in one piece of memory, since there may be very many. Immutable,
 * but for what is said to be guarded. */
typedef struct fl_impl_record {
  fl_kernel_fn fn;
  void *self;
  bool (*is_available)(void *self, const char **reason);
  bool (*supports_args)(void *self, const fl_call *call, const char **reason);
  size_t (*workspace_size)(void *self, const fl_call *call);
  struct fl_op *op;
  const fl_provider *provider;
  const char *vendor, *min_arch; /* behind impl_id; NULL if none */
  uint64_t devices;
  /* R6. Written under the host's availability lock, `asked` last. */
  _Atomic(const char *) reason; /* why it is not available, a static string; NULL: it is */
  _Atomic(fl_tally *) tally;    /* NULL: nothing so far */
  _Atomic uint32_t asked;       /* generation of the registry in which is_available was asked; 0 = never */
  uint32_t count; /* number for fl_count_call; UINT32_MAX: not counted so far; guarded by the host's lock */
  uint32_t dtypes, flags;
  int32_t priority;
  uint8_t kind;
  char impl_id[];
} fl_impl_record;

/* Is it for tensors on devices of that type (0: any)? */
static inline bool fl_impl_is_for(const fl_impl_record *impl, int32_t device_type) {
  return !device_type || impl->devices & FL_DEVICE(device_type);
}

/* All implementations of one op, in the order of registration. Immutable. */
typedef struct fl_impl_set {
  uint32_t n;
  fl_impl_record *impls[];
} fl_impl_set;

/* An implementation that failed (F4). */
typedef struct fl_failure {
  struct fl_failure *next;
  fl_impl_record *impl;
  char *reason;
  double backoff;  /* seconds; 0 = for ever */
  double retry_at; /* monotonic seconds */
} fl_failure;

/* What a slot points to: what is to be called. */
typedef struct fl_target {
  fl_kernel_fn fn;
  void *self;
  bool (*supports_args)(void *self, const fl_call *call, const char **reason); /* asked first; NULL: nothing to ask */
  void *asked;                /* what it is given: the kernel's `self` */
  struct fl_binding *binding; /* NULL: nothing is bound */
} fl_target;

/* One implementation that a binding may call. */
typedef struct fl_candidate {
  fl_impl_record *record;
  uint32_t dtypes;     /* element types that it takes; 0 = all that the schema lets through */
  bool on_probation;   /* it failed before and its back-off is over */
  _Atomic bool noted;  /* F1 was logged for it under this binding */
  uint64_t on_devices; /* a bit for each index of the device type that reaches min_arch */
} fl_candidate;

/* What was resolved for one op, policy and device type: S5. Immutable, but for what is said to be guarded. */
typedef struct fl_binding {
  /* The kernel itself where nothing can go another way, else a function of fallback.c with the binding. */
  fl_target target;
  /* What takes its place once the use of the first candidate was logged; fn NULL: it stays. */
  fl_target noted;
  fl_kernel_fn fn; /* of the first candidate */
  void *self;
  uint32_t count;
  struct fl_op *op;
  struct fl_binding *next;           /* of the op; guarded by the host's lock */
  _Atomic(const fl_target *) *place; /* the slot it is in; NULL: in none any more; guarded by the host's lock */
  double retry_at; /* when a failed implementation that was left out may be tried again; 0 = none is left out */
  bool strict, preserve_inputs, statistics;
  bool synchronous; /* waits for the device after each implementation */
  uint32_t n;
  fl_candidate candidates[];
} fl_binding;

/* What to call for an op, by device type. Never NULL: the op's `unbound` stands where nothing is bound. */
typedef struct fl_slots {
  _Atomic(const fl_target *) by_device[FL_DEVICE_SLOTS];
} fl_slots;

/* How fl_invoke goes about a call of the op. */
typedef enum fl_path {
  FL_PATH_TRUSTING = 0, /* arguments are not checked */
  FL_PATH_CHECKED,
  FL_PATH_OTHERWISE /* it may have no tensor */
} fl_path;

struct fl_op {
  fl_host *host;
  int32_t device_argument; /* of the schema */
  uint32_t device_offset;  /* where it is among a call's values, bytes */
  uint8_t path;            /* fl_path */
  fl_slots slots;          /* under the global policy */
  fl_target unbound;       /* resolves, and calls what it found */
  uint64_t checked_as;     /* id of the schema; UINT64_MAX, which none has, on FL_PATH_OTHERWISE */
  fl_schema *schema;       /* NULL as long as nobody needed the built-in op */
  const fl_op_def *def;    /* built-in: what `schema` is parsed from, else NULL */
  const char *name;        /* of a built-in op in fl_host.builtin_names, else owned */
  uint32_t index;
  uint64_t hash;
  _Atomic(fl_impl_set *) impls;
  fl_impl_record *unfused;   /* the op by its parts, which only an order that names it picks; NULL. Not among impls */
  const char *schema_plugin; /* who declared it; owned unless it is built-in */
  /* Guarded by the host's lock. */
  fl_binding *bindings;  /* that are in slots */
  fl_op *next_bound;     /* of the host's ops that have bindings */
  char *last_used;       /* impl_id that F1 logged last */
  uint32_t switches;     /* changes of last_used */
  bool is_bound;         /* it is among the host's `bound` */
  bool enforced;         /* runs whatever custom_ops says */
  bool order_is_partial; /* warned of: its own order may find nothing for a call */
  fl_failure *failures;
};

/* Names to ops: open addressing, immutable but for empty places that get filled. `n` is its writers'. */
typedef struct fl_name_table {
  uint32_t mask, n;
  _Atomic(fl_op *) places[];
} fl_name_table;

/* A policy in a host, with the bindings that were resolved under it. Lives in fl_host.views. */
typedef struct fl_view {
  fl_policy *policy;
  uint32_t users; /* scopes that hold it; guarded by the host's lock */
  uint64_t used;  /* when it was entered last, for throwing out the oldest */
  struct fl_view *next;
  _Atomic(struct fl_view_table *) table;
} fl_view;

typedef struct fl_view_table {
  uint32_t n;
  _Atomic(fl_slots *) ops[]; /* by fl_op.index */
} fl_view_table;

struct fl_host {
  _Atomic(fl_name_table *) names;          /* ops that are ready: parsed, and no deferred plugin lists them */
  bool statistics, checks, dispatch_debug; /* set at creation */
  bool synchronous;                        /* calls wait for the device; set there */
  bool without_plugins;                    /* none was loaded at creation; set there */
  _Atomic bool frozen;                     /* frozen_by is not empty; changed under `lock` */

  pthread_mutex_t lock;         /* guards all that follows, but for what is atomic */
  uint64_t epoch;               /* of everything that resolving depends on */
  uint32_t registry_generation; /* never 0 */
  fl_provider *providers;
  fl_op **ops; /* all, by index */
  uint32_t n_ops, ops_capacity;
  fl_name_table *declared; /* ops that were not ready when they became known */
  fl_op *builtin;          /* the built-in ops, in one piece */
  char *builtin_names;
  fl_op *bound; /* those that have bindings */
  fl_component_record *components;
  uint32_t n_components;
  fl_device_type device_types[FL_DEVICE_SLOTS];

  fl_policy *policy;  /* the global one */
  bool policy_is_set; /* by fl_set_global_policy, not from settings */
  fl_config *config;
  fl_view *views;
  uint32_t n_views;
  uint64_t view_clock;
  fl_retired retired;
  fl_strings oplist;    /* lines written to FLAGGEMS_ENABLE_OPLIST_PATH */
  fl_strings frozen_by; /* one name for each fl_freeze that is not thawed */

  pthread_mutex_t availability_lock; /* recursive; held while is_available runs, and never together with `lock` */

  /* Set at creation. */
  fl_log log;
  fl_config_sources sources; /* strings owned: copies of the options */
  fl_arena owned;
  const char **environment;
  fl_strings directories;
  char *platform, *platform_origin, *platform_plugin;

  fl_plugin_record *plugins; /* guarded by `lock` */
  uint32_t n_plugins;
  _Atomic uint32_t n_deferred; /* of `plugins` */
  pthread_mutex_t loading;     /* fl_loading_begin */
  _Atomic uint64_t loader;     /* the thread that has it */
  uint32_t loading_depth;      /* that thread's */

  fl_host *next; /* of the process's hosts, thread.c */
};

/* ---------------------------------------------------------------------------------------------------- registry.c */

fl_status fl_registry_init(fl_host *host); /* with the built-in ops */
void fl_registry_free(fl_host *host);

uint64_t fl_hash_name(const char *name, size_t length);

/* The op, ready to be called; NULL if there is none, no message. For one that is not ready yet its entry is parsed and
 * the deferred plugins that list it are loaded. The caller is reading, and holds no lock. */
fl_op *fl_registry_find(fl_host *host, const char *name);

/* The op, ready or not: its schema may not be there. The host's lock is held. */
fl_op *fl_registry_known(const fl_host *host, const char *name);

/* Do calls find it? The host's lock is held. */
bool fl_registry_is_ready(const fl_host *host, const char *name);

/* Sees to it that an op has its schema. No lock is held. */
fl_status fl_registry_parse(fl_op *op);

/* FL_ENOENT, with the nearest name. */
fl_status fl_registry_no_such_op(fl_host *host, const char *name);
/* The same with the first words that callers of the peer rely on (S4): to it, an op is what has implementations. */
fl_status fl_registry_no_impl(fl_host *host, const char *name);

/* Does an implementation declare the device type (0: any)? The caller is reading, or holds the host's lock. */
bool fl_registry_has_impl(const fl_op *op, int32_t device_type);

/* Asks is_available of each impl for the device type (0: any) that was not asked in this generation of the registry
 * (R6): a call on the CPU starts no driver. Takes the availability lock, and nothing may be held. */
void fl_registry_ask_availability(fl_host *host, const fl_op *op, int32_t device_type);

/* Locks the host at a moment when every implementation of every op has been asked. Nothing may be held before. */
void fl_registry_lock_asked(fl_host *host);

/* Makes every op ready: parsed, and all plugins loaded. No lock is held. */
fl_status fl_registry_prepare_all(fl_host *host);

/* Adds an op, ready unless a deferred plugin lists it; takes over the schema. NULL: out of memory. The host's lock is
 * held. */
fl_op *fl_registry_add_op(fl_host *host, fl_schema *schema, const char *plugin);

/* The implementation, `unfused` too, NULL if there is none. The caller is reading, or holds the host's lock. */
fl_impl_record *fl_registry_find_impl(const fl_op *op, const char *impl_id);

/* The id that was meant perhaps, the record's; NULL: none is near. The host's lock is held. */
const char *fl_registry_nearest_impl(const fl_op *op, const char *impl_id);

/* FL_ENOENT with the nearest of the op's. The host's lock is held. */
fl_status fl_registry_no_such_impl(const fl_op *op, const char *impl_id);

/* Gives an op that can be run by its parts the implementation that does so (parts.c). false: out of memory. */
bool fl_unfused_add(fl_op *op);

/* The provider of that name and build id, known or new; NULL: out of memory. The host's lock is held. */
const fl_provider *fl_registry_provider(fl_host *host, const char *plugin, const char *build_id);

/* A record of an implementation whose fields are in order, not published yet. NULL: out of memory. */
fl_impl_record *fl_impl_record_create(const fl_impl *impl, const fl_provider *provider);
void fl_impl_record_free(void *record);

/* Counts an event; reads how many there were. */
void fl_impl_record_count(fl_impl_record *record, fl_event event);
uint64_t fl_impl_record_events(const fl_impl_record *record, fl_event event);

/* Availability is to be asked again, and everything is to be resolved again. The host's lock is held. */
void fl_registry_advance(fl_host *host);

void fl_component_record_clear(fl_component_record *component);

/* Everything resolved before is out of date: nothing is bound any more. The host's lock is held. */
void fl_host_advance(fl_host *host);

/* -------------------------------------------------------------------------------------------------------- binding.c */

/* Nothing is bound in them. */
void fl_slots_init(fl_slots *slots, const fl_op *op);

/* Takes what an op has bound out of its slots: of `slots` alone, unless NULL; and not what has `record` for its first
 * candidate, unless NULL. The host's lock is held. */
void fl_unbind(fl_op *op, const fl_slots *slots, const fl_impl_record *record);

/* Resolves, and calls what was found: what a slot has where nothing is bound. `self` is the op. */
fl_status fl_run_unbound(void *self, fl_call *call);

/* ----------------------------------------------------------------------------------------------------- custom_ops.c */

/* Is it enabled, or does it run its reference? The host's lock is held. */
bool fl_custom_op_enabled(const fl_op *op);

/* Names in custom_ops that are no op's: FL_ECONFIG, or warnings, as VLLM_FL_CHECK says. Warnings also while the host
 * has not loaded all plugins, since these may bring the op. */
fl_status fl_custom_ops_check(fl_host *host, const fl_config *config);

/* ------------------------------------------------------------------------------------------------------- layers.c */

/* A layer class of vLLM's and the op that replaces it. */
typedef struct fl_layer {
  const char *class, *op;
  const char *former; /* another name that lists may have for it, or NULL */
  const char *plugin; /* who says so */
} fl_layer;

/* All of these: the host's lock is held. */
bool fl_layer_find(const fl_host *host, const char *class, fl_layer *layer);
/* The op that replaces a class, ready or not, whether or not that is allowed; NULL, with a message. */
fl_op *fl_layer_op(fl_host *host, const char *class);
/* The layers that an op replaces. */
const fl_replaced *fl_layers_of(const fl_host *host, const char *op, fl_arena *arena, uint32_t *n);

/* ------------------------------------------------------------------------------------------------------ fallback.c */

/* Seconds of a clock that only goes forward. */
double fl_monotonic(void);

/* Forgets failures: of one implementation, or all of an op. The host's lock is held. */
void fl_failure_forget(fl_op *op, const fl_impl_record *impl);
void fl_failures_free(fl_op *op);
/* In the child of a fork; the host's lock is held. */
void fl_host_after_fork(fl_host *host);
void fl_default_after_fork(void); /* host.c */

/* ------------------------------------------------------------------------------------------------------- freeze.c */

/*
 * To be asked before anything changes that resolving depends on: the registry, the policy, the settings, failures.
 * FL_ESTATE when the host is frozen; the message says that `what` ("setting the global policy") is refused, who froze
 * the host, and how to thaw it. The host's lock is held until the change is made; the other one takes it itself, for
 * refusing early what is refused again later.
 */
fl_status fl_refuse_frozen(fl_host *host, const char *what);
fl_status fl_refuse_frozen_unlocked(fl_host *host, const char *what);

/* Adds who froze the host, and what ends that. The host's lock is held. */
void fl_freeze_state(const fl_host *host, fl_text *text);

/* An implementation failed: true if the call must end with that, since the host is frozen; the message then says so
 * after `reason`, which may lie in the thread's message. Nothing is held. */
bool fl_keeps_frozen(fl_host *host, const char *op, const char *impl_id, const char *reason, fl_status status);

/* -------------------------------------------------------------------------------------------------------- scope.c */

/* Makes the slots of an op in a view, and grows its table. NULL: out of memory. */
fl_slots *fl_view_add_slots(fl_view *view, fl_op *op);

/* The slots of an op in a view. The thread is reading. */
static inline fl_slots *fl_view_slots(fl_view *view, fl_op *op) {
  const fl_view_table *table = atomic_load_explicit(&view->table, memory_order_acquire);
  fl_slots *slots =
      table && op->index < table->n ? atomic_load_explicit(&table->ops[op->index], memory_order_acquire) : NULL;
  return slots ? slots : fl_view_add_slots(view, op);
}

/* The slots of an op under the thread's innermost scope for the op's host; its own when there is none. */
fl_slots *fl_scope_slots(fl_op *op);
/* The policy in force in this thread, not retained; the host's lock is held. */
fl_policy *fl_scope_policy(fl_host *host, bool *scoped);
void fl_views_free(fl_host *host);
/* In the child of a fork, where only this thread's scopes are left; the host's lock is held. */
void fl_views_after_fork(fl_host *host);

/* Waits, where so much memory is retired that calls cannot have let go of it yet. For whoever changes what calls
 * depend on; holds no lock, and does nothing inside a call. */
void fl_host_bound_memory(fl_host *host);

#endif

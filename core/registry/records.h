/*
 * A host and its ops as records: what the rooms above read and publish. Functions are declared in the header of the
 * file that has them.
 *
 * One lock a host, for writers and for everything that is not on the call path. It is never held while code of a plugin
 * or of the engine runs: availability checks, kernels and log callbacks are called without it. What readers see
 * (fl_op.slots, fl_op.impls, the table of names) is immutable once published and retired when replaced (thread.h).
 */
#ifndef FLHOST_CORE_REGISTRY_RECORDS_H
#define FLHOST_CORE_REGISTRY_RECORDS_H

#include "core/registry/plugin_record.h"
#include "core/schema.h"
#include "core/settings.h"
#include "core/support.h"

#include <flhost/communicator.h>

/* Who registers implementations. Lives as long as the host, so that a plugin's name is kept once, not in each. */
typedef struct fl_provider {
  struct fl_provider *next;
  const char *build_id; /* of the plugin's file, "" if it has none */
  char plugin[];
} fl_provider;

/* The provider of what the host itself has. */
#define FL_PROVIDER_HOST "flhost"

/* F8: what went wrong with an implementation. */
typedef enum fl_event { FL_EVENT_NOT_SUPPORTED, FL_EVENT_FALLBACK, FL_EVENT_FAILURE, FL_EVENTS } fl_event;

/* What is counted of an implementation; made with the first, since of most nothing is. */
typedef struct fl_tally {
  _Atomic uint64_t events[FL_EVENTS];
  _Atomic uint32_t checked; /* calls that were compared with the reference: guard/watch.h */
  _Atomic uint32_t said;    /* what was said of it once: guard/watch.c */
} fl_tally;

/* What few implementations say. */
typedef struct fl_impl_extra {
  size_t (*workspace_size)(void *self, const fl_call *call); /* NULL: none */
  uint64_t prepares;
  size_t (*prepared_size)(void *self, const fl_call *call);
  fl_prepare_fn prepare;
  _Atomic bool lacked; /* workspace, and the log has it */
} fl_impl_extra;

/* One registered implementation: what fl_impl says, in one piece of memory, since there may be very many. Immutable,
 * but for what is said to be guarded. */
typedef struct fl_impl_record {
  fl_kernel_fn fn;
  void *self;
  bool (*is_available)(void *self, const char **reason);
  bool (*supports_args)(void *self, const fl_call *call, const char **reason);
  fl_impl_extra *extra; /* behind impl_id; NULL: nothing of it */
  struct fl_op *op;
  const fl_provider *provider;
  const char *vendor, *min_arch, *variant; /* behind impl_id; NULL if none */
  _Atomic uint64_t devices; /* changes where the implementation runs an op by its parts: registry/parts.h */
  /* R6. Written under the host's availability lock, `asked` last. */
  _Atomic(const char *) reason; /* why it is not available, for as long as the host lives; NULL: it is */
  _Atomic(fl_tally *) tally;    /* NULL: nothing so far */
  _Atomic uint32_t asked;       /* generation of the registry in which is_available was asked; 0 = never */
  uint32_t count; /* number for fl_count_call; UINT32_MAX: not counted so far; guarded by the host's lock */
  uint32_t dtypes, flags;
  int32_t priority;
  uint8_t kind;
  char impl_id[];
} fl_impl_record;

/* Arguments of which it prepares something: fl_impl.prepares. */
static inline uint64_t fl_impl_prepares(const fl_impl_record *impl) {
  return impl->extra ? impl->extra->prepares : 0;
}

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
  bool barred;     /* found wrong: skipped until somebody asks for it to be cleared */
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

/* What stands in a slot: the first part of a binding (call/binding.h), as far as taking it out again needs it. */
typedef struct fl_bound {
  /* The kernel itself where nothing can go another way, else a function of call/ with the binding. */
  fl_target target;
  const fl_impl_record *first;       /* what it calls first */
  struct fl_bound *next;             /* of the op; guarded by the host's lock */
  _Atomic(const fl_target *) *place; /* the slot it is in; NULL: in none any more; guarded by the host's lock */
} fl_bound;

/* What to call for an op, by device type. Never NULL: the op's `unbound` stands where nothing is bound. */
typedef struct fl_slots {
  _Atomic(const fl_target *) by_device[FL_SLOTS];
} fl_slots;

/* How fl_invoke goes about a call of the op. */
typedef enum fl_path {
  FL_PATH_TRUSTING = 0, /* arguments are not checked */
  FL_PATH_CHECKED,
  FL_PATH_OTHERWISE, /* it may have no tensor */
  FL_PATH_UNREADY    /* nobody looked for it so far: its schema may be missing, and plugins that list it */
} fl_path;

struct fl_op {
  fl_host *host;
  int32_t device_argument;     /* of the schema */
  uint32_t device_offset;      /* where it is among a call's values, bytes */
  _Atomic uint8_t path;        /* fl_path; set last, when the op is ready */
  fl_slots slots;              /* under the global policy */
  fl_target unbound;           /* resolves, and calls what it found */
  _Atomic uint64_t checked_as; /* id of the schema; UINT64_MAX, which none has, where a call goes otherwise */
  fl_schema *schema;           /* NULL as long as nobody needed the built-in op */
  const fl_op_def *def;        /* built-in: what `schema` is parsed from, else NULL */
  const char *name;            /* of a built-in op in fl_host.builtin_names, else owned */
  uint32_t index;
  uint64_t hash;
  _Atomic(fl_impl_set *) impls;
  const char *schema_plugin; /* who declared it; owned unless it is built-in */
  fl_impl_record *parts;     /* what runs it by its parts: among `impls` where these can be run; NULL: it has none */
  fl_impl_record *host_fallback; /* what runs it on the CPU, among `impls`; NULL: no policy asked for it so far */
  _Atomic bool falls_back;       /* the log has it that it ran there */
  /* Guarded by the host's lock. */
  fl_bound *bindings;    /* that are in slots */
  fl_op *next_bound;     /* of the host's ops that have bindings */
  char *last_used;       /* impl_id that F1 logged last */
  uint32_t switches;     /* changes of last_used */
  bool is_bound;         /* it is among the host's `bound` */
  bool enforced;         /* runs whatever custom_ops says */
  bool order_is_partial; /* warned of: its own order may find nothing for a call */
  fl_failure *failures;
  fl_impl_set *successor; /* of `impls`, while a change is made */
  fl_impl_record **by_id; /* `impls`, sorted, where many ids were looked for; NULL: not yet */
  uint32_t looked_for;    /* ids, since `impls` changed */
  fl_op *next_with_parts; /* of the host's ops that have parts */
  uint64_t parts_devices; /* for which these have implementations */
  bool is_part;           /* of another op */
};

/* What a plugin brings besides ops: its platform, a communicator, a layer of vLLM's that one of its ops replaces, or a
 * class for vLLM. */
typedef struct fl_component_record {
  fl_arena owned;     /* name, op, former and class_path */
  const char *plugin; /* the provider's */
  const char *type, *name;
  fl_platform platform;         /* type "platform" */
  fl_communicator communicator; /* type "communicator"; its vendor owned */
  const char *op;               /* type "layer": what replaces the class `name`; else NULL */
  const char *former;           /* of a layer: another name that lists may have for it, or NULL */
  const char *class_path;       /* where fl_is_class_path says so of the type; else NULL */
  void *self;
  pthread_mutex_t *asking; /* held while is_active runs; NULL: nobody else asks */
  const char *not_asked;   /* of a copy: why it is not asked whether it is active (fl_platforms_take); else NULL */
} fl_component_record;

/* Names to ops: open addressing, immutable but for empty places that get filled. `n` is its writers'. */
typedef struct fl_name_table {
  uint32_t mask, n;
  _Atomic(fl_op *) places[];
} fl_name_table;

/* What the rooms above bring for the registry to call; a host is made with them. */
typedef struct fl_host_hooks {
  /* Resolves an op, `self`, and calls what was found: what a slot has where nothing is bound. */
  fl_kernel_fn run_unbound;
  /* What an op with parts (fl_op_def.parts) gets, with the op for its `self`. */
  const fl_impl *parts;
  /* What an op gets when a policy says host_fallback, with the op for its `self`. */
  const fl_impl *host_fallback;
  /* Loads the deferred plugins that list the op, or all (NULL). No lock is held. What became of each is in its record;
   * only FL_ENOMEM is an error. */
  fl_status (*load_deferred)(fl_host *host, const char *op);
  /* The same for those that bring the platform (FL_PLUGIN_PLATFORM), or any (NULL). */
  fl_status (*load_deferred_platform)(fl_host *host, const char *platform);
  /* Loads or defers the plugins that were kept out and that the policies in force let in now. No lock is held. What
   * became of each is in its record; this thread's error stays. */
  void (*let_in)(fl_host *host);
  /* Logs a line of the plugin whose provider the logger has, if its host is still there. */
  void (*log)(const fl_logger *logger, int level, const char *message);
  /* fl_registry.setting. */
  fl_status (*setting)(fl_host *host, const char *name, char *value, size_t size);
  /* What plugins get as fl_registry.parallel_for. */
  fl_parallel_for_fn parallel_for;
} fl_host_hooks;

/* Who follows the loading of plugins step by step. */
typedef struct fl_load_watch {
  void (*enters)(void *user, const char *phase);
  void (*changed)(void *user, const char *what);
  void *user;
} fl_load_watch;

struct fl_host {
  const fl_host_hooks *hooks;              /* set at creation */
  _Atomic(fl_name_table *) names;          /* ops that are ready: parsed, and no deferred plugin lists them */
  bool statistics, checks, dispatch_debug; /* set at creation */
  bool synchronous;                        /* calls wait for the device; set there */
  bool without_plugins;                    /* none was loaded at creation; set there */
  uint32_t n_threads, n_openmp_threads;    /* VLLM_FL_CPU_THREADS, OMP_NUM_THREADS; 0: not said; set there */
  struct fl_watch *watch;                  /* guard/watch.h: what is watched of calls; NULL: nothing; set there */
  _Atomic bool frozen;                     /* frozen_by is not empty; changed under `lock` */

  pthread_mutex_t lock;         /* guards all that follows, but for what is atomic */
  uint64_t epoch;               /* of everything that resolving depends on */
  uint32_t registry_generation; /* never 0 */
  fl_provider *providers;
  struct fl_registrar *registrars; /* registration.c */
  fl_op **ops;                     /* all, by index */
  uint32_t n_ops;
  fl_name_table *declared; /* ops that were not ready when they became known */
  fl_op *builtin;          /* the built-in ops, in one piece */
  char *builtin_names;
  fl_op *bound; /* those that have bindings */
  fl_op *with_parts;
  fl_component_record *components;
  uint32_t n_components;
  struct fl_device_type *device_types; /* platform/device.h, FL_DEVICE_SLOTS of them */

  fl_policy *policy;  /* the global one */
  bool policy_is_set; /* by fl_set_global_policy, not from settings */
  fl_config *config;
  fl_config *first_config; /* what is known of it before there is a platform, if that keeps vendors out; else NULL */
  struct fl_view *views;   /* call/scope.h */
  fl_retired retired;
  struct fl_prepared_record *prepared; /* call/prepared.h: all that there are */
  struct fl_workspace *workspaces;     /* call/workspaces.h; one is not freed before the host is */
  fl_allocator *allocators;            /* of theirs, by device type, FL_DEVICE_SLOTS; NULL: the platforms' */
  fl_strings oplist;                   /* lines written to FLAGGEMS_ENABLE_OPLIST_PATH */
  fl_strings reasons;                  /* that is_available formatted */
  fl_strings class_paths;              /* that were given out */
  fl_strings frozen_by;                /* one name for each fl_freeze that is not thawed */

  pthread_mutex_t availability_lock; /* recursive; held while is_available runs; never asked for under `lock` */

  /* Set at creation. */
  fl_log log;
  fl_config_sources sources; /* strings owned: copies of the options */
  fl_arena owned;            /* guarded by `lock` once plugins are loaded */
  const char **environment;
  fl_strings directories;
  const char *platform, *platform_origin, *platform_plugin;

  struct fl_platform_kind *kinds; /* of platforms, as plugins say: platform/kind.h; guarded by `lock` */
  uint32_t n_kinds;

  fl_plugin_record *plugins; /* guarded by `lock` */
  uint32_t n_plugins;
  uint32_t *plugins_by_file; /* plugins/by_file.c; `n_by_file` of them */
  uint32_t n_by_file;
  _Atomic uint32_t n_deferred;     /* of `plugins` */
  _Atomic bool kept_out;           /* one of `plugins` is, or was once */
  pthread_mutex_t loading;         /* recursive; fl_loading_begin */
  uint32_t loading_depth;          /* how often the thread that has it took it */
  bool told_untried;               /* that plugins are not tried in another process; guarded by `loading` */
  const fl_load_watch *load_watch; /* NULL: nobody; guarded by `loading` */

  /* host/hosts.c's, and under its lock. */
  fl_host *next;    /* of the process's hosts */
  uint64_t number;  /* no other host of the process has or had it; not 0 */
  uint32_t logging; /* threads that plugins log from */
};

#endif

/*
 * flhost/host.h: a host, its options and its log.
 */
#ifndef FLHOST_HOST_H
#define FLHOST_HOST_H

#include <flhost/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A registry of implementations, a policy, and the plugins that were loaded. Several may live in one process. */
typedef struct fl_host fl_host;

/* Receives one message of the log, without a newline at its end; one that lists something has a line for each. `level`
 * is one of FL_LOG_*. Called from any thread, also several at once. */
typedef void (*fl_log_fn)(void *user, int level, const char *line);

enum {
  FL_HOST_NO_PLUGINS = 1 << 0,         /* load no plugin by itself; fl_load_plugin still does */
  FL_HOST_NO_ARGUMENT_CHECKS = 1 << 1, /* trust the caller: calls skip the schema's checks. A wrong call is then
                                          undefined behaviour, as in a direct call of the kernel */
  FL_HOST_STATISTICS = 1 << 2,         /* count calls (failures and fallbacks always are); as VLLM_FL_STATISTICS=1 */
  FL_HOST_SYNCHRONOUS = 1 << 3         /* wait for the device after each call, so that an error of a kernel is that
                                          call's; as VLLM_FL_SYNCHRONIZE=1. While a graph is captured nothing
                                          runs, and a GPU's plugin waits for nothing */
};

/* How to create a host. A zero or NULL field leaves the setting to the environment and files. */
typedef struct fl_host_options {
  uint32_t size;  /* sizeof(fl_host_options) */
  uint32_t flags; /* FL_HOST_* */
  /* NAME=VALUE strings, ended by NULL, in place of the process's environment; an empty list: no environment. */
  const char *const *environment;
  const char *config_file;    /* beats VLLM_FL_CONFIG */
  const char *config_dir;     /* beats VLLM_FL_CONFIG_DIR */
  const char *platform;       /* beats VLLM_FL_PLATFORM */
  const char *plugin_path;    /* beats VLLM_FL_PLUGIN_PATH */
  const char *plugin_modules; /* beats VLLM_FL_PLUGIN_MODULES */
  fl_log_fn log;              /* NULL: lines go to standard error */
  void *log_user;
} fl_host_options;

/*
 * Reads settings, finds the platform, loads the plugins. `options` may be NULL. On success the caller owns *host.
 * FL_ECONFIG: a setting is invalid; FL_EPLUGIN: a plugin that its manifest calls critical failed.
 */
FL_API fl_status fl_host_create(const fl_host_options *options, fl_host **host);

/* Ends a host. No call, scope or other object of it may be in use; its op handles are gone. NULL is ignored. */
FL_API void fl_host_destroy(fl_host *host);

/* The host that a process shares, created from the environment at first use; NULL on error (fl_error_message()): those
 * of fl_host_create, and FL_ESTATE for code of a plugin that is being loaded into it. */
FL_API fl_host *fl_default_host(void);

/* Creates it with options of the caller's, before anybody uses it. Errors are those of fl_host_create; FL_EEXIST: there
 * is one, which stays as it is; FL_ESTATE as above. */
FL_API fl_status fl_create_default_host(const fl_host_options *options);

/* Destroys it; the next fl_default_host() creates a new one. Nobody may be using it. */
FL_API void fl_reset_default_host(void);

/* The same two, for those who come from vllm-plugin-FL, where a host is called a manager. */
FL_API fl_host *fl_get_default_manager(void);
FL_API void fl_reset_default_manager(void);

/* Least severe level that is logged: "DEBUG", "INFO", "WARNING" or "ERROR", any case. FL_EINVAL: another word. */
FL_API fl_status fl_set_log_level(fl_host *host, const char *level);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_HOST_H */

/*
 * Compiling ahead of time, or capturing a graph, with a cache of what was compiled: what calls run is resolved, frozen,
 * and made part of the key. Build it against an installed flhost:
 *     cc compile_cache.c $(pkg-config --cflags --libs flhost) -o compile_cache
 * VLLM_FL_PREFER=reference ./compile_cache gives another key.
 */
#include <flhost/flhost.h>
#include <stdlib.h>

int main(void) {
  fl_host *host = NULL;
  fl_manifest *manifest = NULL;
  uint32_t n_ready, n_without;
  int exit_status = EXIT_FAILURE;

  if (fl_host_create(NULL, &host))
    goto out;

  /* From here on nobody changes what calls run, in any thread. */
  if (fl_freeze(host, "compile_cache") || fl_warm_up(host, kDLCPU, &n_ready, &n_without))
    goto out;
  printf("%u operators are ready, %u have no implementation that may run\n", n_ready, n_without);

  /* Who tries is told who froze the host, and how to thaw it. */
  if (fl_reset_global_policy(host) == FL_ESTATE)
    printf("%s\n", fl_error_message());

  /* No digest: some plugin's file has no build id, so that what is compiled now must not be kept. */
  if (fl_get_manifest(host, kDLCPU, &manifest))
    goto out;
  if (manifest->sha256)
    printf("key: %s\n", manifest->sha256);
  else
    printf("not cached: %s\n", manifest->problem);

  /* … look the key up, else compile and store … */

  if (fl_thaw(host, "compile_cache"))
    goto out;
  exit_status = EXIT_SUCCESS;

out:
  if (exit_status)
    fprintf(stderr, "compile_cache: %s\n", fl_error_message());
  fl_manifest_free(manifest);
  fl_host_destroy(host);
  return exit_status;
}

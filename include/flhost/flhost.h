/*
 * flhost/flhost.h: all that an engine needs to load backends and call operators.
 *
 *     fl_host *host;
 *     if (fl_host_create(NULL, &host)) { fprintf(stderr, "%s\n", fl_error_message()); return 1; }
 *     fl_op *relu2 = fl_find_op(host, "relu2");
 *     fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
 *     fl_call call = FL_CALL(values);
 *     if (fl_invoke(relu2, &call)) fprintf(stderr, "%s\n", fl_error_message());
 *     fl_host_destroy(host);
 *
 * It includes a header for each concept; an engine may as well include only those that it uses:
 *
 *     base.h      errors, version
 *     host.h      a host, its options
 *     op.h        what an op is
 *     call.h      calling ops
 *     policy.h    which implementations may run, in which order
 *     scope.h     a policy for one thread and a while
 *     explain.h   what runs, and why
 *     registry.h  what is registered
 *     failures.h  what failed
 *     freeze.h    freezing what calls run
 *     manifest.h  what calls run, for keys of caches
 *     plugins.h   what was loaded
 *     settings.h  settings and their origins
 *     platform.h  what was found of the hardware
 *     threads.h   the threads that kernels on the processor use
 *     device.h    devices and their memory
 *     group.h     ranks and their collectives
 *
 * Two that it does not include: flhost/vllm.h has what vLLM calls things, flhost/testing.h generated calls and other
 * help for tools. flhost/ops.h has a typed call for each built-in op. What holds for all functions stands in base.h.
 */
#ifndef FLHOST_FLHOST_H
#define FLHOST_FLHOST_H

#include <flhost/base.h>
#include <flhost/call.h>
#include <flhost/device.h>
#include <flhost/element.h>
#include <flhost/explain.h>
#include <flhost/failures.h>
#include <flhost/freeze.h>
#include <flhost/group.h>
#include <flhost/host.h>
#include <flhost/manifest.h>
#include <flhost/op.h>
#include <flhost/platform.h>
#include <flhost/plugins.h>
#include <flhost/policy.h>
#include <flhost/registry.h>
#include <flhost/scope.h>
#include <flhost/settings.h>
#include <flhost/threads.h>

#endif /* FLHOST_FLHOST_H */

/* From files to code: finding plugins, judging them, loading them when they are needed. What rooms above may use. */
#ifndef FLHOST_CORE_PLUGINS_H
#define FLHOST_CORE_PLUGINS_H

#include "core/plugins/deferred.h"
#include "core/plugins/discovery.h"
#include "core/plugins/judge.h"
#include "core/plugins/loader.h"
#include "core/plugins/plugins.h"
#include "core/plugins/traces.h"

#endif

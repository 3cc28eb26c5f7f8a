/* One call: selecting, binding, calling, falling back; scopes. What rooms above may use. */
#ifndef FLHOST_CORE_CALL_H
#define FLHOST_CORE_CALL_H

#include "core/call/binding.h"
#include "core/call/checked_forms.h"
#include "core/call/fallback.h"
#include "core/call/first_use.h"
#include "core/call/host_fallback.h"
#include "core/call/invoke.h"
#include "core/call/leaving.h"
#include "core/call/over_ranks.h"
#include "core/call/parts.h"
#include "core/call/prepared.h"
#include "core/call/scope.h"
#include "core/call/selection.h"
#include "core/call/workspaces.h"

#endif

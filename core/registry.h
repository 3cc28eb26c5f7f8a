/* What is registered: ops, implementations, components, plugins; and how calls find it while it changes. What rooms
 * above may use. */
#ifndef FLHOST_CORE_REGISTRY_H
#define FLHOST_CORE_REGISTRY_H

#include "core/registry/allowance.h"
#include "core/registry/class_path.h"
#include "core/registry/failures.h"
#include "core/registry/frozen.h"
#include "core/registry/implementations.h"
#include "core/registry/in_force.h"
#include "core/registry/layers.h"
#include "core/registry/loading.h"
#include "core/registry/parts.h"
#include "core/registry/plugin_record.h"
#include "core/registry/publish.h"
#include "core/registry/records.h"
#include "core/registry/registration.h"
#include "core/registry/registry.h"
#include "core/registry/slots.h"
#include "core/registry/withdraw.h"

#endif

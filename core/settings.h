/* Values that the environment, files and engines set, each with its origin, and the policies made of them. What rooms
 * above may use. */
#ifndef FLHOST_CORE_SETTINGS_H
#define FLHOST_CORE_SETTINGS_H

#include "core/settings/config.h"
#include "core/settings/environment.h"
#include "core/settings/orders.h"
#include "core/settings/policy.h"
#include "core/settings/setting_table.h"
#include "core/settings/setting_types.h"
#include "core/settings/yaml.h"

#endif

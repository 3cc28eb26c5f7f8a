/*
 * The room of settings: what is in force and where each value comes from (rules C and L), policies (rules T and P), and
 * the YAML reader that the files of both go through. This is what the rooms above use. Nothing else reads the
 * environment.
 */
#ifndef FLHOST_CORE_SETTINGS_SETTINGS_H
#define FLHOST_CORE_SETTINGS_SETTINGS_H

#include "core/settings/config.h"
#include "core/settings/environment.h"
#include "core/settings/policy.h"
#include "core/settings/yaml.h"

#endif

/* Where variables come from: the environment that the sources name, and the engine's options. */
#ifndef FLHOST_CORE_SETTINGS_ENVIRONMENT_H
#define FLHOST_CORE_SETTINGS_ENVIRONMENT_H

#include "core/settings/config.h"
#include "core/settings/settings.h"
#include "core/support.h"

/* The variable or option that sets a row, with its text; NULL when neither does. */
const char *fl_sources_text(const fl_config_sources *sources, const fl_setting_row *row, const char **source);

/* C2: says once which VLLM_FL_ variables are none, and that a set-uid program ignores all of them. */
void fl_sources_report(const fl_config_sources *sources, fl_problems *problems);

#endif

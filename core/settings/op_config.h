/* VLLM_FL_OP_CONFIG: the JSON file that gives ops an order of one token, as the peer's tuner writes it. */
#ifndef FLHOST_CORE_SETTINGS_OP_CONFIG_H
#define FLHOST_CORE_SETTINGS_OP_CONFIG_H

#include "core/settings/orders.h"

/* Every error in the file is one whatever VLLM_FL_CHECK says, as in the peer; only a repeated op is a matter of it. */
void fl_opconfig_load(fl_problems *problems, const char *path, fl_orders *orders);

#endif

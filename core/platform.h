/* Hardware: what is there, whose memory it has, and which implementations can run on it. What rooms above may use. */
#ifndef FLHOST_CORE_PLATFORM_H
#define FLHOST_CORE_PLATFORM_H

#include "core/platform/availability.h"
#include "core/platform/cores.h"
#include "core/platform/device.h"
#include "core/platform/kind.h"
#include "core/platform/platform.h"
#include "core/platform/probe.h"
#include "core/platform/report.h"

#endif

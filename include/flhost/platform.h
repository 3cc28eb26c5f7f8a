/*
 * flhost/platform.h: what was found of hardware and drivers.
 */
#ifndef FLHOST_PLATFORM_H
#define FLHOST_PLATFORM_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One step of the way from the bus to the devices; the first that is not in order is what to repair. */
typedef struct fl_platform_step {
  const char *name;    /* "bus", "kernel driver", "device node", "user driver", "plugin", "devices" */
  const char *state;   /* "ok", "missing", "failed", "unknown": not looked at, since an earlier step is not ok */
  const char *finding; /* what was found, or what is not there */
  const char *advice;  /* what to do, "" if nothing */
} fl_platform_step;

/* What was found of one platform. */
typedef struct fl_platform_info {
  const char *name;      /* "cpu", or what a plugin brings: "cuda" */
  const char *plugin;    /* "" for the processor, and where none brings it */
  bool active;           /* the one whose file is used */
  uint32_t pci_devices;  /* devices of that vendor on the bus */
  const char *pci;       /* their names, comma separated, "" if none */
  bool driver_found;     /* the driver library opens */
  const char *driver;    /* its name, or the loader's words why it does not open; "" if none is needed */
  int32_t device_count;  /* devices that the driver reports; -1 = not asked or failed */
  const char *diagnosis; /* one sentence */
  int32_t device_type;   /* of its tensors */
  const void *steps;     /* fl_platform_step_at */
  uint32_t n_steps, step_size;
  uint32_t n_devices, device_size; /* of those below: what the platform's plugin, or the host, says of each */
  const void *devices;             /* fl_platform_device_at */
} fl_platform_info;

/* Step i; NULL: there are fewer. */
static inline const fl_platform_step *fl_platform_step_at(const fl_platform_info *platform, uint32_t i) {
  return (const fl_platform_step *)fl_item_at(platform->steps, platform->n_steps, platform->step_size, i);
}

/* Device i; NULL: there are fewer. */
static inline const fl_device_properties *fl_platform_device_at(const fl_platform_info *platform, uint32_t i) {
  return (const fl_device_properties *)fl_item_at(platform->devices, platform->n_devices, platform->device_size, i);
}

/* What was found of all platforms, and which is in force. */
typedef struct fl_platform_report {
  uint32_t size;             /* sizeof(fl_platform_report) of the library */
  const char *active;        /* name of the platform in force */
  const char *active_origin; /* "VLLM_FL_PLATFORM", "plugin 'acme'", "detected" */
  const char *config_file;   /* its platform file, "" if none */
  const void *platforms;     /* fl_platform_at */
  uint32_t n, platform_size;
  const char *unserved; /* graphics cards and accelerators on the bus that are no platform's, comma separated; "" */
} fl_platform_report;

/* Platform i; NULL: there are fewer. */
static inline const fl_platform_info *fl_platform_at(const fl_platform_report *report, uint32_t i) {
  return (const fl_platform_info *)fl_item_at(report->platforms, report->n, report->platform_size, i);
}

/* Looks at the hardware and drivers. May take some 100 ms. The caller frees the report. */
FL_API fl_status fl_get_platform(fl_host *host, fl_platform_report **report);
FL_API void fl_platform_report_free(fl_platform_report *report);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_PLATFORM_H */

/*
 * What is on the PCI bus, and how many cores there are, as hwloc sees it. It looks in a child process: it reads what
 * drivers and firmware say, takes ends that nobody wants when memory runs out, and writes to standard error.
 */
#ifndef FLHOST_CORE_PLATFORM_BUS_H
#define FLHOST_CORE_PLATFORM_BUS_H

#include <stdbool.h>
#include <stdint.h>

enum { FL_BUS_NAME = 96, FL_BUS_DEVICES_MAX = 256 };

/* One device. */
typedef struct fl_bus_device {
  uint32_t domain;
  uint16_t vendor_id, device_id, class_id; /* base class and subclass */
  uint8_t bus, slot, function;
  char name[FL_BUS_NAME], vendor[FL_BUS_NAME]; /* "" if unknown */
} fl_bus_device;

/* Large: not for a stack. */
typedef struct fl_bus {
  bool known;     /* anything could be read */
  bool bus_known; /* and what is on the bus */
  int32_t cores;  /* 0: unknown */
  uint32_t n;
  fl_bus_device devices[FL_BUS_DEVICES_MAX]; /* the first that matter: no bridges and the like */
} fl_bus;

/* Fills it; where nothing can be learnt it is zero. */
void fl_bus_read(fl_bus *bus);

#endif

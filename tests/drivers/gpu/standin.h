/*
 * What the stand-in drivers share, and what tests tell them: device memory that is the host's, streams, errors on
 * demand, a log of what was asked for, and kernels that run on the CPU (grid.h).
 *
 * A test opens the library that the plugin was told to use, and finds
 *     bool flhost_stand_in_set(const char *settings)   "devices=2 load=209"; "" is the beginning's;
 *         "fail.record_event=999": that function of work.h
 *     const char *flhost_stand_in_log(void)            one line a call, oldest first
 *     void flhost_stand_in_clear(void)                 empties the log
 *     const grid_kernel *flhost_stand_in_kernel(size_t i)   its kernels, in no order; NULL past the last
 * FLHOST_STAND_IN holds the settings of a process that is started anew. The symbol flhost_stand_in_driver marks the
 * library as what it is.
 */
#ifndef FLHOST_TESTS_STANDIN_H
#define FLHOST_TESTS_STANDIN_H

#include <stdbool.h>
#include <stddef.h>

#define STANDIN_EXPORT __attribute__((visibility("default")))

/* Numbers that tests may set. A code is what the function in question returns; 0: it works. */
typedef struct standin_settings {
  int devices, version, init, count, describe, major, minor, warp, units, shared;
  int load, find, allocate, copy, launch, synchronize;
  int broken;    /* met by the first synchronisation after a launch; from then on by everything */
  int capturing; /* 1: every stream is being captured, and what that forbids returns 900 */
  int backwards; /* 1: kernels run from their last block and thread to the first */
  int delay;     /* 1: queued work runs when somebody waits for it */
  int arch;      /* HIP: which of its names; that of each further device is `arch_step` further on */
  int arch_step;
  int crash; /* 1: initialisation does */
  int stall; /* milliseconds that initialisation takes */
  /* The library of matrix products: */
  int math_create, math_prepare, math_run;
  int math_none;      /* 1: it has no algorithm for any product; 2: for any batch of products */
  int math_old;       /* 1: it knows no arrays of addresses */
  int math_workspace; /* bytes that its best algorithm wants */
  /* The library of convolutions: */
  int conv_version, conv_create, conv_graph, conv_plan, conv_run;
  int conv_none;      /* 1: it has no engine for any convolution */
  int conv_engine;    /* the number that all engines say they have; 0: each its own */
  int conv_workspace; /* bytes that its best engines want */
} standin_settings;

/* The present ones: a copy. */
standin_settings standin_now(void);

/* The vendor's own beginning; each stand-in defines it. */
extern const standin_settings standin_defaults;

void standin_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What every call first asks: the code that follows from a broken device, or `code`. */
int standin_check(int code);

/* The same for what a capture by the thread forbids, and ends at, since it might be meant as a part of the graph. */
int standin_check_safe(int code);

/* From now on everything returns the code. */
void standin_break(int code);

/* A kernel was queued; and somebody waited: the code that follows from both. */
void standin_note_launch(void);
int standin_settle(void);

/* The thread's word on what its captures forbid: gives what was. 2: loading and allocating are allowed. */
int standin_exchange_mode(int *mode);

/* The vendor's: the thread's context or device, NULL if it has none, and the device's number. */
const void *standin_here(void);
int standin_device(void);

/* These do the rest, and give codes. work.h has what is in the order of streams. */
int standin_allocate(void **memory, size_t size);
int standin_release(void *memory);
/* `where`: as standin_here(). A module and its functions are good there and nowhere else; functions of no
 * module, the tests' own, everywhere. */
int standin_load(void **module, const void *image, const void *where);
int standin_find(void **function, void *module, const char *name);
/* The kernel; NULL: of another place. */
const struct grid_kernel *standin_kernel_of(void *function);
int standin_launch(void *function, const unsigned *grid, const unsigned *block, unsigned shared, void *stream,
                   void **arguments);
/* Queues a function of the host's; `arguments` is copied. */
STANDIN_EXPORT int flhost_stand_in_queue(void (*run)(const void *arguments), const void *arguments, size_t size,
                                         void *stream);
int standin_queue(void (*run)(const void *arguments), const void *arguments, size_t size, void *stream);
int standin_copy(void *to, const void *from, size_t size, void *stream, const char *kind);
int standin_synchronize(void *stream, bool all);
int standin_capturing(void *stream, int *status);

STANDIN_EXPORT bool flhost_stand_in_set(const char *settings);
STANDIN_EXPORT const char *flhost_stand_in_log(void);
STANDIN_EXPORT void flhost_stand_in_clear(void);
STANDIN_EXPORT const struct grid_kernel *flhost_stand_in_kernel(size_t i);
STANDIN_EXPORT extern const char flhost_stand_in_driver[];

#endif

/* The platform's streams, events, pinned memory, graphs and health: see work.c. And what platform.c has for them. */
#ifndef FLHOST_ASCEND_WORK_H
#define FLHOST_ASCEND_WORK_H

#include "plugins/ascend/runtime.h"

/* ---------------------------------------------------------------------------------------------------- of platform.c */

enum { ASCEND_WORDS = 768 };

/* What fl_platform.error returns to the thread: ASCEND_WORDS characters. */
char *ascend_words(void);

/* FL_OK, or FL_ENOMEM or FL_EDEVICE with its words. */
fl_status ascend_result_of(const char *function, aclError code);

/* The device is the thread's until ascend_leave(). FL_OK, or FL_EDEVICE with its words. */
fl_status ascend_enter_device(int32_t device, ascend_guard *guard);

/* fl_platform.copy */
fl_status ascend_copy_now(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                          void *stream);

/* -------------------------------------------------------------------------------------------------------- of work.c */

/* As the functions of fl_platform. */
fl_status ascend_create_stream(void *self, int32_t device, int32_t priority, void **stream);
fl_status ascend_destroy_stream(void *self, int32_t device, void *stream);
fl_status ascend_create_event(void *self, int32_t device, bool timed, void **event);
fl_status ascend_destroy_event(void *self, int32_t device, void *event);
fl_status ascend_record_event(void *self, int32_t device, void *event, void *stream);
fl_status ascend_wait_event(void *self, int32_t device, void *event, void *stream);
fl_status ascend_is_event_done(void *self, int32_t device, void *event, bool *done);
fl_status ascend_synchronize_event(void *self, int32_t device, void *event);
fl_status ascend_elapsed(void *self, int32_t device, void *first, void *last, double *us);
fl_status ascend_allocate_host(void *self, int32_t device, size_t size, void **memory);
fl_status ascend_release_host(void *self, int32_t device, void *memory);
fl_status ascend_copy_async(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                            void *stream);
fl_status ascend_begin_capture(void *self, int32_t device, void *stream);
fl_status ascend_end_capture(void *self, int32_t device, void *stream, void **graph);
fl_status ascend_launch_graph(void *self, int32_t device, void *graph, void *stream);
fl_status ascend_destroy_graph(void *self, int32_t device, void *graph);
fl_status ascend_health(void *self, int32_t device);

#endif

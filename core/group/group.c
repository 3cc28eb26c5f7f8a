/* Making and ending groups: see flhost/group.h. */
#include "core/group/group.h"

#include "core/call.h"
#include "core/group/collective.h"
#include "core/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ----------------------------------------------------------------------------------------------------------- memory */

void *fl_group_memory(fl_group *group, int room, size_t size) {
  fl_group_room *r = &group->rooms[room];
  void *made = NULL;
  if (size <= r->size && r->memory)
    return r->memory;
  /* Work on a stream may still use what is there. */
  if (r->memory && !group->on_host && fl_device_synchronize(group->host, group->device, NULL, true))
    return NULL;
  if (group->on_host ? !(made = malloc(size ? size : 1))
                     : fl_device_allocate(group->host, group->device, size, &made) != FL_OK) {
    if (group->on_host)
      fl_error_no_memory();
    return NULL;
  }
  if (group->on_host)
    free(r->memory);
  else
    fl_device_free(group->host, group->device, r->memory);
  *r = (fl_group_room){made, size};
  return made;
}

static void free_memory(fl_group *group) {
  for (int i = 0; i < FL_GROUP_ROOMS; i++)
    if (group->on_host)
      free(group->rooms[i].memory);
    else
      fl_device_free(group->host, group->device, group->rooms[i].memory);
}

fl_status fl_group_copy(fl_group *group, void *to, const void *from, size_t size, void *stream) {
  if (!size || to == from)
    return FL_OK;
  if (!group->on_host)
    return fl_device_copy(group->host, group->device, to, from, size, FL_COPY_ON_DEVICE, stream);
  memmove(to, from, size);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- errors */

/* A number that is no status, or one that a communicator has no business with. */
static fl_status known(fl_status status) {
  return status == FL_ENOTSUP || status == FL_EINVAL || status == FL_ENOMEM || status == FL_EDEVICE ||
                 status == FL_ESTATE
             ? status
             : FL_EINTERNAL;
}

fl_status fl_group_failed(fl_group *group, const char *what, fl_status status) {
  char said[FL_GROUP_MESSAGE];
  group->message[sizeof group->message - 1] = 0;
  fl_show(said, sizeof said, group->message, false);
  status = known(status);
  fl_error(status, "%s of group '%s', rank %d of %d, by communicator '%s': %s", what, group->name, group->rank,
           group->ranks, group->communicator.name, *said ? said : fl_status_name(status));
  if (status != FL_ENOTSUP && status != FL_EINVAL && group->part && !*group->broken) {
    snprintf(group->broken, sizeof group->broken, "%s", fl_error_message());
    group->broken_status = status;
  }
  return status;
}

/* Why a thread may not use it now. */
static fl_status check_use(const fl_group *group) {
  if (group->process != getpid())
    return fl_error(FL_ESTATE,
                    "group '%s' is of process %d, from which this one was forked: a child makes groups of its own",
                    group->name, (int)group->process);
  if (*group->broken)
    return fl_error(FL_ESTATE, "group '%s' is broken: %s", group->name, group->broken);
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- joining */

fl_status fl_group_make_id(fl_host *host, int32_t device_type, fl_group_id *id) {
  fl_communicator_choice choice;
  char message[FL_GROUP_MESSAGE] = "", said[FL_GROUP_MESSAGE];
  fl_group_id made = {0};
  fl_status status = fl_communicator_choose(host, device_type, NULL, &choice);
  if (status)
    return status;
  status = choice.functions.make_id(choice.self, made.bytes, message, sizeof message);
  if (status) {
    message[sizeof message - 1] = 0;
    fl_show(said, sizeof said, message, false);
    return fl_error(known(status), "communicator '%s' made no id: %s", choice.name,
                    *said ? said : fl_status_name(known(status)));
  }
  snprintf(made.communicator, sizeof made.communicator, "%s", choice.name);
  *id = made;
  return FL_OK;
}

double fl_group_timeout(fl_host *host, double asked) {
  if (asked > 0)
    return isinf(asked) ? 0 : asked;
  pthread_mutex_lock(&host->lock);
  double seconds = host->config->values[FL_SETTING_COMM_TIMEOUT].seconds;
  pthread_mutex_unlock(&host->lock);
  return seconds;
}

static bool is_checked(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  bool check = host->config->values[FL_SETTING_COMM_CHECK].flag;
  pthread_mutex_unlock(&host->lock);
  return check;
}

static fl_status take_options(const fl_group_options *given, fl_group_options *options) {
  *options = (fl_group_options){0};
  fl_status status =
      given ? fl_sized_check(given, offsetof(fl_group_options, device), "the options'", "fl_group_options") : FL_OK;
  if (!status && given)
    fl_sized_take(options, sizeof *options, given);
  if (!status && options->name && strlen(options->name) > FL_NAME_MAX)
    status = fl_error(FL_EINVAL, "the group's name has %zu bytes, %d at most", strlen(options->name), FL_NAME_MAX);
  if (!status && !(options->timeout >= 0))
    status = fl_error(FL_EINVAL, "timeout is %g, expected seconds, 0 or more, or INFINITY", options->timeout);
  return status;
}

static void group_free(fl_group *group) {
  if (!group)
    return;
  free_memory(group);
  free(group->counts);
  free(group);
}

/* fl_ranks.collective */
static fl_status collective_of_call(const fl_ranks *ranks, const fl_collective *collective, char *message,
                                    size_t message_size) {
  fl_group *group = (fl_group *)(uintptr_t)ranks;
  fl_status status = fl_collective_run(group, collective);
  if (status && message && message_size)
    snprintf(message, message_size, "%s", fl_error_message());
  return status;
}

/* One that has not joined. NULL: out of memory. */
static fl_group *group_new(fl_host *host, const fl_communicator_choice *communicator, int32_t rank, int32_t ranks,
                           const fl_group_options *options) {
  fl_group *group = calloc(1, sizeof *group);
  if (!group || !(group->counts = calloc((size_t)ranks * 4, sizeof *group->counts))) {
    free(group);
    fl_error_no_memory();
    return NULL;
  }
  group->host = host;
  group->communicator = *communicator;
  snprintf(group->name, sizeof group->name, "%s", options->name ? options->name : "world");
  group->rank = rank;
  group->ranks = ranks;
  group->device = (DLDevice){(DLDeviceType)communicator->functions.device_type, options->device};
  group->on_host = fl_is_host_memory(communicator->functions.device_type);
  group->timeout = fl_group_timeout(host, options->timeout);
  group->any_manifest = options->any_manifest;
  group->check = is_checked(host);
  group->process = getpid();
  group->ranks_of_calls = (fl_ranks){.size = sizeof(fl_ranks),
                                     .rank = rank,
                                     .ranks = ranks,
                                     .name = group->name,
                                     .communicator = group->communicator.name,
                                     .collective = collective_of_call};
  return group;
}

static fl_join join_of(fl_group *group, const void *id) {
  return (fl_join){.size = sizeof(fl_join),
                   .rank = group->rank,
                   .ranks = group->ranks,
                   .device = group->device.device_id,
                   .id = id,
                   .name = group->name,
                   .timeout = group->timeout,
                   .message = group->message,
                   .message_size = sizeof group->message};
}

static fl_status join(fl_group *group, const void *id) {
  fl_join given = join_of(group, id);
  fl_rank *part = NULL;
  fl_status status = group->communicator.functions.join(group->communicator.self, &given, &part);
  if (status || !part)
    return fl_group_failed(group, "joining", status ? status : FL_EINTERNAL);
  group->part = part;
  return FL_OK;
}

/* -------------------------------------------------------------------------------------------------------- manifests */

fl_status fl_group_exchange(fl_group *group, const void *mine, size_t size, void *all) {
  DLDataType bytes = {kDLUInt, 8, 1};
  fl_host *host = group->host;
  size_t total = size * (size_t)group->ranks;
  const void *send = mine;
  void *recv = all;
  fl_status status = FL_OK;
  if (!group->on_host) {
    char *memory = fl_group_memory(group, 0, size + total);
    if (!memory)
      return fl_error_status();
    send = memory;
    recv = memory + size;
    status = fl_device_copy(host, group->device, memory, mine, size, FL_COPY_TO_DEVICE, NULL);
  }
  fl_collective gather = fl_collective_of(FL_ALL_GATHER, send, recv, (int64_t)size, bytes, NULL);
  if (!status)
    status = fl_collective_make(group, &gather);
  if (!status && !group->on_host)
    status = fl_device_copy(host, group->device, all, recv, total, FL_COPY_TO_HOST, NULL);
  /* A stream goes on behind a collective that was given up. */
  return status || group->on_host ? status : fl_group_state(group);
}

enum { DIGEST = 65 };

/* Empty where a plugin's file has no build id: nothing can be said of it then. */
static fl_status own_digest(const fl_group *group, char digest[DIGEST]) {
  fl_manifest *manifest;
  fl_status status = fl_get_manifest(group->host, (int32_t)group->device.device_type, &manifest);
  memset(digest, 0, DIGEST);
  if (status)
    return status;
  if (manifest->sha256)
    snprintf(digest, DIGEST, "%s", manifest->sha256);
  fl_manifest_free(manifest);
  return FL_OK;
}

/* All ranks see the same digests, and so come to the same end. */
static fl_status compare_manifests(fl_group *group) {
  char mine[DIGEST];
  char(*all)[DIGEST] = calloc((size_t)group->ranks, sizeof *all);
  fl_status status = all ? own_digest(group, mine) : fl_error_no_memory();
  /* Whoever has none takes part all the same: the others wait for it. */
  if (status)
    memset(mine, 0, sizeof mine);
  fl_status exchanged = all ? fl_group_exchange(group, mine, DIGEST, all) : FL_OK;
  if (!status)
    status = exchanged;
  int32_t first = 0;
  while (all && !status && first < group->ranks && !all[first][0])
    first++;
  for (int32_t i = first + 1; !status && i < group->ranks; i++) {
    all[i][DIGEST - 1] = 0;
    if (all[i][0] && strcmp(all[i], all[first]) != 0)
      status = fl_error(FL_ESTATE,
                        "the ranks of group '%s' would run different implementations: the manifest of rank %d has the "
                        "digest %.12s…, that of rank %d %.12s…; 'flhost manifest' shows each rank's (any_manifest lets "
                        "them come together all the same)",
                        group->name, first, all[first], i, all[i]);
  }
  free(all);
  return status;
}

/* The end of making a group: what the ranks run is the same. */
static fl_status finish(fl_group *group, fl_group **result) {
  fl_status status = group->any_manifest || group->ranks == 1 ? FL_OK : compare_manifests(group);
  if (status) {
    fl_kept_error why;
    fl_error_keep(&why);
    fl_group_destroy(group);
    return fl_error_restore(&why);
  }
  *result = group;
  return FL_OK;
}

fl_status fl_group_create(fl_host *host, const fl_group_id *id, int32_t rank, int32_t ranks,
                          const fl_group_options *given, fl_group **result) {
  fl_group_options options;
  fl_communicator_choice communicator;
  fl_status status = take_options(given, &options);
  if (!status && (ranks < 1 || rank < 0 || rank >= ranks))
    status =
        fl_error(FL_EINVAL, "rank %d of %d: expected at least 1 rank, and a number from 0 up to their number less 1",
                 rank, ranks);
  if (!status && (!*id->communicator || !memchr(id->communicator, 0, sizeof id->communicator)))
    status = fl_error(FL_EINVAL, "the group's id is none that fl_group_make_id made: it names no communicator");
  if (!status)
    status = fl_communicator_choose(host, kDLCPU, id->communicator, &communicator);
  int32_t most = status ? 0 : communicator.functions.most_ranks;
  if (!status && most && ranks > most)
    status = fl_error(FL_EINVAL, "%d ranks, and communicator '%s' takes %d at most", ranks, communicator.name, most);
  if (status)
    return status;
  fl_group *group = group_new(host, &communicator, rank, ranks, &options);
  if (!group)
    return FL_ENOMEM;
  status = join(group, id->bytes);
  if (status) {
    group_free(group);
    return status;
  }
  return finish(group, result);
}

/* -------------------------------------------------------------------------------------------------------- splitting */

/* What each rank says of itself. */
typedef struct wish {
  int32_t color, key, rank;
} wish;

static int compare_wishes(const void *a, const void *b) {
  const wish *x = a, *y = b;
  if (x->color != y->color)
    return x->color < y->color ? -1 : 1;
  if (x->key != y->key)
    return x->key < y->key ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* This rank's part of the part. FL_OK, and *ranks 0: it is in none. */
static fl_status find_part(fl_group *group, int32_t color, int32_t key, int32_t *rank, int32_t *ranks, int32_t *first) {
  wish mine = {color, key, group->rank}, *all = calloc((size_t)group->ranks, sizeof *all);
  fl_status status = all ? fl_group_exchange(group, &mine, sizeof mine, all) : fl_error_no_memory();
  *ranks = 0;
  if (!status)
    qsort(all, (size_t)group->ranks, sizeof *all, compare_wishes);
  for (int32_t i = 0; !status && i < group->ranks; i++) {
    if (all[i].color != color || color < 0)
      continue;
    if (!*ranks)
      *first = all[i].rank;
    if (all[i].rank == group->rank)
      *rank = *ranks;
    ++*ranks;
  }
  free(all);
  return status;
}

/* The first of each part makes an id, which all get. */
static fl_status pass_id(fl_group *group, int32_t first, fl_group_id *id) {
  fl_group_id mine = {0}, *all = calloc((size_t)group->ranks, sizeof *all);
  fl_communicator_choice *choice = &group->communicator;
  fl_status made = FL_OK;
  if (first == group->rank &&
      !(made = choice->functions.make_id(choice->self, mine.bytes, group->message, sizeof group->message)))
    snprintf(mine.communicator, sizeof mine.communicator, "%s", choice->name);
  fl_status status = all ? fl_group_exchange(group, &mine, sizeof mine, all) : fl_error_no_memory();
  if (made)
    status = fl_group_failed(group, "splitting", made);
  else if (!status && first >= 0 && !*all[first].communicator)
    status = fl_error(FL_EDEVICE, "splitting of group '%s': rank %d could make no id", group->name, first);
  if (!status && first >= 0)
    *id = all[first];
  free(all);
  return status;
}

static fl_status split(fl_group *group, int32_t color, int32_t key, const fl_group_options *options, fl_group **part) {
  const fl_communicator_choice *communicator = &group->communicator;
  fl_group_id id;
  int32_t rank = 0, ranks = 0, first = -1;
  fl_status status = find_part(group, color, key, &rank, &ranks, &first);
  fl_group *made = !status && ranks ? group_new(group->host, communicator, rank, ranks, options) : NULL;
  if (!status && ranks && !made)
    status = FL_ENOMEM;
  if (communicator->functions.split) {
    fl_join given = made ? join_of(made, NULL) : join_of(group, NULL);
    fl_rank *own = NULL;
    fl_status done = status ? status
                            : communicator->functions.split(communicator->self, group->part, color < 0 ? -1 : color,
                                                            key, &given, &own);
    if (!status && done)
      status = fl_group_failed(made ? made : group, "splitting", done);
    if (!status && made && !(made->part = own))
      status = fl_error(FL_EINTERNAL, "communicator '%s' gave no part at splitting", communicator->name);
  } else {
    fl_status passed = pass_id(group, first, &id);
    status = status ? status : passed;
    if (!status && made)
      status = join(made, id.bytes);
  }
  if (!status && made)
    return finish(made, part);
  group_free(made);
  *part = NULL;
  return status;
}

static void not_in_use(fl_group *const *group) {
  if (*group)
    atomic_store(&(*group)->in_use, false);
}

/* Before a rank's part is used; NULL, with an error: another thread has it, or it is of no use. */
static fl_group *use(fl_group *group) {
  fl_status status = check_use(group);
  if (!status && atomic_exchange(&group->in_use, true))
    status = fl_error(FL_ESTATE,
                      "rank %d of group '%s' is used by two threads at once; a thread that is a rank has a "
                      "group of its own",
                      group->rank, group->name);
  return status ? NULL : group;
}

fl_status fl_group_split(fl_group *group, int32_t color, int32_t key, const fl_group_options *given, fl_group **part) {
  fl_group_options options;
  fl_status status = take_options(given, &options);
  if (!status && color < -1)
    status = fl_error(FL_EINVAL, "color is %d, expected 0 or more, or -1 for a rank that is in none", color);
  if (status)
    return status;
  __attribute__((cleanup(not_in_use))) fl_group *used = use(group);
  if (!options.device)
    options.device = group->device.device_id;
  return used ? split(used, color, key, &options, part) : FL_ESTATE;
}

/* -------------------------------------------------------------------------------------------------- end and queries */

void fl_group_destroy(fl_group *group) {
  if (!group)
    return;
  /* What a child has of it is its parent's. */
  if (group->part && group->process == getpid())
    group->communicator.functions.leave(group->communicator.self, group->part);
  group_free(group);
}

int32_t fl_group_rank(const fl_group *group) {
  return group->rank;
}

int32_t fl_group_ranks(const fl_group *group) {
  return group->ranks;
}

const char *fl_group_name(const fl_group *group) {
  return group->name;
}

const char *fl_group_communicator(const fl_group *group) {
  return group->communicator.name;
}

DLDevice fl_group_device(const fl_group *group) {
  return group->device;
}

fl_status fl_group_state(fl_group *group) {
  const fl_communicator *functions = &group->communicator.functions;
  fl_status status = check_use(group);
  if (!status && functions->state && (status = functions->state(group->communicator.self, group->part)))
    status = fl_group_failed(group, "work", status);
  return status;
}

fl_status fl_group_abort(fl_group *group) {
  const fl_communicator *functions = &group->communicator.functions;
  if (group->process != getpid())
    return check_use(group);
  if (!functions->abort)
    return fl_error(FL_ENOTSUP, "communicator '%s' cannot be aborted", group->communicator.name);
  functions->abort(group->communicator.self, group->part);
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------ collectives */

fl_status fl_collective_run(fl_group *group, const fl_collective *given) {
  fl_collective collective;
  fl_status status = fl_sized_check(given, offsetof(fl_collective, stream), "the collective's", "fl_collective");
  if (status)
    return status;
  fl_sized_take(&collective, sizeof collective, given);
  status = fl_collective_check(group, &collective, -1);
  if (status)
    return status;
  __attribute__((cleanup(not_in_use))) fl_group *used = use(group);
  if (!used)
    return FL_ESTATE;
  if (group->check)
    status = fl_collective_compare(group, &collective);
  return status ? status : fl_collective_make(group, &collective);
}

fl_status fl_collective_run_batch(fl_group *group, const fl_collective *given, uint32_t n, uint32_t item_size) {
  fl_status status = FL_OK;
  if (!n)
    return FL_OK;
  if (item_size < offsetof(fl_collective, stream))
    return fl_error(FL_EINVAL, "item_size is %u, expected sizeof(fl_collective)", (unsigned)item_size);
  fl_collective *collectives = calloc(n, sizeof *collectives);
  if (!collectives)
    return fl_error_no_memory();
  fl_elements_take(collectives, sizeof *collectives, given, item_size, n);
  for (uint32_t i = 0; i < n && !status; i++)
    status = fl_collective_check(group, &collectives[i], (int)i);
  __attribute__((cleanup(not_in_use))) fl_group *used = status ? NULL : use(group);
  if (!status && !used)
    status = FL_ESTATE;
  if (!status)
    status = fl_collective_make_batch(group, collectives, n);
  free(collectives);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

fl_status fl_scope_group(fl_host *host, fl_group *group, fl_scope *scope) {
  if (!host || !group || !scope)
    return fl_error(FL_EINVAL, "fl_scope_group: %s is NULL", !host ? "the host" : !group ? "the group" : "the scope");
  if (group->host != host)
    return fl_error(FL_ESTATE, "fl_scope_group: group '%s' is another host's", group->name);
  fl_status status = check_use(group);
  if (status)
    return status;
  fl_policy *policy = fl_get_policy(host);
  status = fl_scope_enter_ranks(host, policy, &group->ranks_of_calls, scope);
  fl_policy_release(policy);
  return status;
}

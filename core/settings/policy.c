/*
 * Policies, rules T and P: a policy is built once from its fields, checked, sorted and never changed afterwards, so
 * that it can be shared between threads and compared by value.
 */
#include "core/settings/policy.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------------------------------------------------------------- tokens */

enum { N_KINDS = 3 };
static const char *const kind_words[N_KINDS + 1] = {"flagos", "vendor", "reference"};

/* All that stand alone. `native` is vLLM's word for the reference. */
static const char *const plain_words[] = {"flagos", "vendor", "reference", "native", FL_TOKEN_PARTS, NULL};

/* Names that the dispatcher before flhost, or its earlier versions, had for a kind. */
static const struct {
  const char *word, *token;
} former_words[] = {{"flaggems", "flagos"}, {"default", "flagos"}, {"native", "reference"}};

const char *fl_kind_name(fl_kind kind) {
  static const char *const names[] = {
      [FL_KIND_DEFAULT] = "flagos", [FL_KIND_VENDOR] = "vendor", [FL_KIND_REFERENCE] = "reference"};
  return kind >= FL_KIND_DEFAULT && kind <= FL_KIND_REFERENCE ? names[kind] : "unknown";
}

/* What follows `prefix` in `token`, NULL if it does not begin so. */
static const char *after(const char *token, const char *prefix) {
  size_t length = strlen(prefix);
  return strncmp(token, prefix, length) ? NULL : token + length;
}

bool fl_token_matches(const char *token, fl_kind kind, const char *vendor, const char *impl_id) {
  const char *name;
  if ((name = after(token, "impl:")))
    return *name && !strcmp(name, impl_id);
  if ((name = after(token, "vendor:")))
    return kind == FL_KIND_VENDOR && *name && vendor && !strcmp(name, vendor);
  if (!strcmp(token, FL_TOKEN_PARTS))
    return !strcmp(impl_id, FL_PARTS_IMPL);
  if (!strcmp(token, "native"))
    return kind == FL_KIND_REFERENCE;
  return !strcmp(token, fl_kind_name(kind));
}

/* A name as it may stand behind "vendor:" and "impl:": without what separates names from each other. */
static bool name_valid(const char *name) {
  size_t length = strlen(name);
  const char *trimmed = name;
  return length && fl_trim(&trimmed, length) == length && !strpbrk(name, " \t\r\n\v\f,;|");
}

/* The form whose first word stands before the colon of what is none ("vednor:x"); NULL: none is near. */
static const char *nearest_form(const char *word) {
  static const char *const prefixes[] = {"vendor", "impl", "flagos", "reference", NULL};
  static const char *const forms[] = {"vendor:NAME", "impl:ID", "flagos", "reference"};
  const char *nearest = fl_nearest_word(word, prefixes, SIZE_MAX);
  size_t i = 0;
  while (nearest && nearest != prefixes[i])
    i++;
  return nearest ? forms[i] : NULL;
}

/* Among `words` (ended by NULL) where it stands alone. */
static const char *nearest_among(const char *token, const char *const *words) {
  const char *colon = strchr(token, ':'), *begin = token, *nearest;
  char word[16];
  size_t length = fl_trim(&begin, colon ? (size_t)(colon - token) : strlen(token));
  if (length >= sizeof word)
    return NULL;
  memcpy(word, begin, length);
  word[length] = 0;
  if (colon)
    return nearest_form(word);
  if ((nearest = fl_nearest_or_beginning(word, words)))
    return nearest;
  for (size_t i = 0; i < sizeof former_words / sizeof *former_words; i++)
    if (!strcasecmp(word, former_words[i].word))
      return former_words[i].token;
  return NULL;
}

bool fl_token_valid(const char *token) {
  const char *name;
  for (const char *const *word = plain_words; *word; word++)
    if (!strcmp(token, *word))
      return true;
  return ((name = after(token, "vendor:")) || (name = after(token, "impl:"))) && name_valid(name);
}

/* "vendor : cuda" without the white space around its two parts, if it fits. */
static bool join_parts(const char *token, char room[FL_TOKEN_ROOM]) {
  const char *colon = strchr(token, ':'), *prefix = token, *name = colon ? colon + 1 : token;
  size_t prefix_length = colon ? fl_trim(&prefix, (size_t)(colon - token)) : 0, length = fl_trim(&name, strlen(name));
  if (!colon || prefix_length + length + 2 > FL_TOKEN_ROOM)
    return false;
  snprintf(room, FL_TOKEN_ROOM, "%.*s:%.*s", (int)prefix_length, prefix, (int)length, name);
  return true;
}

/* An id is written without its "impl:" by who does not know that kinds and ids differ. */
const char *fl_token_nearest(const char *token, char room[FL_TOKEN_ROOM]) {
  if (join_parts(token, room) && fl_token_valid(room))
    return room;
  if (after(token, "default.") || after(token, "reference."))
    return "impl:ID";
  if (after(token, "vendor."))
    return "vendor:NAME";
  return nearest_among(token, plain_words);
}

/* ------------------------------------------------------------------------------------------------------ building */

/* The word of `kind_words` that `prefer` is, in any case; NULL if none. */
static const char *prefer_word(const char *prefer) {
  for (size_t i = 0; i < N_KINDS; i++)
    if (!strcasecmp(prefer, kind_words[i]))
      return kind_words[i];
  return NULL;
}

static fl_status check_prefer(const char *prefer) {
  if (prefer_word(prefer))
    return FL_OK;
  return fl_error(FL_EINVAL, "Invalid prefer value: '%s'. Must be one of: flagos, reference, vendor%s", prefer,
                  fl_suggest(nearest_among(prefer, kind_words)).text);
}

/* sizeof(fl_op_order) of the first header. */
enum { FIRST_ORDER_SIZE = 24 };

/* A name that nothing can have is a slip: what is meant would stay as it was, unsaid. */
static fl_status check_name(const char *what, uint32_t index, const char *name) {
  const char *trimmed = name;
  if (!name)
    return fl_error(FL_EINVAL, "%s[%u] is NULL, expected a name", what, index);
  size_t length = fl_trim(&trimmed, strlen(name));
  if (!length)
    return fl_error(FL_EINVAL, "%s[%u] is '%s', expected a name", what, index, name);
  if (length != strlen(name))
    return fl_error(FL_EINVAL, "%s[%u] is '%s', expected a name without white space around it: '%.*s'", what, index,
                    name, (int)length, trimmed);
  return FL_OK;
}

static fl_status check_present(const char *what, const void *array, uint32_t n) {
  return array || !n ? FL_OK : fl_error(FL_EINVAL, "%s is NULL but has %u entries", what, n);
}

static fl_status check_vendors(const char *what, const char *const *names, uint32_t n) {
  fl_status status = check_present(what, names, n);
  for (uint32_t i = 0; !status && i < n; i++)
    status = check_name(what, i, names[i]);
  return status;
}

static fl_status check_order(uint32_t index, const fl_op_order *order) {
  char room[FL_TOKEN_ROOM];
  if (!order->op)
    return fl_error(FL_EINVAL, "per_op[%u].op is NULL, expected the name of an op", index);
  fl_status status = check_name("the op of per_op", index, order->op);
  if (!status)
    status = check_present("per_op tokens", order->tokens, order->n_tokens);
  for (uint32_t i = 0; !status && i < order->n_tokens; i++) {
    const char *token = order->tokens[i];
    if (!token)
      status = fl_error(FL_EINVAL, "per_op tokens[%u] is NULL, expected a name", i);
    else if (!fl_token_valid(token))
      status = fl_error(FL_EINVAL, "op '%s': '%s' is not a token, expected " FL_TOKEN_FORMS "%s", order->op, token,
                        fl_suggest(fl_token_nearest(token, room)).text);
  }
  return status;
}

/* Names and tokens, and every pointer that is counted. */
static fl_status check_lists(const fl_policy_fields *fields) {
  fl_status status = check_vendors("deny_vendors", fields->deny_vendors, fields->n_deny_vendors);
  if (!status)
    status = check_vendors("allow_vendors", fields->allow_vendors, fields->n_allow_vendors);
  if (!status)
    status = check_present("per_op", fields->per_op, fields->n_per_op);
  if (!status && fields->n_per_op && fields->per_op_size < FIRST_ORDER_SIZE)
    status = fl_error(FL_EINVAL, "per_op_size is %u, expected sizeof(fl_op_order), %zu", (unsigned)fields->per_op_size,
                      sizeof *fields->per_op);
  for (uint32_t i = 0; !status && i < fields->n_per_op; i++)
    status = check_order(i, fl_order_at(fields, i));
  return status;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A sorted copy without duplicates, not NULL itself, so that an empty set differs from none. */
static const char *const *copy_set(fl_arena *arena, const char *const *names, uint32_t *n) {
  const char **copy = fl_arena_strings(arena, names, *n);
  uint32_t kept = 0;
  if (!copy)
    return NULL;
  if (*n)
    qsort(copy, *n, sizeof *copy, compare_names);
  for (uint32_t i = 0; i < *n; i++)
    if (!kept || strcmp(copy[kept - 1], copy[i]) != 0)
      copy[kept++] = copy[i];
  copy[kept] = NULL;
  *n = kept;
  return copy;
}

/* Of pointers into one array: of several for one op, in its order. */
static int compare_orders(const void *a, const void *b) {
  const fl_op_order *left = *(const fl_op_order *const *)a, *right = *(const fl_op_order *const *)b;
  int order = strcmp(left->op, right->op);
  return order ? order : left < right ? -1 : 1;
}

static void copy_orders(fl_arena *arena, fl_policy_fields *to, const fl_policy_fields *from) {
  uint32_t n = from->n_per_op;
  const fl_op_order **sorted = fl_arena_array(arena, n, sizeof *sorted);
  fl_op_order *orders = fl_arena_array(arena, n, sizeof *orders);
  to->per_op = orders;
  to->per_op_size = sizeof *orders;
  for (uint32_t i = 0; sorted && i < n; i++)
    sorted[i] = fl_order_at(from, i);
  if (sorted && n)
    qsort(sorted, n, sizeof *sorted, compare_orders);
  for (uint32_t i = 0; orders && i < n; i++) {
    const fl_op_order *order = sorted[i];
    bool last = i + 1 == n || strcmp(order->op, sorted[i + 1]->op); /* which counts */
    if (!last || !order->n_tokens)                                  /* P3: an empty order counts as none */
      continue;
    orders[to->n_per_op++] = (fl_op_order){
        .op = fl_arena_string(arena, order->op),
        .tokens = fl_arena_strings(arena, order->tokens, order->n_tokens),
        .n_tokens = order->n_tokens,
    };
  }
}

static void add_joined(fl_text *text, const char *before, const char *const *names, uint32_t n, char separator) {
  fl_text_add(text, "%s", before);
  for (uint32_t i = 0; i < n; i++) {
    if (i)
      fl_text_add_bytes(text, &separator, 1);
    fl_text_add(text, "%s", names[i]);
  }
}

static const char *make_fingerprint(fl_arena *arena, const fl_policy_fields *fields) {
  fl_text text = {0};
  fl_text_add(&text, "prefer=%s;st=%d", fields->prefer, fields->strict);
  if (fields->allow_vendors)
    add_joined(&text, ";allow=", fields->allow_vendors, fields->n_allow_vendors, ',');
  if (fields->n_deny_vendors)
    add_joined(&text, ";deny=", fields->deny_vendors, fields->n_deny_vendors, ',');
  if (fields->n_per_op)
    fl_text_add(&text, ";per=");
  for (uint32_t i = 0; i < fields->n_per_op; i++) {
    fl_text_add(&text, "%s%s=", i ? ";" : "", fields->per_op[i].op);
    add_joined(&text, "", fields->per_op[i].tokens, fields->per_op[i].n_tokens, '|');
  }
  if (fields->preserve_inputs)
    fl_text_add(&text, ";preserve=1");
  if (fields->host_fallback)
    fl_text_add(&text, ";host=1");
  return fl_arena_text(arena, &text);
}

/* FNV-1a over the fingerprint: equal fields have equal fingerprints. */
static uint64_t hash_text(const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text; text++)
    hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  return hash;
}

/* Fields of the caller's header version: what it does not have reads as zero. */
static fl_status take_fields(const fl_policy_fields *fields, fl_policy_fields *taken) {
  *taken = (fl_policy_fields){0};
  if (!fields)
    return fl_error(FL_EINVAL, "fields is NULL, expected a fl_policy_fields");
  fl_status status = fl_sized_check(fields, offsetof(fl_policy_fields, strict), "the fields'", "fl_policy_fields");
  if (status)
    return status;
  fl_sized_take(taken, sizeof *taken, fields);
  if (!taken->prefer)
    taken->prefer = "flagos";
  return FL_OK;
}

static fl_status build(const fl_policy_fields *given, fl_policy **policy) {
  fl_arena *arena;
  fl_policy *made = fl_arena_create(sizeof *made, &arena);
  if (!made)
    return fl_error_no_memory();
  fl_policy_fields *fields = &made->fields;
  atomic_init(&made->references, 1);
  fields->size = sizeof *fields;
  fields->prefer = prefer_word(given->prefer);
  fields->strict = given->strict;
  fields->preserve_inputs = given->preserve_inputs;
  fields->host_fallback = given->host_fallback != 0;
  fields->n_deny_vendors = given->n_deny_vendors;
  fields->deny_vendors = copy_set(arena, given->deny_vendors, &fields->n_deny_vendors);
  if (given->allow_vendors) {
    fields->n_allow_vendors = given->n_allow_vendors;
    fields->allow_vendors = copy_set(arena, given->allow_vendors, &fields->n_allow_vendors);
  }
  copy_orders(arena, fields, given);
  if (!arena->failed)
    made->fingerprint = make_fingerprint(arena, fields);
  fl_status status = fl_arena_finish(made, sizeof *made);
  if (status)
    return status;
  made->hash = hash_text(made->fingerprint);
  *policy = made;
  return FL_OK;
}

static fl_status create(const fl_policy_fields *given, bool lists_checked, fl_policy **policy) {
  fl_policy_fields fields;
  fl_status status = take_fields(given, &fields);
  if (!status)
    status = check_prefer(fields.prefer);
  if (!status && lists_checked)
    status = check_lists(&fields);
  return status ? status : build(&fields, policy);
}

fl_status fl_policy_create(const fl_policy_fields *fields, fl_policy **policy) {
  return create(fields, true, policy);
}

fl_status fl_policy_create_unchecked(const fl_policy_fields *fields, fl_policy **policy) {
  return create(fields, false, policy);
}

/* ------------------------------------------------------------------------------------------------- as a value */

fl_policy *fl_policy_retain(fl_policy *policy) {
  if (policy)
    atomic_fetch_add_explicit(&policy->references, 1, memory_order_relaxed);
  return policy;
}

void fl_policy_release(fl_policy *policy) {
  if (policy && atomic_fetch_sub_explicit(&policy->references, 1, memory_order_acq_rel) == 1)
    fl_arena_destroy(policy, sizeof *policy);
}

const fl_policy_fields *fl_policy_get_fields(const fl_policy *policy) {
  return &policy->fields;
}

const char *fl_policy_fingerprint(const fl_policy *policy) {
  return policy->fingerprint;
}

static bool same_names(const char *const *a, uint32_t n_a, const char *const *b, uint32_t n_b) {
  if (n_a != n_b || !a != !b)
    return false;
  for (uint32_t i = 0; i < n_a; i++)
    if (strcmp(a[i], b[i]))
      return false;
  return true;
}

/* Not by fingerprint: names that hold separators could make two policies look alike there. */
bool fl_policy_equal(const fl_policy *a, const fl_policy *b) {
  if (a == b)
    return true;
  if (!a || !b || a->hash != b->hash)
    return false;
  const fl_policy_fields *f = &a->fields, *g = &b->fields;
  if (f->prefer != g->prefer || f->strict != g->strict || f->preserve_inputs != g->preserve_inputs ||
      f->host_fallback != g->host_fallback || f->n_per_op != g->n_per_op ||
      !same_names(f->deny_vendors, f->n_deny_vendors, g->deny_vendors, g->n_deny_vendors) ||
      !same_names(f->allow_vendors, f->n_allow_vendors, g->allow_vendors, g->n_allow_vendors))
    return false;
  for (uint32_t i = 0; i < f->n_per_op; i++) {
    const fl_op_order *left = &f->per_op[i], *right = &g->per_op[i];
    if (strcmp(left->op, right->op) || !same_names(left->tokens, left->n_tokens, right->tokens, right->n_tokens))
      return false;
  }
  return true;
}

/* ---------------------------------------------------------------------------------------------------- questions */

static int compare_op(const void *op, const void *order) {
  return strcmp(op, ((const fl_op_order *)order)->op);
}

const char *const *fl_policy_order(const fl_policy *policy, const char *op, uint32_t *n, bool *per_op) {
  static const struct {
    const char *prefer;
    const char *order[N_KINDS];
  } defaults[N_KINDS] = {{"flagos", {"flagos", "vendor", "reference"}},
                         {"vendor", {"vendor", "flagos", "reference"}},
                         {"reference", {"reference", "flagos", "vendor"}}};
  const fl_policy_fields *fields = &policy->fields;
  const fl_op_order *own =
      fields->n_per_op ? bsearch(op, fields->per_op, fields->n_per_op, sizeof *own, compare_op) : NULL;
  *per_op = own;
  if (own) {
    *n = own->n_tokens;
    return own->tokens;
  }
  size_t i = 0;
  while (strcmp(defaults[i].prefer, fields->prefer))
    i++;
  *n = N_KINDS;
  return defaults[i].order;
}

/* In a sorted set. */
static bool has_name(const char *const *names, uint32_t n, const char *name) {
  return n && bsearch(&name, names, n, sizeof *names, compare_names);
}

bool fl_policy_vendor_allowed(const fl_policy *policy, const char *vendor) {
  const fl_policy_fields *fields = &policy->fields;
  if (has_name(fields->deny_vendors, fields->n_deny_vendors, vendor))
    return false;
  return !fields->allow_vendors || has_name(fields->allow_vendors, fields->n_allow_vendors, vendor);
}

/* ------------------------------------------------------------------------------------------------------- derived */

fl_status fl_policy_with_strict(const fl_policy *policy, bool strict, fl_policy **derived) {
  fl_policy_fields fields = policy->fields;
  fields.strict = strict;
  return build(&fields, derived);
}

fl_status fl_policy_with_preference(const fl_policy *policy, const char *prefer, fl_policy **derived) {
  fl_policy_fields fields = policy->fields;
  if (!prefer)
    return fl_error(FL_EINVAL, "prefer is NULL. Must be one of: flagos, reference, vendor");
  fl_status status = check_prefer(prefer);
  fields.prefer = prefer;
  return status ? status : build(&fields, derived);
}

fl_status fl_policy_with_allowed_vendors(const fl_policy *policy, const char *const *vendors, uint32_t n,
                                         fl_policy **derived) {
  fl_policy_fields fields = policy->fields;
  fl_status status = check_vendors("vendors", vendors, n);
  fields.allow_vendors = n ? vendors : NULL;
  fields.n_allow_vendors = n;
  return status ? status : build(&fields, derived);
}

fl_status fl_policy_with_denied_vendors(const fl_policy *policy, const char *const *vendors, uint32_t n,
                                        fl_policy **derived) {
  fl_policy_fields fields = policy->fields;
  fl_status status = check_vendors("vendors", vendors, n);
  if (status)
    return status;
  fl_arena scratch = {0};
  const char **all = fl_arena_array(&scratch, (size_t)fields.n_deny_vendors + n, sizeof *all);
  if (!all)
    return fl_error_no_memory();
  for (uint32_t i = 0; i < fields.n_deny_vendors; i++)
    all[i] = fields.deny_vendors[i];
  for (uint32_t i = 0; i < n; i++)
    all[fields.n_deny_vendors + i] = vendors[i];
  fields.deny_vendors = all;
  fields.n_deny_vendors += n;
  status = build(&fields, derived);
  fl_arena_free(&scratch);
  return status;
}

fl_status fl_policy_with_op_order(const fl_policy *policy, const char *op, const char *const *tokens, uint32_t n,
                                  fl_policy **derived) {
  fl_policy_fields fields = policy->fields,
                   given = {.per_op = &(fl_op_order){op, tokens, n}, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)};
  fl_status status = check_lists(&given);
  if (status)
    return status;
  fl_arena scratch = {0};
  fl_op_order *orders = fl_arena_array(&scratch, (size_t)fields.n_per_op + 1, sizeof *orders);
  if (!orders)
    return fl_error_no_memory();
  if (fields.n_per_op)
    memcpy(orders, fields.per_op, fields.n_per_op * sizeof *orders);
  orders[fields.n_per_op++] = given.per_op[0]; /* the last order of an op counts */
  fields.per_op = orders;
  status = build(&fields, derived);
  fl_arena_free(&scratch);
  return status;
}

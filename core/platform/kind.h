/* Kinds of platforms: how the devices of one show on a machine, as its plugin says (FL_PLUGIN_HARDWARE of plugin.h). */
#ifndef FLHOST_CORE_PLATFORM_KIND_H
#define FLHOST_CORE_PLATFORM_KIND_H

#include "core/platform/probe.h"
#include "core/registry.h"

enum { FL_KIND_WORDS = 8 };

/* Lists end in NULL or 0. */
typedef struct fl_platform_kind {
  const char *name, *title; /* "cuda", "NVIDIA" */
  const char *plugin;       /* that brings it; NULL: the host itself */
  const char *problem;      /* why that plugin is not loaded; NULL: it is, or nobody looked */
  bool is_described;        /* by FL_PLUGIN_HARDWARE; else all below but `nodes` is empty */
  int32_t device_type;      /* of its tensors */
  const char *aliases[FL_KIND_WORDS + 1];
  uint16_t pci_vendor;
  uint16_t pci_classes[FL_KIND_WORDS + 1]; /* base class and subclass, 0x0302 */
  const char *nodes[FL_KIND_WORDS + 1];    /* without one of them there is nothing to ask */
  const char *patterns[FL_KIND_WORDS + 1]; /* all device nodes that a user must be able to open */
  const char *kernel[FL_KIND_WORDS + 1];   /* files that are there when the kernel driver is loaded */
  const char *module;                      /* its name; NULL: it has several */
  const char *versions[FL_KIND_WORDS + 1]; /* files that name its version */
  const char *masks[FL_KIND_WORDS + 1];    /* variables that hide devices from a process */
  fl_driver driver;
} fl_platform_kind;

/* What a plugin's note says of its platform. Borrowed. */
typedef struct fl_platform_note {
  const char *plugin, *name, *signs; /* FL_PLUGIN, FL_PLUGIN_PLATFORM */
  const char *hardware;              /* FL_PLUGIN_HARDWARE; NULL: it has none */
  bool is_newer;                     /* than this host: keys that it does not know are not mistaken */
} fl_platform_note;

/* Its strings are the arena's. FL_EPLUGIN: a bad FL_PLUGIN_HARDWARE; FL_ENOMEM. */
fl_status fl_platform_kind_read(const fl_platform_note *note, fl_arena *arena, fl_platform_kind *kind);

/* Adds it to the kinds that the host has heard of, if it is not there. They stay: a plugin that is withdrawn leaves the
 * hardware where it was. Takes the host's lock, as the next does. */
fl_status fl_platform_kinds_add(fl_host *host, const fl_platform_note *note);

/* The processor and the kinds, ended by a NULL name, each name once; malloc'ed, and its strings live as long as the
 * host. NULL: out of memory. */
fl_platform_kind *fl_platform_kinds_list(fl_host *host);

/* The first of such a list that a word is the name or an alias of, in any case; NULL: none. */
const fl_platform_kind *fl_platform_kind_named(const fl_platform_kind *list, const char *word);

/* Adds the names and aliases of such a list. false: out of memory. */
bool fl_platform_kind_words(const fl_platform_kind *list, fl_strings *words);

/* What was meant by a word that is none of `words`. Nothing by "gpu", which is one letter from "cpu". */
fl_suggestion fl_platform_suggest(const char *word, const fl_strings *words);

#endif

/*
 * flhost/note.h: what a plugin's file says of the plugin before it is loaded. plugin.h includes it.
 *
 *     FL_PLUGIN("acme", "1.0", "acme", "Apache-2.0", "");
 *     FL_PLUGIN_OPS("rms_norm,silu_and_mul");
 *
 * Each is an ELF note of the owner "flhost", so that the host reads it without mapping the file: none of the plugin's
 * code has run by then.
 */
#ifndef FLHOST_NOTE_H
#define FLHOST_NOTE_H

#include <flhost/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  FL_PLUGIN_SKIP_REFUSED = 1 << 0 /* a refused row does not spoil the plugin's other rows */
};

/* What the host reads from the file before it maps it (ELF note "flhost", type 1). */
typedef struct fl_plugin_note {
  uint32_t name_size, descriptor_size, type; /* ELF note header */
  char owner[8];                             /* "flhost" */
  uint32_t size;                             /* of all that follows, this field included */
  uint16_t abi_major, abi_minor;
  uint32_t flags; /* FL_PLUGIN_* */
  char name[64];
  char version[32];
  char vendor[64];
  char licence[32]; /* SPDX */
  char isa[128];    /* instruction sets that its code needs beyond the architecture's base, "avx2,fma" */
} fl_plugin_note;

/*
 * Stands once in a plugin, outside functions:
 *
 *     FL_PLUGIN("name", "version", "vendor", "SPDX licence", "instruction sets");
 *
 * The name has up to 63 bytes; engine and flhost are taken. Files that are variants of one backend may share it, and
 * are withdrawn together. Instruction sets are a comma list in the compiler's spelling ("avx2,fma,avx512f", "sve"), ""
 * for none. A file compiled with -mavx2 that does not say so crashes on an older machine; one that does is turned down
 * with a reason.
 */
#define FL_PLUGIN(name_, version_, vendor_, licence_, isa_)                                                            \
  FL_PLUGIN_WITH_FLAGS(name_, version_, vendor_, licence_, isa_, 0)
/* The same with FL_PLUGIN_*. */
#define FL_PLUGIN_WITH_FLAGS(name_, version_, vendor_, licence_, isa_, flags_)                                         \
  FL_EXPORT extern const fl_plugin_note flhost_plugin_note;                                                            \
  __attribute__((section(".note.flhost"), used, aligned(4)))                                                           \
  const fl_plugin_note flhost_plugin_note = {8,                                                                        \
                                             (uint32_t)(sizeof(fl_plugin_note) - offsetof(fl_plugin_note, size)),      \
                                             1,                                                                        \
                                             "flhost",                                                                 \
                                             (uint32_t)(sizeof(fl_plugin_note) - offsetof(fl_plugin_note, size)),      \
                                             FL_ABI_MAJOR,                                                             \
                                             FL_ABI_MINOR,                                                             \
                                             (flags_),                                                                 \
                                             name_,                                                                    \
                                             version_,                                                                 \
                                             vendor_,                                                                  \
                                             licence_,                                                                 \
                                             isa_}

/*
 * Beside FL_PLUGIN, once at most: the ops that the plugin implements or defines, a comma list.
 *
 *     FL_PLUGIN_OPS("rms_norm,silu_and_mul");
 *
 * The host then need not load the plugin to know what it is good for: it reads the list from the file, and loads the
 * plugin when one of these ops is first looked for (status "deferred" until then). A row of another op is refused, and
 * so is a component, but for the platform of FL_PLUGIN_PLATFORM and class paths for that: a plugin that brings a layer
 * has no such list, and is loaded at once. A host that is older than this macro loads every plugin at once.
 */
#define FL_PLUGIN_OPS(ops_) FL_PLUGIN_TEXT_NOTE(flhost_plugin_ops, 2, ops_)

/*
 * Beside FL_PLUGIN_OPS, once at most: the platform that the plugin brings as a component, and signs that it may be
 * active on a machine: a comma list of files, and of environment variables with a '$' before their names.
 *
 *     FL_PLUGIN_PLATFORM("acme", "/dev/acme0,/dev/acmectl,$ACME_SIMULATOR");
 *
 * If one of the files exists or one of the variables is set and not empty, the plugin is loaded when it is found. Else
 * its platform cannot be active, and it is loaded when one of its ops is looked for, when the platform is forced
 * (VLLM_FL_PLATFORM) or listed, or when memory of a device is asked for.
 */
#define FL_PLUGIN_PLATFORM(name_, signs_) FL_PLUGIN_TEXT_NOTE(flhost_plugin_platform, 3, name_ ":" signs_)

/*
 * Beside FL_PLUGIN_PLATFORM, once at most: the platform's other names, and how its devices show on a machine, so that
 * `flhost platform` tells each step from the bus to a device, also where the plugin cannot be loaded. Clauses with
 * semicolons between them, each a key, a colon and up to 8 words:
 *     FL_PLUGIN_HARDWARE("title: Acme; aliases: acmegpu; device: ext_dev; pci: 1abc 0302 1200;"
 *                        "nodes: /dev/acmectl /dev/acme[0-9]*; kernel: /sys/module/acme; module: acme;"
 *                        "version: /sys/module/acme/version; masks: ACME_VISIBLE_DEVICES;"
 *                        "driver: libacme.so.2 libacme.so.1; directories: $ACME_PATH /opt/acme");
 * - title: the vendor, as people call it; aliases: words that stand for the platform in VLLM_FL_PLATFORM and --device;
 *   device: the type of its tensors by DLPack's name, ext_dev if not given.
 * - pci: vendor, and the classes (base class and subclass) of its devices, hexadecimal.
 * - nodes: patterns of all device nodes that a user must be able to open. The files of FL_PLUGIN_PLATFORM are those of
 *   which one must exist.
 * - kernel: files one of which is there when the kernel's driver is loaded; module: its name, if it has one; version:
 *   files that hold its version.
 * - masks: variables that hide devices from a process.
 * - driver: names of the driver's library, newest first; directories: where the vendor installs it (in lib/ there), if
 *   not where the loader looks: the first that is given, a variable ($) being given when it is set.
 * title, pci, kernel and driver are required. An unknown key is an error, unless the plugin is of a newer minor ABI.
 */
#define FL_PLUGIN_HARDWARE(text_) FL_PLUGIN_TEXT_NOTE(flhost_plugin_hardware, 4, text_)

/*
 * Beside FL_PLUGIN, once at most: the vendor of all of the plugin's implementations, as policies write it
 * (fl_impl.vendor, not the company of FL_PLUGIN).
 *
 *     FL_PLUGIN_VENDOR("acme");
 *
 * Where settings deny that vendor, or do not allow it, the host does not load the plugin, and says so in its list; it
 * does when the vendor is let in. All implementations are of FL_KIND_VENDOR and that vendor then: another row is
 * refused. A host that is older than this macro loads the plugin, and calls none of its implementations.
 */
#define FL_PLUGIN_VENDOR(vendor_) FL_PLUGIN_TEXT_NOTE(flhost_plugin_vendor, 5, vendor_)

/* An ELF note of the owner "flhost" that holds a text. */
#define FL_PLUGIN_TEXT_NOTE(variable_, type_, text_)                                                                   \
  __attribute__((section(".note.flhost"), used, aligned(4))) static const struct {                                     \
    uint32_t name_size, descriptor_size, type;                                                                         \
    char owner[8];                                                                                                     \
    char text[(sizeof(text_) + 3) / 4 * 4];                                                                            \
  } variable_ = {8, (uint32_t)sizeof(text_), type_, "flhost", text_}

#ifdef __cplusplus
}
#endif

#endif /* FLHOST_NOTE_H */

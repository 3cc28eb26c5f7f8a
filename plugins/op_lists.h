/*
 * Each file of a plugin says itself which ops it adds: at its end stand a list of rows and OP_LIST(name of the list).
 * The linker lays the addresses of all lists side by side, in the order of the files that it is given, and the plugin
 * walks over them when it registers. So a new file is found by being there, and no table names it.
 *
 * Files that are compiled several times, for different machines, name each time's section by OP_LIST_SECTION.
 *
 * A row's type is the plugin's own, one for all of its files. Only the plugin's own lists are seen: the linker makes
 * the section's bounds anew for each shared object.
 */
#ifndef FLHOST_PLUGINS_OP_LISTS_H
#define FLHOST_PLUGINS_OP_LISTS_H

#include <stddef.h>

typedef struct op_list {
  const void *rows;
  size_t n;
} op_list;

#ifndef OP_LIST_SECTION
#define OP_LIST_SECTION "op_lists"
#endif

/* Once in a file, since compilers order a file's variables as they like. It is the list's address that lies in
 * the section: addresses have no padding between them, whatever a sanitizer puts around variables. */
#define OP_LIST(array)                                                                                                 \
  static const op_list array##_list = {array, sizeof array / sizeof array[0]};                                         \
  static const op_list *const array##_listed __attribute__((used, section(OP_LIST_SECTION))) = &array##_list

extern const op_list *const __start_op_lists[] __attribute__((visibility("hidden")));
extern const op_list *const __stop_op_lists[] __attribute__((visibility("hidden")));
#define FOR_EACH_OP_LIST(list) for (const op_list *const *list = __start_op_lists; list < __stop_op_lists; list++)

#endif

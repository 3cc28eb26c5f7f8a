/* Loading settings as a host does, and what must hold of every set that loads. */
#ifndef FLHOST_TESTS_FUZZ_SETTINGS_H
#define FLHOST_TESTS_FUZZ_SETTINGS_H

/* Variables NAME=VALUE, ended by NULL; `config_dir` (may be NULL) has platform files, of which "fuzz" is read. */
void fuzz_settings(const char *const *environment, const char *config_dir);

#endif

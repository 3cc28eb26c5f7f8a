/* The words of `flhost bench --peer`: see peer.h. */
#include "cli/bench/peer.h"
#include "cli/cli.h"

#include <string.h>

static const char *const words[] = {"copy", "torch", "torch.compile", "python", NULL};
static const char *const titles[] = {">X COPY", ">X TORCH", ">X COMPILED", ">X PYTHON"};

bool bench_peer_is_loop(const char *name) {
  return !strcmp(name, words[0]);
}

/* As it stands in the table; NULL, with a message: there is none. */
static const char *find(const char *word, size_t length) {
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)length, word);
  for (int i = 0; words[i]; i++)
    if (!strcmp(name, words[i]))
      return words[i];
  cli_unknown("peer", "", name, words, "peers: copy, torch, torch.compile, python; a list is separated by commas");
  return NULL;
}

bool bench_peers_parse(const char *list, bench_request *asked) {
  for (const char *word = list;; word++) {
    size_t length = strcspn(word, ",");
    const char *name = find(word, length);
    if (!name)
      return false;
    for (int i = 0; i < asked->n_peers; i++)
      if (asked->peers[i] == name) {
        cli_error("--peer: '%s' stands twice", name);
        return false;
      }
    asked->peers[asked->n_peers++] = name;
    word += length;
    if (!*word)
      return true;
  }
}

const char *bench_peer_title(const char *name) {
  int i = 0;
  while (words[i + 1] && strcmp(words[i], name) != 0)
    i++;
  return titles[i];
}

bool bench_needs_torch(const bench_request *asked) {
  for (int i = 0; i < asked->n_peers; i++)
    if (!bench_peer_is_loop(asked->peers[i]))
      return true;
  return false;
}

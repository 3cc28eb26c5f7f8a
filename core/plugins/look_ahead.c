/* The plugins that a round of loading will open: see look_ahead.h. */
#include "core/plugins/look_ahead.h"

#include "core/registry.h"

static void forget(fl_upcoming *later) {
  for (uint32_t i = 0; i < later->n; i++) {
    fl_note_clear(&later->infos[i]);
    fl_plugin_record_clear(&later->records[i]);
  }
  later->n = 0;
}

/* fl_look_ahead. One that is left out is tried by itself. */
static uint32_t look_ahead(void *user, fl_suspect *suspects, uint32_t n) {
  fl_upcoming *later = user;
  forget(later);
  for (uint32_t i = later->next; i < later->found->n && later->n < n; i++) {
    const fl_found *one = &later->found->items[i];
    fl_plugin_record *record = &later->records[later->n];
    fl_note_info *info = &later->infos[later->n];
    fl_file file = fl_file_look(one->path);
    if (one->problem || one->disabled)
      continue;
    bool good = !fl_loader_judge(later->loader, one->path, &file, record, info);
    suspects[later->n++] = (fl_suspect){.file = one->path, .symbol = one->symbol, .name = record->name, .info = info};
    suspects[later->n - 1].status = file.status;
    if (good && !later->waits(later->loader->host, one, info, record))
      continue;
    later->n--;
    fl_note_clear(info);
    fl_plugin_record_clear(record);
  }
  return later->n;
}

void fl_upcoming_set(fl_upcoming *upcoming, fl_loader *loader, const fl_found_list *found, fl_waits waits) {
  upcoming->loader = loader;
  upcoming->found = found;
  upcoming->next = 0;
  upcoming->waits = waits;
  upcoming->n = 0;
}

void fl_upcoming_begin(fl_upcoming *upcoming) {
  upcoming->loader->judge.look_ahead = look_ahead;
  upcoming->loader->judge.user = upcoming;
}

void fl_upcoming_end(fl_upcoming *upcoming) {
  upcoming->loader->judge.look_ahead = NULL;
  forget(upcoming);
}

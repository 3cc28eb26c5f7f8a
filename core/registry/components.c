/* Components of plugins: see components.h. */
#include "core/registry/components.h"

#include <stdlib.h>

void fl_component_record_clear(fl_component_record *component) {
  free(component->plugin);
  free(component->type);
  free(component->name);
  free(component->op);
  free(component->former);
}

/* Brings an op of its own, which says that it replaces LAYERS, and says that OP replaces the layer class CLASS. */
#include <flhost/plugin.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");
#ifdef OPS
FL_PLUGIN_OPS(OPS);
#endif
#ifndef LAYERS
#define LAYERS NULL
#endif

fl_status register_builtins(fl_registry *registry) {
  static const fl_op_def op = {.size = sizeof op, .schema = "test_layer(Tensor x) -> Tensor out", .layers = LAYERS};
  fl_status status = registry->register_op(registry, &op);
#ifdef CLASS
  static const fl_component layer = {.size = sizeof layer, .type = "layer", .name = CLASS, .functions = OP};
  if (!status)
    status = registry->register_component(registry, &layer);
#endif
  return status;
}

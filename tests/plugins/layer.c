/* Brings an op of its own, and says that OP replaces the layer class CLASS. */
#include <flhost/plugin.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

fl_status register_builtins(fl_registry *registry) {
  static const fl_op_def op = {.size = sizeof op, .schema = "test_layer(Tensor x) -> Tensor out"};
  static const fl_component layer = {.size = sizeof layer, .type = "layer", .name = CLASS, .functions = OP};
  fl_status status = registry->register_op(registry, &op);
  return status ? status : registry->register_component(registry, &layer);
}

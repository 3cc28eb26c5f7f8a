/* Has no entry of its own, but needs good.so, which has one. */
#include <flhost/plugin.h>

FL_PLUGIN("needs_good", "1", "Test", "MIT", "");

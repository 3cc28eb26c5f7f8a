/*
 * What changes a host: Host's methods that load, set, freeze and forget.
 */
#include "python/extension/host.h"

PyMethodDef fl_py_control_methods[] = {
    {NULL, NULL, 0, NULL},
};

"""A backend in Python: a function, and a line that offers it. Run it: python3 examples/python/python_backend.py"""

import flhost
import numpy


def relu2(x, out):  # x and out are views of the call's tensors: nothing is copied
    numpy.square(numpy.maximum(x, 0), out=out)


host = flhost.Host()
host.register_impl("relu2", "vendor.example", relu2, vendor="example", devices=["cpu"], dtypes=["float32"])
with host.prefer("vendor"):
    print(host.op("relu2").call(numpy.array([-1, 2, 3], "float32")), host.resolve("relu2")["impl_id"])

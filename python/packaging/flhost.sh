#!/bin/sh
# The command of the Python package flhost @VERSION@: runs the program that lies in the package. A shell script, and no
# entry point of Python's: it starts in a millisecond, and it still works when the environment was moved. The package is
# looked for relative to this file; that of another version is another wheel's.
self=$0
while [ -L "$self" ]; do
  target=$(readlink "$self")
  case $target in
  /*) self=$target ;;
  *) self=${self%/*}/$target ;;
  esac
done
case $self in
*/*) here=${self%/*} ;;
*) here=. ;;
esac
for packages in "$here"/../lib/python3*/site-packages "$here"/../lib64/python3*/site-packages \
  "$here"/../lib/python3*/dist-packages "$here"/../lib/python3/dist-packages "$here"/..; do
  if [ -d "$packages/flhost-@VERSION@.dist-info" ] && [ -x "$packages/flhost/bin/flhost" ]; then
    exec "$packages/flhost/bin/flhost" "$@"
  fi
done
# Installed to places that are not each other's neighbours, or linked to a tree: a Python that has the package knows.
for python in "$here/python3" python3; do
  program=$("$python" -c 'import flhost, importlib.metadata, os
if importlib.metadata.version("flhost") == "@VERSION@":
    print(os.path.join(os.path.dirname(flhost.__file__), "bin", "flhost"))' 2>/dev/null)
  if [ -n "$program" ] && [ -x "$program" ]; then
    exec "$program" "$@"
  fi
done
echo "flhost: the Python package flhost @VERSION@ is not where this command was installed with it:" \
  "no $here/../lib/python3*/site-packages/flhost/bin/flhost; install it anew: pip install --force-reinstall flhost" >&2
exit 127

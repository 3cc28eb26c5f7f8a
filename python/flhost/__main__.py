"""`python3 -m flhost`: the command flhost, for where its script is not in PATH."""

import os
import sys
from pathlib import Path

program = Path(__file__).resolve().parent / "bin" / "flhost"
try:
    os.execv(program, ["flhost", *sys.argv[1:]])
except OSError as error:
    sys.exit(f"flhost: {program}: {error.strerror}; expected the program of the package flhost")

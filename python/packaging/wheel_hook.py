"""What hatchling is told of a wheel: the compiled files, its tag, and the command.

The C compiler's part is the Makefile's (`make wheel-tree`), which lays it out as `make install` does: the library finds
plugins, platform files and the command relative to itself. FLHOST_WHEEL_TREE names such a tree that was made already.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data["shared_scripts"][self.command()] = "flhost"
        if version == "editable":
            self.make("python")
            return
        tree = Path(os.environ.get("FLHOST_WHEEL_TREE") or self.make("wheel-tree"))
        files = sorted(path for path in tree.rglob("*") if path.is_file())
        if tree / "_core.abi3.so" not in files:
            raise SystemExit(f"{tree}: no _core.abi3.so there, expected what `make wheel-tree` makes")
        build_data["force_include"].update({str(path): f"flhost/{path.relative_to(tree)}" for path in files})
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-linux_{os.uname().machine}"

    def make(self, target: str) -> str:
        """Makes TARGET in build/, and says where the wheel's tree is."""
        # What an outer make says to its own children is not for this one.
        outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
        environment = {name: value for name, value in os.environ.items() if name not in outer}
        command = ["make", "-s", f"-j{os.cpu_count()}", "BUILD=build", "DEPS=no", f"PYTHON={sys.executable}", target]
        try:
            subprocess.run(command, cwd=self.root, env=environment, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(
                f"flhost: `{' '.join(command)}` failed ({error}). It needs a C compiler, make and the libraries that "
                "packages.txt names in its sections [build] and [python]; on Debian, .ci/deps build python installs them."
            ) from None
        return str(Path(self.root) / "build" / "wheel" / "tree")

    def command(self) -> str:
        """The script that lies in PATH, made for this version."""
        script = Path(self.root) / "build" / "wheel" / "flhost"
        script.parent.mkdir(parents=True, exist_ok=True)
        template = Path(self.root) / "python" / "packaging" / "flhost.sh"
        script.write_text(template.read_text().replace("@VERSION@", self.metadata.version))
        script.chmod(0o755)
        return str(script)

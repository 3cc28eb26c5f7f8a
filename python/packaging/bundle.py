"""Makes of a wheel that works here one that works elsewhere: bundle.py WHEEL DIRECTORY.

auditwheel brings the libraries in that other systems may lack, and names the oldest system that the wheel works on.
What these libraries' licences ask for is added: their texts, and their names in the wheel's own.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# By the Debian package that brings the library. One that is not here stops the making of the wheel: somebody has to
# read its licence.
LICENCES = {
    "libhwloc15": "BSD-3-Clause",
    "libjansson4": "MIT",
    "libmd0": "BSD-3-Clause AND BSD-2-Clause AND ISC AND Beerware",
    "libudev1": "LGPL-2.1-or-later",
    "libyaml-0-2": "MIT",
}
# The same of what lies in the wheel before auditwheel sees it, by a file of it.
COPIED = {"libdlpack-dev": ("flhost/include/otherwise/dlpack/dlpack.h", "Apache-2.0")}
# Debian's copyright files refer to the texts of these.
COMMON_TEXTS = {"LGPL-2.1-or-later": "LGPL-2.1"}


def run(*command: str | Path) -> str:
    result = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{result.stdout}{result.stderr}")
    return result.stdout


def packages_of(information: Path) -> list[str]:
    """The Debian packages of the bundled libraries, by the list that auditwheel leaves."""
    (bill,) = information.glob("sboms/auditwheel*.json")
    found = [component["purl"] for component in json.loads(bill.read_text())["components"]]
    packages = sorted({match[1] for purl in found if (match := re.match(r"pkg:deb/[^/]+/([^@]+)@", purl))})
    unknown = sorted(set(packages) - set(LICENCES))
    if unknown:
        raise SystemExit(f"bundle.py: no licence is named for {', '.join(unknown)}: read it, and add it to LICENCES")
    return packages


def add_licences(tree: Path) -> None:
    """Puts the licences of what auditwheel brought into the dist-info directory of the unpacked wheel."""
    (information,) = tree.glob("*.dist-info")
    packages = packages_of(information)
    libraries = sorted(library.name for library in tree.glob("*.libs/*.so*"))
    if len(packages) != len(libraries):
        raise SystemExit(
            f"bundle.py: {', '.join(libraries)} are of {', '.join(packages) or 'no Debian package'}, expected one for each"
        )
    licences = {package: LICENCES[package] for package in packages}
    licences |= {package: licence for package, (file, licence) in COPIED.items() if (tree / file).is_file()}
    texts = {f"{package}.txt": Path("/usr/share/doc") / package / "copyright" for package in licences}
    for licence in licences.values():
        if common := COMMON_TEXTS.get(licence):
            texts[f"{common}.txt"] = Path("/usr/share/common-licenses") / common
    directory = information / "licenses" / "bundled"
    directory.mkdir(parents=True)
    for name, source in texts.items():
        (directory / name).write_bytes(source.read_bytes())

    metadata = information / "METADATA"
    head, separator, description = metadata.read_text().partition("\n\n")
    (own,) = re.findall(r"^License-Expression: (.*)$", head, re.MULTILINE)
    words = {word for licence in licences.values() for word in licence.split(" AND ")} - {own}
    head = head.replace(f"License-Expression: {own}", f"License-Expression: {' AND '.join([own, *sorted(words)])}")
    files = "".join(f"\nLicense-File: bundled/{name}" for name in sorted(texts))
    last = re.findall(r"^License-File: .*$", head, re.MULTILINE)[-1]
    metadata.write_text(head.replace(last, last + files) + separator + description)


def main() -> None:
    wheel, directory = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        repaired, unpacked = Path(scratch, "repaired"), Path(scratch, "unpacked")
        run("auditwheel", "repair", "--wheel-dir", repaired, wheel)
        (whole,) = repaired.glob("*.whl")
        run(sys.executable, "-m", "wheel", "unpack", "--dest", unpacked, whole)
        (tree,) = unpacked.iterdir()
        add_licences(tree)
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", directory, tree)


if __name__ == "__main__":
    main()

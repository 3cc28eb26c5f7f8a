"""What pyproject.toml has no words for: the .pth file beside the package, which installs its finder when Python starts."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PTH = "vllm_fl_dispatch.pth"


class BuildWithPth(build_py):
    def run(self):
        super().run()
        self.copy_file(str(Path(__file__).with_name(PTH)), str(Path(self.build_lib) / PTH))

    def get_outputs(self, *args, **kwargs):
        return [*super().get_outputs(*args, **kwargs), str(Path(self.build_lib) / PTH)]

    def get_source_files(self):
        return [*super().get_source_files(), PTH]


setup(cmdclass={"build_py": BuildWithPth})

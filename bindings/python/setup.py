# SPDX-License-Identifier: BSD-3-Clause
"""The wheel: `pip install ./bindings/python`, in a checkout of the library.

Bazel builds the extension module, for the Python that runs this, with the
packages that the library itself needs and that Python's headers. The wheel
links the system's libabsl and libbpf: it is for this distribution's release.

    NETMETER_BAZEL          the command: "bazel --output_base=/tmp/b"
    NETMETER_BAZEL_OPTIONS  of `build`: "--jobs=2"
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = "bindings/python/netmeter/_netmeter.so"

if not os.path.exists(os.path.join(ROOT, "WORKSPACE")):
    sys.exit(
        "setup.py: this is no checkout of libnetmeter. pip before 21.3 builds in "
        "a copy of bindings/python: upgrade it (python -m pip install -U pip)."
    )


def version():
    with open(os.path.join(ROOT, "include", "netmeter", "netmeter.h"), encoding="utf-8") as file:
        return re.search(r'#define NETMETER_VERSION "([^"]+)"', file.read()).group(1)


class BazelBuildExt(build_ext):
    def build_extension(self, ext):
        bazel = shlex.split(os.environ.get("NETMETER_BAZEL", "bazel"))
        options = [
            "--compilation_mode=opt",
            "--repo_env=NETMETER_PYTHON=" + os.path.realpath(sys.executable),
            # Keeps the links of the developer's own builds.
            "--symlink_prefix=/",
        ] + shlex.split(os.environ.get("NETMETER_BAZEL_OPTIONS", ""))
        package, _, name = TARGET.partition("/netmeter/")
        label = "//%s:netmeter/%s" % (package, name)
        subprocess.check_call(bazel + ["build"] + options + [label], cwd=ROOT)
        bazel_bin = subprocess.check_output(
            bazel + ["info"] + options + ["bazel-bin"], cwd=ROOT
        )
        built = os.path.join(os.fsdecode(bazel_bin).strip(), TARGET)
        target = self.get_ext_fullpath(ext.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(built, target)
        os.chmod(target, 0o755)


# Not the checkout, where two builds at once would take each other's files.
scratch = tempfile.TemporaryDirectory()

setup(
    name="netmeter",
    options={
        "build": {"build_base": scratch.name},
        "egg_info": {"egg_base": scratch.name},
    },
    version=version(),
    description="Bytes that each service of a Linux host sends and receives",
    license="BSD-3-Clause",
    python_requires=">=3.8",
    packages=["netmeter"],
    package_data={"netmeter": ["py.typed", "_netmeter.pyi"]},
    ext_modules=[Extension("netmeter._netmeter", sources=[])],
    cmdclass={"build_ext": BazelBuildExt},
    extras_require={"prometheus": ["prometheus_client>=0.3.1"]},
    zip_safe=False,
)

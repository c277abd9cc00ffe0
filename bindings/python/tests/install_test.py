# SPDX-License-Identifier: BSD-3-Clause
"""What packaging/install.sh installs for Python is a package that importlib.metadata, and
so pip, know. Once, importlib.metadata.version("netmeter") found none."""

import email
import glob
import os
import runpy
import subprocess
import sys
import tempfile
import types
import unittest

# Runs in an interpreter that has no other netmeter.
SHOW = """
import importlib.metadata, netmeter, netmeter.connections
package = importlib.metadata.distribution("netmeter")
print(package.version, netmeter.__version__, package.metadata["Requires-Python"], *package.requires)
"""


def arguments_of_setup():
    """What setup.py calls setup() with."""
    kept = {}
    fakes = {
        "setuptools": {"Extension": lambda *_, **__: None, "setup": kept.update},
        "setuptools.command": {},
        "setuptools.command.build_ext": {"build_ext": object},
    }
    for name, contents in fakes.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(contents)
    runpy.run_path("bindings/python/setup.py")
    return kept


class InstallTest(unittest.TestCase):
    def test_the_installed_package_is_known_as_the_wheel_is(self):
        setup = arguments_of_setup()
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as destination:
            subprocess.run(
                ["packaging/install.sh", "--build", os.getcwd(), "--destdir", destination, "python"], check=True
            )
            (packages,) = glob.glob(destination + "/usr/local/lib/python3.*/dist-packages")
            (metadata,) = glob.glob(packages + "/netmeter-%s.dist-info/METADATA" % setup["version"])
            with open(metadata, encoding="utf-8") as file:
                fields = email.message_from_file(file)
            shown = subprocess.run(
                ["/usr/bin/python3", "-c", SHOW],
                env={**os.environ, "PYTHONPATH": packages, "PYTHONSAFEPATH": "1"},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout.decode()
        keys = {"Name": "name", "Version": "version", "Summary": "description"}
        keys.update({"License": "license", "Requires-Python": "python_requires"})
        self.assertEqual({k: fields[k] for k in keys}, {k: setup[name] for k, name in keys.items()})
        ((extra, (requirement,)),) = setup["extras_require"].items()
        self.assertEqual(fields.get_all("Provides-Extra"), [extra])
        needed = '%s; extra == "%s"' % (requirement, extra)
        self.assertEqual(fields.get_all("Requires-Dist"), [needed])
        version = setup["version"]
        self.assertEqual(shown, "%s %s %s %s\n" % (version, version, setup["python_requires"], needed))

    def test_wheels_are_made_for_the_pythons_that_are_here(self):
        def pythons(**environment):
            command = ["packaging/make_wheels.sh", "--list"]
            done = subprocess.run(command, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True)
            return done.returncode, done.stdout.decode().split(), done.stderr.decode()

        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            debians, shim, broken = os.path.realpath("/usr/bin/python3"), folder + "/one", folder + "/python3.12"
            os.symlink("/usr/bin/python3", shim)
            with open(broken, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\nexit 127\n")  # as pyenv's if no 3.12 is chosen
            os.chmod(broken, 0o755)
            # Each version once; those in PATH come first.
            both = pythons(PATH=folder + ":/usr/bin:/bin", NETMETER_PYTHONS=shim)
            self.assertEqual(both, (0, [debians], "make_wheels.sh: %s does not run\n" % broken))
        status, _, error = pythons(NETMETER_PYTHONS="/nonexistent/python3.9")
        self.assertEqual((status, error), (1, "make_wheels.sh: no Python /nonexistent/python3.9\n"))


if __name__ == "__main__":
    unittest.main()

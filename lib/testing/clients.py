# SPDX-License-Identifier: BSD-3-Clause
"""Clients that Debian does not have: Python packages of PyPI, and Go programs with
modules of the Go module proxy. What comes from there is kept in netmeter/ below
$XDG_CACHE_HOME or ~/.cache."""

import contextlib
import fcntl
import os
import pwd
import shutil
import sys
import time

import lab

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
DAY = 86400
# For a package without a wheel, such as prometheus_client 0.3.1, which Magma pins.
FROM_SOURCE = ("--use-pep517",)
# The first with wheels for the Python of Debian 12, and for that of Debian 13.
OLD_GRPCIO = "==1.49.1" if sys.version_info < (3, 12) else "==1.66.2"


def cache(*path):
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    path = os.path.join(root, "netmeter", *path)
    os.makedirs(path, exist_ok=True)
    return path


@contextlib.contextmanager
def alone(directory):
    """One process at a time: tests that want the same package may run at once."""
    with open(os.path.join(directory, "lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_venv(package, version, options=("--only-binary", ":all:")):
    """The Python of a virtual environment with this version of a package, ""
    for the newest. It has no pip of its own, which would take seconds."""
    directory = cache(package + (version or "-newest"))
    venv, stamp = (os.path.join(directory, name) for name in ("venv", "done"))
    python = os.path.join(venv, "bin", "python3")
    with alone(directory):
        with contextlib.suppress(OSError):
            if version or time.time() - os.stat(stamp).st_mtime < DAY:
                os.stat(stamp), os.stat(python)
                return python
        environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1")
        if os.path.exists(CERTIFICATES):
            environment.setdefault("PIP_CERT", CERTIFICATES)
        lab.run(lab.PYTHON, "-m", "venv", "--clear", "--without-pip", venv)
        pip = [lab.PYTHON, "-m", "pip", "--python", python, "install", "-q"]
        lab.run(*pip, *options, package + version, env=environment)
        open(stamp, "w").close()
    return python


def build_go_client(source_directory, directory, go=None):
    """The program of a Go package, built in a directory, and Go's version."""
    # The second is where Go's own packages go.
    go = go or shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise RuntimeError("no go: install golang-go")
    source, program = os.path.join(directory, "source"), os.path.join(directory, "go_client")
    # What Bazel hands to the test are links, which Go does not follow.
    shutil.copytree(source_directory, source)
    environment = dict(
        os.environ,
        GOPATH=cache("go"),
        GOMODCACHE=cache("go", "mod"),
        GOCACHE=cache("go", "build"),
        GOTOOLCHAIN="local",
        GOFLAGS="-mod=readonly -modcacherw -buildvcs=false -p=2",
        CGO_ENABLED="0",
    )
    lab.run(go, "build", "-o", program, ".", cwd=source, env=environment)
    return program, lab.run(go, "version", env=environment).decode().split()[2]

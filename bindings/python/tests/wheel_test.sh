#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# wheel_test.sh [PYTHON...]: for each Python, builds the wheel as a user does,
# installs it into a clean virtual environment, runs the unit tests on it, and
# checks the types with mypy; then the same wheel with its libraries in it, by
# packaging/make_wheels.sh, which also reports the Pythons that it selects by itself:
# 3.9 to 3.13, if they are in PATH or in NETMETER_PYTHONS (for Bazel:
# --test_env=NETMETER_PYTHONS="/opt/python3.9/bin/python3"). Needs PyPI.
#
# It runs Bazel, in an output base of its own if itself run by Bazel; see
# setup.py for NETMETER_BAZEL and NETMETER_BAZEL_OPTIONS.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
root=$(cd "$here/../../.." && pwd -P)
if [ $# -eq 0 ]; then
  mapfile -t pythons < <("$root/packaging/make_wheels.sh" --list)
  [ ${#pythons[@]} -gt 0 ] || { echo "wheel_test.sh: no Python 3.9 to 3.13 is in PATH" >&2; exit 1; }
  set -- "${pythons[@]}"
fi

work=$(mktemp -d)
cleanup() {
  # Only a server of this test's own: with TEST_TMPDIR, Bazel starts one there.
  [ -z "${TEST_TMPDIR:-}" ] || (cd "$root" && ${NETMETER_BAZEL:-bazel} shutdown) || true
  rm -rf "$work"
}
trap cleanup EXIT
# The root in which make_wheels.sh builds is kept.
cache=${XDG_CACHE_HOME:-${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.cache}
export HOME="${HOME:-$work}"
export PIP_DISABLE_PIP_VERSION_CHECK=1
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  export PIP_CERT="${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}"
fi

cat >"$work/user.py" <<'END'
import socket
from typing import Dict

import netmeter
import netmeter.prometheus
from prometheus_client import REGISTRY


def totals(meter: netmeter.Meter) -> Dict[str, int]:
    result: Dict[str, int] = {}
    for sample in meter.read_service():
        if sample.kind is netmeter.Kind.SERVICE:
            result[sample.destination] = sample.tx_bytes
    return result


def main() -> None:
    try:
        with netmeter.Meter.open("/nonexistent", service="mme") as meter:
            print(totals(meter), meter.read_health().series)
    except netmeter.NotFoundError as error:
        print(error.code)
    meter = netmeter.Meter.open("/nonexistent", wait_for_loader=True)
    REGISTRY.register(
        netmeter.prometheus.Collector(meter, netmeter.prometheus.Scope.HOST)
    )
    try:
        netmeter.register_process("")  # no name, as the host may have a meter
    except netmeter.InvalidArgumentError:
        pass
    with socket.socket() as sock:
        try:
            netmeter.tag_socket(sock, "streamer")
            netmeter.tag_socket(sock.fileno(), "streamer")
            netmeter.set_socket_service(sock, "mobilityd")
        except netmeter.Error:
            pass


main()
END
# A mistake of a user that the types must show.
cat >"$work/wrong.py" <<'END'
import netmeter

netmeter.Meter.open("/nonexistent").read_host()[0].tx_bytes = "1"
netmeter.tag_socket("fd", "streamer")
netmeter.Meter.open(service=3)
netmeter.set_socket_service(None, "mobilityd")
netmeter.register_process(b"mobilityd")
END

for python; do
  echo "== $("$python" --version)"
  "$python" -m venv "$work/build"
  # A pip that builds in the tree: not the one that came with Python 3.8.
  "$work/build/bin/pip" install -q -U 'pip>=21.3'
  "$work/build/bin/pip" wheel -q --no-deps -w "$work/wheels" "$root/bindings/python"
  wheel=$(ls "$work"/wheels/netmeter-*.whl)

  "$python" -m venv "$work/clean"
  "$work/clean/bin/pip" install -q "${wheel}[prometheus]"
  cd /
  [ "$("$work/clean/bin/python" "$work/user.py")" = NOT_FOUND ]
  "$work/clean/bin/python" "$here/netmeter_test.py"

  "$work/clean/bin/pip" install -q mypy
  cd "$work"
  clean/bin/python -m mypy --strict user.py
  clean/bin/python -m mypy --strict -p netmeter
  # pybind11's metaclass of its classes, and a constructor that only raises.
  printf '%s\n' 'netmeter\._netmeter\.Meter(\.__init__|\.__new__)?' 'netmeter\._netmeter\.FlowDecoder' >allowed
  clean/bin/python -m mypy.stubtest --allowlist allowed netmeter._netmeter
  errors=$(clean/bin/python -m mypy --strict wrong.py || true)
  [ "$(grep -c '^wrong.py:[34567]: error' <<<"$errors")" -ge 5 ] || { echo "$errors"; exit 1; }

  # The one that carries its libraries, by a Python that has no other packages: none
  # but glibc's and the compiler's come from the system.
  XDG_CACHE_HOME=$cache "$root/packaging/make_wheels.sh" "$work/carried" "$python"
  "$python" -m venv "$work/alone"
  "$work/alone/bin/pip" install -q --no-index "$work"/carried/netmeter-*-manylinux_2_31_*.whl
  cd /
  "$work/alone/bin/python" "$here/netmeter_test.py"
  "$work/alone/bin/python" - "$work/alone" <<'END'
import importlib.metadata
import re
import sys

import netmeter

assert importlib.metadata.version("netmeter") == netmeter.__version__
maps = open("/proc/self/maps").read()
libraries = set(re.findall(r"/\S*/(?:libabsl\w*|_netmeter)[-.]\S*", maps))
assert len(libraries) == 1 and libraries.pop().startswith(sys.argv[1]), maps
END
  rm -rf "$work/build" "$work/clean" "$work/wheels" "$work/carried" "$work/alone"
done
echo "all good: $# Pythons"

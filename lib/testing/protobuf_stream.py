# SPDX-License-Identifier: BSD-3-Clause
"""What `netmeter sockets --protobuf` and `netmeter flows --protobuf` print, read by
Google's own parser."""

import importlib.util
import os
import subprocess
import tempfile


def schema(path):
    """The module that protoc makes of a file."""
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    command = ["protoc", "--proto_path=" + os.path.dirname(path), "--python_out=" + folder, path]
    subprocess.run(command, check=True, timeout=60)
    name = os.path.splitext(os.path.basename(path))[0] + "_pb2"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def messages(data, kind):
    """Each with its length before it, as a varint."""
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            size |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        message = kind()
        assert message.ParseFromString(data[at : at + size]) == size
        yield message
        at += size

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tables of examples/stores, made of lib/apps/connections/sockets.proto and
lib/flows/flows.proto: a field that is added there needs only

    test/apps/stores/tables.py --write

stores_test.py fails where the files are not what this makes of the schemas."""

import os
import re
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../.."))

# Every row has them.
ALWAYS = {"time_ns", "network", "protocol", "family", "state", "record", "cookie", "inode"}
RESERVED = {"end": '"end"'}
# All others have few different words: ClickHouse keeps a dictionary.
FREE_TEXTS = {"local_address", "remote_address", "tcp_info_more", "mptcp_info_more"}


def fields(path, message):
    """(name, "uint64", "string", "map" or "Process") of each field, in the order of the file."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        body = file.read().partition("\nmessage %s {\n" % message)[2].partition("\n}\n")[0]
    return [
        (name, "map" if kind.startswith("map") else kind)
        for kind, name in re.findall(r"^  (?:optional |repeated |)(\w+|map<string, string>) (\w+) = \d+;", body, re.M)
    ]


def clickhouse_type(name, kind):
    if kind == "Process":
        return "Array(Tuple(pid UInt32, fd UInt32, name String))"
    if kind == "map":
        return "Map(LowCardinality(String), String)"
    if kind == "string":
        return "String" if name in FREE_TEXTS else "LowCardinality(String)"
    return "UInt64" if name in ALWAYS else "Nullable(UInt64)"


def duckdb_type(name, kind):
    del name
    if kind == "Process":
        return "STRUCT(pid UINTEGER, fd UINTEGER, name VARCHAR)[]"
    return {"string": "VARCHAR", "uint64": "UBIGINT", "map": "MAP(VARCHAR, VARCHAR)"}[kind]


def table(name, schema, type_of, end):
    columns = ",\n".join("  %s %s" % (RESERVED.get(field, field), type_of(field, kind)) for field, kind in schema)
    return "CREATE TABLE %s (\n%s\n)%s;\n" % (name, columns, end)


HEAD = """-- Tables for `netmeter sockets` and `netmeter flows`: docs/stores.md.
-- Made by test/apps/stores/tables.py of the schemas of protobuf.
"""
PARTS = """
ENGINE = MergeTree
PARTITION BY toDate(fromUnixTimestamp64Nano(toInt64(%s)), 'UTC')
ORDER BY (%s)"""


def files():
    sockets = fields("lib/apps/connections/sockets.proto", "Socket")
    flows = fields("lib/flows/flows.proto", "Flow")
    flows_of_clickhouse = [f if f[0] not in ("start_ns", "end_ns") else (f[0], "time") for f in flows]

    def type_of_flow(name, kind):
        return "UInt64" if kind == "time" else clickhouse_type(name, kind)

    return {
        "examples/stores/clickhouse.sql": HEAD
        + table("sockets", sockets, clickhouse_type, PARTS % ("time_ns", "host, service, destination, cookie, time_ns"))
        + table("flows", flows_of_clickhouse, type_of_flow, PARTS % ("end_ns", "host, service, destination, end_ns")),
        "examples/stores/duckdb.sql": HEAD
        + table("sockets", sockets, duckdb_type, "")
        + table("flows", flows, duckdb_type, ""),
    }


def main():
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    for path, text in files().items():
        with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""The tables of examples/stores have every field of the schemas, and nothing else."""

import unittest

import tables


class TablesTest(unittest.TestCase):
    def test_files_are_what_the_schemas_make(self):
        for path, text in tables.files().items():
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text, "run: test/apps/stores/tables.py --write")

    def test_every_field_is_a_column(self):
        with open("lib/flows/flows.proto", encoding="utf-8") as file:
            text = file.read()
            count = text.count("optional ") + text.count("map<")
        self.assertEqual(len(tables.fields("lib/flows/flows.proto", "Flow")), count)
        sockets = dict(tables.fields("lib/apps/connections/sockets.proto", "Socket"))
        self.assertEqual(sockets["processes"], "Process")
        self.assertEqual(sockets["labels"], "map")
        self.assertEqual(sockets["tcpi_rtt"], "uint64")


if __name__ == "__main__":
    unittest.main()

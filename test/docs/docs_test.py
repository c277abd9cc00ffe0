#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The documentation says what the tree does.

bazel test //test/docs:docs_test, or, after a build, test/docs/docs_test.py.

Comments in a document tell what a block or a table of it is compared with. PATH
begins at the root of the tree, wherever the document stands:

  <!-- file: PATH -->       the next fence is the file, byte for byte
  <!-- yaml keys: PATH -->  the next table lists the keys that PATH reads
  <!-- metrics: PATH -->    the next table lists the metrics that PATH names
  <!-- messages: PATH -->   every message of the next table is said below PATH
  <!-- keys of: COMMAND --> the next table lists the columns and JSON keys of the command
                            (packaging/man/reference.py knows where its code is)
  <!-- functions: . -->     the last cells of the next table say in which file a
                            function is: [FILE](PATH): `function`, `function`
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "packaging/man"))
import reference  # noqa: E402

# program -> label of it, in our data
PROGRAMS = {
    "netmeter-loader": "lib/netmeter_loader/netmeter-loader",
    "netmeter-fds": "lib/apps/fds/netmeter-fds",
    "netmeter": "lib/apps/netmeter/netmeter",
    "netmeter-exporter": "lib/apps/exporter/netmeter-exporter",
    "netmeter-ipfix": "lib/apps/ipfix/netmeter-ipfix",
}
# Ours, too, but not built: their options stand in their text.
SCRIPTS = ("test/run.sh", "examples/demo.sh", "test/kernels/matrix.sh", "test/accuracy.sh", "test/benchmark.sh", "test/install_packages.sh", "packaging/make_release.sh", "packaging/test_debs.sh")

# The keys of a rule in `destinations`.
RULE_KEYS = ("name", "address", "port", "protocol", "overrides_names")

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


@functools.lru_cache(maxsize=None)
def tree():
    """Every file that is, or is about to be, in the repository."""
    # An index or a clone of another user's is no reason to see nothing.
    git = ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(git, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        files = [name for name in os.fsdecode(names).split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = []
        for folder, folders, found in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in (".git", "__pycache__") and not f.startswith("bazel-")]
            files += [os.path.relpath(os.path.join(folder, name), ROOT) for name in found]
    return sorted(name for name in set(files) if os.path.isfile(os.path.join(ROOT, name)))


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def documents():
    return [name for name in tree() if name.endswith(".md")]


def fences(text):
    """(language, body, number of the line) of each fence."""
    return [
        (match.group(1), match.group(2), text.count("\n", 0, match.start()) + 1)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    ]


def without_fences(text):
    return re.sub(r"^```\w*\n.*?^```$", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.M | re.S)


def marked(kind):
    """(path, what follows the comment) of each <!-- kind: path --> of all documents."""
    found = []
    for document in documents():
        text = read(document)
        for match in re.finditer(rf"^<!-- {kind}: (\S+) -->\n", text, re.M):
            found.append((match.group(1), text[match.end():]))
    assert found, f"no document has a <!-- {kind}: -->"
    return found


def marked_fence(rest):
    match = re.match(r"```\w*\n(.*?)^```$", rest, re.M | re.S)
    assert match, "no fence follows the comment: " + rest[:60]
    return match.group(1)


def marked_rows(rest):
    """The cells of the table that begins here, without its head."""
    lines = []
    for line in rest.split("\n"):
        if not line.startswith("|"):
            break
        lines.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    assert len(lines) > 2, "no table follows the comment: " + rest[:60]
    return lines[2:]


def table_after_heading(text, heading):
    """The first table of a section."""
    _, found, section = text.partition(f"\n## {heading}\n")
    assert found, f"no section {heading}"
    return marked_rows(section[re.search(r"^\|", section, re.M).start():])


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def program(name):
    path = PROGRAMS[name]
    runfiles = os.environ.get("TEST_SRCDIR")
    folders = [os.path.join(runfiles, os.environ["TEST_WORKSPACE"])] if runfiles else [os.path.join(ROOT, "bazel-bin")]
    for folder in folders:
        if os.access(os.path.join(folder, path), os.X_OK):
            return os.path.join(folder, path)
    raise AssertionError(f"{path} is not in {folders}: bazel build //...")


@functools.lru_cache(maxsize=None)
def options(name, subcommand=None):
    """The options that --help tells; subcommands by the key None."""
    command = [program(name)] + ([subcommand] if subcommand else []) + ["--help"]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60)
    # What an option's description mentions is no option of this command.
    found = re.findall(r"^ +((?:-\w,)?--[a-z-]+)", result.stdout.decode(), re.M)
    return {option for text in found for option in OPTION.findall(text)}


@functools.lru_cache(maxsize=None)
def keys_of_the_loader():
    """{key: default} of the configuration, as --help has them."""
    text = subprocess.run([program("netmeter-loader"), "load", "--help"], check=True, stdout=subprocess.PIPE, timeout=60).stdout.decode()
    text = text.partition("Configuration (")[2].partition("\nExamples:")[0]
    return dict(re.findall(r"^  (\w+): (.*?)(?=  |$)", text, re.M))


@functools.lru_cache(maxsize=None)
def subcommands(name):
    text = subprocess.run([program(name), "--help"], check=True, stdout=subprocess.PIPE, timeout=60).stdout.decode()
    _, _, section = text.partition("Subcommands:\n")
    return re.findall(r"^  ([a-z-]+)", section.partition("\n\n")[0], re.M)


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def broken_links(root, names):
    """"DOCUMENT:LINE: TARGET" of each relative link of these documents that leads nowhere."""
    texts = {}
    for name in names:
        with open(os.path.join(root, name), encoding="utf-8") as file:
            texts[name] = without_fences(file.read())
    broken = []
    for name, text in texts.items():
        for match in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", text):
            target = match.group(1)
            path, _, anchor = target.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if re.match(r"[a-z]+:", target):
                continue
            headings = [slug(heading) for heading in re.findall(r"^#+ (.*)$", texts.get(there, ""), re.M)]
            if not os.path.exists(os.path.join(root, there)) or anchor and anchor not in headings:
                broken.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {target}")
    return broken


def has_test(folder, file):
    """Whether a target of the folder has this file of tests, by its name or by a pattern."""
    build = read(folder + "/BUILD.bazel")
    stem, extension = os.path.splitext(file)
    if re.search(rf'"({re.escape(file)}|{re.escape(stem)})"', build):
        return True
    unit = extension == ".cc" and not stem.endswith("_root_test")
    return unit and ('"*_test.cc"' in build or "netmeter_tool(" in build)


class DocsTest(unittest.TestCase):
    def test_documents_show_files_byte_for_byte(self):
        shown = marked("file")
        self.assertIn("examples/embed.cc", [path for path, _ in shown])
        for path, rest in shown:
            self.assertEqual(marked_fence(rest), read(path), path)

    def test_relative_links_resolve(self):
        self.assertEqual(broken_links(ROOT, documents()), [])

    # 156 of them led nowhere: to README.md, to pictures, and to files of the tree.
    def test_links_of_the_installed_documents_resolve(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([os.path.join(ROOT, "packaging/install_docs.py"), folder], check=True, timeout=60)
            installed = [os.path.relpath(os.path.join(base, name), folder) for base, _, names in os.walk(folder) for name in names]
            self.assertEqual(broken_links(folder, [name for name in installed if name.endswith(".md")]), [])
            self.assertEqual({name.partition("/")[0] for name in installed}, set(read("packaging/debian/netmeter-loader.docs").split()))

    def test_readme_claims_of_costs_what_performance_md_says(self):
        found = re.search(r"<!-- claim: .*? -->\n(.*?)<!-- /claim -->", read("README.md"), re.S)
        self.assertIn("| **libnetmeter** |", found.group(1))
        self.assertIn(found.group(1), read("docs/performance.md"))

    def test_no_document_installs_all_packages_at_once(self):
        # ./*.deb put headers and a static library on a gateway.
        for document in documents():
            self.assertFalse(re.search(r"(apt-get|apt|dpkg).*/\*\.deb", read(document)), document)

    def test_every_document_has_closed_fences_and_even_tables(self):
        for document in documents():
            text = read(document)
            self.assertEqual(len(re.findall(r"^```", text, re.M)) % 2, 0, document)
            width = None
            for line, row in enumerate(without_fences(text).split("\n"), 1):
                cells = len(re.split(r"(?<!\\)\|", row)) if row.startswith("|") else None
                if width is not None and cells is not None:
                    self.assertEqual(cells, width, f"{document}:{line}: {row}")
                width = cells

    def test_every_header_is_in_the_guide(self):
        guide = read("docs/embedding.md")
        for name in tree():
            if re.fullmatch(r"include/netmeter/\w+\.h", name):
                self.assertTrue(f"](../{name})" in guide, f"{name} is not in docs/embedding.md")

    def commands(self):
        """(place, text) of each line of code in a document that may be a command."""
        for document in documents():
            text = read(document)
            for _, body, line in fences(text):
                for number, command in enumerate(body.split("\n"), line + 1):
                    yield f"{document}:{number}", command
            for number, line in enumerate(without_fences(text).split("\n"), 1):
                for span in code(line):
                    yield f"{document}:{number}", span

    def test_options_in_documents_exist(self):
        seen = 0
        for place, text in self.commands():
            found = OPTION.findall(text)
            called = re.match(r"(?:[$#] )?netmeter-loader +([a-z][a-z-]*)", text)
            if called:
                self.assertIn(called.group(1), subcommands("netmeter-loader"), place)
            if not found:
                continue
            seen += 1
            with self.subTest(place=place, text=text):
                script = next((name for name in SCRIPTS if name in text), None)
                match = re.search(r"(?:^|[\s/=`#$])(netmeter(?:-[a-z]+)?)(?: +([a-z][a-z-]*))?(?=\s|$|,)", text)
                if script:
                    self.assertEqual([o for o in found if o not in read(script)], [], script)
                elif match:
                    name, subcommand = match.groups()
                    if name == "netmeter" and subcommand not in subcommands(name):
                        continue  # the group's name: groupadd --system netmeter
                    self.assertIn(name, PROGRAMS, "add it to PROGRAMS, and to data in BUILD.bazel")
                    if subcommand:
                        self.assertIn(subcommand, subcommands(name))
                    known = options(name, subcommand)
                    self.assertEqual([o for o in found if o not in known], [], f"{name} {subcommand or ''} --help")
                elif text.startswith("--"):
                    known = set().union(*(options(n, s) for n in PROGRAMS for s in [None] + subcommands(n)))
                    self.assertEqual([o for o in found if o not in known], [], "in no --help")
        self.assertGreater(seen, 10)

    def test_subcommands_of_the_loader_are_documented(self):
        handbook = "".join(read(name) for name in documents())
        for subcommand in subcommands("netmeter-loader"):
            self.assertTrue(f"netmeter-loader {subcommand}" in handbook, subcommand)

    def test_readme_links_to_every_document(self):
        readme = read("README.md")
        for name in documents():
            if name != "README.md":
                self.assertTrue(f"]({name})" in readme, f"{name} is not in README.md")

    def test_yaml_keys_are_those_that_the_loader_reads(self):
        tables = marked("yaml keys")
        self.assertEqual(len(tables), 1)
        for _, rest in tables:
            known = [*keys_of_the_loader(), *RULE_KEYS]
            self.assertEqual(sorted(code(row[0])[0] for row in marked_rows(rest)), sorted(known))
            for document in documents():
                text = re.sub(r"^<!-- yaml of: \w+ -->\n```yaml", "```", read(document), flags=re.M)
                for language, body, line in fences(text):
                    if language == "yaml" and "budgets:" not in body:
                        for key in re.findall(r"^(\w+):", body, re.M):
                            self.assertIn(key, known, f"{document}:{line}")
                        for rule in re.findall(r"^ *- *\{(.*)\}", body, re.M):
                            for key in re.findall(r"(\w+): ", rule):
                                self.assertIn(key, known, f"{document}:{line}")

    def test_help_of_load_has_every_key_with_its_default(self):
        ((_, rest),) = marked("yaml keys")
        said = keys_of_the_loader()
        for row in marked_rows(rest):
            key, default = code(row[0])[0], row[1].strip("`").replace('"', "")
            if key in RULE_KEYS:
                continue  # of a rule
            if key == "cgroup":
                default = "''"
            self.assertEqual(said.get(key), default, key)

    def test_metrics_are_those_of_the_header(self):
        for path, rest in marked("metrics"):
            names = {code(row[0])[0] for row in marked_rows(rest)}
            # "gauge: ..., without labels" stands between the first and the others.
            comment = "\n".join(line for line in read(path).split("\n") if line.startswith("//"))
            families = re.findall(r"^//   ((?:magma|linux|netmeter)_\w+)\b", comment, re.M)
            self.assertEqual(names, set(families))
            # What is published, in its order, and what the Python package says.
            published = re.findall(r'^    \{FamilyId::\w+,\s+"((?:magma|linux|netmeter)_\w+)"', read("lib/publish/family_table.cc"), re.M)
            self.assertEqual(families, published)
            doc = read("bindings/python/netmeter/prometheus.py").split('"""')[1]
            self.assertEqual(families, re.findall(r"^    ((?:magma|linux|netmeter)_\w+)\b", doc, re.M))

    def test_tables_of_the_history_are_listed(self):
        ((path, rest),) = marked("tables")
        known = re.findall(r"^CREATE (?:TABLE|VIEW) (\w+)", read(path), re.M)
        self.assertEqual(sorted(code(row[0])[0] for row in marked_rows(rest)), sorted(known))

    def test_rows_of_an_export_are_listed(self):
        ((path, rest),) = marked("rows")
        listed = {name for row in marked_rows(rest) for cell in row[1:] for name in code(cell)}
        listed |= {"row", "host_id", "host", "labels", "version"}  # of every row
        listed |= set(re.findall(r'^    \{"(\w+)", &Sample::', read("lib/reader/difference.h"), re.M))
        (columns,) = re.findall(r'kColumns\[\] =([^;]*);', read(path))
        self.assertEqual(listed, set(re.findall(r"\w+", columns)))

    def test_each_key_of_the_code_has_a_text_and_no_other(self):
        self.assertEqual(reference.differences(), [])

    def test_a_key_without_a_text_is_a_difference(self):
        marker = "keys of: netmeter top"
        source = reference.SOURCES[marker]
        with mock.patch.dict(reference.SOURCES, {marker: source + [("lib/apps/netmeter/list/list.cc", ["ToJson"], '"(regi.*)"')]}):
            self.assertEqual(reference.differences(), [f"docs/output.md: {marker}: no row has registered"])
        with mock.patch.dict(reference.SOURCES, {marker: source[1:]}):
            self.assertIn(f"docs/output.md: {marker}: the code has no share", reference.differences())

    def test_man_pages_have_each_key(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(ROOT, "packaging/man/reference.py")
            subprocess.run([script, folder], check=True, timeout=60)
            for marker in reference.SOURCES:
                document, name = reference.document_of(marker), marker.partition(": ")[2].replace(" ", "-")
                page = {"docs/output.md": f"{name}.h2m", "docs/configuration.md": "netmeter-loader/netmeter.yml.5"}.get(document, "netmeter/netmeter-budgets.yml.5")
                text = read(os.path.join(folder, page)).replace("\\-", "-")
                self.assertEqual([key for key in reference.keys_of_code(marker) if key not in text], [], marker)
            ((_, rest),) = marked("metrics")
            text = read(os.path.join(folder, "netmeter-exporter.h2m"))
            self.assertEqual([row[0] for row in marked_rows(rest) if f".TP\n\\fB{code(row[0])[0]}\\fR" not in text], [])

    def test_messages_are_said(self):
        for folder, rest in marked("messages"):
            source = ""
            for name in tree():
                if name.startswith(folder + "/") and name.endswith((".cc", ".h")) and not name.endswith("_test.cc"):
                    source += read(name)
            # What the compiler joins, and StrCat().
            source = re.sub(r'"(?:\s*\n\s*)"', "", source)
            for row in marked_rows(rest):
                for message in code(row[0]):
                    for part in message.split("…"):
                        self.assertTrue(part.replace("\\|", "|") in source, f"nobody says: {part}")

    def test_programs_of_the_kernel_part_are_listed(self):
        source = read("bpf/netmeter.bpf.c")
        known = {
            name: section
            for section, name in re.findall(r'SEC\("([^"]+)"\)\s*int\s+(?:BPF_PROG\()?(nm_\w+)', source)
        }
        rows = table_after_heading(read("bpf/README.md"), "Programs")
        self.assertEqual({code(row[0])[0]: code(row[1])[0] for row in rows}, known)

    def test_maps_of_the_kernel_part_are_listed(self):
        sources = read("bpf/maps.bpf.h") + read("bpf/uplink_maps.bpf.h")
        known = re.findall(r'^\} (nm_\w+) SEC\("\.maps"\);|^NM_EXTENT\((nm_\w+), ', sources, re.M)
        known = [one or other for one, other in known]
        rows = table_after_heading(read("bpf/README.md"), "Maps")
        self.assertEqual(sorted(name for row in rows for name in code(row[0])), sorted(known))

    def test_programs_and_maps_that_documents_name_exist(self):
        source = "".join(read(name) for name in tree() if name.startswith(("bpf/", "include/")) and name.endswith((".h", ".c")))
        known = set(re.findall(r"\bnm_\w+", source))
        for document in documents() + [name for name in tree() if name.endswith(".svg")]:
            unknown = sorted(set(re.findall(r"\bnm_\w+", read(document))) - known)
            self.assertEqual(unknown, [], document)

    def test_functions_are_in_the_files_that_stand_before_them(self):
        for _, rest in marked("functions"):
            for row in marked_rows(rest):
                places = re.findall(r"\]\((?:\.\./)*([^)]+)\): ((?:`\w+`(?:, )?)+)", row[-1])
                self.assertTrue(places, row)
                for path, functions in places:
                    for function in code(functions):
                        with self.subTest(path=path, function=function):
                            self.assertTrue(re.search(rf"\b{function}\(", read(path)))

    def test_paths_in_backquotes_exist(self):
        folders = {name.partition("/")[0] for name in tree() if "/" in name}
        seen = 0
        for document in documents():
            for number, line in enumerate(without_fences(read(document)).split("\n"), 1):
                for path in (span.split()[0].rstrip("/") for span in code(line) if span.strip()):
                    if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", path) and path.partition("/")[0] in folders:
                        seen += 1
                        self.assertTrue(os.path.exists(os.path.join(ROOT, path)), f"{document}:{number}: {path}")
        self.assertGreater(seen, 50)

    def test_tests_that_documents_name_exist(self):
        known = set()
        for name in tree():
            if name.endswith(".cc"):
                known |= {".".join(pair) for pair in re.findall(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", read(name))}
            elif name.endswith(".py"):
                for suite, body in re.findall(r"^class (\w+).*\n((?:(?:    .*)?\n)*)", read(name), re.M):
                    functions = re.findall(r"^    def (test_\w+)\(", body, re.M)
                    known |= set(functions) | {f"{suite}.{function}" for function in functions}
        for document in documents():
            for test in re.findall(r"`(?:\w+/)?([A-Z]\w*\.(?:[A-Z]|test_)\w+|test_\w+)(?:/\w+)?`", without_fences(read(document))):
                self.assertIn(test, known, document)

    def test_each_claim_of_security_has_tests_that_are_run(self):
        text, claims, tested = read("SECURITY.md"), [], []
        for match in re.finditer(r"^\| claim \| why \|\n", text, re.M):
            claims += [row[0].partition(":")[0] for row in marked_rows(text[match.start():])]
        self.assertGreater(len(claims), 25)
        ((_, rest),) = marked("claims")
        for cell, tests in marked_rows(rest):
            for part in tests.split("; "):
                match = re.fullmatch(r"([A-Z]\d+(?:, [A-Z]\d+)*)(?:: (`[^`]+`(?:, `[^`]+`)*))?", part)
                self.assertTrue(match, part)
                tested += match[1].split(", ")
                for test in code(match[2] or "") or [None]:
                    with self.subTest(target=cell, test=test):
                        self.assert_is_run(code(cell)[0], test)
        self.assertEqual(sorted(set(tested)), sorted(claims))

    def assert_is_run(self, target, test):
        """The target has the test, or all of its file if it is None; or test/run.sh calls a script."""
        if target.endswith(".sh"):
            self.assertIn(target, read("test/run.sh"))
            return
        folder, _, name = target.removeprefix("//").partition(":")
        build, file = read(folder + "/BUILD.bazel"), name + ".py"
        if test and "test_" in test:
            # As --test_arg takes it: a function alone finds no test.
            suite, function = re.fullmatch(r"([A-Z]\w+)\.(test_\w+)", test).groups()
            pattern = rf"^class {suite}\b.*\n(?:(?:    .*)?\n)*    def {function}\("
            self.assertTrue(re.search(pattern, read(f"{folder}/{file}"), re.M), test)
        elif test:
            found, _, file = self.file_of_case(test).rpartition("/")
            self.assertEqual(found, folder)
        tool = "netmeter_tool(" in build and f'name = "{name.removesuffix("_test")}"' in build
        self.assertTrue(f'"{name}"' in build or tool, target)
        self.assertTrue(has_test(folder, file), file)

    def file_of_case(self, name):
        """The file of `Suite.Case` or `Instance/Suite.Case/Parameter`."""
        match = re.fullmatch(r"(?:(\w+)/)?(\w+)\.(\w+)(?:/(\w+))?", name)
        self.assertTrue(match, name)
        instance, suite, case, parameter = match.groups()
        test = re.compile(rf"^TEST(?:_[FP])?\(\s*{suite},\s*{case}\)", re.M)
        files = [f for f in tree() if f.endswith(".cc") and test.search(read(f))]
        self.assertEqual(len(files), 1, name)
        if instance:
            text = read(files[0])
            self.assertTrue(re.search(rf"INSTANTIATE_TEST_SUITE_P\(\s*{instance},\s*{suite}\b", text), name)
            for word in parameter.split("_"):
                self.assertTrue(re.search(rf'"{word}"', text), name)
        return files[0]

    def test_no_unit_may_do_more_than_its_score(self):
        ((folder, rest),) = marked("exposure")
        most = {unit: float(score) for units, score, _ in marked_rows(rest) for unit in code(units)}
        scores = {}
        with tempfile.TemporaryDirectory() as scratch:
            for file in os.listdir(os.path.join(ROOT, folder)):
                if not file.endswith(".service"):
                    continue
                name = re.sub(r"^netmeter(-loader)?\.(?=netmeter)", "", file)
                unit = os.path.join(scratch, name)
                shutil.copy(os.path.join(ROOT, folder, file), unit)
                command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit]
                text = subprocess.run(command, stdout=subprocess.PIPE, timeout=60).stdout.decode()
                scores[name] = float(re.search(r"exposure level for \S+: ([0-9.]+)", text).group(1))
                print(f"{name}: {scores[name]}")
        self.assertEqual(sorted(scores), sorted(most))
        for name, score in scores.items():
            self.assertLessEqual(score, most[name], name)

    def test_each_unit_of_the_exporter_has_an_empty_bounding_set(self):
        # The exporter cannot empty it if it runs as a user: SECURITY.md says so.
        units = [name for name in tree() if re.search(r"netmeter-exporter\S*\.service$", name)]
        texts = [read(name) for name in units]
        for document in documents():
            texts += re.findall(r"^```ini\n(.*?)^```", read(document), re.M | re.S)
        texts = [text for text in texts if re.search(r"^ExecStart=\S*/netmeter-exporter\b", text, re.M)]
        self.assertGreater(len(texts), 2)
        for text in texts:
            self.assertRegex(text, r"(?m)^CapabilityBoundingSet=$")
            self.assertRegex(text, r"(?m)^NoNewPrivileges=yes$")

    def test_newest_version_is_that_of_the_library(self):
        newest = re.search(r"^## \[(\S+)\] - (unreleased|\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.M).group(1)
        version = re.search(r'#define NETMETER_VERSION "([^"]+)"', read("include/netmeter/netmeter.h")).group(1)
        self.assertEqual(newest, version)

    def test_no_file_names_a_folder_of_a_build_machine(self):
        # The path of this tree, Bazel's folders, and home directories.
        patterns = [r"/home/(?!\*)\w", r"/Users/\w", r"/_bazel_\w", r"/execroot/[a-z]", r"/root/\.cache"]
        if ROOT.count("/") > 1:
            patterns.append(re.escape(ROOT) + r"\b")
        pattern = re.compile("|".join(patterns).encode())
        found = []
        for name in tree():
            if name == os.path.relpath(os.path.realpath(__file__), ROOT):
                continue
            with open(os.path.join(ROOT, name), "rb") as file:
                for number, line in enumerate(file, 1):
                    if pattern.search(line):
                        found.append(f"{name}:{number}: {os.fsdecode(line.strip())}")
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()

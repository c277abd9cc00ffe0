#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes what man pages have besides --help: reference.py DIR

DIR gets NAME.h2m for make_pages.sh, with the columns and JSON keys of a command, and the
pages of both configuration files. The code says which keys there are, and the table of a
document what each means. Exits with 1 if a key is on one side alone.
"""

import fnmatch
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

HEADERS = r'"([A-Z][A-Z/ ]+)"'
KEYS = r'(?:[{\[(\\]|,\s*)"([a-z]\w*)\\?"|' + HEADERS
WORDS = r'"(\w+)"'
APPS = "lib/apps/"
COMMANDS = APPS + "netmeter/"
ORIGIN = (APPS + "connections/origin.cc", ["Make"], KEYS)

# comment before a table -> (file, functions or constants, pattern) of the code. An empty
# group has the name of the object whose keys the other groups are.
SOURCES = {
    "keys of: netmeter list": [
        (COMMANDS + "list/list.cc", ["ToJson", "FormatCsv"], KEYS),
        (COMMANDS + "list/list_view.cc", ["Columns"], KEYS),
    ],
    "keys of: netmeter top": [
        (COMMANDS + "top/top_command.cc", ["ToJson", "RunOnce"], KEYS),
        (COMMANDS + "top/top_view.cc", ["TopTable", "kMinute"], KEYS),
    ],
    "keys of: netmeter usage": [
        (COMMANDS + "history/usage_text.cc", ["UsageByName"], r'return "(\w+)"'),
        (COMMANDS + "history/usage_text.cc", ["FormatUsageJson", "FormatUsageTable", "FormatRatesJson", "FormatRatesTable"], KEYS),
        ("lib/reader/difference.h", ["kRecordedCounters"], KEYS),
    ],
    "keys of: netmeter budget": [
        (COMMANDS + "history/budget_command.cc", ["FormatRowsJson", "FormatRows"], KEYS),
        (COMMANDS + "history/usage_text.cc", ["CostJson"], KEYS),
    ],
    "keys of: netmeter uplinks": [
        (COMMANDS + "uplinks/uplinks_command.cc", ["ToJson", "FormatUplinksJson"], KEYS),
        (COMMANDS + "uplinks/uplinks_command.cc", ["Table"], HEADERS),
    ],
    "keys of: netmeter sockets": [
        (APPS + "connections/fields.cc", ["AddIdentity", "AddState", "AddRests"], KEYS),
        (APPS + "connections/fields.cc", ["LateTcpInfo"], r'\{"(\w+)", \d+\}'),
        ("lib/netlink/number_fields.cc", [], KEYS),
        (APPS + "connections/format.cc", ["AppendJson", "ParseColumns"], KEYS),
        ORIGIN,
    ],
    "keys of: netmeter flows": [
        (APPS + "connections/flow.cc", ["AddIdentity", "AddSeries", "AddEnd", "AddCounts", "AddClient", "FlowLayout"], KEYS),
        ORIGIN,
    ],
    "keys of: netmeter cost": [
        (COMMANDS + "cost/meter_cost.cc", ["ToJson"], KEYS),
        (COMMANDS + "cost/meter_cost.cc", ["ToText"], HEADERS),
        (COMMANDS + "cost/host_cost.cc", ["HostCostJson"], KEYS),
        (COMMANDS + "cost/host_cost.cc", ["Columns"], HEADERS),
    ],
    "keys of: netmeter-loader status": [
        ("lib/loader/status.cc", ["StatusAsJson"], KEYS),
        ("lib/loader/hooks.cc", ["Features"], r'(?P<features>)\{"(\w+)"'),
        ("lib/loader/status.cc", ["TablesOf"], r'(?P<tables>)\{"(\w+)"'),
        ("lib/base/misattributions.h", ["kMisattributions"], r'(?P<misattributed>)\{"(\w+)", "(\w+)"'),
        ("lib/loader/status.cc", ["EventsOf"], r'(?P<seen>)\{"(\w+)"'),
    ],
    "yaml keys: lib/loader/config.cc": [
        ("lib/loader/config.cc", ["AllKeys", "GroupKey", "NamesFromKey"], r'(?:Key\(\s*|return \{|^      \{)"(\w+)",'),
        ("lib/loader/config.cc", ["ParseRule"], r'key == "(\w+)"'),
    ],
    "budget keys: lib/apps/budgets/budget.cc": [("lib/apps/budgets/budget.cc", ["kBudgetKeys"], WORDS)],
    "plan keys: lib/apps/budgets/budget.cc": [("lib/apps/budgets/budget.cc", ["kPlanKeys"], WORDS)],
}

# page: (document, section, name of its man page's section)
SECTIONS = {
    "netmeter-export": ("docs/fleet-bill.md", "Rows", "ROWS"),
    "netmeter-exporter": ("docs/metrics.md", "Metrics", "METRICS"),
    "netmeter-ipfix": ("docs/connections.md", "IPFIX", "RECORDS"),
}
# page of section 5: (package, document, sections, description, see also)
FILES = {
    "netmeter.yml": ("netmeter-loader", "docs/configuration.md", ["Configuration", "Limitations"],
                     "configuration of the counting of network bytes", "netmeter-loader(8), netmeter-budgets.yml(5)"),
    "netmeter-budgets.yml": ("netmeter", "docs/history.md", ["Budgets", "Costs"],
                             "budgets and prices of network bytes", "netmeter-budget(1), netmeter-usage(1), netmeter.yml(5)"),
}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def body(source, name):
    """The text of each function with this name, or of a constant."""
    if re.match("k[A-Z]", name):
        return "".join(re.findall(rf"\b{name}\[\] =([^;]*);", source))
    return "".join(text for _, text in re.findall(rf"^( *)\S[^\n;]*\b{name}\([^;{{]*\{{\n(.*?)^\1\}}", source, re.M | re.S))


def keys_of_code(marker):
    """The keys and the columns, in the order of the code."""
    found = []
    for path, names, pattern in SOURCES[marker]:
        source = read(path)
        for text in [body(source, name) for name in names] or [source]:
            assert text, f"{path}: nothing is called {names}"
            for match in re.finditer(pattern, text, re.M):
                found.append(".".join([*match.groupdict(), *(group.strip() for group in match.groups() if group)]))
    return list(dict.fromkeys(found))


def cells_of(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def rows_of_document(document, marker):
    _, found, rest = read(document).partition(f"<!-- {marker} -->\n")
    assert found, f"{document} has no <!-- {marker} -->"
    return [cells_of(line) for line in re.match(r"(?:\|.*\n)+", rest)[0].splitlines()[2:]]


def document_of(marker):
    return {"keys of": "docs/output.md", "yaml keys": "docs/configuration.md"}.get(marker.partition(":")[0], "docs/history.md")


def differences():
    """A line for each key that only the code or only a document has."""
    wrong = []
    for marker in SOURCES:
        document = document_of(marker)
        known = keys_of_code(marker)
        listed, said = [], []
        for row in rows_of_document(document, marker):
            listed += re.findall(r"`([^`]+)`", row[0])
            listed += [column for column in row[1].split(", ") if re.fullmatch(r"[A-Z][A-Z/ ]+", column)]
            said += re.findall(r"`([^`]+)`", " ".join(row[1:]))  # keys of an object in the row
        wrong += [f"{document}: {marker}: no row has {key}" for key in known if not any(fnmatch.fnmatchcase(key, row) for row in listed + said)]
        wrong += [f"{document}: {marker}: the code has no {row}" for row in listed if not fnmatch.filter(known, row)]
    return wrong


def inline(text):
    """A line of Markdown as a line of roff."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text.replace("\\|", "|"))
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]+)`|\*\*(.+?)\*\*|(?<!\*)\*(\w+)\*", lambda m: f"\\fB{m[1] or m[2] or m[3]}\\fR", text)
    return plain(text)


def plain(text):
    """Text whose lines are no requests, and no sections of help2man, which reads no UTF-8."""
    text = re.sub(r"^([.'\[/])", r"\\&\1", text, flags=re.M)
    return re.sub(r"[^\x00-\x7f]", lambda m: f"\\[u{ord(m[0]):04X}]", text)


def item(head, row, known):
    """A row of a table: its first cell, and below the others."""
    tag = row[0] or f"column {row[1]}"
    main = head.index("meaning") if "meaning" in head else len(head) - 1
    words = [f"({title}: {cell})" for title, cell in list(zip(head, row))[1:] if title != head[main] and cell and cell not in tag]
    fields = [key for key in known for pattern in re.findall(r"`([^`]*\*)`", tag) if fnmatch.fnmatchcase(key, pattern)]
    words += [row[main].rstrip(".") + f". They are {', '.join(fields)}." if fields else row[main]]
    return f".TP\n{inline(tag)}\n{inline(' '.join(filter(None, words)))}\n"


def roff(markdown, first=".SH"):
    """The text of a document; its `##` becomes `first`."""
    out, head, known = "", None, []
    for block in re.findall(r"^```.*?^```$|^(?:\|[^\n]*\n)+|^<!--[^\n]*$|^#[^\n]*$|^[^\n]+(?:\n(?![*|#<]|```|\d+\. )[^\n]+)*", markdown + "\n", re.M | re.S):
        if block.startswith("```"):
            code = plain(block.split("\n", 1)[1][:-3].replace("\\", "\\e").replace("-", "\\-"))
            out += f".PP\n.EX\n{code}.EE\n"
        elif block.startswith("|"):
            head, _, *rows = map(cells_of, block.splitlines())
            out += "".join(item(head, row, known) for row in rows) + ".PP\n"
            known = []
        elif block.startswith("<!--"):
            known = keys_of_code(block[5:-4]) if block[5:-4] in SOURCES else []
        elif block.startswith("#"):
            level, title = block.split(" ", 1)
            out += f"{first if level == '##' else '.SS'} \"{inline(title.upper() if level == '##' else title)}\"\n"
        elif not block.startswith("!["):
            mark = ".IP \\(bu 2\n" if block.startswith("* ") else f".IP {block.split()[0]} 4\n" if re.match(r"\d+\. ", block) else ".PP\n"
            text = re.sub(r"^(\* |\d+\. )", "", block)
            out += mark + inline(" ".join(line.strip() for line in text.split("\n"))) + "\n"
    # Long keys and URLs leave no room to adjust a line.
    return ".ad l\n" + re.sub(r"(?:\.PP\n)+(?=\.PP|\.S|\.IP|\Z)", "", out)


def section(document, heading):
    """What stands below a heading, until the next one of its rank or above."""
    lines, level, in_fence = [], 0, False
    for line in read(document).splitlines(keepends=True):
        in_fence ^= line.startswith("```")
        match = None if in_fence else re.match(r"(#+) (.*)", line)
        if level and match and len(match[1]) <= max(level, 2):
            break
        if level:
            lines.append(line)
        elif match and match[2] == heading:
            level = len(match[1])
    assert level, f"{document} has no section {heading}"
    return "".join(lines)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    wrong = differences()
    if wrong:
        sys.exit("reference.py: " + "\n".join(wrong))
    output = sys.argv[1]

    def write(path, text):
        path = os.path.join(output, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)

    units = section("docs/output.md", "Columns and JSON keys")
    for marker in SOURCES:
        kind, _, command = marker.partition(": ")
        if kind == "keys of":
            text = units + section("docs/output.md", command)
            write(command.replace(" ", "-") + ".h2m", "\n[COLUMNS AND JSON KEYS]\n" + roff(text, ".SS"))
    for page, (document, heading, title) in SECTIONS.items():
        write(page + ".h2m", f"\n[{title}]\n" + roff(section(document, heading), ".SS"))
    for page, (package, document, headings, description, see) in FILES.items():
        text = f".TH {page.upper()} 5\n.SH NAME\n{inline(page)} \\- {description}\n.SH DESCRIPTION\n"
        for heading in headings:
            text += ("" if heading == headings[0] else f".SH {heading.upper()}\n") + roff(section(document, heading))
        pages = [f".BR {name} ({number})" for name, number in re.findall(r"(\S+)\((\d)\)", see)]
        write(f"{package}/{page}.5", text + ".SH SEE ALSO\n" + ",\n".join(pages) + "\n")


if __name__ == "__main__":
    main()

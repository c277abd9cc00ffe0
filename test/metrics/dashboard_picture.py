# SPDX-License-Identifier: BSD-3-Clause
"""Draws what a dashboard of Grafana shows, without Grafana: the grid of its panels, and in
each the answers of a real Prometheus to the panel's queries. Grafana's own looks are
another matter.

    draw(dashboard, ask, ask_range, "dashboard.png")

ask(promql) and ask_range(promql) answer [{"metric": {label: value}, "values": [(time,
value)]}]. Needs matplotlib."""

import datetime
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # pylint: disable=wrong-import-position

CELL = 0.5  # inches: a panel is some of Grafana's 24 columns wide
LEGEND_ROWS = 6


def amount(value, unit):
    """As Grafana writes it, more or less."""
    if unit == "percentunit":
        return "%.3g %%" % (100 * value)
    if unit == "dateTimeAsIso":
        return datetime.datetime.fromtimestamp(value / 1000, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    scale = {"Bps": (1e3, ("B/s", "kB/s", "MB/s", "GB/s")), "bytes": (1024, ("B", "KiB", "MiB", "GiB"))}.get(unit)
    if scale is None:
        return "%.3g %s" % (value, {"s": "s", "cps": "/s"}.get(unit, ""))
    step, words = scale
    for word in words:
        if abs(value) < step or word == words[-1]:
            return "%.3g %s" % (value, word)
        value /= step
    raise AssertionError("no unit")


def legend(target, labels):
    """The row's name: {{label}} is the label's value."""
    return re.sub(r"\{\{ *(\w+) *\}\}", lambda found: labels.get(found.group(1), ""), target.get("legendFormat") or "")


def draw_lines(axes, panel, unit, ask_range):
    rows = [(legend(t, row["metric"]), row["values"]) for t in panel["targets"] for row in ask_range(t["expr"])]
    rows.sort(key=lambda row: -row[1][-1][1])
    start = min((values[0][0] for _, values in rows), default=0)
    for number, (name, values) in enumerate(rows):
        label = name if number < LEGEND_ROWS else None
        axes.plot([at - start for at, _ in values], [value for _, value in values], linewidth=1, label=label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: amount(value, unit))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if rows:
        title = "and %d more" % (len(rows) - LEGEND_ROWS) if len(rows) > LEGEND_ROWS else None
        axes.legend(fontsize=6.5, loc="lower right", title=title, title_fontsize=6.5)


def draw_numbers(axes, panel, unit, ask):
    axes.axis("off")
    rows = [(legend(t, row["metric"]), row["values"][-1][1]) for t in panel["targets"] for row in ask(t["expr"])]
    text = "\n".join(("%s %s" % (name, amount(value, unit))).strip() for name, value in rows[:4])
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=9 if len(rows) > 1 or len(text) > 12 else 14)


def draw_table(axes, panel, unit, ask):
    axes.axis("off")
    rows = [(row["metric"], row["values"][-1][1]) for t in panel["targets"] for row in ask(t["expr"])]
    rows.sort(key=lambda row: -row[1])
    shown = rows[: int(panel["gridPos"]["h"]) - 1]
    names = sorted({name for labels, _ in shown for name in labels if not name.startswith("__")})
    cells = [[labels.get(name, "")[:28] for name in names] + [amount(value, unit)] for labels, value in shown]
    table = axes.table(cells, colLabels=names + ["value"], loc="upper center", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(7)


def draw(dashboard, ask, ask_range, filename):
    panels = dashboard["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(24 * CELL, height * CELL))
    for panel in panels:
        at = panel["gridPos"]
        left, bottom = at["x"] / 24, 1 - (at["y"] + at["h"]) / height
        if panel["type"] == "row":
            figure.text(left + 0.01, bottom + 0.3 / height, panel["title"], fontsize=13, weight="bold")
            continue
        unit = panel["fieldConfig"]["defaults"].get("unit", "none")
        room = (left + 1.2 / 24, bottom + 0.7 / height, (at["w"] - 1.5) / 24, (at["h"] - 1.7) / height)
        axes = figure.add_axes(room)
        axes.set_title(panel["title"], fontsize=10, loc="left")
        if panel["type"] == "timeseries":
            draw_lines(axes, panel, unit, ask_range)
        elif panel["type"] == "table":
            draw_table(axes, panel, unit, ask)
        else:
            draw_numbers(axes, panel, unit, ask)
    figure.savefig(filename, dpi=80)
    plt.close(figure)

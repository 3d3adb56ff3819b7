"""Figures as docs/PERFORMANCE.md."""

import statistics

HEAD = """# Performance

`./run report` measured what stands here and wrote this page, and [its figures as JSON](performance.json). Each figure is the median of its
runs, and the least and the greatest of them follow. **Bold** misses its goal. What stands beside a figure was measured in the same run.

| measured on | |
|---|---|
"""

WORDS = """
Line time: the payload over what a plain TCP stream reaches through the same cap, measured just before. T_bcast(1.0): until all workers
have installed, the origin's own takeover included. With `--netns` the kernel's token bucket between network namespaces caps the rates: the
origin's at 300 Mbit/s, each worker's at 100.
"""


def number(value):
    """Three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    digits = 3 if abs(value) < 10 else 2
    if abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if abs(value) < 1 else f"{value:.{digits - 1}f}"


def with_unit(value, unit):
    return f"{number(value)} {unit}".strip()


def figure(measure, values):
    median = statistics.median(values)
    text = with_unit(median, measure["unit"])
    if measure["misses"]:
        text = f"**{text}**"
    return text if len(values) == 1 else f"{text} ({number(min(values))} to {number(max(values))}; {len(values)})"


def goal(measure):
    if measure["goal"] is None:
        return "-"
    return ("at least " if measure["more_is_better"] else "") + with_unit(measure["goal"], measure["unit"])


def beside(measure):
    return f"{measure['beside']}: {number(statistics.median(measure['beside_values']))}" if measure["beside_values"] else "-"


def render(report):
    lines = [HEAD.rstrip("\n")]
    lines += [f"| {key} | {value} |" for key, value in report["machine"].items()]
    lines.append(WORDS.rstrip("\n"))
    section = None
    for row in report["rows"]:
        if row["section"] != section:
            section = row["section"]
            lines += ["", f"## {section}", "", "| claim | goal | figure | beside it | `./run report` |", "|---|---|---|---|---|"]
        for measure in row["measures"]:
            lines.append(f"| {measure['claim']} | {goal(measure)} | {figure(measure, measure['values'])} | {beside(measure)} "
                         f"| `{row['name']}` |")
    missed = [(row, measure) for row in report["rows"] for measure in row["measures"] if measure["misses"]]
    lines += ["", "## What misses its goal", ""]
    lines += [f"- {measure['claim']} (`{row['name']}`): {with_unit(statistics.median(measure['values']), measure['unit'])}, "
              f"goal {goal(measure)}." for row, measure in missed] or ["Nothing."]
    lines += ["", "## Commands", "", "Arguments of `weightcast-bench` in `build/release/tools`, or of `./run bench`.", "", "```"]
    width = max(len(row["name"]) for row in report["rows"])
    lines += [f"{row['name']:{width}}  {row['command']}" for row in report["rows"]]
    lines.append("```")
    if report["not_measured"]:
        lines += ["", "Not measured: " + "; ".join(f"`{name}` ({why})" for name, why in report["not_measured"].items()) + "."]
    return "\n".join(lines) + "\n"

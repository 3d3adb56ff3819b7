#!/usr/bin/env python3
"""site.py pages PROGRAMS PAGES: puts what the site shows into the directory PAGES. site.py check SITE: checks the site that mkdocs made.

PAGES gets the repository's Markdown, under its own paths, and the files that it links. Headings get the anchors that GitHub gives them, and
links to a directory lead to its README. Below PAGES/reference/ lies what is made of the code: the programs' manual pages, the C header,
the Python package's classes and functions. Exit status 1, with a line for each mistake, where something does not fit."""

import ast
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
from urllib.parse import unquote, urlsplit

import markdown_links
from markdown_links import is_local

ROOT = pathlib.Path(__file__).resolve().parent.parent


def page_text(name):
    """The Markdown of one page as mkdocs takes it, and the files that it links."""
    text = (ROOT / name).read_text()
    lines = text.split("\n")
    files = set()
    for number, anchor in markdown_links.headings(text):
        lines[number - 1] = f"{lines[number - 1].rstrip()} {{#{anchor}}}"
    for number, target in sorted(set(markdown_links.links(text))):
        if not is_local(target):
            continue
        path, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(name), unquote(path))) if path else name
        if (ROOT / there).is_dir():
            there_page = os.path.join(path, "README.md") + (f"#{anchor}" if anchor else "")
            lines[number - 1] = lines[number - 1].replace(f"({target})", f"({there_page})")
        elif path and not there.endswith(".md"):
            files.add(there)
    return "\n".join(lines), files


# ---- manual pages

def plain(roff):
    """One line of our own manual pages (tools/shell/manual.cpp) as Markdown."""
    text = roff.replace("\\&", "").replace("\\-", "-")
    text = re.sub(r"([<>])", lambda found: {"<": "&lt;", ">": "&gt;"}[found.group(1)], text)
    text = re.sub(r"([*_`])", r"\\\1", text)
    text = re.sub(r"\\f([BI])(.*?)\\fR", lambda found: {"B": "**", "I": "*"}[found.group(1)] + found.group(2) + {"B": "**", "I": "*"}[found.group(1)], text)
    return text.replace("\\e", "\\\\")


def manual(program):
    """The manual page of a program, which it prints itself, as Markdown. Raises ValueError at a request that is not known."""
    roff = subprocess.run([str(program), "--man-page"], capture_output=True, check=True, text=True).stdout
    out = [f"# {program.name}(1)", ""]
    tag = None  # None: none is open; "": the next line is one
    in_list = False
    for line in roff.split("\n"):
        if line.startswith(".TH"):
            continue
        if line.startswith(".SH "):
            out += ["", f"## {line[4:].capitalize()}", ""]
            tag, in_list = None, False
        elif line.startswith(".SS "):
            out += ["", f"### {re.sub(r'[*]', '', plain(line[4:]))}", ""]
            tag, in_list = None, False
        elif line == ".TP":
            tag = ""
        elif line.startswith(".") and not line.startswith("\\&"):
            raise ValueError(f"{program.name} --man-page: {line}: no request that this script knows")
        elif tag == "":
            # A list begins after an empty line, and without one between its entries.
            out += ([""] if not in_list else []) + [f"- {plain(line)}"]
            tag, in_list = line, True
        elif line:
            out += [("  " if tag else "") + plain(line)]
    return "\n".join(out).rstrip() + "\n"


# ---- code

def docstring(said):
    """A docstring or comment as Markdown: paragraphs, and what is indented as it stands."""
    out = []
    for paragraph in said.split("\n\n"):
        lines = paragraph.split("\n")
        if any(line.startswith("    ") for line in lines):
            out += ["```text", *lines, "```", ""]
        else:
            text = " ".join(lines).replace("<", "&lt;")
            # Outside of code an asterisk or underscore is itself.
            pieces = text.split("`")
            pieces[::2] = [re.sub(r"([*_])", r"\\\1", piece) for piece in pieces[::2]]
            out += ["`".join(pieces), ""]
    return out


# ---- C

def c_blocks(text):
    """What stands between empty lines, but for those within a comment or braces."""
    block, depth, in_comment = [], 0, False
    for line in [*text.split("\n"), ""]:
        if not line.strip() and not in_comment and depth == 0:
            if block:
                yield "\n".join(block)
            block = []
            continue
        block.append(line)
        in_comment = (in_comment or "/*" in line) and "*/" not in line[line.rfind("/*") if "/*" in line else 0:]
        if not line.startswith(("extern", "}")) or depth > 0:
            code = re.sub(r"/\*.*?\*/", "", line)
            depth = max(0, depth + code.count("{") - code.count("}"))


def c_reference():
    """The C header by its sections: above each declaration its name, its comment as text below it."""
    header = ROOT / "client" / "include" / "weightcast" / "weightcast.h"
    sections = re.split(r"^/\* -{20,} (.*?) \*/$", header.read_text(), flags=re.MULTILINE)
    out = ["# C", "", "This page is made of `weightcast.h`, which is C99. Its interface stays as it is within one SOVERSION. C++ has `weightcast.hpp` on "
           "top of it. [Publish](../docs/PUBLISHING.md) and [Use the weights](../docs/READING.md) show both in use.", "", "## In general", ""]
    for number, part in enumerate(sections):
        if number % 2 == 1:
            out += [f"## {part.capitalize()}", ""]
            continue
        for block in c_blocks(part):
            comment = re.match(r"/\*(.*?)\*/[ \t]*(?:\n|$)", block, re.DOTALL)
            declared = block[comment.end():] if comment else block
            if declared.startswith("}") or declared.startswith("#endif"):
                continue
            names = re.findall(r"\b(wc_\w+)\s*\(", declared) if "WC_API" in declared else []
            names += re.findall(r"^typedef (?:enum|struct) (wc_\w+)", declared, re.MULTILINE)
            if names:
                out += ["### " + ", ".join(dict.fromkeys(names)), ""]
            if comment:
                said = "\n".join(re.sub(r"^ ?\*? ?", "", line) for line in comment.group(1).strip().split("\n"))
                out += docstring(said)
            if declared.strip():
                out += ["```c", declared.rstrip(), "```", ""]
    return "\n".join(out) + "\n## C++\n\n```cpp\n" + header.with_suffix(".hpp").read_text().rstrip("\n") + "\n```\n"


# ---- Python

def signature(node):
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def python_reference():
    """Classes and functions of the Python package that its __all__ names, and public ones of its other modules, with their docstrings."""
    package = ROOT / "python" / "weightcast"
    out = ["# Python, its classes", "", "[The package](../python/README.md) says what each is for. This page is made of the code."]
    exported = None
    for node in ast.parse((package / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            exported = set(ast.literal_eval(node.value))
    if not exported:
        raise ValueError("weightcast/__init__.py has no __all__")
    for path in sorted(package.rglob("*.py")):
        module = ".".join(("weightcast", *path.relative_to(package).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        hidden = any(part.startswith("_") for part in module.split(".")[1:])
        found = []
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
                continue
            if (hidden or module.count(".") == 1) and node.name not in exported:
                continue
            found.append(node)
        if not found:
            continue
        out += ["", f"## {'weightcast' if hidden else module}" + (f" ({path.stem})" if hidden else "")]
        for node in found:
            if isinstance(node, ast.FunctionDef):
                out += ["", f"### {node.name}", "", "```python", signature(node), "```"]
            else:
                bases = ", ".join(ast.unparse(base) for base in node.bases)
                out += ["", f"### {node.name}", "", "```python", f"class {node.name}{f'({bases})' if bases else ''}"]
                for member in node.body:
                    if isinstance(member, ast.FunctionDef) and (member.name == "__init__" or not member.name.startswith("_")):
                        out += [f"    {signature(member)}"]
                out += ["```"]
            members = [node] + [m for m in getattr(node, "body", []) if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")]
            for member in members:
                said = ast.get_docstring(member)
                if said:
                    out += [""] + ([] if member is node else [f"**{member.name}()**", ""]) + docstring(said)
    return "\n".join(out) + "\n"


def make_pages(programs, pages):
    shutil.rmtree(pages, ignore_errors=True)
    files = set()
    for name in sorted(markdown_links.repository_files(ROOT)):
        if not name.endswith(".md") or name.startswith("tests/"):
            continue
        text, linked = page_text(name)
        files |= linked
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(text)
    files.add("docs/site.css")
    for name in sorted(files):
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, pages / name)
    reference = pages / "reference"
    reference.mkdir()
    for name in ("weightcast", "weightcast-train", "weightcast-engine"):
        (reference / f"{name}.md").write_text(manual(programs / name))
    (reference / "c.md").write_text(c_reference())
    (reference / "python.md").write_text(python_reference())


# ---- the site that came of it

class Page(html.parser.HTMLParser):
    """What one page links and loads, and which anchors it has."""

    LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}

    def __init__(self, text):
        super().__init__()
        self.linked, self.loaded, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if value is None or (tag == "link" and dict(attributes).get("rel") in ("canonical", "next", "prev", "edit")):
                continue
            if (tag, name) in self.LOADED:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.linked.append(value)


def check_site(site):
    """Returns a line for each link or anchor that leads nowhere, and for each thing that a page loads from elsewhere."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    wrong = []
    if not (site / "index.html").exists():
        wrong.append(f"{site}: there is no index.html")
    for path, page in pages.items():
        name = path.relative_to(site)
        if name.name == "404.html":
            continue
        for target in page.loaded:
            if not is_local(target) and not target.startswith("data:"):
                wrong.append(f"{name}: loads {target}, which is elsewhere")
        for target in page.linked + [one for one in page.loaded if is_local(one)]:
            if not is_local(target):
                continue
            parts = urlsplit(target)
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if there.is_dir():
                there = there / "index.html"
            if not there.exists():
                wrong.append(f"{name}: {target}: there is no such page or file")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors:
                wrong.append(f"{name}: {target}: the page has no such anchor")
    return wrong


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "pages":
        try:
            make_pages(pathlib.Path(arguments[1]), pathlib.Path(arguments[2]))
        except FileNotFoundError as error:
            print(f"site: {error.filename} is missing: build the three programs, or name the directory that has them", file=sys.stderr)
            return 1
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"site: {error}", file=sys.stderr)
            return 1
        return 0
    if len(arguments) == 2 and arguments[0] == "check":
        wrong = check_site(pathlib.Path(arguments[1]).resolve())
        for line in wrong:
            print(f"site: {line}", file=sys.stderr)
        return 1 if wrong else 0
    print("Usage: site.py pages PROGRAMS PAGES | site.py check SITE", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Reads the links and headings of Markdown files, and says which links lead nowhere. Needs no package.

A link is relative to its file, as GitHub and the site resolve it. Anchors are those that GitHub gives to headings: lower case, without
punctuation, spaces as hyphens, and -1, -2, ... for repeated ones. Links with a scheme (https:, mailto:) are not looked at.
"""

import os
import re
import subprocess
from urllib.parse import unquote

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_INLINE_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s]*)?)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s+\"[^\"]*\")?\s*$")
_HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]*)\"", re.IGNORECASE)
_HTML_ANCHOR = re.compile(r"<[a-z0-9]+\b[^>]*?\b(?:id|name)=\"([^\"]+)\"", re.IGNORECASE)


def prose_lines(text):
    """Yields (number from 1, line) of what is not in a fenced block."""
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if fence is None and mark:
            fence = mark.group(1)
        elif fence is not None:
            if mark and mark.group(1).startswith(fence) and line.strip() == mark.group(1):
                fence = None
        else:
            yield number, line


def is_local(target):
    return not re.match(r"^([a-zA-Z][a-zA-Z0-9+.-]*:|//)", target)


def links(text):
    """Yields (line number, target) of each link and image, of definitions and of HTML's a and img, too."""
    for number, line in prose_lines(text):
        bare = _INLINE_CODE.sub("", line)
        for pattern in (_LINK, _DEFINITION, _HTML):
            for found in pattern.finditer(bare):
                yield number, found.group(1)
        # A picture that is a link: its own target lies within the brackets of the other.
        for outer in re.finditer(r"\[!\[[^\]]*\]\(([^()\s]+)\)\]", bare):
            yield number, outer.group(1)


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[`*]", "", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(text):
    """Yields (line number, anchor) of each heading."""
    seen = {}
    for number, line in prose_lines(text):
        heading = _HEADING.match(line)
        if heading:
            name = slug(heading.group(2))
            count = seen.get(name, 0)
            seen[name] = count + 1
            yield number, name if count == 0 else f"{name}-{count}"


def anchors(text):
    """All anchors of a file: those of headings, and ids of HTML."""
    result = {anchor for _, anchor in headings(text)}
    for _, line in prose_lines(text):
        result.update(_HTML_ANCHOR.findall(line))
    return result


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def repository_files(root):
    """The files of the checkout `root`, by git, or without it by the disk, in which case what begins with a dot and build/ are left out."""
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    if listed:
        return [name for name in listed.split("\0") if name and os.path.exists(os.path.join(root, name))]
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and not (folder == root and name == "build")]
        names += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return names


def broken_links(root, files):
    """Returns "FILE:LINE: TARGET: why", for each link of `files` (paths below `root`) that leads nowhere."""
    root = os.path.realpath(root)
    known_anchors = {}
    found = []
    for name in sorted(files):
        path = os.path.join(root, name)
        for number, target in links(_read(path)):
            if not is_local(target):
                continue
            where = f"{name}:{number}: {target}"
            relative, _, anchor = target.partition("#")
            if relative.startswith("/"):
                found.append(f"{where}: begins with /, so it is not relative to its file")
                continue
            there = os.path.normpath(os.path.join(os.path.dirname(path), unquote(relative))) if relative else path
            if there != root and not there.startswith(root + os.sep):
                found.append(f"{where}: leads out of the repository")
            elif not os.path.exists(there):
                found.append(f"{where}: there is no such file or directory")
            elif os.path.isdir(there) and not os.path.exists(os.path.join(there, "README.md")):
                found.append(f"{where}: the directory has no README.md to show")
            elif anchor:
                page = os.path.join(there, "README.md") if os.path.isdir(there) else there
                if not page.endswith(".md"):
                    found.append(f"{where}: only Markdown has anchors")
                    continue
                if page not in known_anchors:
                    known_anchors[page] = anchors(_read(page))
                if unquote(anchor) not in known_anchors[page]:
                    found.append(f"{where}: {os.path.relpath(page, root)} has no heading of that name")
    return found

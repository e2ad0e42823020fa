#!/usr/bin/env python3
"""Postprocesses a book built by mdBook: copies the files that pages in docs/ link to, and rejects external resources.

book.py BOOK: run in the root of the repository. Prints each broken link, and then exits with 1.
"""

import html
import os
import re
import shutil
import sys

LINK = re.compile(r'(<(?:a|img)\b[^>]*?\b(?:href|src)=")([^"]+)(")')
# Resources that a browser loads automatically.
FETCHED = re.compile(r'<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]+)"')


def source(target):
    """Returns the repository's file for a link that leaves the book, in which mdBook has replaced .md with .html."""
    for candidate in (target, re.sub(r"\.html$", ".md", target)):
        if os.path.exists(candidate):
            return candidate
    return None


def main():
    book = os.path.abspath(sys.argv[1])
    bad = []
    for directory, _, names in os.walk(book):
        for name in (name for name in names if name.endswith(".html")):
            page = os.path.join(directory, name)
            below = os.path.relpath(page, book)
            with open(page, encoding="utf-8") as file:
                text = file.read()

            def lead(match):
                target, _, anchor = html.unescape(match[2]).partition("#")
                if not target or "://" in target or target.startswith(("mailto:", "data:")):
                    return match[0]
                path = os.path.normpath(os.path.join(directory, target))
                if path.startswith(book + os.sep):
                    # mdBook renames README.md to index.html, but does not update links to it.
                    index = os.path.join(os.path.dirname(path), "index.html")
                    if os.path.basename(path) == "README.html" and os.path.exists(index):
                        return match[1] + match[2].replace("README.html", "index.html") + match[3]
                    if not os.path.exists(path):
                        bad.append(f"{below}: broken link {match[2]}")
                    return match[0]
                # The link is relative to the page's directory in docs/.
                meant = os.path.normpath(os.path.join("docs", os.path.dirname(below), target))
                found = source(meant)
                if found is None or meant.startswith(".."):
                    bad.append(f"{below}: broken link {match[2]}")
                    return match[0]
                # Copy as text, so that a browser displays it.
                copy = os.path.join("sources", found + ("" if found.endswith("/") else ".txt"))
                to = os.path.join(book, copy)
                os.makedirs(os.path.dirname(to), exist_ok=True)
                if os.path.isdir(found):
                    with open(to, "w", encoding="utf-8") as listing:
                        listing.write("".join(f"{entry}\n" for entry in sorted(os.listdir(found))))
                else:
                    shutil.copyfile(found, to)
                return match[1] + os.path.relpath(to, directory) + match[3]

            changed = LINK.sub(lead, text)
            bad.extend(f"{below}: fetches {url}" for url in FETCHED.findall(changed))
            if changed != text:
                with open(page, "w", encoding="utf-8") as file:
                    file.write(changed)
    print("\n".join(bad), file=sys.stderr, end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())

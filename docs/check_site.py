"""Checks the built site, which `make docs` runs: links, anchors, requests, texts of pictures, search.

`python docs/check_site.py build/docs` reads the HTML and CSS files of the folder and prints what is wrong; the exit
code is 1 if anything is. Links to other hosts are not followed. A page may link to other hosts, but its scripts,
styles, fonts and pictures must be files of the site, so that reading it sends nothing to anyone.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "audio": "src", "video": "src", "source": "src", "iframe": "src"}
"""The attributes that make a browser load something; `link` has its own rule."""
NOT_LOADED = {"canonical", "next", "prev", "edit"}
"""The relations of `link` that load nothing."""
RAW = {
    re.compile(r"# ?(?:</span>)?doctest:"): "prints what only doctest reads",
    re.compile(r"<p>\w+ : \w"): "shows a list of parameters as a paragraph",
    re.compile(r"<span class=\"n\">_[A-Z]\w+"): "shows a private type",
}
"""What a page of the reference has if its docstring was not read as it is meant."""
STYLE_URL = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')]+)")


class Page(HTMLParser):
    """What a page links to, loads and shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.headings = 0
        self.problems: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.headings += tag == "h1"
        if tag == "html" and not values.get("lang"):
            self.problems.append("the page has no language")
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and not NOT_LOADED & set(values.get("rel", "").split()):
            self.loads.append(values.get("href", ""))
        if tag in LOADED and LOADED[tag] in values:
            self.loads.append(values[LOADED[tag]])
        if tag == "img" and not values.get("alt", "").strip():
            self.problems.append(f"the picture {values.get('src')} has no text for those who do not see it")


def problems(site: Path) -> Iterator[str]:
    """What is wrong, each with its file."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no pages"
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name}: {problem}" for problem in page.problems)
        yield from (f"{name}: {problem}" for raw, problem in RAW.items() if raw.search(path.read_text()))
        if page.headings != 1:
            yield f"{name}: {page.headings} headings of the first level, must be 1"
        for target in page.loads:
            if is_elsewhere(target):
                yield f"{name}: loads {target} from another host"
        # The page of missing pages has links from the root of a host.
        links = [] if path.name == "404.html" else [*page.links, *page.loads]
        for link in links:
            yield from (f"{name}: {problem}" for problem in broken(link, path, pages))
    for style in site.rglob("*.css"):
        for found in STYLE_URL.findall(style.read_text()):
            yield f"{style.relative_to(site)}: loads {found} from another host"
    if not (site / "search" / "search_index.js").is_file():
        yield "search/search_index.js is missing, so search does not work in pages that are opened from disk"


def is_elsewhere(link: str) -> bool:
    """Whether a link leads to another host."""
    return bool(urlsplit(link).netloc)


def broken(link: str, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Why a link leads nowhere."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        yield f"the link {link} leads to no file"
    elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        yield f"the link {link} leads to no heading"


def main() -> int:
    """Prints the problems; returns 1 if there are any."""
    site = Path(sys.argv[1]).resolve()
    found = list(problems(site))
    sys.stdout.writelines(f"{problem}\n" for problem in found)
    sys.stdout.write(f"{len(list(site.rglob('*.html')))} pages, {len(found)} problems\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

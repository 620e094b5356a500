"""Hooks of mkdocs: pages from outside `docs/`, and a check that the built site requests nothing from elsewhere.

The README becomes the first page, `benches/README.md` the page of measurements. Examples and licence are files of
the site. Links between all of these are changed to where they lie there.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"index.md": "README.md", "measurements.md": "benches/README.md"}
"""Pages of the site whose sources are elsewhere."""
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#]+)")
REQUEST = re.compile(r"<(?:script|img|iframe|audio|video|source|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
"""A tag that makes a browser ask another host."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and files from outside the folder."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    for path in [
        *ROOT.glob("examples/**/*.py"),
        *ROOT.glob("LICENSE*"),
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
    ]:
        name = str(path.relative_to(ROOT))
        files.append(File.generated(config, name.replace(".md", ".txt"), content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Changes links to where the site has their files."""
    folder = (ROOT / PAGES[page.file.src_uri]).parent if page.file.src_uri in PAGES else ROOT / "docs"
    places = {(ROOT / source): name for name, source in PAGES.items()}

    def moved(found: re.Match[str]) -> str:
        path = (folder / found[1]).resolve()
        if path in places:
            return places[path]
        if path.is_relative_to(ROOT / "docs"):
            return str(path.relative_to(ROOT / "docs"))
        return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else found[1]

    return LINK.sub(moved, markdown)


def on_post_build(config: Any) -> None:
    """Raises if a page would make a browser ask another host."""
    for page in Path(config.site_dir).rglob("*.html"):
        if found := REQUEST.search(page.read_text()):
            raise PluginError(f"{page} requests something from elsewhere: {found[0]}")

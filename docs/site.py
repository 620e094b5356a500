"""Hooks of mkdocs: pages from outside `docs/`.

The README becomes the first page, `benches/README.md` the page of measurements; changelog and the page for contributors
are pages, too. Examples and licence are files of the site. Links between all of these are changed to where they lie
there.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[1]
PAGES = {
    "index.md": "README.md",
    "measurements.md": "benches/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
"""Pages of the site whose sources are elsewhere."""
SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the plugin `offline` writes in each page."""
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and files from outside the folder."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    examples = [*ROOT.glob("examples/**/*.py"), *ROOT.glob("examples/*.ipynb")]
    for path in [*examples, *ROOT.glob("LICENSE*"), ROOT / "SECURITY.md"]:
        name = str(path.relative_to(ROOT))
        files.append(File.generated(config, name.replace(".md", ".txt"), content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Changes links to where the site has their files."""
    name = page.file.src_uri
    folder = (ROOT / PAGES[name] if name in PAGES else ROOT / "docs" / name).parent
    places = {(ROOT / source): name for name, source in PAGES.items()}

    def moved(found: re.Match[str]) -> str:
        path = (folder / found[1]).resolve()
        if not path.is_relative_to(ROOT):
            return found[1]
        there = ROOT / "docs"
        place = places.get(path) or str(path.relative_to(there if path.is_relative_to(there) else ROOT))
        if path.suffix == ".md" and path.parent == ROOT and path not in places:
            place = place.replace(".md", ".txt")
        return os.path.relpath(place, Path(name).parent)

    return LINK.sub(moved, markdown)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Replaces the script for search in files, which the theme would load from another host, by that of the site."""
    return output.replace(SHIM, get_relative_url("styles/worker.js", page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same in pages without a source."""
    return output_content.replace(SHIM, "styles/worker.js")

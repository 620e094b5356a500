"""The pages of `forebay show`, read back."""

from html.parser import HTMLParser
from pathlib import Path

from forebay import cli

EVIL = "<script src=https://example.org/x.js></script>\"'&"


class Seen(HTMLParser):
    """The tags of a page with their attributes and the text that follows each, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.texts:
            self.texts[-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def shown(*arguments: object) -> Seen:
    """The page of a command whose last argument is the file."""
    *_, output = arguments
    assert cli.main(["show", *map(str, arguments[:-1]), "-o", str(output)]) == 0
    return Seen(Path(str(output)).read_text())

"""The page of `forebay show`: HTML without scripts, other files or requests.

Everything that comes from a source is escaped. The page's policy forbids what is not in the page, so that a mistake
here could still not send anything.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay._pictures import uri

__all__ = ["Card", "Table", "written"]

POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --text: #1b1b1f; --back: #fdfdfd; --line: #c9c9d2; --bar: #4a5fb0; --bad: #a31515; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ececf1; --back: #17171c; --line: #4a4a55; --bar: #8b9df0; --bad: #ff9a8f; }
}
body { margin: 0 auto; max-width: 88rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: var(--text); background: var(--back); }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 0; overflow-wrap: anywhere; }
.tables, .cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
.cards { list-style: none; padding: 0; }
.cards > li { border: 1px solid var(--line); border-radius: .4rem; padding: .75rem; min-width: 0; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; font-weight: 600; }
.tables { align-items: start; margin-bottom: 1rem; }
th { text-align: left; font-weight: 400; overflow-wrap: anywhere; }
td { text-align: right; padding-left: .5rem; white-space: nowrap; }
td.bar { width: 35%; } td.bar span { display: block; height: .7rem; background: var(--bar); }
figure { margin: .5rem 0; } figcaption { font-size: .9rem; }
img { display: block; width: 100%; height: 8rem; image-rendering: pixelated; }
audio { width: 100%; } dl { margin: .5rem 0 0; overflow-wrap: anywhere; } dt { float: left; margin-right: .4rem; }
dt::after { content: ":"; } dd { margin: 0; } .bad { color: var(--bad); overflow-wrap: anywhere; }
:focus-visible { outline: 3px solid var(--bar); outline-offset: 2px; }
"""


@dataclass(frozen=True)
class Table:
    """Counts by name."""

    title: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Card:
    """A row: its values, and pictures and their sounds, by the same names; or an error."""

    row: int
    facts: Mapping[str, str]
    title: str = ""
    pictures: Sequence[tuple[str, bytes]] = field(default=())
    sounds: Sequence[tuple[str, bytes]] = field(default=())
    error: str | None = None


def written(source: str, facts: str, tables: Sequence[Table], cards: Sequence[Card], recipe: str | None) -> str:
    """The page."""
    name = html.escape(source)
    what = f"Clips before and after the steps of the recipe {html.escape(recipe)}" if recipe else "Recordings"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name} - forebay</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n"
        f'<p>{html.escape(facts)}</p>\n<div class="tables">\n{"".join(map(_table, tables))}</div>\n'
        f'<h2 id="rows">{what}</h2>\n<ul class="cards" aria-labelledby="rows">\n{"".join(map(_card, cards))}</ul>\n'
        "</main>\n</body>\n</html>\n"
    )


def _table(table: Table) -> str:
    most = max(table.counts.values(), default=0) or 1
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{n}</td>'
        f'<td class="bar" aria-hidden="true"><span style="width:{100 * n / most:.1f}%"></span></td></tr>\n'
        for name, n in table.counts.items()
    )
    return f"<table><caption>{html.escape(table.title)}</caption>\n{rows}</table>\n"


def _card(card: Card) -> str:
    parts = [f"<h2>row {card.row}</h2>"]
    if card.error is not None:
        parts.append(f'<p class="bad">Bad recording: {html.escape(card.error)}</p>')
    if card.title:
        parts.append(f"<p>{html.escape(card.title)}</p>")
    sounds = dict(card.sounds)
    for name, picture in card.pictures:
        of = html.escape(f"row {card.row}{', ' if name else ''}{name}", quote=True)
        caption = f"<figcaption>{html.escape(name)}</figcaption>" if name else ""
        image = f'<img alt="Spectrogram of {of}" src="{uri("image/png", picture)}">'
        source = uri("audio/wav", sounds[name])
        player = f'<audio controls preload="none" aria-label="Sound of {of}" src="{source}"></audio>'
        parts.append(f"<figure>{caption}{image}{player}</figure>")
    facts = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in card.facts.items())
    return f"<li>{''.join(parts)}<dl>{facts}</dl></li>\n"

"""The page of `forebay show`: HTML without scripts, other files or requests.

Everything that comes from a source is escaped. The page's policy forbids what is not in the page, so that a mistake
here could still not send anything.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from forebay._pictures import uri

__all__ = ["COLORS", "Card", "Table", "Token", "TokenRow", "packed", "written"]

T = TypeVar("T")

COLORS = 6
"""The colors of documents, which take turns."""
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
.rows { list-style: none; padding: 0; } .rows > li { border-top: 1px solid var(--line); padding: .75rem 0; }
.strip { display: flex; height: .6rem; margin: .3rem 0; } .strip span { min-width: 0; }
.tokens { font: .85rem/1.7 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; overflow: hidden; }
.tokens span[title] { box-shadow: inset 1px 0 var(--back); }
.tokens .s { border-left: 3px solid var(--text); }
.tokens span:dir(rtl) > .s { border-left: none; border-right: 3px solid var(--text); }
.tokens .c { font-style: italic; text-decoration: underline; }
.tokens .u { opacity: .6; } .tokens .p { color: var(--text); opacity: .75; } .p { background: #80808066; }
.d0 { background: #4a7fd055; } .d1 { background: #d0903a55; } .d2 { background: #3aa06a55; }
.d3 { background: #b05ac055; } .d4 { background: #c0504a55; } .d5 { background: #3aa8b055; }
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


@dataclass(frozen=True)
class Token:
    """A piece of text, mostly one token: the number of its document in the row, none of padding, and what it is."""

    text: str
    title: str
    document: int | None
    is_trained: bool = True
    is_first: bool = False
    is_special: bool = False


@dataclass(frozen=True)
class TokenRow:
    """A packed row: its tokens, the tokens of each of its documents and of the padding, and facts about them."""

    row: int
    title: str
    tokens: Sequence[Token]
    lengths: Sequence[int]
    n_padding: int
    n_trained: int
    facts: Mapping[str, str]


def written(source: str, facts: str, tables: Sequence[Table], cards: Sequence[Card], recipe: str | None) -> str:
    """The page of recordings."""
    what = f"Clips before and after the steps of the recipe {recipe}" if recipe else "Recordings"
    return _page(
        source, facts, tables, what, f'<ul class="cards" aria-labelledby="rows">\n{_joined(_card, cards)}</ul>'
    )


def packed(source: str, facts: str, tables: Sequence[Table], rows: Sequence[TokenRow]) -> str:
    """The page of packed rows."""
    legend = (
        '<p class="tokens legend"><span class="d0 s">first token of a document</span> <span class="d0">token</span> '
        '<span class="d0 c">BOS, EOS or a token without text</span> <span class="d0 u">not trained on</span> '
        '<span class="d1 s">next document</span> <span class="p">padding</span></p>\n'
    )
    body = f'{legend}<ol class="rows" aria-labelledby="rows">\n{_joined(_token_row, rows)}</ol>'
    return _page(source, facts, tables, "Packed rows", body)


def _joined(make: Callable[[T], str], parts: Sequence[T]) -> str:
    return "".join(map(make, parts))


def _page(source: str, facts: str, tables: Sequence[Table], what: str, body: str) -> str:
    name = html.escape(source)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name} - forebay</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{_breakable(source)}</h1>\n"
        f'<p>{html.escape(facts)}</p>\n<div class="tables">\n{_joined(_table, tables)}</div>\n'
        f'<h2 id="rows">{html.escape(what)}</h2>\n{body}\n'
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
        parts.append(f'<p class="bad">Bad recording: {_breakable(card.error)}</p>')
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
    return f"<li>{''.join(parts)}{_facts(card.facts)}</li>\n"


def _token_row(row: TokenRow) -> str:
    # Letters of a word that is several tokens stand in the order of its script.
    documents = groupby(row.tokens, lambda token: token.document)
    spans = "".join(f'<span dir="auto">{_joined(_token, list(tokens))}</span>' for _, tokens in documents)
    n = sum(row.lengths) + row.n_padding
    widths = [(f"d{number % COLORS}", length) for number, length in enumerate(row.lengths)] + [("p", row.n_padding)]
    strip = "".join(f'<span class="{name}" style="width:{100 * width / n:.2f}%"></span>' for name, width in widths)
    return (
        f'<li><h2>row {row.row}</h2><p>{html.escape(row.title)}</p><div class="strip" aria-hidden="true">{strip}</div>'
        f'<div class="tokens">{spans}</div>{_facts(row.facts)}</li>\n'
    )


def _token(token: Token) -> str:
    names = "p" if token.document is None else f"d{token.document % COLORS}"
    marks = {"s": token.is_first, "c": token.is_special, "u": not token.is_trained}
    names += "".join(f" {name}" for name, is_so in marks.items() if is_so and token.document is not None)
    # Set apart, so that it does not decide on the direction of its document.
    apart = ' dir="ltr"' if token.is_special else ""
    title = html.escape(token.title, quote=True)
    return f'<span class="{names}" title="{title}"{apart}>{html.escape(token.text)}</span>'


def _facts(facts: Mapping[str, str]) -> str:
    pairs = "".join(f"<dt>{html.escape(name)}</dt><dd>{_breakable(value)}</dd>" for name, value in facts.items())
    return f"<dl>{pairs}</dl>"


def _breakable(text: str) -> str:
    """Escaped, with lines that end behind a slash of a path where they can."""
    return html.escape(text).replace("/", "/<wbr>")

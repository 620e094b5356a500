"""Tokenizers for providers: the protocol, a character tokenizer, and a cache."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from forebay._core import ConfigError


@runtime_checkable
class Tokenizer(Protocol):
    """The protocol of tokenizers: any object with these two methods."""

    def encode(self, text: str, /) -> Sequence[int]:
        """Encodes a text to token ids."""

    def decode(self, ids: Sequence[int], /) -> str:
        """Decodes token ids to a text."""


class CharTokenizer:
    """A character tokenizer: an id per character, in the order of code points; `stoi` and `itos` fit into `meta`."""

    def __init__(self, characters: Iterable[str]) -> None:
        self.itos = dict(enumerate(sorted(set(characters))))
        self.stoi = {character: number for number, character in self.itos.items()}

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> "CharTokenizer":
        """The tokenizer of a data set, from `stoi` in its meta."""
        if "stoi" not in meta:
            raise ConfigError("meta has no stoi: its provider does not use a CharTokenizer")
        made = cls(())
        made.stoi = dict(meta["stoi"])
        made.itos = {number: character for character, number in made.stoi.items()}
        return made

    def __len__(self) -> int:
        return len(self.stoi)

    def encode(self, text: str, /) -> list[int]:
        """Encodes a text to ids, one per character; `ConfigError` for a character that is not in the vocabulary."""
        try:
            return [self.stoi[character] for character in text]
        except KeyError as error:
            raise ConfigError(f"the character {error.args[0]!r} is not in the vocabulary") from None

    def decode(self, ids: Sequence[int], /) -> str:
        """Decodes ids to a text."""
        return "".join(self.itos[int(number)] for number in ids)


class CachedTokenizer:
    """Caches the last `max_texts` texts that a tokenizer encoded; ids are tuples."""

    def __init__(self, tokenizer: Tokenizer, max_texts: int = 1024) -> None:
        if max_texts < 1:
            raise ConfigError(f"max_texts is {max_texts}, must be at least 1")
        self.tokenizer = tokenizer
        self.max_texts = max_texts
        self._cache: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def encode(self, text: str, /) -> tuple[int, ...]:
        """Encodes a text to ids, from the cache if possible."""
        if (ids := self._cache.get(text)) is None:
            ids = self._cache[text] = tuple(self.tokenizer.encode(text))
            if len(self._cache) > self.max_texts:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(text)
        return ids

    def decode(self, ids: Sequence[int], /) -> str:
        """Decodes ids to a text, without a cache."""
        return self.tokenizer.decode(ids)

"""Text to numbers and back: the protocol of a provider's tokenizer, a tokenizer by characters, and a cache."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from forebay._core import ConfigError


@runtime_checkable
class Tokenizer(Protocol):
    """Any object with these two methods."""

    def encode(self, text: str, /) -> Sequence[int]:
        """A number per token."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of numbers."""


class CharTokenizer:
    """A number per character, in the order of code points; `stoi` and `itos` can be stored in `meta`."""

    def __init__(self, characters: Iterable[str]) -> None:
        self.itos = dict(enumerate(sorted(set(characters))))
        self.stoi = {character: number for number, character in self.itos.items()}

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> "CharTokenizer":
        """The tokenizer of a data set."""
        if "stoi" not in meta:
            raise ConfigError("meta has no stoi: its provider doesn't work on characters")
        made = cls(())
        made.stoi = dict(meta["stoi"])
        made.itos = {number: character for character, number in made.stoi.items()}
        return made

    def __len__(self) -> int:
        return len(self.stoi)

    def encode(self, text: str, /) -> list[int]:
        """A number per character; `ConfigError` names a character without a number."""
        try:
            return [self.stoi[character] for character in text]
        except KeyError as error:
            raise ConfigError(f"the character {error.args[0]!r} is not in the vocabulary") from None

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of numbers."""
        return "".join(self.itos[int(number)] for number in ids)


class CachedTokenizer:
    """A tokenizer that caches the last `max_texts` encoded texts; ids are tuples."""

    def __init__(self, tokenizer: Tokenizer, max_texts: int = 1024) -> None:
        if max_texts < 1:
            raise ConfigError(f"max_texts is {max_texts}, must be at least 1")
        self.tokenizer = tokenizer
        self.max_texts = max_texts
        self._cache: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def encode(self, text: str, /) -> tuple[int, ...]:
        """Encodes a text with the tokenizer, once."""
        if (ids := self._cache.get(text)) is None:
            ids = self._cache[text] = tuple(self.tokenizer.encode(text))
            if len(self._cache) > self.max_texts:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(text)
        return ids

    def decode(self, ids: Sequence[int], /) -> str:
        """Decodes with the tokenizer, each time."""
        return self.tokenizer.decode(ids)

"""Texts in the commands: the options about them, and the `TokenLoader` that these make.

`--tokenizer`, or `--kind`, says that SOURCE has texts; nothing is detected. An option for recordings is refused then,
and one for texts without them.
"""

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay._core import ConfigError, Tokenizer, TokenLoader
from forebay.cli.common import a_path, check_files, counted, file_lines, filled, size, using
from forebay.text import Chat, Documents, Ids, Pairs

__all__ = [
    "FOR_TOKENIZER",
    "NOT_FOR_TEXTS",
    "add",
    "add_packing",
    "add_tokenizer",
    "are_meant",
    "check",
    "described",
    "files_line",
    "hinted",
    "loaded",
    "packing",
    "special_tokens",
    "tokenizer_of",
]

KINDS = ("documents", "ids", "chat", "pairs")
"""The values of `--kind`."""
FOR_TOKENIZER = ("pattern", "special_tokens", "bos_id", "eos_id")
"""Options about the tokenizer of `--tokenizer`, and its frame of documents."""
OF_KINDS = {
    "template": ("chat", "pairs"), "train_on": ("chat", "pairs"), "chosen": ("pairs",), "rejected": ("pairs",),
    "prompt": ("pairs",), "text_column": ("documents", "ids", "chat"),
}  # fmt: skip
"""The options that belong to some kinds."""
SHARED = ("tokenizer", "kind", *FOR_TOKENIZER, *OF_KINDS)
"""The options of every command about texts."""
ANY = ("files", "json", "debug")
"""The options of every command about sources."""
NO_RECORDINGS = ('there is no column "audio"', "no column has paths")
"""The words of an error about a table that may have texts."""
NOT_FOR_TEXTS = "The command is for recordings; `forebay inspect SOURCE --tokenizer FILE` tells what texts hold"
"""The remedy of a command that knows recordings alone."""
PARAMETERS = {
    "parquet_files": "SOURCE", "data_dir": "SOURCE", "path": "SOURCE", "source": "SOURCE", "column": "--text-column",
    "chosen": "--chosen", "rejected": "--rejected", "prompt": "--prompt",
}  # fmt: skip
"""Parameters of `TokenLoader` and its sources whose options have other names."""


def add_tokenizer(group: argparse._ActionsContainer, otherwise: str) -> None:
    """Adds the options about the tokenizer; `otherwise` says what happens without it."""
    group.add_argument(
        "-t", "--tokenizer", type=a_path, metavar="FILE",
        help=f"a tokenizer.json, rank file or SentencePiece .model; without it, {otherwise}",
    )  # fmt: skip
    group.add_argument(
        "--pattern", metavar="REGEX", help="the pattern that splits text, for a rank file of another name"
    )
    group.add_argument(
        "--special-tokens", action="append", type=filled, metavar="NAME=ID",
        help="a special token of a rank file; may be repeated. Or a JSON file of names and ids",
    )  # fmt: skip
    group.add_argument("--bos-id", type=int, metavar="ID", help="the id of BOS (default: that of the tokenizer)")
    group.add_argument(
        "--eos-id", type=int, metavar="ID", help="the id of EOS, which ends each document (default: none)"
    )


def add(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds the options about texts; returns their group, for those of the command."""
    group = parser.add_argument_group("texts")
    add_tokenizer(group, "SOURCE has recordings, or with --kind ids token ids")
    group.add_argument(
        "--kind", choices=KINDS,
        help="what a row has: a document, a list of token ids, a conversation, or a pair of these (default: "
        "documents). SOURCE is one source: of a mixture, name one after the other",
    )  # fmt: skip
    group.add_argument(
        "--text-column", metavar="NAME",
        help="the column of these (default: text; with --kind ids input_ids, with --kind chat messages)",
    )  # fmt: skip
    group.add_argument(
        "--template", metavar="NAME",
        help="of --kind chat and pairs: tokenizer, chatml, llama3, gemma, mistral or a file of Jinja (default: "
        "tokenizer)",
    )  # fmt: skip
    group.add_argument(
        "--train-on", choices=("assistant", "last", "all"),
        help="of --kind chat and pairs: train on all answers, the last one or every token (default: assistant; of "
        "pairs last)",
    )  # fmt: skip
    group.add_argument(
        "--chosen", metavar="NAME", help="of --kind pairs: the column of those that are preferred (default: chosen)"
    )
    group.add_argument("--rejected", metavar="NAME", help="of --kind pairs: that of the others (default: rejected)")
    group.add_argument("--prompt", metavar="NAME", help="of --kind pairs: that of what both answer (default: none)")
    return group


def add_packing(group: argparse._ArgumentGroup, seq_len: int) -> None:
    """Adds the options about one way of packing."""
    group.add_argument("--seq-len", type=int, metavar="N", help=f"tokens of a row (default: {seq_len})")
    group.add_argument(
        "--fit", choices=("drop", "carry", "pad"),
        help="what becomes of a document that does not fit the rest of a row (default: drop)",
    )  # fmt: skip
    group.add_argument(
        "--on-long", choices=("skip", "cut", "split"), help="with --fit pad, what becomes of one longer than a row"
    )


PACKING = ("seq_len", "fit", "on_long")
"""The options of `add_packing`."""


def packing(options: argparse.Namespace, seq_len: int) -> dict[str, Any]:
    """The parameters of `add_packing`; those that are not given are the loader's own, but for `seq_len`.

    Raises `ConfigError` for options that do not go together.
    """
    given = {name: value for name in PACKING if (value := getattr(options, name)) is not None}
    if options.kind == "pairs" and given.setdefault("fit", "pad") != "pad":
        raise ConfigError(f"--fit is {given['fit']}, and --kind pairs needs pad: no pair is split; leave it out")
    if "on_long" in given and given.get("fit") != "pad":
        raise ConfigError("--on-long needs --fit pad")
    return {"seq_len": seq_len} | given


def are_meant(options: argparse.Namespace) -> bool:
    """Whether SOURCE has texts."""
    return options.tokenizer is not None or options.kind is not None


def check(options: argparse.Namespace, own: Sequence[str], both: Sequence[str] = ()) -> None:
    """Raises `ConfigError` for options that do not go together: `own` are the command's for texts, `both` for any."""
    parser = options.parser
    flags = {
        action.dest: next((option for option in action.option_strings if option.startswith("--")), "")
        for action in parser._actions
    }
    values = vars(options)
    given = [name for name in flags if name in values and values[name] != parser.get_default(name)]
    for_texts = {*SHARED, *own}
    if not are_meant(options):
        for name in given:
            if name in for_texts:
                raise ConfigError(f"{flags[name]} is for texts; name a tokenizer, as in --tokenizer gpt2.tiktoken")
        return
    for name in given:
        if name not in {*for_texts, *both, *ANY}:
            raise ConfigError(f"{flags[name]} is for recordings, and --tokenizer and --kind are for texts; give one")
    kind = options.kind or "documents"
    for name, kinds in OF_KINDS.items():
        if name == "text_column" and name in given and kind == "pairs":
            raise ConfigError("--text-column is not for --kind pairs; name their columns by --chosen and --rejected")
        if name in given and kind not in kinds:
            raise ConfigError(f"{flags[name]} needs --kind {' or '.join(kinds)}")
    if options.tokenizer is None and options.kind != "ids":
        raise ConfigError(f"--kind {options.kind} needs a tokenizer, as in --tokenizer gpt2.tiktoken")
    if options.tokenizer is None and options.bos_id is None:
        raise ConfigError("--kind ids needs --bos-id, the id that begins a document, or a --tokenizer that has one")
    options.parameters = {**options.parameters, **PARAMETERS}


@contextlib.contextmanager
def hinted(remedy: str = "Of texts, name the tokenizer with --tokenizer") -> Iterator[None]:
    """Adds to an error about a source without recordings how one of texts is read."""
    try:
        yield
    except ConfigError as error:
        if any(words in str(error) for words in NO_RECORDINGS):
            error.add_note(remedy)
        raise


def tokenizer_of(options: argparse.Namespace) -> Tokenizer:
    """The tokenizer of `--tokenizer`, which is given."""
    file: Path = options.tokenizer
    given = tokenizing(options)
    with using("--tokenizer", options):
        check_files("--tokenizer", [file / "tokenizer.json" if file.is_dir() else file])
        return Tokenizer(file, **given)


def tokenizing(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters of a tokenizer."""
    with using("--special-tokens", options):
        tokens = special_tokens(options.special_tokens)
    return {
        "pattern": options.pattern, "special_tokens": tokens, "bos_id": options.bos_id, "eos_id": options.eos_id,
    }  # fmt: skip


def loaded(options: argparse.Namespace, **parameters: Any) -> TokenLoader:
    """A loader of all rows of SOURCE; other errors than of the tokenizer name SOURCE.

    Raises `ConfigError`, also for files that cannot be read.
    """
    if options.tokenizer is not None:
        tokenizer_of(options)  # for its errors: the loader wants the path, since a folder may have a chat template
    given = tokenizing(options)
    with using("SOURCE", options):
        try:
            return TokenLoader(source(options), options.tokenizer, val=[], **given, **parameters)
        except ConfigError as error:
            # Two ways to name a column in Python, one here.
            told = str(error).replace("column= of an object of forebay.text, or ", "")
            raise ConfigError(told.replace(" of forebay.text.Pairs", "")) from error


def source(options: argparse.Namespace) -> Documents | Ids | Chat | Pairs:
    """The source of `--kind`."""
    column = {} if options.text_column is None else {"column": options.text_column}
    files = [str(file) for file in options.files]
    if options.kind == "ids":
        return Ids(files, **column)
    if options.kind not in ("chat", "pairs"):
        return Documents(files, **column)
    named = ("train_on", "chosen", "rejected", "prompt")
    more: dict[str, Any] = {name: value for name in named if (value := getattr(options, name)) is not None}
    more |= column | {"template": template(options.template or "tokenizer")}
    return Chat(files, **more) if options.kind == "chat" else Pairs(files, **more)


def template(name: str) -> str:
    """The chat template of `--template`: a name, or the text of a file."""
    if not Path(name).is_file():
        return name
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--template {name} is no text in UTF-8: {error}; expected is a template of Jinja") from error


def described(shards: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The rows and files of a source for the terminal."""
    yield files_line(shards)
    yield from file_lines(shards)


def files_line(shards: Sequence[Mapping[str, Any]]) -> str:
    """Rows, files and their size."""
    n_rows, n_bytes = (sum(shard[name] for shard in shards) for name in ("num_rows", "num_bytes"))
    return f"{counted(n_rows, 'row')} in {counted(len(shards), 'file')}, {size(n_bytes)}"


def special_tokens(given: Sequence[str] | None) -> dict[str, int] | None:
    """The special tokens of `NAME=ID` and of JSON files; raises `ConfigError` for any other text."""
    if given is None:
        return None
    found: dict[str, int] = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if name and number.isdecimal():
            tokens: object = {name: int(number)}
        elif not Path(text).is_file():
            raise ConfigError(
                f"--special-tokens {text} is neither NAME=ID nor a file; expected is such as '<|bos|>=50000'"
            )
        else:
            try:
                tokens = json.loads(Path(text).read_bytes())
            except (ValueError, RecursionError):
                tokens = None
        if not isinstance(tokens, dict) or not all(type(number) is int for number in tokens.values()):
            raise ConfigError(
                f'--special-tokens {text} is not a JSON object of names and ids, as in {{"<|bos|>": 50000}}'
            )
        for name, number in tokens.items():
            if found.setdefault(name, number) != number:
                raise ConfigError(f"--special-tokens gives {name} the ids {found[name]} and {number}; give one")
    return found

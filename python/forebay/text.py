"""Sources of text for `forebay.TokenLoader`.

>>> from forebay import text
>>> text.Documents("web/*.jsonl.zst", column="content")
Documents(path='web/*.jsonl.zst', column='content')
>>> text.Ids("tokenised/")
Ids(path='tokenised/')
>>> text.Chat("sft.jsonl", template="chatml")
Chat(path='sft.jsonl', template='chatml')
>>> text.Pairs("dpo.parquet", prompt="prompt")
Pairs(path='dpo.parquet', prompt='prompt')

Objects are frozen dataclasses; each checks its parameters when it is made.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from forebay._core import _TextRows
from forebay._packed import Packed
from forebay._part import _Part, part

if TYPE_CHECKING:
    from forebay._core import _HubDataset

__all__ = ["Chat", "Documents", "Ids", "Packed", "Pairs"]


def __dir__() -> list[str]:
    return __all__


_Files: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | _HubDataset"


@part
class _TextPart(_Part):
    """What all sources share."""

    if TYPE_CHECKING:  # no field of this class
        path: _Files

        @property
        def _plan(self) -> _TextRows: ...

    def __post_init__(self) -> None:
        self._check_by(_TextRows)
        if not isinstance(self.path, str | os.PathLike | Sequence):  # a datasets.Dataset: JSON has its files
            object.__setattr__(self, "path", self._plan.paths)


@part
class Documents(_TextPart):
    """Texts, one in each row of `column`, which the loader's tokenizer encodes.

    `path`: a file, a folder, a pattern or a list of these, of one format: Parquet (`.parquet`), Arrow (`.arrow`, as
    `save_to_disk` writes it), JSON lines (`.jsonl`) or text (`.txt`, a document in each line). The last two may end
    in `.gz` or `.zst`, too. In JSON lines points in `column` separate the names of nested fields. Text has no
    columns. Or a `datasets.Dataset` with all rows of its Arrow files, which are read.

    A bare path in place of the object is the same with `column="text"`.

    `fim`: the share of texts, 0 to 1, whose middle comes last (fill in the middle). Each is cut at two places that are
    drawn, and becomes `<prefix> prefix <suffix> suffix <middle> middle` (PSM), or, `fim_spm` of them,
    `<prefix> <suffix> suffix <middle> prefix middle` (SPM), between BOS and EOS: three tokens more. `fim_cut`:
    `"characters"` cuts between characters and encodes each part by itself; `"tokens"` cuts between the tokens of the
    text. `fim_prefix`, `fim_middle`, `fim_suffix`: text or id of the sentinels. None: those that the tokenizer has
    under a known name, such as `<fim_prefix>`, `<|fim_prefix|>` or `<PRE>`.

    `bpe_dropout`: the probability, 0 to 1, with which each merge of two parts is left out (BPE dropout), for byte-level
    BPE and BPE models of SentencePiece.

    The draws depend on the loader's seed, the row and the epoch alone, for any number of workers and ranks.
    """

    path: _Files
    column: str = "text"
    fim: float = 0.0
    fim_spm: float = 0.5
    fim_cut: str = "characters"
    fim_prefix: str | int | None = None
    fim_middle: str | int | None = None
    fim_suffix: str | int | None = None
    bpe_dropout: float = 0.0

    _elsewhere: ClassVar[dict[str, str]] = {
        "fim_rate": "fim",
        "fim_spm_rate": "fim_spm",
        "spm_rate": "fim_spm",
        "fim_prefix_token": "fim_prefix",
        "fim_middle_token": "fim_middle",
        "fim_suffix_token": "fim_suffix",
        "dropout": "bpe_dropout",
    }


@part
class Ids(_TextPart):
    """Lists of token ids, one in each row, so that the loader needs no tokenizer.

    `path`: a file, a folder, a pattern or a list of these, of one format: Parquet with a `column` of lists of
    integers; `.bin` with its `.idx` beside it, as Megatron-LM writes them (either names both), a row for each
    document; or `.npy`, a row for each row of an array of two dimensions, or one for all of an array of one. Only
    Parquet has columns.

    Each list gets the loader's BOS and EOS, unless it begins and ends with them; `bos_id=` or a tokenizer says which
    they are. Ids are 0 to 2^31 - 1; a list with another number, or a null, is a bad row.

    `labels`: in Parquet, the column of lists that are equal to the ids where a token is trained on, and -100 where
    it is not. The target of a token that is not trained on is -100. `weights`: the column of lists of numbers from 0
    on, the weights of tokens in the loss; batches then have a field `weights`, float32 `[batch, seq_len]`, of the
    targets, 0 where the target is -100. Both are lists as long as those of the ids; nothing is shifted. A row with
    lists of different lengths, another label, or a weight below 0 or not finite is a bad row. A BOS that the loader
    adds is not trained on (its weight is 0), an EOS as the token before it.
    """

    path: _Files
    column: str = "input_ids"
    labels: str | None = None
    weights: str | None = None


@part
class Chat(_TextPart):
    """Conversations, one in each row, which a chat template makes into texts; only answers are trained on.

    `path`: a file, a folder, a pattern or a list of these, of one format: Parquet, Arrow (as `save_to_disk` writes it)
    or JSON lines (`.jsonl`, also `.gz` or `.zst`); or a `datasets.Dataset`, as for `Documents`. `column` has the
    messages: lists of structs (in JSON lines objects) with `role` and `content`, or texts of JSON. Null fields of
    structs, except `content`, are left out, since tables have all fields in all rows. `tools`: the column of
    the tools that a conversation may use, in the same forms.

    `template`: `"tokenizer"` for that of the tokenizer (`chat_template.jinja` or `tokenizer_config.json` in its
    folder, or the `chat_template` of an object of transformers); `"chatml"`, `"llama3"`, `"gemma"` or `"mistral"`; or
    a template of Jinja as text.

    `train_on`: `"assistant"` for all answers, `"last"` for the last one, `"all"` for every token. The target of any
    other token is -100. Answers are the `{% generation %}` blocks of the template; without them, what each answer adds
    to the conversation before it and its prompt. The templates by name include the token that ends the answer.

    Ids are those of `apply_chat_template` of transformers, with the loader's BOS before them if they do not begin
    with it, and its EOS. As there, text of a message that looks like a special token becomes that token. A row without
    messages or answers, with a role that the template refuses, or whose answers cannot be found, is a bad row.
    """

    path: _Files
    column: str = "messages"
    template: str = "tokenizer"
    train_on: str = "assistant"
    tools: str | None = None


@part
class Pairs(_TextPart):
    """Pairs of conversations of which one is preferred, one pair in each row, for DPO and reward models.

    `path`: as for `Chat`. `chosen` and `rejected` are columns of conversations, as `column` of `Chat`. With `prompt`,
    a column too, they have what follows the prompt: messages, or the text of an answer; a text as the prompt is the
    user's message. Texts of JSON with messages are read as messages. Without `prompt` each has the whole conversation,
    and texts are JSON. Points separate the names of nested fields.

    `template` and `train_on` as for `Chat`, for each conversation; by default only the last answer is trained on. The
    target of any other token is -100.

    A batch has two rows for each pair: `inputs` and `targets` are `[2 * batch_size, seq_len]`, the chosen ones
    first, then the rejected ones in the same order. Each row has one conversation, from its start, and `pad_id` after
    it; a pair is never split, so the loader needs `fit="pad"`, and pairs are mixed only with pairs. If a conversation
    has more than `seq_len + 1` tokens, `on_long="skip"` leaves its pair out, and `"cut"` cuts its end; a pair is left
    out too if one of its conversations has no target left. With the extra `doc_ids`, an input is padding where that
    is 1.

    A row is bad if either conversation is, as for `Chat`, or if an answer begins with a message of the user, the
    system or the developer. There are no tools.
    """

    path: _Files
    chosen: str = "chosen"
    rejected: str = "rejected"
    prompt: str | None = None
    template: str = "tokenizer"
    train_on: str = "last"

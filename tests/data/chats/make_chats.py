"""Writes `chats.json`: ids and masks of conversations by transformers, for `tests/python/tokens/test_chats.py`.

`python tests/data/chats/make_chats.py` with transformers 5.23.0, tokenizers and jinja2 installed.
"""

import json
import sys
import tempfile
from pathlib import Path

from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests/python/helpers"))

import chats  # noqa: E402

COUNT = 14

with tempfile.TemporaryDirectory() as folder:
    path = chats.write_tokenizer(Path(folder))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(path / "tokenizer.json"), bos_token="<|bos|>", eos_token="<|endoftext|>"
    )
    found = {}
    for name, template in chats.BLOCKS.items():
        rows = []
        for number in range(COUNT):
            made = tokenizer.apply_chat_template(
                chats.conversation(number),
                tools=chats.TOOLS if name == "own" and number % 2 else None,
                chat_template=template,
                return_assistant_tokens_mask=True,
                return_dict=True,
            )
            mask = "".join(map(str, made["assistant_masks"]))
            rows.append({"ids": made["input_ids"], "mask": mask})
        found[name] = rows


def listed(rows: list[dict[str, object]]) -> str:
    return ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)


lines = [f"{json.dumps(name)}: [\n{listed(rows)}\n]" for name, rows in found.items()]
(ROOT / "tests/data/chats/chats.json").write_text("{" + ",\n".join(lines) + "}\n")

"""Makes tokenizer.json and tokens.json: `python tests/data/tokens/make.py BOOKS GOLDEN`.

Needs tokenizers 0.23.3 and pyarrow. BOOKS is a Parquet file of the classic books named in SOURCE.txt, GOLDEN the
`tokens.json` that was made from it with tiktoken 0.14.0.
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
N_DOCUMENTS = 24

books = pq.ParquetFile(sys.argv[1]).read_row_group(0, ["text"])["text"].to_pylist()
golden = json.loads(Path(sys.argv[2]).read_text())
documents = [
    {"text": text, **{key: value for key, value in known.items() if key != "row"}}
    for text, known in zip(books[:N_DOCUMENTS], golden["docs"], strict=False)
]

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=1000,
    special_tokens=["<|bos|>", "<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
)
tokenizer.train_from_iterator(books[:400], trainer)
tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)

# Encodes text that looks like a special token as ordinary text.
tokenizer.encode_special_tokens = True


def ids(text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


edge = [{**known, "tokenizer_json": ids(known["text"])} for known in golden["edge"]]
for document in documents:
    document["n_tokenizer_json"] = len(ids(document["text"]))
out = {"edge": edge, "documents": documents}
(HERE / "tokens.json").write_text(json.dumps(out, ensure_ascii=False) + "\n")

"""Makes the small SentencePiece models and sentencepiece.json: `python tests/data/tokens/make_sentencepiece.py`.

Needs sentencepiece 0.2.3. The models are trained on the documents of tokens.json. sentencepiece.json has the ids and
the decoded text of some lines, by the library.
"""

import contextlib
import io
import json
import random
import tempfile
from pathlib import Path

import sentencepiece

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "tokens.json").read_text())
LINES = [line for document in GOLDEN["documents"] for line in document["text"].splitlines() if line.strip()]
# Source and replacement, code points in hexadecimal: tab and line feed are spaces, fi ligature, e with acute from two
# characters, soft hyphen left out, an ellipsis, three fullwidth letters.
RULES = """9\t20
A\t20
FB01\t66 69
65 301\tE9
AD\t
2026\t2E 2E 2E
FF21\t61
FF22\t62
FF23\t63
"""
MODELS = {
    "unigram": {
        "model_type": "unigram",
        "vocab_size": 400,
        "control_symbols": "<ctl>",
        "user_defined_symbols": "<sep>,ing",
    },
    "bpe": {
        "model_type": "bpe",
        "vocab_size": 650,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "user_defined_symbols": "<sep>,e o",
        "pad_id": 3,
        "remove_extra_whitespaces": False,
    },
    "suffix": {
        "model_type": "bpe",
        "vocab_size": 250,
        "treat_whitespace_as_suffix": True,
        "bos_id": -1,
        "eos_id": -1,
    },
}
TEXTS = [
    "", " ", "   ", "\t\n", "Hello world", "  Hello   world  ", "two\nlines\n", "\u2581", "a\u2581b \u2581 c", "<s>", "</s> <unk>", "<ctl>",
    "a<sep>b <sep> c", "singing ringing", "one othe o", "\ufb01ne caf\u00e9 cafe\u0301 e\u0301", "soft\u00adhyphen \u00ad", "wait\u2026",
    "\uff21\uff22\uff23 \uff24", "\u6f22\u5b57 kanji \u6f22\u5b57", "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439", "\U0001f600\U0001f600 \U0001f468\u200d\U0001f469",
    "\0", "a\0b", "12345 67,890.12", "x" * 100, " \u00e9 ", "\u3000ideographic\u3000space", "q\u0302z\u0302", "<0x41>", "e\u0301e\u0301",
]  # fmt: skip

out = {}
for name, options in MODELS.items():
    # The path is stored in the model.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("rules.tsv").write_text(RULES)
        given = {"normalization_rule_tsv": "rules.tsv", **options}
        if "normalization_rule_name" in given:
            del given["normalization_rule_tsv"]
        made = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES), model_writer=made, minloglevel=2, num_threads=1, **given
        )
    (HERE / f"{name}.model").write_bytes(made.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    cases = [{"text": text, "ids": processor.encode(text)} for text in [*TEXTS, *LINES[:40:4]]]
    for case in cases:
        case["decoded"] = processor.decode(case["ids"])
    rng = random.Random(name)
    any_ids = [[rng.randrange(processor.vocab_size()) for _ in range(12)] for _ in range(20)]
    out[name] = {
        "texts": cases,
        "ids": [{"ids": ids, "decoded": processor.decode(ids)} for ids in any_ids],
        "special": [processor.unk_id(), processor.bos_id(), processor.eos_id(), processor.pad_id()],
        "n_vocab": processor.vocab_size(),
    }
(HERE / "sentencepiece.json").write_text(json.dumps(out, ensure_ascii=False) + "\n")

"""Signature, stub, core and README name the same parameters with the same defaults."""

import ast
import inspect
import re
from importlib.resources import files

import pytest

import forebay
from forebay import _core
from paths import ROOT

KEYWORDS = {
    "order": None,
    "rank": 0,
    "world_size": 1,
    "n_streams": None,
    "drop_last": False,
    "era_length": 8192,
    "weights": None,
    "mixture_block": None,
    "stop": None,
    "n_readers": 32,
    "prefetch_batches": 3,
    "cpu_budget": None,
    "memory_budget": None,
    "raw_channel_bytes": None,
    "max_record_bytes": 1 << 30,
    "max_decoded_seconds": 86400.0,
    "dtype": "float32",
    "layout": "mel",
    "n_frames": None,
    "audio_column": None,
    "label_column": None,
    "mmap": False,
    "allow_paths": None,
    "on_error": "skip",
    "on_io_error": "raise",
    "max_errors": None,
    "max_consecutive_errors": None,
    "exclude": None,
    "stall_warning_s": 30.0,
}


def signature() -> dict[str, object]:
    """Parameters with defaults, in order."""
    parameters = list(inspect.signature(forebay.Loader).parameters.values())
    assert parameters[0].name == "arrow_files"
    kinds = {parameter.name: parameter.kind for parameter in parameters}
    assert {name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY} == set(KEYWORDS)
    return {parameter.name: parameter.default for parameter in parameters[1:]}


def test_core() -> None:
    train, evaluation = _core._presets()
    assert signature() == train | KEYWORDS
    assert list(signature()) == list(train) + list(KEYWORDS)
    assert {name: value for name, value in evaluation.items() if value != train[name]} == {
        "shuffle_buffer_size": 1000,
        "shuffle_min_size": 0,
        "n_workers": 4,
        "infinite": False,
        "augment": False,
    }


@pytest.mark.parametrize("name", ["DataLoader", "Loader", "SpectrogramTransform", "TokenLoader"])
def test_stub(name: str) -> None:
    stub = ast.parse(files("forebay").joinpath("_core.pyi").read_text())
    [cls] = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name]
    [new] = [node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__new__"]
    positional = [argument.arg for argument in new.args.args[-len(new.args.defaults) :]]
    defaults = dict(zip(positional, map(ast.literal_eval, new.args.defaults), strict=True))
    for argument, default in zip(new.args.kwonlyargs, new.args.kw_defaults, strict=True):
        assert default is not None
        defaults[argument.arg] = ast.literal_eval(default)
    runtime = inspect.signature(getattr(_core, name)).parameters.values()
    assert defaults == {p.name: p.default for p in runtime if p.default is not inspect.Parameter.empty}


@pytest.mark.parametrize("name", ["ForebayError", "ConfigError", "DecodeError", "StateError"])
def test_stub_of_errors(name: str) -> None:
    """Their documentation is the same in both."""
    stub = ast.parse(files("forebay").joinpath("_core.pyi").read_text())
    [cls] = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name]
    assert ast.get_docstring(cls) == inspect.getdoc(getattr(forebay, name))


def test_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", readme, re.MULTILINE))
    assert {name: ast.literal_eval(value) for name, value in table.items()} == signature()


def test_everything_is_documented() -> None:
    for cls in (forebay.Loader, forebay.SpectrogramTransform, forebay.TokenLoader, _core.DataLoader):
        public = [name for name in vars(cls) if not name.startswith("_")]
        assert all(inspect.getdoc(getattr(cls, name)) for name in [*public, "__doc__"])
    assert forebay.__version__ == re.search(
        r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE
    ).group(1)  # type: ignore[union-attr]

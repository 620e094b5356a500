"""Options of stores: they override the environment, and their secrets are in no text, log, state or pickle."""

import logging
import pickle
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import documents
import forebay
from by_url import ONE_PASS, SECRET, digests
from digests import digest
from served import Server

SECRETS: dict[str, Any] = {
    "aws_access_key_id": f"{SECRET}-id",
    "aws_secret_access_key": f"{SECRET}-key",
    "aws_session_token": f"{SECRET}-session",
    "google_service_account_key": f'{{"client_email": "{SECRET}", "private_key": "{SECRET}"}}',
    "google_bearer_token": f"{SECRET}-bearer",
    "azure_storage_account_key": f"{SECRET}-account",
    "azure_storage_sas_token": f"sig={SECRET}-sas",
    "azure_storage_token": f"{SECRET}-azure",
    "azure_client_secret": f"{SECRET}-client",
    "hf_token": f"{SECRET}-hub",
}


def options(server: Server, **more: Any) -> dict[str, Any]:
    return {"aws_endpoint_url": server.url, "hf_endpoint": server.url, "region": "eu-west-1", **SECRETS, **more}


def test_options_reach_every_scheme(server: Server, shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    # The environment has another server and another key.
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, "other")
    expected = digests(shards)
    given = options(server)
    assert digests("s3://bucket", storage_options=given) == expected
    assert all(f"Credential={SECRET}-id/" in value for value in server.credentials)
    server.credentials.clear()
    assert digests("hf://datasets/o/n", storage_options=given) == expected
    assert server.credentials == {f"Bearer {SECRET}-hub"}


def test_without_credentials_an_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine is asked for a role; here it refuses, as one without a role does."""

    class Refusing(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SKIP_SIGNATURE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    machine = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=machine.serve_forever)
    thread.start()
    try:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{machine.server_port}")
        with pytest.raises(OSError, match=r"set AWS_ACCESS_KEY_ID and .*, or AWS_PROFILE; for a public bucket"):
            forebay.Loader("s3://bucket/a.arrow", storage_options={"region": "eu-west-1"})
    finally:
        machine.shutdown()
        thread.join()
        machine.server_close()


def test_a_dataset_and_documents_take_options(server: Server, shards: list[Path], tmp_path: Path) -> None:
    given = options(server)
    with forebay.AudioDataset("s3://bucket", storage_options=given) as data:
        assert len(data) == 300
        assert data.column("label").shape == (300,)
    (tmp_path / "text").mkdir()
    folder = documents.write_documents(tmp_path / "text")
    with documents.loader(folder) as local, documents.loader("s3://bucket/text/", storage_options=given) as remote:
        for one, other in zip(islice(local, 3), islice(remote, 3), strict=True):
            assert digest(one) == digest(other)
    del shards


def test_secrets_are_in_no_output(
    server: Server, shards: list[Path], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    del shards
    caplog.set_level(logging.DEBUG)
    given = options(server)
    server.fails_every = 2  # so that retries are logged
    with forebay.Loader("s3://bucket", **ONE_PASS, storage_options=given) as loader:
        list(loader)
        texts = [
            repr(loader), str(loader), loader.stats(), loader.state_dict(), loader.recipe, loader.recipe.to_dict(),
            loader.errors(), loader.shards, loader.fields, loader.__reduce__(),
        ]  # fmt: skip
        pickled = pickle.dumps(loader)
    server.fails_every = 0
    with forebay.AudioDataset("s3://bucket", storage_options=given) as data:
        texts += [repr(data), data.recipe, data.__reduce__()]
        pickled += pickle.dumps(data)
    for url in (
        "s3://bucket/none.arrow", "s3://bucket/none/", "hf://datasets/o/n/none.arrow", "gs://bucket/a.arrow",
        "az://container/a.arrow",
    ):  # fmt: skip
        with pytest.raises((OSError, forebay.ForebayError)) as refused:
            forebay.Loader(url, **ONE_PASS, storage_options={**given, "google_base_url": server.url})
        texts += [refused.value, refused.value.args, getattr(refused.value, "__notes__", "")]
    server.refuses = True
    with pytest.raises(OSError, match="403") as forbidden:
        forebay.Loader("s3://bucket/a folder, ü/0.arrow", **ONE_PASS, storage_options=given)
    texts += [forbidden.value, caplog.text, *capfd.readouterr()]
    assert "trying again" in caplog.text
    assert SECRET not in " ".join(f"{text} {text!r}" for text in texts)
    assert SECRET.encode() not in pickled


def test_a_pickled_loader_takes_secrets_from_the_environment(
    server: Server, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**options(server), "aws_session_token": f"{SECRET}-session"}
    with forebay.Loader("s3://bucket", **ONE_PASS, storage_options=given) as loader:
        pickled = pickle.dumps(loader)
    with pytest.raises(OSError, match="AWS_ACCESS_KEY_ID"):
        pickle.loads(pickled)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, f"of-environment-{name}")
    server.credentials.clear()
    with pickle.loads(pickled) as copy:
        assert [digest(batch) for batch in copy] == digests(shards)
    assert all("Credential=of-environment-AWS_ACCESS_KEY_ID/" in value for value in server.credentials)


def test_a_state_continues_with_other_credentials(server: Server, shards: list[Path]) -> None:
    given = options(server)
    with forebay.Loader("s3://bucket", **ONE_PASS, storage_options=given) as loader:
        before = [digest(batch) for batch in islice(loader, 2)]
        state = loader.state_dict()
    other = {**given, "aws_access_key_id": "new", "aws_secret_access_key": "new"}
    with forebay.Loader("s3://bucket", **ONE_PASS, storage_options=other) as loader:
        loader.load_state_dict(state)
        assert before + [digest(batch) for batch in loader] == digests(shards)


class Odd(dict[str, Any]):
    def items(self) -> Any:
        return [(*item, 1) for item in super().items()]


class Raising(dict[str, Any]):
    def items(self) -> Any:
        raise ValueError("a mapping of its own kind")


def test_wrong_options_are_named_and_not_quoted(shards: list[Path]) -> None:
    makes: list[Callable[..., Any]] = [
        lambda **given: forebay.Loader(shards, **ONE_PASS, **given),
        lambda **given: forebay.AudioDataset(shards, **given),
        lambda **given: documents.loader(shards, **given),
    ]
    for make in makes:
        for given, told in (
            ({"aws_key": SECRET}, r"has no option 'aws_key'|has no option \"aws_key\""),
            ({"aws_region": 3}, "aws_region of another type, must be a str"),
            ({"aws_secret_access_key": SECRET.encode()}, "aws_secret_access_key of another type"),
            ({"aws_secret_access_key": f"{SECRET}\n"}, "aws_secret_access_key with a control character"),
            ({"aws_endpoint_url": f"http://me:{SECRET}@host"}, "aws_endpoint_url that is no address"),
            ({"aws_region": None}, "aws_region of another type"),
            ({"aws_skip_signature": SECRET}, "must be True or False"),
            ({"region": "a", "aws_region": "b"}, "twice"),
            ({"google_service_account": f'{{"private_key": "{SECRET}"}}'}, "with JSON, expected the path of a file"),
            ({"account_name": f"x;AccountKey={SECRET}"}, "azure_storage_account_name of other characters"),
        ):
            with pytest.raises(forebay.ConfigError, match=told) as refused:
                make(storage_options=given)
            assert SECRET not in str(refused.value)
        for wrong_mapping in (Odd(region=SECRET), Raising(region=SECRET)):
            with pytest.raises(
                TypeError, match="storage_options has items that are no names and values"
            ) as refused_type:
                make(storage_options=wrong_mapping)
            assert SECRET not in str(refused_type.value)
        # As if it were the second parameter.
        for name in ("seed", "batch_size"):
            with pytest.raises(TypeError, match=f"{name} is of type dict, must be an int") as refused_type:
                forebay.Loader(shards, **{**ONE_PASS, name: {"aws_secret_access_key": SECRET}})
            assert SECRET not in str(refused_type.value)
        for wrong in (SECRET, [SECRET], {3: SECRET}):
            with pytest.raises(TypeError, match=r"storage_options .*for s3:// aws_access_key_id") as refused_type:
                make(storage_options=wrong)
            assert SECRET not in str(refused_type.value)


def test_values_that_no_request_can_have(shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    del shards
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region": "eu-west-1"}
    with pytest.raises(OSError, match="aws_session_token has a control character, or one that is not ASCII") as refused:
        forebay.Loader("s3://bucket/a.arrow", **ONE_PASS, storage_options={**keys, "session_token": f"{SECRET}é"})
    assert SECRET not in str(refused.value)
    for name, value in {"GOOGLE_SERVICE_ACCOUNT": f'{{"private_key": "{SECRET}"}}', "AWS_REGION": f"@{SECRET}"}.items():
        monkeypatch.setenv(name, value)
        url = f"{'gs' if name.startswith('GOOGLE') else 's3'}://bucket/a.arrow"
        with pytest.raises(OSError, match=r"is JSON|aws_region must be") as refused:
            forebay.Loader(url, **ONE_PASS)
        assert SECRET not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", f"{SECRET}\n{SECRET}")
    with pytest.raises(OSError, match="the token of the Hub has characters that no token has") as refused:
        forebay.Loader("hf://datasets/o/n/a.arrow", **ONE_PASS)
    assert SECRET not in str(refused.value)


def test_the_password_of_a_proxy_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setenv("NO_PROXY", "")
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://me:{SECRET}@127.0.0.1:{port}")
        for url in ("http://forebay.invalid/a.arrow", "https://forebay.invalid/a.arrow"):
            with pytest.raises(OSError, match=r"forebay\.invalid") as refused:
                forebay.Loader([url], **ONE_PASS)
            assert SECRET not in f"{refused.value} {refused.value!r}"


def test_a_profile_of_aws(server: Server, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path.parent / "home-of-profiles"
    (home / ".aws").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (home / ".aws/credentials").write_text(
        f"[default]\naws_access_key_id = one\naws_secret_access_key = {SECRET}\n"
        f"[other]\naws_access_key_id = two\naws_secret_access_key = {SECRET}\n"
    )
    (home / ".aws/config").write_text(
        f"[default]\nregion = eu-west-1\nendpoint_url = {server.url}\n[profile other]\nendpoint_url = {server.url}\n"
    )
    expected = digests(shards)
    for given, user in (({}, "one"), ({"aws_profile": "other"}, "two")):
        server.credentials.clear()
        assert digests("s3://bucket", storage_options=given) == expected
        assert all(f"Credential={user}/" in value for value in server.credentials)
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(OSError, match='no profile "none"'):
        forebay.Loader("s3://bucket", **ONE_PASS)

"""Servers of `https://`: whose certificates are accepted, and what an error of one says."""

import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import forebay
from by_url import ONE_PASS, digests
from served import Server


def certificate(path: Path, *extensions: str, host: str = "127.0.0.1") -> Path:
    """A self-signed certificate with its key in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl")
    given = [argument for extension in extensions for argument in ("-addext", extension)]
    key = path.with_suffix(".key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=forebay", "-addext", f"subjectAltName=IP:{host}", *given, "-keyout", str(key),
         "-out", str(path)],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + key.read_text())
    return path


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of the server."""
    return certificate(tmp_path_factory.mktemp("tls") / "own.pem", "basicConstraints=critical,CA:FALSE")


@pytest.fixture
def server(tmp_path: Path, own: Path) -> Iterator[Server]:
    with Server(tmp_path, certificate=own) as server:
        yield server


def test_a_certificate_of_ssl_cert_file_is_accepted(
    server: Server, shards: list[Path], own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    urls = [server.named(path) for path in shards]
    assert all(url.startswith("https://") for url in urls)
    assert digests(urls) == digests(shards)


def test_another_certificate_is_an_error_at_once(
    server: Server, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate(tmp_path / "other.pem")))
    url = server.named(shards[0])
    with pytest.raises(OSError, match=r"0\.arrow.*certificate.*SSL_CERT_FILE") as refused:
        forebay.Loader([url], **ONE_PASS)
    assert url in str(refused.value)
    # Another try would end in the same way.
    assert "tries" not in str(refused.value)
    assert server.requests == []


def test_a_certificate_for_another_host_is_an_error(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = certificate(tmp_path / "other.pem", "basicConstraints=critical,CA:FALSE", host="127.0.0.9")
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with Server(tmp_path, certificate=other) as server:
        with pytest.raises(OSError, match="not valid for name"):
            forebay.Loader([server.named(shards[0])], **ONE_PASS)
        assert server.requests == []


def test_a_missing_file_of_certificates_is_named(
    server: Server, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(OSError, match="SSL_CERT_FILE"):
        forebay.Loader([server.named(shards[0])], **ONE_PASS)


def test_https_is_never_redirected_to_http(
    server: Server, shards: list[Path], own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    with Server(tmp_path) as plain:
        places = [plain.named(shards[0])]

        def redirect(handler: BaseHTTPRequestHandler) -> bool:
            handler.send_response(307)
            handler.send_header("Location", places[0])
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return True

        server.instead = redirect
        with pytest.raises(OSError, match=r"redirect|URL scheme is not allowed"):
            forebay.Loader([server.named(shards[0])], **ONE_PASS)
        assert plain.requests == []
        with Server(tmp_path, certificate=own) as other:
            places[0] = other.named(shards[0])
            assert digests([server.named(shards[0])]) == digests(shards[:1])

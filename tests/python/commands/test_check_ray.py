"""`forebay check --ray`: the report of one machine, from two nodes; lost processes, interrupts, wrong clusters."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import forebay
from forebay import cli
from forebay._core import _Check
from forebay._ray import Actors, started
from forebay.cli import check, check_ray, check_report
from paths import DATA
from rays import importing
from recordings import Row, tiny_rows, write_shard

# Ray forks to start its servers; jax, if another test has imported it, warns of that.
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray of two nodes."""
    with importing():
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.add_node(num_cpus=1)
        ray.init(address=nodes.address, log_to_driver=False, configure_logging=False)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """150 recordings in two shards, some of them bad."""
    rows = tiny_rows(150)
    for at in (0, 17, 80, 149):
        rows[at] = Row(b"no recording", 0, f"bad {at}.wav")
    folder = tmp_path_factory.mktemp("mixed")
    return [write_shard(folder / "a.arrow", rows[:90]), write_shard(folder / "b.arrow", rows[90:])]


def written(stem: Path) -> list[bytes]:
    """The bytes of both files of a report."""
    return [stem.with_suffix(ending).read_bytes() for ending in (".json", ".csv")]


def test_the_report_is_that_of_one_machine(cluster: str, mixed: list[Path], tmp_path: Path) -> None:
    for files in (mixed, [DATA / "audio"]):
        names = [str(file) for file in files]
        codes = [cli.main(["check", *names, "-o", str(tmp_path / "alone")])]
        codes += [cli.main(["check", *names, "-o", str(tmp_path / "ray"), "--ray", cluster])]
        assert codes == [1, 1]
        assert written(tmp_path / "ray") == written(tmp_path / "alone")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.csv", "alone.json", "ray.csv", "ray.json"]


def test_relative_names_are_those_of_the_caller(
    cluster: str, mixed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mixed[0].parent)
    for stem, more in (("alone", []), ("ray", ["--ray", cluster])):
        assert cli.main(["check", "a.arrow", "b.arrow", "-o", str(tmp_path / stem), *more]) == 1
    assert b",a.arrow,0," in written(tmp_path / "ray")[1]
    assert written(tmp_path / "ray") == written(tmp_path / "alone")


class Where:
    """An actor that says where it is."""

    def node(self) -> str:
        """The node of its process."""
        found: str = ray.get_runtime_context().get_node_id()
        return found


def test_each_machine_has_a_process(cluster: str) -> None:
    module = started(f"--ray {cluster}", cluster)
    actors = Actors(module, Where, (), check_ray.machines(module), "the test")
    with contextlib.closing(actors):
        assert len(actors) == 2
        assert {actors.call(place, "node") for place in range(2)} == {node["NodeID"] for node in ray.nodes()}


class Dying(check_ray.Checker):
    """A process that kills itself once, in the second part that it checks."""

    calls = 0

    def rows(self, part: range) -> list[dict[str, Any]]:
        """As `Checker.rows`."""
        Dying.calls += 1
        mark = Path(self._given["allow_paths"][0]) / "died"
        if Dying.calls == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().rows(part)


def test_a_killed_process_is_survived(
    cluster: str, mixed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    check.check(mixed, tmp_path / "alone")
    monkeypatch.setattr(check_ray, "Checker", Dying)
    check.check(mixed, tmp_path / "ray", allow_paths=[marks], ray=cluster)
    assert (marks / "died").exists()
    assert written(tmp_path / "ray") == written(tmp_path / "alone")


class Doomed(check_ray.Checker):
    """A process that never ends a part."""

    def rows(self, part: range) -> list[dict[str, Any]]:
        """Kills the process."""
        os.kill(os.getpid(), signal.SIGKILL)
        return super().rows(part)


def test_processes_that_all_die_are_told(
    cluster: str, mixed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_ray, "Checker", Doomed)
    monkeypatch.setattr("forebay._ray.ATTEMPTS", 2)
    with pytest.raises(forebay.ForebayError, match="2 processes of Ray died one after another in the same part of the"):
        check.check(mixed, tmp_path / "ray", ray=cluster)


def test_an_interrupted_check_continues_on_ray_and_alone(
    cluster: str, mixed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check.check(mixed, tmp_path / "alone")
    write, written_parts = check_report.write, 0

    def interrupted(*given: Any) -> None:
        nonlocal written_parts
        if written_parts == 3:
            raise KeyboardInterrupt
        written_parts += 1
        write(*given)

    for first, second in ((cluster, None), (None, cluster)):
        written_parts = 0
        with monkeypatch.context() as patch:
            patch.setattr(check_report, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                check.check(mixed, tmp_path / "ray", ray=first)
        begun = check_report.Files(tmp_path / "ray").named(".csv.tmp").read_bytes()
        assert len(begun.splitlines()) == 1 + 3 * 16
        check.check(mixed, tmp_path / "ray", ray=second)
        assert written(tmp_path / "ray") == written(tmp_path / "alone")


def told(cluster: str, here: list[Path], there: list[Path]) -> str:
    """The error and its notes if a machine has the files `there` under the names of those `here`."""
    given = {"damage": "silence", "max_damage": 0.1}
    with contextlib.closing(_Check(here)) as opened, pytest.raises((forebay.ConfigError, OSError)) as raised:
        list(check_ray.findings(cluster, opened, there, given, range(16)))
    return "\n".join([str(raised.value), *raised.value.__notes__])


def test_a_machine_with_other_files_is_told(cluster: str, mixed: list[Path], tmp_path: Path) -> None:
    on = f"On the machine {os.uname().nodename}"
    found = told(cluster, mixed, mixed[:1])
    assert found.startswith("there are other files: 90 recordings, and 150 where the check began")
    assert on in found
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            audio = tiny_rows(1)[0].audio
            assert audio is not None
            (tmp_path / name / f"{name}{number}.wav").write_bytes(audio)
    # As many, with other names.
    assert "3 recordings, and 3 where" in told(cluster, [tmp_path / "a"], [tmp_path / "b"])
    missing = told(cluster, mixed, [tmp_path / "missing.arrow"])
    assert "missing.arrow" in missing
    assert on in missing


def test_a_machine_with_another_version_is_told(
    cluster: str, mixed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_ray, "__version__", "0.0.1")
    assert "and 0.0.1 where the check began; install the same" in told(cluster, mixed, mixed)


def test_folders_that_a_machine_lacks(mixed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, as if it were that of another machine."""
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(_Check(mixed)) as opened:
        expected = replace(check_ray.Expected.of(opened), folder=str(tmp_path / "gone"))
    for given, name in (([Path("a.arrow")], "a.arrow"), (mixed, "recordings")):
        checker = check_ray.Checker(given, {"allow_paths": [Path("recordings")]}, expected)
        with pytest.raises(forebay.ConfigError, match=f"there is no folder .*gone .*, from which {name} is named"):
            checker.rows(range(16))
    checker = check_ray.Checker(mixed, {"allow_paths": [tmp_path]}, expected)
    assert [row["index"] for row in checker.rows(range(16, 32))] == [*range(16, 32)]


@pytest.mark.parametrize(("n_rows", "first", "n_machines"), [(0, 0, 1), (1, 0, 3), (150, 48, 2), (10**7, 160, 40)])
def test_parts_are_all_rows_in_order(n_rows: int, first: int, n_machines: int) -> None:
    parts = list(check_ray.parts(range(first, n_rows), n_machines, 16))
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert sum(map(len, parts)) == n_rows - first
    assert all(part.start % 16 == 0 and len(part) <= check_ray.MOST for part in parts)
    if parts:
        assert (parts[0].start, parts[-1].stop) == (first, n_rows)


def ran(file: Path, stem: Path, address: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, since this one is connected."""
    command = [sys.executable, "-m", "forebay", "check", str(file), "-o", str(stem), "--ray", address]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_command_connects(cluster: str, mixed: list[Path], tmp_path: Path) -> None:
    done = ran(mixed[0], tmp_path / "ray", cluster)
    assert done.returncode == 1, done.stderr
    check.check(mixed[:1], tmp_path / "alone")
    assert written(tmp_path / "ray") == written(tmp_path / "alone")


def test_without_a_cluster(mixed: list[Path], tmp_path: Path) -> None:
    done = ran(mixed[0], tmp_path / "report", "127.0.0.1:1")
    assert done.returncode == 2, done.stderr
    assert "--ray 127.0.0.1:1: no Ray cluster answers there" in done.stderr
    assert "ray start --head" in done.stderr


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"220 mail"])
def test_a_port_that_is_no_ray(answer: bytes, mixed: list[Path], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(600)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 10)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        done = ran(mixed[0], tmp_path / "report", f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert done.returncode == 2, done.stderr
    assert "what answers there is not Ray" in done.stderr


def test_without_ray(mixed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"--ray auto needs Ray: pip install forebay\[ray\]"):
        check.check(mixed, tmp_path / "report", ray="auto")

"""`forebay check --ray`: the report of one machine, from two nodes; lost processes, interrupts, wrong clusters."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import forebay
from forebay import cli
from forebay._ray import Actors, started
from forebay.cli import check, check_ray
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
    write, written_parts = check.write, 0

    def interrupted(*given: Any) -> None:
        nonlocal written_parts
        if written_parts == 3:
            raise KeyboardInterrupt
        written_parts += 1
        write(*given)

    for first, second in ((cluster, None), (None, cluster)):
        written_parts = 0
        with monkeypatch.context() as patch:
            patch.setattr(check, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                check.check(mixed, tmp_path / "ray", ray=first)
        begun = check.Files(tmp_path / "ray").named(".csv.tmp").read_bytes()
        assert len(begun.splitlines()) == 1 + 3 * 16
        check.check(mixed, tmp_path / "ray", ray=second)
        assert written(tmp_path / "ray") == written(tmp_path / "alone")


def test_a_machine_with_other_files_or_another_version_is_told(
    cluster: str, mixed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"damage": "silence", "max_damage": 0.1}
    with pytest.raises(forebay.ConfigError, match="finds 150 recordings, this machine 160; all machines need the same"):
        list(check_ray.findings(cluster, mixed, given, range(160), 16))
    monkeypatch.setattr(check_ray, "__version__", "0.0.1")
    with pytest.raises(forebay.ConfigError, match=r"has forebay .*, this machine 0\.0\.1; install the same one"):
        list(check_ray.findings(cluster, mixed, given, range(150), 16))


def test_what_the_core_raises_arrives(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        list(check_ray.findings(cluster, [tmp_path / "missing.arrow"], {}, range(16), 16))


@pytest.mark.parametrize(("n_rows", "first", "n_machines"), [(0, 0, 1), (1, 0, 3), (150, 48, 2), (10**7, 160, 40)])
def test_parts_are_all_rows_in_order(n_rows: int, first: int, n_machines: int) -> None:
    parts = list(check_ray.parts(range(first, n_rows), n_machines, 16))
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert sum(map(len, parts)) == n_rows - first
    assert all(part.start % 16 == 0 and len(part) <= check_ray.MOST for part in parts)
    if parts:
        assert (parts[0].start, parts[-1].stop) == (first, n_rows)


def test_without_a_cluster(mixed: list[Path], tmp_path: Path) -> None:
    """A process of its own, since this one is connected."""
    command = [sys.executable, "-m", "forebay", "check", str(mixed[0]), "-o", str(tmp_path / "report")]
    done = subprocess.run([*command, "--ray", "127.0.0.1:1"], check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "--ray 127.0.0.1:1: no Ray cluster was found" in done.stderr
    assert "ray start --head" in done.stderr


def test_without_ray(mixed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"--ray auto needs Ray: pip install forebay\[ray\]"):
        check.check(mixed, tmp_path / "report", ray="auto")

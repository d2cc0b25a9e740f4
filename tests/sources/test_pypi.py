"""The index is a real HTTP server on this machine, with wheels made here; pip is configured for it.

One test, marked `network`, reads a real package from the index that this machine uses.
"""

import io
import os
import re
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError
from sources.index_stand_in import Index, serve, sha

from curate.cache.artifact import open_artifact
from curate.files import Damaged
from curate.rows import Row
from curate.sources import index
from curate.sources.pypi import Pypi
from curate.step import Context, SourceError

TIMM = "sha256:5bd50f7d0fe6d09bf9285ac2523234a1b7e6bf075c0be3e7aed09139fcb617c7"


def wheel(version: str) -> bytes:
    packed, folder = io.BytesIO(), f"demo_pkg-{version}.dist-info"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("demo_pkg/__init__.py", "")
        archive.writestr("demo_pkg/model.py", f"version = {version!r}\n")
        archive.writestr("demo_pkg/noise.bin", os.urandom(200_000))
        archive.writestr(
            f"{folder}/METADATA", f"Name: demo-pkg\nVersion: {version}\nLicense: MIT\n"
        )
        archive.writestr(f"{folder}/licenses/LICENSE", "MIT License")
    return packed.getvalue()


def sdist(version: str) -> bytes:
    packed, content = io.BytesIO(), b"version = 'sdist'\n"
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo(f"demo_pkg-{version}/demo_pkg/model.py")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    state = Index(
        {
            "demo_pkg-1.0-py3-none-any.whl": wheel("1.0"),
            "demo_pkg-1.0.tar.gz": sdist("1.0"),
            "demo_pkg-1.1-py3-none-any.whl": wheel("1.1"),
            "demo_pkg-0.9-py3-none-any.whl": wheel("0.9"),
        }
    )
    with serve(state, monkeypatch):
        yield state


def step(version: str, digest: str, **options: object) -> Pypi:
    pins = [f"Demo_Pkg=={version} --hash=sha256:{digest}"]
    return Pypi.model_validate({"source": "pypi", "packages": pins, **options})


def rows_of(source: Pypi, cache: Path) -> list[Row]:
    context = Context(cache=cache)
    (unit,) = source.units(context)
    return [row for row in source.read(unit, context) if isinstance(row, dict)]


@pytest.mark.parametrize("how", ["cut", "another package's"])
def test_a_download_in_the_cache_is_hashed_before_it_is_believed(
    served: Index, tmp_path: Path, how: str
) -> None:
    whole = served.files["demo_pkg-1.0-py3-none-any.whl"]
    other = served.files["demo_pkg-1.1-py3-none-any.whl"]
    source = step("1.0", sha(whole))
    expected = rows_of(source, tmp_path / "good")
    cached = tmp_path / "bad" / "downloads" / sha(whole)
    cached.parent.mkdir(parents=True)
    cached.write_bytes(whole[:-100] if how == "cut" else other)
    with pytest.raises(Damaged, match=r"cached download of demo-pkg 1\.0 is damaged") as told:
        rows_of(source, tmp_path / "bad")
    assert told.value.path == cached
    cached.unlink()
    assert rows_of(source, tmp_path / "bad") == expected


def test_wheel(served: Index, tmp_path: Path) -> None:
    digest = sha(served.files["demo_pkg-1.0-py3-none-any.whl"])
    source = step("1.0", digest)
    (row,) = rows_of(source, tmp_path)
    assert row["text"] == "version = '1.0'\n"
    origin = {k: v for k, v in row["origin"].items() if v}
    assert origin == {
        "source": "pypi",
        "purl": "pkg:pypi/demo-pkg@1.0",
        "version": "1.0",
        "artifact_sha256": digest,
        "path": "demo_pkg/model.py",
    }
    artifact = open_artifact(tmp_path, digest)
    assert "demo_pkg-1.0.dist-info/licenses/LICENSE" in artifact.paths()
    assert "License: MIT" in artifact.read("demo_pkg-1.0.dist-info/METADATA")
    assert artifact.skipped == {".bin": 1}
    assert artifact.info.url == f"http://{served.root}/files/demo_pkg-1.0-py3-none-any.whl"

    asked = len(served.requests)
    assert rows_of(source, tmp_path) == [row]
    assert len(served.requests) == asked, "a cached package must not touch the network"
    assert [unit.label for unit in source.units(Context())] == ["demo-pkg 1.0"]


def test_hash_decides_for_the_source_archive(served: Index, tmp_path: Path) -> None:
    (row,) = rows_of(step("1.0", sha(served.files["demo_pkg-1.0.tar.gz"])), tmp_path)
    assert (row["text"], row["origin"]["path"]) == ("version = 'sdist'\n", "demo_pkg/model.py")


def test_unpacks_again_from_the_download(served: Index, tmp_path: Path) -> None:
    digest = sha(served.files["demo_pkg-1.0.tar.gz"])
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / digest).write_bytes(served.files["demo_pkg-1.0.tar.gz"])
    assert rows_of(step("1.0", digest), tmp_path)
    assert served.requests == []


def test_hash_that_no_file_has(served: Index, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        rows_of(step("1.0", "0" * 64), tmp_path)
    message = str(caught.value)
    assert f"demo-pkg 1.0: no file on the index has the pinned sha256:{'0' * 64}" in message
    for name in ("demo_pkg-1.0-py3-none-any.whl", "demo_pkg-1.0.tar.gz"):
        assert f"{name}  sha256:{sha(served.files[name])}" in message
    assert "demo_pkg-1.1" not in message


def test_version_that_is_missing(served: Index, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"demo-pkg 1\.0\.5: no such version.*: 1\.1, 1\.0, 0\.9"):
        rows_of(step("1.0.5", "0" * 64), tmp_path)


def test_package_that_is_missing(served: Index, tmp_path: Path) -> None:
    pins = [f"nothing==1.0 --hash=sha256:{'0' * 64}"]
    source = Pypi.model_validate({"source": "pypi", "packages": pins})
    with pytest.raises(SourceError, match="nothing: no such package"):
        rows_of(source, tmp_path)


@pytest.mark.parametrize("ranges", [True, False])
def test_cut_download_goes_on(served: Index, tmp_path: Path, ranges: bool) -> None:
    served.cuts, served.ranges = 2, ranges
    name = "demo_pkg-1.0-py3-none-any.whl"
    assert rows_of(step("1.0", sha(served.files[name])), tmp_path)
    asked = [request for request in served.requests if request.startswith("/files/")]
    size = len(served.files[name])
    assert asked[:2] == [f"/files/{name}", f"/files/{name} bytes={size // 2}-"]


def test_part_of_an_earlier_run_is_used(served: Index, tmp_path: Path) -> None:
    name = "demo_pkg-1.0-py3-none-any.whl"
    body = served.files[name]
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / f"{sha(body)}.part").write_bytes(body[:1000])
    assert rows_of(step("1.0", sha(body)), tmp_path)
    assert served.requests[-1] == f"/files/{name} bytes=1000-"


@pytest.mark.parametrize("size", [1000, 10_000_000])
def test_part_that_is_wrong_is_thrown_away(served: Index, tmp_path: Path, size: int) -> None:
    body = served.files["demo_pkg-1.0-py3-none-any.whl"]
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / f"{sha(body)}.part").write_bytes(bytes(size))
    assert rows_of(step("1.0", sha(body)), tmp_path)


def test_server_that_fails_at_first(served: Index, tmp_path: Path) -> None:
    served.failures = 2
    assert rows_of(step("1.0", sha(served.files["demo_pkg-1.0.tar.gz"])), tmp_path)


def test_server_that_keeps_failing(served: Index, tmp_path: Path) -> None:
    served.failures = 99
    with pytest.raises(SourceError, match=r"cannot be downloaded \(HTTP status 503\)"):
        rows_of(step("1.0", sha(served.files["demo_pkg-1.0.tar.gz"])), tmp_path)


def test_file_that_is_not_what_the_index_says(served: Index, tmp_path: Path) -> None:
    name = "demo_pkg-1.0.tar.gz"
    promised = sha(served.files[name])
    page = served.page()
    served.page = lambda: page  # type: ignore[method-assign]
    served.files[name] = sdist("1.0") + b"\0"
    with pytest.raises(SourceError, match="hash mismatch: pinned sha256:" + promised):
        rows_of(step("1.0", promised), tmp_path)
    assert not (tmp_path / "artifacts").exists()
    assert [p.name for p in (tmp_path / "downloads").iterdir()] == [f"{promised}.lock"]


def test_index_without_hashes(served: Index, tmp_path: Path) -> None:
    served.hashes = False
    assert rows_of(step("1.0", sha(served.files["demo_pkg-1.0.tar.gz"])), tmp_path)


def test_find_links_and_local_index_come_before_the_network(
    served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "demo_pkg-1.0.tar.gz"
    folder, simple = tmp_path / "wheels", tmp_path / "simple/demo-pkg"
    folder.mkdir()
    simple.mkdir(parents=True)
    (folder / name).write_bytes(served.files[name])
    wheel_name = "demo_pkg-1.1-py3-none-any.whl"
    (simple / wheel_name).write_bytes(served.files[wheel_name])
    link = f'<a href="{wheel_name}#sha256={sha(served.files[wheel_name])}">{wheel_name}</a>'
    (simple / "index.html").write_text(link)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (tmp_path / "simple").as_uri())
    assert rows_of(step("1.0", sha(served.files[name])), tmp_path / "cache")
    assert rows_of(step("1.1", sha(served.files[wheel_name])), tmp_path / "cache")
    assert served.requests == []


def test_configuration_file_of_pip(
    served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://a.example/simple\nfind-links = /x\n    /y\n"
        "[download]\ntimeout = 7\n[install]\ntimeout = 8\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.delenv("PIP_INDEX_URL")
    settings = index.pip_settings()
    assert "https://a.example/simple" in settings.indexes
    assert (settings.find_links, settings.timeout_s) == (("/x", "/y"), 7.0)
    monkeypatch.setenv("PIP_INDEX_URL", "https://b.example/simple")
    assert index.pip_settings().indexes[0] == "https://b.example/simple"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert index.pip_settings().indexes == ()


def test_no_network_and_no_credentials_in_the_message(
    served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:secret@127.0.0.1:{port}/simple/")
    with pytest.raises(SourceError, match="cannot be reached") as caught:
        rows_of(step("1.0", "0" * 64), tmp_path)
    assert "secret" not in str(caught.value)
    assert f"http://***@127.0.0.1:{port}/simple/" in str(caught.value)


def test_index_that_refuses_is_named(
    served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.page_status = 403
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:secret@{served.root}/simple/")
    with pytest.raises(SourceError, match=r"Client Error\(403\)") as caught:
        rows_of(step("1.0", "0" * 64), tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "pin",
    [
        "timm",
        "timm==1.0.31",
        "timm>=1.0 --hash=" + TIMM,
        "timm==1.0.* --hash=" + TIMM,
        "timm==not.a.version --hash=" + TIMM,
        "timm==1.0.31 --hash=" + TIMM.upper(),
        "timm==1.0.31 --hash=sha256:5bd5",
        "../timm==1.0.31 --hash=" + TIMM,
    ],
)
def test_bad_pins(pin: str) -> None:
    with pytest.raises(ValidationError, match=r"must be a pinned package|Invalid version"):
        Pypi.model_validate({"source": "pypi", "packages": [pin]})


def test_two_runs_that_share_a_cache(served: Index, tmp_path: Path) -> None:
    name = "demo_pkg-1.0-py3-none-any.whl"
    pin = ("demo-pkg", "1.0", sha(served.files[name]), tmp_path)
    with ThreadPoolExecutor(4) as pool:
        artifacts = list(pool.map(lambda _: index.fetch(*pin), range(4)))
    assert len(set(artifacts)) == 1
    assert served.requests.count(f"/files/{name}") == 1
    assert [p.name for p in (tmp_path / "artifacts").iterdir()] == [pin[2]]


def test_schema_pattern_is_the_one_that_is_checked() -> None:
    pattern = Pypi.model_json_schema()["properties"]["packages"]["items"]["pattern"]
    assert re.search(pattern, f"timm==1.0.31 --hash={TIMM}")
    assert not re.search(pattern, f"x timm==1.0.31 --hash={TIMM}")


def test_package_url_escapes_local_versions() -> None:
    assert index.package_url("torch", "2.13.0+cpu") == "pkg:pypi/torch@2.13.0%2Bcpu"


@pytest.mark.network
def test_a_real_package(tmp_path: Path) -> None:
    pins = [
        "einops==0.8.2 "
        "--hash=sha256:54058201ac7087911181bfec4af6091bb59380360f069276601256a76af08193"
    ]
    source = Pypi.model_validate({"source": "pypi", "packages": pins})
    rows = rows_of(source, tmp_path)
    assert "einops/einops.py" in {row["origin"]["path"] for row in rows}
    artifact = open_artifact(tmp_path, rows[0]["origin"]["artifact_sha256"])
    assert "einops-0.8.2.dist-info/licenses/LICENSE" in artifact.paths()
    assert "MIT" in artifact.read("einops-0.8.2.dist-info/METADATA")

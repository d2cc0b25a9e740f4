"""`curate push` against a Hub on loopback, with the real clients."""

import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from data_sets import make as make_data
from data_sets import pair
from hub_stand_in import Blob, Fault, Hub
from steps_for_tests import LICENSE

import curate
from curate import api
from curate.files import file_sha256
from curate.formats.dataset.write import record_files
from curate.publish import hub
from curate.publish.analysis.errors import PushFailed, PushRefused

REPO = "alice/adders"
LATER = {"status": "unsupported", "reason": "random"}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run; its files are not to be changed."""
    output = tmp_path_factory.mktemp("first")
    make_data(output, [pair(i) for i in range(10)], license_text="One license.\n")
    return output


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A later run: rows 1 to 11, another verdict of row 1, another license text."""
    output = tmp_path_factory.mktemp("second")
    rows = [pair(i) for i in range(2, 12)]
    verdict = {**pair(1)["verdict"], **LATER}
    make_data(output, [pair(1, verdict=verdict), *rows], license_text="Another license.\n")
    return output


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Make a run and return its output folder."""

    def run(*rows: dict) -> Path:
        make_data(tmp_path / "out", list(rows))
        return tmp_path / "out"

    return run


def commits(hub: Hub) -> list[str]:
    return [commit.title for commit in hub.repos[REPO].commits.values()]


def local_files(output: Path, run: str = "adders") -> dict[str, bytes]:
    folder = output / run
    paths = [p for p in folder.rglob("*") if p.is_file()]
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}
    return {path: content for path, content in found.items() if not path.startswith("lost/")}


def there(hub: Hub, revision: str = "main") -> dict[str, bytes]:
    files = hub.files(REPO, revision)
    return {path: content for path, content in files.items() if path != ".gitattributes"}


# --- what a push does ---------------------------------------------------------------------------


def test_a_push_makes_the_repository_in_one_commit_and_tags_it(alice: Hub, first: Path) -> None:
    done = api.push(REPO, output=first, tag="v1")
    assert commits(alice) == ["initial commit", "v1: rows: 10 added"]
    assert there(alice) == local_files(first)
    assert {"README.md", "run.json", "index.parquet"} < there(alice).keys()
    repo = alice.repos[REPO]
    assert done.commit == repo.refs["heads/main"] == repo.refs["tags/v1"]
    assert not repo.private
    told = list(done.summary())
    assert told[0] == "rows: 10 added"
    assert f"{alice.url}/datasets/{REPO} is at commit {done.commit}" in told


def test_the_same_data_again_makes_no_commit(alice: Hub, first: Path) -> None:
    api.push(REPO, output=first)
    before = len(alice.writing())
    done = api.push(REPO, output=first)
    assert len(commits(alice)) == 2
    assert len(alice.writing()) == before, "nothing was asked of the Hub but to read"
    assert any(line.startswith("no commit: ") for line in done.summary())
    api.push(REPO, output=first, tag="v1")
    assert alice.repos[REPO].refs["tags/v1"] == done.commit
    with pytest.raises(PushRefused, match="no name of a tag"):
        api.push(REPO, output=first, tag="bad tag", dry_run=True)
    assert len(commits(alice)) == 2


def test_a_changed_push_says_what_changed_and_deletes_what_is_gone(
    alice: Hub, first: Path, second: Path
) -> None:
    api.push(REPO, output=first, tag="v1")
    done = api.push(REPO, output=second, tag="v2")
    added = sorted([pair(10)["id"], pair(11)["id"]])
    assert (done.changes.added, done.changes.removed) == (added, [pair(0)["id"]])
    assert done.changes.relabelled["verdict"] == [pair(1)["id"]]
    assert "rows: 2 added, 1 removed, 1 relabelled" in done.summary()
    assert f"  verdict of 1: {pair(1)['id']}" in done.summary()
    assert there(alice) == local_files(second)
    assert len(done.deletes) == 1 and done.deletes[0].startswith("licenses/")
    assert there(alice, "v1") == local_files(first), "the old version stays under its tag"


def test_files_that_curate_did_not_push_stay(alice: Hub, first: Path, second: Path) -> None:
    api.push(REPO, output=first)
    repo = alice.repos[REPO]
    head = repo.commits[repo.refs["heads/main"]]
    repo.commit("heads/main", "by hand", {**head.files, "notes.md": Blob(b"mine", lfs=False)})
    api.push(REPO, output=second)
    assert alice.files(REPO)["notes.md"] == b"mine"


def test_a_repository_that_holds_something_else(alice: Hub, first: Path) -> None:
    api.push(REPO, output=first)
    repo = alice.repos[REPO]
    files = {"run.json": Blob(b"[1]", lfs=False), "README.md": Blob(b"other", lfs=False)}
    repo.commit("heads/main", "another tool's", files)
    with pytest.raises(PushRefused, match=r"files that curate did not push\n.*such as run\.json"):
        api.push(REPO, output=first)
    assert commits(alice)[-1] == "another tool's"
    done = api.push(REPO, output=first, replace=True)
    assert there(alice) == local_files(first)
    assert (len(done.changes.added), done.deletes) == (10, [])


def test_a_card_that_was_edited_on_the_hub_is_named(alice: Hub, first: Path, second: Path) -> None:
    api.push(REPO, output=first)
    repo = alice.repos[REPO]
    head = repo.commits[repo.refs["heads/main"]]
    repo.commit("heads/main", "by hand", {**head.files, "README.md": Blob(b"mine", lfs=False)})
    done = api.push(REPO, output=second)
    assert done.edited == ["README.md"]
    assert any("README.md was edited on the Hub" in line for line in done.summary())
    assert api.push(REPO, output=first).edited == []


def test_a_file_that_readers_would_take_for_data_is_refused(alice: Hub, first: Path) -> None:
    api.push(REPO, output=first)
    repo = alice.repos[REPO]
    stray = {"messages/train-00007-of-00009.parquet": Blob(b"?", lfs=True)}
    repo.commit("heads/main", "by hand", {**repo.commits[repo.refs["heads/main"]].files, **stray})
    with pytest.raises(PushRefused, match=r"train-00007-of-00009\.parquet, which curate did not"):
        api.push(REPO, output=first)


def test_a_pull_request_leaves_main_alone_and_is_not_opened_twice(
    alice: Hub, first: Path, second: Path
) -> None:
    api.push(REPO, output=first)
    done = api.push(REPO, output=second, pr=True)
    assert done.pull_request == f"{alice.url}/datasets/{REPO}/discussions/1"
    assert there(alice) == local_files(first)
    assert there(alice, "refs/pr/1") == local_files(second)
    again = api.push(REPO, output=second, pr=True)
    assert again.pull_request == done.pull_request
    assert len(commits(alice)) == 3


def test_a_pull_request_to_somebody_else(
    alice: Hub, first: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.push(REPO, output=first)
    monkeypatch.setenv("HF_TOKEN", "hf_of_bob")
    done = api.push(REPO, output=second, pr=True)
    assert done.pull_request
    assert there(alice, "refs/pr/1") == local_files(second)


def test_a_branch_is_made(alice: Hub, first: Path, second: Path) -> None:
    api.push(REPO, output=first)
    api.push(REPO, output=second, branch="next/try")
    assert there(alice) == local_files(first)
    assert there(alice, "next/try") == local_files(second)


def test_a_private_repository(alice: Hub, first: Path, second: Path) -> None:
    api.push("lab/adders", output=first, private=True)
    assert alice.repos["lab/adders"].private
    api.push("lab/adders", output=second)
    assert alice.repos["lab/adders"].private
    api.push(REPO, output=first)
    with pytest.raises(PushRefused, match="alice/adders is public"):
        api.push(REPO, output=second, private=True)


def test_a_tag_does_not_move(alice: Hub, first: Path, second: Path) -> None:
    api.push(REPO, output=first, tag="v1")
    api.push(REPO, output=first, tag="v1")
    with pytest.raises(PushRefused, match="tags do not move"):
        api.push(REPO, output=second, tag="v1")
    assert there(alice) == local_files(first)


def test_the_hub_is_told_which_version_of_curate_pushes(alice: Hub, first: Path) -> None:
    api.push(REPO, output=first)
    assert {agent.split(";")[0] for agent in alice.agents if "curate" in agent} == {
        f"curate/{curate.__version__}"
    }


# --- what takes the place of what ---------------------------------------------------------------


def test_a_trial_does_not_take_the_place_of_a_full_run(
    alice: Hub, make: Callable[..., Path]
) -> None:
    output = make(*map(pair, range(10)))
    api.push(REPO, output=output, tag="v1")
    full = there(alice)
    make_data(output, [pair(1), pair(2)], limit=2)
    assert local_files(output) == full, "the trial left the full data as it was"
    with pytest.raises(PushRefused) as refused:
        api.push(REPO, output=output, run="adders.trial")
    told = str(refused.value).splitlines()
    assert told[0] == (
        "alice/adders is not changed: this run is a trial (--limit 2), and a data set is "
        "published there"
    )
    assert "  there:    messages: test 2, train 8 rows" in told
    assert "  this run: messages: train 2 rows" in told
    assert "  removed:  8 of 10 rows" in told
    assert "the same command with --run adders;" in told[-1] and "--replace" in told[-1]
    assert there(alice) == full
    assert len(commits(alice)) == 2

    done = api.push(REPO, output=output, run="adders.trial", replace=True)
    assert there(alice) == local_files(output, "adders.trial")
    assert commits(alice)[-1] == "adders: trial, rows: 8 removed"
    assert "adders.trial is a trial run (--limit 2)" in done.summary()
    assert there(alice, "v1") == full


def test_a_run_with_settings_is_a_trial(alice: Hub, make: Callable[..., Path]) -> None:
    output = make(pair(0), pair(1))
    api.push(REPO, output=output)
    make_data(output, [pair(0)], settings=("seed=1",))
    with pytest.raises(PushRefused, match=r"a trial \(--set seed=1\)"):
        api.push(REPO, output=output, run="adders.trial")
    assert there(alice) == local_files(output)


def test_a_trial_that_has_the_place_of_the_full_data_is_known_as_one(
    alice: Hub, make: Callable[..., Path]
) -> None:
    """As versions before this one wrote it; what counts is the run's record, not its name."""
    output = make(pair(0), pair(1))
    api.push(REPO, output=output)
    run = json.loads((output / "adders/run.json").read_text())
    record_files(output / "adders", {**run, "limit": 5}, [])
    with pytest.raises(
        PushRefused, match=r"a trial \(--limit 5\).*\n(.*\n)*make the full run first"
    ):
        api.push(REPO, output=output)


def test_a_push_that_names_no_run_takes_the_full_one(alice: Hub, make: Callable[..., Path]) -> None:
    output = make(pair(0), pair(1), pair(2))
    make_data(output, [pair(0)], limit=1)
    assert [row["id"] for row in api.show(output=output, count=9)] == [pair(0)["id"]]
    done = api.push(REPO, output=output)
    assert (done.run, there(alice)) == ("adders", local_files(output))


def test_a_trial_may_be_the_first_that_a_repository_holds(alice: Hub, tmp_path: Path) -> None:
    make_data(tmp_path, [pair(0)], limit=1)
    done = api.push(REPO, output=tmp_path)
    assert next(done.summary()) == "adders.trial is a trial run (--limit 1)"
    assert commits(alice)[-1] == "adders: trial, rows: 1 added"
    # The full run takes the place of the trial without being asked twice.
    make_data(tmp_path, [pair(0), pair(1)])
    api.push(REPO, output=tmp_path)
    assert there(alice) == local_files(tmp_path)


def test_a_trial_goes_to_a_branch_of_its_own(alice: Hub, make: Callable[..., Path]) -> None:
    output = make(pair(0), pair(1))
    api.push(REPO, output=output)
    make_data(output, [pair(0)], limit=1)
    api.push(REPO, output=output, run="adders.trial", branch="trial")
    assert there(alice) == local_files(output)
    assert there(alice, "trial") == local_files(output, "adders.trial")
    make_data(output, [pair(1)], limit=1)
    with pytest.raises(PushRefused, match="this run is a trial"):
        api.push(REPO, output=output, run="adders.trial", branch="trial")


@pytest.mark.parametrize("way", [{}, {"pr": True}])
def test_the_run_of_another_recipe_is_refused(
    alice: Hub, make: Callable[..., Path], way: dict[str, bool]
) -> None:
    output = make(pair(0), pair(1))
    api.push(REPO, output=output)
    make_data(output, [pair(0), pair(1), pair(2)], name="others")
    with pytest.raises(PushRefused) as refused:
        api.push(REPO, output=output, **way)
    told = str(refused.value)
    assert "it holds the data set of the recipe adders, and this is a run of others" in told
    assert "choose another --repo" in told
    assert there(alice) == local_files(output)
    if not way:
        api.push(REPO, output=output, replace=True)
        assert there(alice) == local_files(output, "others")


def test_a_run_that_keeps_no_published_row_is_refused(
    alice: Hub, make: Callable[..., Path]
) -> None:
    """Two recipes may have one name."""
    api.push(REPO, output=make(pair(0), pair(1)))
    output = make(pair(2), pair(3))
    with pytest.raises(PushRefused, match=r"none of the rows(.*\n)*  removed:  2 of 2 rows"):
        api.push(REPO, output=output)
    api.push(REPO, output=output, replace=True)
    assert there(alice) == local_files(output)


def test_a_config_that_would_go_is_named(alice: Hub, make: Callable[..., Path]) -> None:
    output = make(pair(0), pair(1))
    api.push(REPO, output=output)
    shutil.rmtree(output)
    make_data(output, [pair(0)], name="others", formats=("pairs",))
    with pytest.raises(PushRefused, match=r"removed:  the configs conversion, messages"):
        api.push(REPO, output=output)


# --- dry runs -----------------------------------------------------------------------------------


def test_a_dry_run_says_what_a_push_would_do(alice: Hub, first: Path, second: Path) -> None:
    told = list(api.push(REPO, output=first, run="adders", dry_run=True).summary())
    assert alice.writing() == [] and alice.repos == {}
    url = f"{alice.url}/datasets/{REPO}"
    assert told[0] == "run: adders"
    assert "  messages: test 2, train 8 rows" in told
    assert f"repository: {url}, which does not exist" in told
    assert "  it would be made public; the data goes to the branch main" in told
    assert "commit message: adders: rows: 10 added" in told
    sizes = {line.split()[-1]: line.split()[:-1] for line in told if line.startswith("   ")}
    assert sizes.keys() == local_files(first).keys()
    assert sizes["run.json"] == [f"{(first / 'adders/run.json').stat().st_size / 1000:.1f}", "kB"]

    api.push(REPO, output=first, run="adders")
    head, before = alice.repos[REPO].refs["heads/main"], len(alice.writing())
    told = list(api.push(REPO, output=second, dry_run=True, tag="v2").summary())
    assert len(alice.writing()) == before
    assert f"repository: {url}, compared at commit {head}" in told
    assert "commit message: v2: rows: 2 added, 1 removed, 1 relabelled" in told
    assert "rows: 2 added, 1 removed, 1 relabelled" in told
    assert any(line.startswith("      gone  licenses/") for line in told)
    assert told[-1] == f"dry run: nothing was written to {url}"


def test_a_push_names_the_steps_that_are_newer_than_the_data(
    alice: Hub, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list(api.push(REPO, output=first, run="adders", dry_run=True).summary())
    assert not any("older" in line for line in told)
    (step,) = json.loads((first / "adders/run.json").read_text())["steps"]
    name, version = step["name"], step["version"]
    newer = {"sources": {name: SimpleNamespace(version=version + 2)}, "steps": {}}
    monkeypatch.setattr(hub, "kinds_by_name", lambda: newer)
    told = list(api.push(REPO, output=first, run="adders").summary())
    assert f"made by older versions of steps: {name} {version} (now {version + 2})" in told


def test_a_dry_run_needs_no_token(alice: Hub, first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    told = list(api.push(REPO, output=first, run="adders", dry_run=True).summary())
    assert any("no such repository, or it is private and there is no token" in t for t in told)
    assert "commit message: adders: rows: 10 added" in told
    monkeypatch.setenv("HF_TOKEN", "hf_of_alice")
    api.push(REPO, output=first, run="adders")
    monkeypatch.delenv("HF_TOKEN")
    told = list(api.push(REPO, output=first, run="adders", dry_run=True).summary())
    assert "no commit: the data is there already" in told


def test_a_dry_run_that_would_be_refused_says_so_and_why(
    alice: Hub, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = make(pair(0), pair(1))
    api.push(REPO, output=output)
    make_data(output, [pair(0)], limit=1)
    done = api.push(REPO, output=output, run="adders.trial", dry_run=True)
    assert "this run is a trial (--limit 1)" in (done.refusal or "")
    assert "run: adders.trial, a trial run (--limit 1)" in done.summary()
    assert "rows: 1 removed" in done.summary()
    monkeypatch.setenv("HF_TOKEN", "hf_of_bob")
    done = api.push(REPO, output=output, dry_run=True)
    assert "alice/adders is of alice" in (done.refusal or "")
    assert "rows: 2 added" in done.summary(), "what can be said without the Hub is said"


# --- what goes wrong ----------------------------------------------------------------------------


def test_uploads_are_not_repeated_when_the_commit_failed(alice: Hub, first: Path) -> None:
    alice.faults.append(Fault("POST", "/commit/main", 500))
    with pytest.raises(PushFailed, match=r"500.*goes on where it stopped"):
        api.push(REPO, output=first)
    assert commits(alice) == ["initial commit"]
    uploaded = alice.made("PUT", "/lfs/")
    assert len(uploaded) == len(set(uploaded)) > 5
    api.push(REPO, output=first)
    assert alice.made("PUT", "/lfs/") == uploaded
    assert there(alice) == local_files(first)


def test_a_push_goes_on_after_an_error_in_the_middle_of_the_uploads(
    alice: Hub, first: Path
) -> None:
    # A status that the client does not try again by itself.
    shas = [file_sha256(p) for p in sorted((first / "adders/messages").iterdir())]
    alice.faults.append(Fault("PUT", f"/lfs/{shas[0]}", 507))
    with pytest.raises(PushFailed):
        api.push(REPO, output=first)
    assert commits(alice) == ["initial commit"]
    assert shas[0] not in alice.lfs
    done_before = set(alice.lfs)
    api.push(REPO, output=first)
    repeated = [p for p in alice.made("PUT", "/lfs/") if p.removeprefix("/lfs/") in done_before]
    assert len(repeated) == len(done_before), "each of these was sent once"
    assert there(alice) == local_files(first)


def test_a_commit_whose_answer_was_lost_is_found(alice: Hub, first: Path) -> None:
    alice.faults.append(Fault("POST", "/commit/main", 502, late=True))
    with pytest.raises(PushFailed, match="502"):
        api.push(REPO, output=first, tag="v1")
    done = api.push(REPO, output=first, tag="v1")
    assert len(commits(alice)) == 2
    assert alice.repos[REPO].refs["tags/v1"] == done.commit


def test_a_commit_by_somebody_else_in_between(alice: Hub, first: Path, second: Path) -> None:
    api.push(REPO, output=first)

    def intrude() -> None:
        repo = alice.repos[REPO]
        files = repo.commits[repo.refs["heads/main"]].files
        repo.commit("heads/main", "theirs", {**files, "theirs.md": Blob(b"theirs", lfs=False)})

    alice.faults.append(Fault("POST", "/commit/main", 0, before=intrude))
    with pytest.raises(PushFailed, match="somebody else changed alice/adders during the push"):
        api.push(REPO, output=second)
    assert commits(alice)[-1] == "theirs"
    api.push(REPO, output=second)
    assert {"theirs.md"} == there(alice).keys() - local_files(second).keys()


@pytest.mark.parametrize(
    ("token", "repo", "why"),
    [
        (None, REPO, "there is no token"),
        ("hf_wrong", REPO, "does not know the token"),
        ("hf_réservé", REPO, "the token is malformed"),
        ("hf_reader_of_alice", REPO, "may only read"),
        ("hf_of_bob", REPO, "alice/adders is of alice, and the token is of bob"),
        ("hf_of_alice", "adders", "write it as user/dataset"),
    ],
)
def test_a_token_that_may_not(
    alice: Hub, first: Path, monkeypatch: pytest.MonkeyPatch, token: str | None, repo: str, why: str
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(PushRefused, match=why) as refused:
        api.push(repo, output=first)
    assert alice.writing() == []
    assert not token or token not in "".join(traceback.format_exception(refused.value))


def test_a_token_that_loses_its_rights_on_the_way(alice: Hub, first: Path) -> None:
    api.push(REPO, output=first)
    alice.faults.append(Fault("POST", "/tag/", 403, message="not with this token"))
    with pytest.raises(PushRefused, match="may not write to alice/adders: not with this token"):
        api.push(REPO, output=first, tag="v1")


def test_a_hub_that_tells_the_token_does_not_make_us_tell_it(alice: Hub, first: Path) -> None:
    alice.faults.append(Fault("GET", "/api/datasets", 400, message="no: hf_of_alice"))
    with pytest.raises(PushFailed, match="no: hf_…") as failed:
        api.push(REPO, output=first)
    assert "hf_of_alice" not in "".join(traceback.format_exception(failed.value))


# --- what may not be published ------------------------------------------------------------------


def test_a_row_that_lost_its_license(alice: Hub, make: Callable[..., Path]) -> None:
    lost = {**LICENSE, "expression": None, "choice": None}
    output = make(pair(0), pair(1, license=lost), pair(2, license=lost))
    with pytest.raises(PushRefused, match=rf"2 rows \(such as {pair(1)['id']}\) without license"):
        api.push(REPO, output=output)
    assert alice.requests == []


def test_a_row_without_origin(alice: Hub, make: Callable[..., Path]) -> None:
    nowhere = {**pair(1)["origin"], "source": "", "purl": None, "repo": None}
    with pytest.raises(PushRefused, match=r"1 row .* without origin"):
        api.push(REPO, output=make(pair(0), {**pair(1), "origin": nowhere}))


@pytest.mark.parametrize("license", ["GPL-3.0-only", "MIT AND CC-BY-NC-4.0", "my license"])
def test_a_license_that_is_not_allowed(alice: Hub, make: Callable[..., Path], license: str) -> None:
    denied = {**LICENSE, "expression": license, "choice": license}
    with pytest.raises(PushRefused, match=f"1 row .* under {license}"):
        api.push(REPO, output=make(pair(0), pair(1, license=denied)))
    assert alice.requests == []


def test_a_cluster_in_two_splits(alice: Hub, make: Callable[..., Path]) -> None:
    torn = [pair(1, cluster="twins", split="train"), pair(2, cluster="twins", split="test")]
    with pytest.raises(PushRefused, match=r"splits leak: 2 rows .* are in test and train"):
        api.push(REPO, output=make(pair(0), *torn))


def test_a_file_that_was_changed_after_the_run(alice: Hub, make: Callable[..., Path]) -> None:
    output = make(pair(0))
    readme = output / "adders/README.md"
    readme.write_text(readme.read_text() + "More.\n")
    (output / "adders/index.parquet").unlink()
    with pytest.raises(PushRefused) as refused:
        api.push(REPO, output=output)
    assert "README.md was changed after the run" in str(refused.value)
    assert "index.parquet is gone since the run" in str(refused.value)
    assert alice.requests == []


def test_a_file_that_was_written_again_on_purpose_is_pushed(
    alice: Hub, make: Callable[..., Path]
) -> None:
    folder = make(pair(0)) / "adders"
    (folder / "report.html").write_text("<p>Good.</p>")
    record_files(folder, json.loads((folder / "run.json").read_text()), ["report.html"])
    api.push(REPO, output=folder.parent)
    assert there(alice)["report.html"] == b"<p>Good.</p>"


def test_rows_that_were_lost_are_not_published(alice: Hub, make: Callable[..., Path]) -> None:
    """They may be lost because nobody may show them."""
    output = make(pair(0))
    folder = output / "adders"
    (folder / "lost").mkdir()
    (folder / "lost/licenses.parquet").write_bytes(b"secret")
    record_files(folder, json.loads((folder / "run.json").read_text()), ["lost/licenses.parquet"])
    api.push(REPO, output=output)
    assert not [path for path in there(alice) if path.startswith("lost/")]


# --- the commands -------------------------------------------------------------------------------


def environment(hub: Hub, tmp_path: Path, **more: str) -> dict[str, str]:
    """Return the environment of a user's command, which uploads large files by xet."""
    known = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_of_alice"}
    home = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    own = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return {**own, **known, **home, **more}


def command(*words: str, **options: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)


LOAD = """
import sys, datasets
repo, folder = sys.argv[1:]
for config in ("messages", "conversion", "pairs"):
    for split in ("train", "test"):
        there = datasets.load_dataset(repo, config, split=split, revision="v1")
        here = datasets.load_dataset("parquet", data_files=f"{folder}/{config}/{split}-*.parquet")
        assert there.to_list() == here["train"].to_list(), (config, split)
        assert there.features == here["train"].features, (config, split)
print(datasets.get_dataset_default_config_name(repo), len(there))
"""


def test_push_load_and_download_as_a_user_types_it(hub: Hub, first: Path, tmp_path: Path) -> None:
    env = environment(hub, tmp_path, HF_DEBUG="1")
    pushed = command(
        *("-m", "curate", "push", "--repo", REPO, "--output", str(first), "--tag", "v1"), env=env
    )
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stdout.splitlines()[0] == "rows: 10 added"
    assert "hf_of_alice" not in pushed.stdout + pushed.stderr, "not even where requests are logged"
    assert hub.made("POST", "^/v1/shards") and not hub.made("PUT", "^/lfs/"), "it went by xet"
    assert there(hub) == local_files(first)
    env.pop("HF_DEBUG")
    loaded = command("-c", LOAD, REPO, str(first / "adders"), env=env)
    assert loaded.stdout.split() == ["messages", "2"], loaded.stderr
    words = ("download", REPO, "--repo-type", "dataset", "--local-dir", str(tmp_path / "copy"))
    downloaded = command("-m", "huggingface_hub.cli.hf", *words, env=env)
    assert downloaded.returncode == 0, downloaded.stderr
    for path, content in local_files(first).items():
        assert (tmp_path / "copy" / path).read_bytes() == content


def test_what_went_by_xet_is_not_uploaded_again(hub: Hub, first: Path, tmp_path: Path) -> None:
    hub.faults.append(Fault("POST", "/commit/main", 500))
    words = ("-m", "curate", "push", "--repo", REPO, "--output", str(first), "--run", "adders")
    failed = command(*words, env=environment(hub, tmp_path))
    assert failed.returncode == 1 and "goes on where it stopped" in failed.stderr
    uploaded = hub.made("POST", "^/v1/xorbs/")
    assert uploaded and commits(hub) == ["initial commit"]
    done = command(*words, env=environment(hub, tmp_path))
    assert done.returncode == 0, done.stderr
    assert hub.made("POST", "^/v1/xorbs/") == uploaded
    assert there(hub) == local_files(first)


@pytest.mark.parametrize(("method", "path"), [("GET", "/xet-write-token/"), ("POST", "/shards")])
def test_an_upload_by_xet_that_is_refused(
    hub: Hub, first: Path, tmp_path: Path, method: str, path: str
) -> None:
    words = ("-m", "curate", "push", "--repo", REPO, "--output", str(first), "--run", "adders")
    hub.faults.append(Fault(method, path, 403, times=9, message="storage is full"))
    failed = command(*words, env=environment(hub, tmp_path))
    assert failed.returncode == 1, failed.stderr
    assert "Traceback" not in failed.stderr and "hf_of_alice" not in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("curate: ")
    assert commits(hub) == ["initial commit"]
    hub.faults.clear()
    assert command(*words, env=environment(hub, tmp_path)).returncode == 0
    assert there(hub) == local_files(first)


def test_exit_codes(hub: Hub, first: Path, tmp_path: Path) -> None:
    words = ("-m", "curate", "push", "--repo", REPO, "--output", str(first))
    refused = command(*words, env=environment(hub, tmp_path, HF_TOKEN="hf_wrong"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("curate: the Hub does not know the token")
    hub.faults.append(Fault("POST", "/repos/create", 503, message="down"))
    failed = command(*words, env=environment(hub, tmp_path))
    assert failed.returncode == 1, failed.stderr
    assert "the Hub answered 503: down" in failed.stderr
    assert "hf_of_alice" not in failed.stderr


def test_a_dry_run_that_would_be_refused_exits_with_2(
    alice: Hub, make: Callable[..., Path], tmp_path: Path
) -> None:
    output = make(pair(0), pair(1))
    api.push(REPO, output=output)
    make_data(output, [pair(0)], limit=1)
    words = ("-m", "curate", "push", "--repo", REPO, "--output", str(output), "--dry-run")
    refused = command(*words, "--run", "adders.trial", env=environment(alice, tmp_path))
    assert refused.returncode == 2
    assert refused.stdout.startswith("run: adders.trial, a trial run (--limit 1)\n")
    assert refused.stderr.startswith("curate: alice/adders is not changed: this run is a trial")


def test_a_dry_run_needs_no_network(first: Path, tmp_path: Path) -> None:
    words = ("-m", "curate", "push", "--repo", REPO, "--output", str(first), "--run", "adders")
    env = environment(Hub(), tmp_path, HF_ENDPOINT="http://127.0.0.1:1")
    del env["HF_TOKEN"]
    done = command(*words, "--dry-run", "--private", env=env)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert any("not looked at: alice/adders: " in line for line in told)
    assert "  it would be made private; the data goes to the branch main" in told
    assert "rows: 10 added" in told and any(line.endswith("  README.md") for line in told)


def test_a_hub_that_is_not_there(hub: Hub, first: Path, tmp_path: Path) -> None:
    words = ("-m", "curate", "push", "--repo", REPO, "--output", str(first))
    env = environment(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:1")
    failed = command(*words, env=env)
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr and REPO in failed.stderr


def test_the_stand_in_serves_a_data_set_that_datasets_itself_pushed(
    hub: Hub, tmp_path: Path
) -> None:
    """It is the clients' Hub, not one made to fit `curate`."""
    script = (
        "import datasets\n"
        "datasets.Dataset.from_dict({'a': [1, 2]}).push_to_hub('alice/other')\n"
        "print(datasets.load_dataset('alice/other', split='train')['a'][:])\n"
    )
    done = command("-c", script, env=environment(hub, tmp_path))
    assert done.stdout == "[1, 2]\n", done.stderr


UPLOAD = """
import sys, numpy, huggingface_hub
numbers = numpy.random.default_rng(0)
files = {
    "random.parquet": numbers.bytes(1_000_000),
    "text.parquet": b"".join(b"%d\\n" % i for i in range(100_000)),
    "floats.parquet": numbers.normal(size=100_000).astype("float32").tobytes(),
}
whole = files["random.parquet"]
files["edited.parquet"] = whole[:500_000] + b"!" + whole[500_000:]
add = huggingface_hub.CommitOperationAdd
api = huggingface_hub.HfApi()
api.create_repo("alice/files", repo_type="dataset")
for path in files:
    operations = [add(path, files[path])]
    api.create_commit("alice/files", operations, commit_message=path, repo_type="dataset")
    open(f"{sys.argv[1]}/{path}", "wb").write(files[path])
"""


def test_the_stand_in_puts_together_what_hf_xet_takes_apart(hub: Hub, tmp_path: Path) -> None:
    """Many chunks, each way to compress them, and a file that shares its chunks with another."""
    done = command("-c", UPLOAD, str(tmp_path), env=environment(hub, tmp_path))
    assert done.returncode == 0, done.stderr
    files = hub.files("alice/files")
    for path in ("random", "text", "floats", "edited"):
        assert files[f"{path}.parquet"] == (tmp_path / f"{path}.parquet").read_bytes(), path
    assert hub.schemes == {0, 1, 2}
    sizes = {len(xorb): sum(map(len, xorb)) for xorb in hub.xorbs.values()}
    assert len(hub.xorbs) == 4 and min(sizes.values()) < 300_000, "of the edited file, few chunks"

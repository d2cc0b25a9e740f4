"""What a push did, or would do, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from curate.publish.changes import Changes
from curate.wording import human_size


@dataclass(frozen=True)
class Pushed:
    """What a push did; a dry run's says what it would have done.

    Attributes:
        run: name of the run.
        trial: the options that make it a trial; empty if it is none.
        rows: of each config and split, a line for each config.
        outdated: steps that have a newer version than that which made the data.
        url: of the repository.
        branch: that is committed to.
        private: only its owner sees the repository.
        is_new: the repository is made by the push.
        head: commit that the data was compared with; None if there was none.
        not_compared: why the repository could not be looked at; empty if it was. Only a dry run
            goes on then, as if there were no repository.
        title: of the commit.
        commit: that now holds the data; None in a dry run that would make one.
        pull_request: its url, if one was opened, or one that has this data already.
        tag: the tag that the commit has.
        changes: rows, against the version before.
        adds: bytes of the files that are uploaded, by path.
        deletes: paths of files; as ``adds``, empty if the data was there already.
        edited: those of ``adds`` that were edited on the Hub since the version there was pushed.
        same: how many files are as they were.
        refusal: why a push would be refused; only in a dry run.
        dry_run: nothing was written.
    """

    run: str
    trial: str
    rows: list[str]
    outdated: list[str]
    url: str
    branch: str
    private: bool
    is_new: bool
    head: str | None
    not_compared: str
    title: str
    commit: str | None
    pull_request: str | None
    tag: str | None
    changes: Changes
    adds: dict[str, int]
    deletes: list[str]
    edited: list[str]
    same: int
    refusal: str | None
    dry_run: bool

    def summary(self) -> Iterator[str]:
        """Yield the lines that `curate push` prints."""
        if self.dry_run:
            yield from self._rehearsal()
        elif self.trial:
            yield f"{self.run} is a trial run ({self.trial})"
        if self.outdated:
            yield f"made by older versions of steps: {', '.join(self.outdated)}"
            yield "  a new run may judge some of the rows otherwise"
        yield from self.changes.lines()
        yield from self._files()
        if self.dry_run:
            yield f"dry run: nothing was written to {self.url}"
        elif self.pull_request:
            yield f"pull request: {self.pull_request}"
        elif self.adds or self.deletes:
            yield f"{self.url} is at commit {self.commit}"
        else:
            yield f"no commit: {self.url} has this data already, at {self.commit}"
        if self.tag and not self.dry_run:
            yield f"tag: {self.tag}"

    def _rehearsal(self) -> Iterator[str]:
        """Yield what only a dry run says."""
        yield f"run: {self.run}" + (f", a trial run ({self.trial})" if self.trial else "")
        yield from (f"  {line}" for line in self.rows)
        visibility = "private" if self.private else "public"
        if self.not_compared:
            yield f"repository: {self.url}, not looked at: {self.not_compared}"
            yield "  what follows holds if it does not exist yet"
        else:
            yield f"repository: {self.url}, " + (
                "which does not exist" if self.is_new else f"compared at commit {self.head}"
            )
        what = "it would be made" if self.is_new else "it is"
        yield f"  {what} {visibility}; the data goes to the branch {self.branch}"
        if self.adds or self.deletes:
            yield f"commit message: {self.title}"
        else:
            yield "no commit: the data is there already"
        if self.tag:
            yield f"tag: {self.tag}"

    def _files(self) -> Iterator[str]:
        size = human_size(sum(self.adds.values()))
        counts = f"{len(self.adds)} new or changed ({size}), {len(self.deletes)} gone"
        yield f"files: {counts}, {self.same} the same"
        if self.dry_run:
            yield from (f"  {human_size(size):>8}  {path}" for path, size in self.adds.items())
            yield from (f"  {'gone':>8}  {path}" for path in self.deletes)
        for path in self.edited:
            yield f"  {path} was edited on the Hub: the edit stays in its history only"

"""A Hub on loopback for the real clients: repositories in memory, LFS uploads, commits, tags.

Large files come by LFS, or by xet (`xet_stand_in`), as the client has it.
It keeps what a client can see of git: a commit is a tree of paths to blobs, and a reference names a
commit. It answers as `huggingface_hub` and `datasets` expect; what the real Hub checks beyond that
(quotas, gating, most of a card's metadata) it does not. Run it by hand with
``python tests/publish/hub_stand_in.py 8000``: the token ``hf_of_alice`` may write as ``alice``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import json
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import uvicorn
import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

LICENSES = {"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "bsl-1.0", "cc0-1.0", "isc"}
LICENSES |= {"unlicense", "zlib", "other"}
SIZES = {"n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M"}
DATE = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True)
class Blob:
    """A file's content; large ones and data are LFS, as the Hub's .gitattributes has it."""

    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        """git's name for the blob; of an LFS file, that of its pointer."""
        return git_oid(self.sha256.encode() if self.lfs else self.content)


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Commit:
    oid: str
    title: str
    files: dict[str, Blob]


@dataclass
class Repo:
    owner: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)  # heads/main, tags/v1, pr/1 -> oid
    authors: dict[int, str] = field(default_factory=dict)  # of pull requests

    def find(self, revision: str) -> Commit | None:
        short = revision.removeprefix("refs/")
        oids = (self.refs.get(place + short) for place in ("heads/", "tags/", ""))
        return self.commits.get(next(filter(None, oids), revision))

    def commit(self, ref: str, title: str, files: dict[str, Blob]) -> Commit:
        seed = json.dumps([len(self.commits), title, sorted((p, b.oid) for p, b in files.items())])
        made = Commit(hashlib.sha1(seed.encode()).hexdigest(), title, files)
        self.commits[made.oid] = made
        self.refs[ref] = made.oid
        return made


@dataclass(frozen=True)
class User:
    name: str
    role: str = "write"
    orgs: tuple[str, ...] = ()


@dataclass
class Fault:
    """An answer in place of the right one.

    ``late``: the request is carried out and only its answer is lost.
    """

    method: str
    path: str
    status: int
    times: int = 1
    late: bool = False
    message: str = "as the test asked"
    before: Callable[[], None] | None = None  # is called first, without an error in its place


class Problem(Exception):
    """An error as the Hub tells it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        self.response = JSONResponse(
            {"error": message},
            status,
            headers={"X-Error-Message": message, **({"X-Error-Code": code} if code else {})},
        )


Handler = Callable[..., Awaitable[Response]]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []


def route(method: str, path: str) -> Callable[[Handler], Handler]:
    pattern = path.replace("{repo}", r"(?P<repo>[^/]+/[^/]+?)")
    pattern = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", pattern)
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)

    def add(handler: Handler) -> Handler:
        ROUTES.append((method, re.compile(pattern + "$"), handler))
        return handler

    return add


class Hub:
    """The state of the stand-in; a test looks at it and puts faults into it."""

    def __init__(self) -> None:
        self.url = ""
        self.users = {
            "hf_of_alice": User("alice", orgs=("lab",)),
            "hf_reader_of_alice": User("alice", role="read"),
            "hf_of_bob": User("bob"),
        }
        self.repos: dict[str, Repo] = {}
        self.lfs: dict[str, bytes] = {}
        self.xorbs: dict[str, list[bytes]] = {}  # chunks, by hash; see xet_stand_in.py
        self.schemes: set[int] = set()  # of compression, that chunks came in
        self.requests: list[tuple[str, str]] = []
        self.agents: set[str] = set()
        self.faults: list[Fault] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        method, raw = scope["method"], scope["raw_path"].decode().split("?")[0]
        self.requests.append((method, unquote(raw)))
        self.agents.add(request.headers.get("user-agent", ""))
        response = await self.answer(request, method, raw)
        await response(scope, receive, send)

    async def answer(self, request: Request, method: str, raw: str) -> Response:
        fault = self._take_fault(method, unquote(raw))
        if fault and fault.before:
            fault.before()
        elif fault and not fault.late:
            await request.body()
            return Problem(fault.status, fault.message).response
        for verb, pattern, handler in ROUTES:
            found = pattern.match(raw)
            if found and (verb == method or (verb, method) == ("GET", "HEAD")):
                names = {name: unquote(value) for name, value in found.groupdict().items()}
                try:
                    response = await handler(self, request, **names)
                except Problem as problem:
                    return problem.response
                return (
                    Problem(fault.status, fault.message).response
                    if fault and fault.late
                    else response
                )
        return Problem(404, "no such page").response

    def _take_fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == method and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None

    # --- rights ---------------------------------------------------------------------------------

    def user(self, request: Request) -> User | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token and token not in self.users:
            raise Problem(401, "Invalid credentials in Authorization header")
        return self.users.get(token)

    def readable(self, request: Request, name: str) -> Repo:
        user, repo = self.user(request), self.repos.get(name)
        mine = user is not None and repo is not None and repo.owner in (user.name, *user.orgs)
        if repo is None or (repo.private and not mine):
            raise Problem(404, "Repository not found", "RepoNotFound")
        return repo

    def writable(self, request: Request, name: str, contribute: bool = False) -> Repo:
        repo, user = self.readable(request, name), self.user(request)
        if user is None:
            raise Problem(401, "Invalid username or password.")
        if user.role == "read":
            raise Problem(403, "Forbidden: pass a token with the role write.")
        if not contribute and repo.owner not in (user.name, *user.orgs):
            raise Problem(403, f"Forbidden: you must be {repo.owner} to do this.")
        return repo

    def revision(self, repo: Repo, revision: str) -> Commit:
        commit = repo.find(revision)
        if commit is None:
            raise Problem(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    # --- what tests ask -------------------------------------------------------------------------

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        commit = self.repos[name].find(revision)
        assert commit is not None
        return {path: blob.content for path, blob in commit.files.items()}

    def made(self, method: str, path: str) -> list[str]:
        """Return the requests that have been made so far, with a method and a pattern of path."""
        return [p for m, p in self.requests if m == method and re.search(path, p)]

    def writing(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method not in ("GET", "HEAD")]


# --- accounts and repositories ------------------------------------------------------------------


@route("GET", "/api/whoami-v2")
async def whoami(hub: Hub, request: Request) -> Response:
    user = hub.user(request)
    if user is None:
        raise Problem(401, "Invalid username or password.")
    return JSONResponse(
        {
            "type": "user",
            "name": user.name,
            "orgs": [{"type": "org", "name": org} for org in user.orgs],
            "auth": {"accessToken": {"displayName": "test", "role": user.role}},
        }
    )


@route("POST", "/api/repos/create")
async def create_repo(hub: Hub, request: Request) -> Response:
    user, asked = hub.user(request), await request.json()
    if user is None or user.role == "read":
        raise Problem(403, "You don't have the rights to create a dataset under this namespace.")
    owner = asked.get("organization") or user.name
    if owner not in (user.name, *user.orgs):
        raise Problem(403, "You don't have the rights to create a dataset under this namespace.")
    name = f"{owner}/{asked['name']}"
    if name in hub.repos:
        raise Problem(409, "You already created this dataset repo.")
    private = asked.get("private") or asked.get("visibility") == "private"
    hub.repos[name] = repo = Repo(owner, bool(private))
    attributes = Blob(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n", lfs=False)
    repo.commit("heads/main", "initial commit", {".gitattributes": attributes})
    return JSONResponse({"url": f"{hub.url}/datasets/{name}", "name": name})


@route("POST", "/api/validate-yaml")
async def validate_yaml(hub: Hub, request: Request) -> Response:
    asked = await request.json()
    head = re.match(r"---\n(.*?)\n---\n", asked["content"], re.DOTALL)
    if head is None:
        return JSONResponse({"errors": [], "warnings": [{"message": "empty or missing yaml"}]})
    errors = list(mistakes(yaml.safe_load(head[1])))
    told = {"errors": [{"message": error} for error in errors], "warnings": []}
    return JSONResponse(told, 400 if errors else 200)


def mistakes(head: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a card's metadata, of what the Hub documents."""
    licenses = head.get("license", [])
    for license in [licenses] if isinstance(licenses, str) else licenses:
        if license not in LICENSES:
            yield f'"license" must be one of the list, and {license} is not'
    if licenses == "other" and not (head.get("license_name") and head.get("license_link")):
        yield '"license_name" and "license_link" go with license: other'
    for size in head.get("size_categories", []):
        if size not in SIZES:
            yield f'"size_categories" {size} is not known'
    for config in head.get("configs", []):
        if not re.fullmatch(r"[\w.-]+", config["config_name"]) or not config["data_files"]:
            yield f'"configs" {config["config_name"]} is malformed'


@route("GET", "/api/datasets/{repo}/refs")
async def refs(hub: Hub, request: Request, repo: str) -> Response:
    found = hub.readable(request, repo).refs
    told: dict[str, list[dict[str, str]]] = {
        "branches": [],
        "tags": [],
        "converts": [],
        "pullRequests": [],
    }
    kinds = {"heads": "branches", "tags": "tags", "pr": "pullRequests"}
    for ref, oid in found.items():
        kind, _, name = ref.partition("/")
        told[kinds[kind]].append({"name": name, "ref": f"refs/{ref}", "targetCommit": oid})
    return JSONResponse(told)


@route("GET", "/api/datasets/{repo}/commits/{revision}")
async def commits(hub: Hub, request: Request, repo: str, revision: str) -> Response:
    found = hub.readable(request, repo)
    hub.revision(found, revision)
    listed = [
        {"id": c.oid, "title": c.title, "message": "", "date": DATE, "authors": []}
        for c in reversed(found.commits.values())
    ]
    return JSONResponse(listed)


@route("POST", "/api/datasets/{repo}/branch/{branch}")
async def create_branch(hub: Hub, request: Request, repo: str, branch: str) -> Response:
    found, asked = hub.writable(request, repo), await request.json()
    if f"heads/{branch}" in found.refs:
        raise Problem(409, "Reference already exists")
    start = hub.revision(found, asked.get("startingPoint", "main"))
    found.refs[f"heads/{branch}"] = start.oid
    return JSONResponse({})


@route("POST", "/api/datasets/{repo}/tag/{revision}")
async def create_tag(hub: Hub, request: Request, repo: str, revision: str) -> Response:
    found, asked = hub.writable(request, repo), await request.json()
    if f"tags/{asked['tag']}" in found.refs:
        raise Problem(409, "Tag reference exists already")
    found.refs[f"tags/{asked['tag']}"] = hub.revision(found, revision).oid
    return JSONResponse({})


@route("GET", "/api/datasets/{repo}/discussions")
async def discussions(hub: Hub, request: Request, repo: str) -> Response:
    found = hub.readable(request, repo)
    asked = request.query_params
    numbers = [int(ref.removeprefix("pr/")) for ref in found.refs if ref.startswith("pr/")]
    told = [
        {
            **{"num": n, "title": found.commits[found.refs[f"pr/{n}"]].title, "status": "draft"},
            **{"author": {"name": found.authors[n]}, "createdAt": DATE, "isPullRequest": True},
            "repo": {"name": repo, "type": "dataset"},
        }
        for n in numbers
        if asked.get("author") in (None, found.authors[n])
    ]
    first = int(asked.get("p", 0)) == 0
    return JSONResponse({"discussions": told if first else [], "count": len(told), "start": 0})


# --- reading ------------------------------------------------------------------------------------


@route("GET", "/api/datasets/{repo}/revision/{revision}")
@route("GET", "/api/datasets/{repo}")
async def info(hub: Hub, request: Request, repo: str, revision: str = "main") -> Response:
    found = hub.readable(request, repo)
    commit = hub.revision(found, revision)
    return JSONResponse(
        {
            **{"_id": "0" * 24, "id": repo, "author": found.owner, "sha": commit.oid},
            **{"private": found.private, "gated": False, "disabled": False, "downloads": 0},
            **{"likes": 0, "tags": [], "lastModified": DATE, "createdAt": DATE},
            "siblings": [{"rfilename": path} for path in commit.files],
        }
    )


@route("GET", "/api/datasets/{repo}/tree/{revision}/{folder*}")
@route("GET", "/api/datasets/{repo}/tree/{revision}")
async def tree(hub: Hub, request: Request, repo: str, revision: str, folder: str = "") -> Response:
    files = hub.revision(hub.readable(request, repo), revision).files
    below = f"{folder}/" if folder else ""
    inside = {path: blob for path, blob in files.items() if path.startswith(below)}
    if folder and not inside:
        raise Problem(404, f"{folder} does not exist", "EntryNotFound")
    told = [_entry(path, blob) for path, blob in sorted(inside.items())]
    if request.query_params.get("recursive", "false").lower() != "true":
        names = {below + path.removeprefix(below).split("/")[0] for path in inside}
        told = [e for e in told if e["path"] in names]
        folders = sorted(names - set(inside))
        told += [{"type": "directory", "path": p, "size": 0, "oid": "0" * 40} for p in folders]
    return JSONResponse(told)


@route("POST", "/api/datasets/{repo}/paths-info/{revision}")
async def paths_info(hub: Hub, request: Request, repo: str, revision: str) -> Response:
    files = hub.revision(hub.readable(request, repo), revision).files
    form = await request.form()
    paths = [str(path).strip("/") for path in form.getlist("paths")]
    told = [_entry(path, files[path]) for path in paths if path in files]
    folders = {path for path in paths if any(file.startswith(f"{path}/") for file in files)}
    told += [{"type": "directory", "path": p, "size": 0, "oid": "0" * 40} for p in sorted(folders)]
    return JSONResponse(told)


def _entry(path: str, blob: Blob) -> dict[str, Any]:
    size = len(blob.content)
    lfs = {"oid": blob.sha256, "size": size, "pointerSize": 130}
    told = {"type": "file", "path": path, "size": size, "oid": blob.oid}
    return {**told, "lfs": lfs} if blob.lfs else told


@route("GET", "/datasets/{repo}/resolve/{revision}/{path*}")
async def resolve(hub: Hub, request: Request, repo: str, revision: str, path: str) -> Response:
    commit = hub.revision(hub.readable(request, repo), revision)
    blob = commit.files.get(path)
    if blob is None:
        raise Problem(404, f"{path} does not exist", "EntryNotFound")
    etag = blob.sha256 if blob.lfs else blob.oid
    headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
    if blob.lfs:
        headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(blob.content))}
    if part := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", "")):
        end = min(int(part[2]) + 1 if part[2] else len(blob.content), len(blob.content))
        headers["Content-Range"] = f"bytes {part[1]}-{end - 1}/{len(blob.content)}"
        return Response(blob.content[int(part[1]) : end], 206, headers)
    return Response(blob.content, headers=headers)


# --- writing ------------------------------------------------------------------------------------


@route("POST", "/api/datasets/{repo}/preupload/{revision}")
async def preupload(hub: Hub, request: Request, repo: str, revision: str) -> Response:
    contribute = request.query_params.get("create_pr") == "1"
    files = hub.revision(hub.writable(request, repo, contribute), revision).files

    def told(file: dict[str, Any]) -> dict[str, Any]:
        known = files.get(file["path"])
        data = file["path"].endswith((".parquet", ".png"))
        mode = "lfs" if data or file["size"] > 10_000_000 else "regular"
        oid = (known.sha256 if known.lfs else known.oid) if known else None
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    return JSONResponse({"files": [told(file) for file in (await request.json())["files"]]})


@route("POST", "/datasets/{repo}.git/info/lfs/objects/batch")
async def lfs_batch(hub: Hub, request: Request, repo: str) -> Response:
    asked = await request.json()
    hub.writable(request, repo, contribute=True)

    def told(wanted: dict[str, Any]) -> dict[str, Any]:
        if wanted["oid"] in hub.lfs:
            return wanted
        upload = {"href": f"{hub.url}/lfs/{wanted['oid']}"}
        verify = {"href": f"{hub.url}/datasets/{repo}.git/info/lfs/verify"}
        return {**wanted, "actions": {"upload": upload, "verify": verify}}

    return JSONResponse({"transfer": "basic", "objects": [told(o) for o in asked["objects"]]})


@route("PUT", "/lfs/{oid}")
async def lfs_put(hub: Hub, request: Request, oid: str) -> Response:
    content = await request.body()
    if hashlib.sha256(content).hexdigest() != oid:
        raise Problem(400, "the content has another sha256")
    hub.lfs[oid] = content
    return Response()


@route("POST", "/datasets/{repo}.git/info/lfs/verify")
async def lfs_verify(hub: Hub, request: Request, repo: str) -> Response:
    asked = await request.json()
    if len(hub.lfs.get(asked["oid"], b"")) != asked["size"]:
        raise Problem(404, "the object is not there")
    return JSONResponse({"message": "ok"})


@route("POST", "/api/datasets/{repo}/commit/{revision}")
async def commit(hub: Hub, request: Request, repo: str, revision: str) -> Response:
    pull = request.query_params.get("create_pr") == "1"
    found = hub.writable(request, repo, contribute=pull)
    lines = [json.loads(line) for line in (await request.body()).splitlines()]
    head = next(line["value"] for line in lines if line["key"] == "header")
    parent = head.get("parentCommit")
    start = hub.revision(found, parent if pull and parent else revision)
    if parent and not start.oid.startswith(parent):
        raise Problem(412, "A commit has happened since. Please refresh and try again.")
    files = dict(start.files)
    for line in lines:
        apply_operation(hub, files, line["key"], line["value"])
    ref, url = f"heads/{revision}", None
    if pull:
        number = next(n for n in itertools.count(1) if f"pr/{n}" not in found.refs)
        ref, url = f"pr/{number}", f"{hub.url}/datasets/{repo}/discussions/{number}"
        user = hub.user(request)
        found.authors[number] = user.name if user else ""
    made = found.commit(ref, head["summary"], files)
    where = f"{hub.url}/datasets/{repo}/commit/{made.oid}"
    return JSONResponse(
        {"success": True, "commitOid": made.oid, "commitUrl": where, "pullRequestUrl": url}
    )


def apply_operation(hub: Hub, files: dict[str, Blob], kind: str, value: dict[str, Any]) -> None:
    if kind == "file":
        files[value["path"]] = Blob(base64.b64decode(value["content"]), lfs=False)
    elif kind == "lfsFile":
        if value["oid"] not in hub.lfs:
            raise Problem(400, f"{value['path']}: its LFS object was not uploaded")
        files[value["path"]] = Blob(hub.lfs[value["oid"]], lfs=True)
    elif kind == "deletedFile":
        if files.pop(value["path"], None) is None:
            raise Problem(404, "A file with this name doesn't exist", "EntryNotFound")
    elif kind == "deletedFolder":
        for path in [path for path in files if path.startswith(value["path"].rstrip("/") + "/")]:
            del files[path]


# --- the server ---------------------------------------------------------------------------------


@contextmanager
def serve(hub: Hub, port: int = 0) -> Iterator[Hub]:
    """Serve a hub on loopback, on a free port by default; its ``url`` is set."""
    config = uvicorn.Config(hub, port=port, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    socket.listen()  # a request waits for the server's thread, and is not refused
    hub.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([socket])), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    with serve(Hub(), int(sys.argv[1])) as here:
        print(here.url, flush=True)
        threading.Event().wait()

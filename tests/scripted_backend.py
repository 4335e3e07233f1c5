"""An MCP server over stdio that does what a script tells it, for tests; and the test's end of it.

Run as a program it needs the standard library alone and is up in some 30 ms. Everything it sees it writes down, so a
test waits for what happened and never for time to pass.

    calendar = Scripted(tmp_path, "calendar", rows=[tool("add_event")], tools={"add_event": {"do": "hang"}})
    config = {"mcpServers": {"calendar": calendar.entry()}}

The script's keys:

- `rows`, or `pages` (a list of lists): what `tools/list` answers, unread. `repeat_cursor`: every page names the same
  next one. `list_error`: a JSON-RPC error instead; with `list_error_page` only from that page on.
- `version`: what `initialize` says it is, "1" by default.
- `start`: "hang" (never answers `initialize`), "exit" (ends at once, with words on stderr), "refuse" (a JSON-RPC error
  for `initialize`), "flood" (works, but writes what is no message without end), or "deaf" (works, but ignores the end
  of its stdin). `start_when`: answers nothing before this file is there. `exit_unless`: ends at once while this file
  is not there. `exit_listed`: ends as soon as it has listed.
- `tools`: by name, what a call does. `do`: "echo" (the default), "result" (`result` as it is), "error" (a JSON-RPC
  `error` as it is), "hang" (never answers), "exit" (the process ends), "junk" (writes what is no message, then echoes),
  "progress" (`steps` of them, `every_s` apart, then echoes), "batch" (holds calls back until `size` of them are there,
  then echoes them in reverse), "gate" (echoes once `file` is there), "broken" (an echo that is cut short), "grumble"
  (writes the argument `words` on stderr, then echoes), "crash" (the same, but ends instead), "babble" (writes its
  arguments on stdout as no message, then echoes), "twice" (echoes, and answers the same request once more),
  "large" (answers with a text of that `size`).

- `capabilities`: what `initialize` announces. `answers`: what other methods answer, by `METHOD NAME-OR-URI` or by
  `METHOD`: {"result": ...} or {"error": ...}, as it is, or "silence". What is asked is the event `request`.
- `tools` can also: "ask" (sends the client the requests in `asks`, one after the other, and answers with what came
  back; with `meanwhile`, each is followed by so many reports of progress), "tell" (sends the notifications in `notes`,
  then echoes).
- `modern`: true for a server of the newer era, which knows no handshake. There a tool can "input" (answers with
  `result` until the request comes with `inputResponses`, then with the params it came with).
- `asks`: requests that are sent to the client as soon as the handshake is over; answers are the event `answered`.

The script is read again at every request. A change of it is announced with the notifications in `announce`, by default
`notifications/tools/list_changed`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the program starts without them; the test's end imports what it needs when it is called
    from roster.app import Roster
    from roster.config import Home

DEADLINE_S = 30.0

SECRET_ENVIRONMENT = "SCRIPTED_SECRET"


class Scripted:
    """The test's end: writes the script, and reads what the server wrote down."""

    def __init__(self, folder: Path, name: str, **script: Any) -> None:
        self.name = name
        self._script, self._events = folder / f"{name}.json", folder / f"{name}.events"
        self._said = script
        self.says(**script)

    def says(self, **script: Any) -> None:
        """Change these keys of the script; a running server announces a changed list."""
        self._said |= script
        draft = self._script.with_suffix(".draft")
        draft.write_text(json.dumps(self._said, default=str), encoding="utf-8")
        draft.replace(self._script)

    def entry(self, *arguments: str, **more: Any) -> dict[str, Any]:
        """The server's entry in `mcpServers`."""
        return {"command": sys.executable, "args": ["-S", "-E", __file__, str(self._script), *arguments], **more}

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What happened so far, oldest first: start, opened, list, call, request, notified, answered ... end.

        A call says how many are `inside`, neither answered nor cancelled, itself among them.
        """
        try:
            lines = self._events.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [event for event in map(json.loads, lines) if kind in (None, event["event"])]

    def pids(self) -> list[int]:
        """One process id a start, in order."""
        return [event["pid"] for event in self.events("start")]

    def calls(self, tool: str | None = None) -> list[dict[str, Any]]:
        """The `params` of every `tools/call`, as they came."""
        seen = [event["params"] for event in self.events("call")]
        return [params for params in seen if tool in (None, params["name"])]


async def until(condition: Callable[[], Any], within_s: float = 20.0) -> Any:
    """What `condition` says once that is true. Raises TimeoutError when it has not become so in time."""
    import anyio

    with anyio.fail_after(within_s):
        while not (found := condition()):
            await anyio.sleep(0.01)
    return found


@contextmanager
def plainly() -> Iterator[None]:
    """Raise what task groups have wrapped as what it is, so that a failed assertion reads like one."""
    try:
        yield
    except BaseExceptionGroup as wrapped:
        error: BaseException = wrapped
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it went in between, or this is no Linux
        return not Path("/proc/self").exists()


@asynccontextmanager
async def running(
    home: Home,
    entries: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    settled: bool = True,
    indexed: bool = False,
    **settings: Any,
) -> AsyncIterator[Roster]:
    """A Roster over these `mcpServers`, its backends started and, unless told otherwise, heard of.

    indexed: keep the dense index as a serving process does.
    """
    import anyio

    from roster.app import open_roster
    from roster.config import read_config

    config = read_config(json.dumps({"mcpServers": entries, **settings}))
    assert not config.problems
    with plainly(), open_roster(config, home, environ=environ) as roster, anyio.fail_after(DEADLINE_S):
        async with roster.running(), anyio.create_task_group() as group:
            if indexed:
                group.start_soon(roster.keep_indexed)
            if settled:
                await roster.pool.settled()
            yield roster
            group.cancel_scope.cancel()


async def raw(client: Any, method: str, meta: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """What an SDK client gets for a request before the SDK's types sieve it: every key, whatever its name."""
    own = {}
    if client.protocol_version == "2026-07-28":
        prefix = "io.modelcontextprotocol/"
        own = {
            f"{prefix}protocolVersion": client.protocol_version,
            f"{prefix}clientInfo": {"name": "test", "version": "0"},
            f"{prefix}clientCapabilities": {},
        }
    request = {**params, **({"_meta": {**(meta or {}), **own}} if meta or own else {})}
    return dict(await client.session._dispatcher.send_raw_request(method, request))


# ------------------------------------------------------------------------------------------ the program itself


MODERN = "2026-07-28"
MODERN_KEYS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

_numbers = itertools.count(1)


class Server:
    """Speaks MCP's older era on stdin and stdout, one line a message."""

    def __init__(self, script: Path) -> None:
        self._path, self._events = script, script.with_suffix(".events")
        self._lock = threading.Lock()
        self._held: list[tuple[Any, dict[str, Any]]] = []
        self._answers: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._running: dict[Any, str] = {}
        self.script = self._read()

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self._path.read_text(encoding="utf-8")))

    def note(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), **more})
        with self._lock, self._events.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _write(self, text: str) -> None:
        with self._lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def _send(self, **message: Any) -> None:
        if "method" not in message:
            self._running.pop(message["id"], None)
        self._write(json.dumps({"jsonrpc": "2.0", **message}))

    def run(self) -> None:
        self.note("start", argv=sys.argv[2:], env={k: v for k, v in os.environ.items() if not k.startswith("LC_")})
        needed = self.script.get("exit_unless")
        if self.script.get("start") == "exit" or (needed and not Path(needed).exists()):
            print(f"cannot start: {os.environ.get(SECRET_ENVIRONMENT, 'no reason')}", file=sys.stderr)
            raise SystemExit(3)
        threading.Thread(target=self._announce_changes, daemon=True).start()
        if self.script.get("start") == "flood":
            threading.Thread(target=self._flood, daemon=True).start()
        if gate := self.script.get("start_when"):
            _wait_for(gate)
        for line in sys.stdin:
            message = json.loads(line)
            if "method" in message:
                self._hear(message["method"], message.get("id"), message.get("params") or {})
            elif message["id"] in self._answers:
                self._answers[message["id"]].put(message)
        self.note("end")
        if self.script.get("start") == "deaf":
            threading.Event().wait()

    def _flood(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._write("\n".join(["2026-01-01 00:00:00 DEBUG heartbeat, nothing to report here"] * 100))

    def _announce_changes(self) -> None:
        last = self._path.stat().st_ino
        while True:
            time.sleep(0.02)
            if (now := self._path.stat().st_ino) != last:
                last = now
                for note in self._read().get("announce", [{"method": "notifications/tools/list_changed"}]):
                    self._send(**note)

    def _hear(self, method: str, id_: Any, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            self.note("cancelled", tool=self._running.pop(params.get("requestId"), None))
        if id_ is None:
            self.note("notified", method=method, params=params)
            if method == "notifications/initialized":
                threading.Thread(target=self._ask_all, args=(self.script.get("asks", []),), daemon=True).start()
            return
        self.script = self._read()
        match method:
            case "initialize":
                self.note("opened", params=params)
                self._initialize(id_, params)
            case "subscriptions/listen" if self.script.get("modern"):
                # The stream is open for as long as this has no answer.
                self.note("request", method=method, params=params)
                meta = {"io.modelcontextprotocol/subscriptionId": id_}
                told = {"notifications": params["notifications"], "_meta": meta}
                self._send(method="notifications/subscriptions/acknowledged", params=told)
            case "server/discover" if self.script.get("modern"):
                self.note("opened", params=params)
                capabilities = self.script.get("capabilities", {"tools": {}})
                self._send(id=id_, result={"supportedVersions": [MODERN], "capabilities": capabilities, **MODERN_KEYS})
            case "tools/list":
                self._list(id_, params)
            case "tools/call":
                self._running[id_] = params["name"]
                self.note("call", params=params, inside=len(self._running))
                self._call(id_, params)
            case "ping":
                self._send(id=id_, result={})
            case _:
                self.note("request", method=method, params=params)
                answers, named = self.script.get("answers", {}), params.get("uri") or params.get("name")
                unknown = {"error": {"code": -32601, "message": f"Method not found: {method}"}}
                answer = answers.get(f"{method} {named}") or answers.get(method) or unknown
                if answer != "silence":
                    self._send(id=id_, **answer)

    def _ask_all(
        self, asks: list[dict[str, Any]], meanwhile: Callable[[], None] = lambda: None
    ) -> list[dict[str, Any]]:
        """Send these requests to the client, one after the other, and what it answers."""
        answers = []
        for ask in asks:
            id_ = f"q{next(_numbers)}"
            self._answers[id_] = queue.Queue()
            self._send(id=id_, **ask)
            meanwhile()
            answer = self._answers[id_].get()
            answers.append({key: value for key, value in answer.items() if key in ("result", "error")})
            self.note("answered", method=ask["method"], answer=answers[-1])
        return answers

    def _ask(self, id_: Any, params: dict[str, Any], how: dict[str, Any]) -> None:
        token = (params.get("_meta") or {}).get("progressToken")

        def meanwhile() -> None:
            for step in range(how.get("meanwhile", 0)):
                self._send(method="notifications/progress", params={"progressToken": token, "progress": step})
            self.note("meanwhile")

        answers = self._ask_all(how["asks"], meanwhile)
        self._send(id=id_, result={"content": [{"type": "text", "text": json.dumps(answers)}]})

    def _initialize(self, id_: Any, params: dict[str, Any]) -> None:
        if self.script.get("modern"):
            data = {"supported": [MODERN], "requested": params["protocolVersion"]}
            self._send(id=id_, error={"code": -32022, "message": "Unsupported protocol version", "data": data})
            return
        if self.script.get("start") == "hang":
            return
        if self.script.get("start") == "refuse":
            words = f"not with {os.environ.get(SECRET_ENVIRONMENT, 'these credentials')}"
            self._send(id=id_, error={"code": -32603, "message": words})
            return
        self.note("handshake")
        self._send(
            id=id_,
            result={
                "protocolVersion": params["protocolVersion"],
                "capabilities": self.script.get("capabilities", {"tools": {"listChanged": True}}),
                "serverInfo": {"name": self._path.stem, "version": self.script.get("version", "1")},
            },
        )

    def _list(self, id_: Any, params: dict[str, Any]) -> None:
        self.note("list", cursor=params.get("cursor"))
        pages = self.script.get("pages") or [self.script.get("rows", [])]
        page = int(params.get("cursor") or 0)
        if "list_error" in self.script and page >= self.script.get("list_error_page", 0):
            self._send(id=id_, error=self.script["list_error"])
            return
        more: dict[str, Any] = {"nextCursor": str(page + 1)} if page + 1 < len(pages) else {}
        if self.script.get("repeat_cursor"):
            more = {"nextCursor": str(len(pages) - 1)}
        self._send(id=id_, result={"tools": pages[page], **more, **(MODERN_KEYS if self.script.get("modern") else {})})
        if self.script.get("exit_listed"):
            os._exit(0)

    def _call(self, id_: Any, params: dict[str, Any]) -> None:
        how = self.script.get("tools", {}).get(params["name"], {})
        match how.get("do", "echo"):
            case "echo":
                self._echo(id_, params)
            case "result":
                self._send(id=id_, result=how["result"])
            case "error":
                self._send(id=id_, error=how["error"])
            case "hang":
                pass
            case "large":
                self._echo(id_, {"name": "x" * how["size"]})
            case "twice":
                self._echo(id_, params)
                self._echo(id_, {"name": "again"})
            case "exit":
                os._exit(3)
            case "junk":
                self._write("this is no message\n{}\n[1, 2]")
                self._echo(id_, params)
            case "babble":
                self._write(f"called with {json.dumps(params['arguments'])}")
                self._echo(id_, params)
            case "broken":
                said = [{"type": "text", "text": json.dumps(params.get("arguments"))}]
                self._write(json.dumps({"jsonrpc": "2.0", "id": id_, "result": {"content": said}})[:-3])
            case "grumble":
                print(params["arguments"]["words"], file=sys.stderr, flush=True)
                self._echo(id_, {"name": params["name"]})
            case "crash":
                print(params["arguments"]["words"], file=sys.stderr, flush=True)
                os._exit(3)
            case "progress":
                threading.Thread(target=self._progress, args=(id_, params, how), daemon=True).start()
            case "gate":
                threading.Thread(target=self._gate, args=(id_, params, how), daemon=True).start()
            case "ask":
                threading.Thread(target=self._ask, args=(id_, params, how), daemon=True).start()
            case "input" if "inputResponses" not in params:
                self._send(id=id_, result=how["result"])
            case "input":
                content = [{"type": "text", "text": json.dumps(params)}]
                self._send(id=id_, result={"content": content, "resultType": "complete"})
            case "tell":
                for note in how["notes"]:
                    self._send(**note)
                self._echo(id_, params)
            case "batch":
                self._held.append((id_, params))
                if len(self._held) == how["size"]:
                    while self._held:
                        self._echo(*self._held.pop())

    def _echo(self, id_: Any, params: dict[str, Any]) -> None:
        text = json.dumps({"tool": params["name"], "arguments": params.get("arguments")})
        self._send(id=id_, result={"content": [{"type": "text", "text": text}]})

    def _progress(self, id_: Any, params: dict[str, Any], how: dict[str, Any]) -> None:
        token = (params.get("_meta") or {}).get("progressToken")
        for step in range(1, how["steps"] + 1):
            time.sleep(how.get("every_s", 0))
            if token is not None:
                told = {"progressToken": token, "progress": step, "total": how["steps"], "message": f"step {step}"}
                self._send(method="notifications/progress", params=told)
        if how.get("then") is not None:
            _wait_for(how["then"])
        self._echo(id_, params)

    def _gate(self, id_: Any, params: dict[str, Any], how: dict[str, Any]) -> None:
        _wait_for(how["file"])
        self._echo(id_, params)


def _wait_for(file: str) -> None:
    for _ in itertools.takewhile(lambda _: not Path(file).exists(), itertools.count()):
        time.sleep(0.01)


if __name__ == "__main__":
    Server(Path(sys.argv[1])).run()

"""The pages on MCP clients, from the table that `roster init`, `sync` and `eject` work by.

python eval/docs.py            # writes docs/clients/
python eval/docs.py --check    # 1 when a page is not what the table says
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from roster.clients.adapters import CLIENTS, Client, Confidence, Place, Scope
from roster.clients.formats import Spot, edited
from roster.clients.ourselves import to_client
from roster.clients.yamlfile import LIST

FOLDER = Path(__file__).parents[1] / "docs" / "clients"
SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
APPS = {"linux": "~/.config", "darwin": "~/Library/Application Support", "win32": "%APPDATA%"}
SCOPES = {
    Scope.USER: "the user",
    Scope.LOCAL: "the user, in one project",
    Scope.PROJECT: "everybody who has the project",
}
SURE = {
    Confidence.VERIFIED: "checked against the client itself",
    Confidence.DOCUMENTED: "from the client's own documentation",
    Confidence.REPORTED: "from other tools' tables; not tried with the client",
}
VARIABLE = "GITHUB_TOKEN"


def pages() -> dict[str, str]:
    """Page by file name."""
    found = {f"{client.id}.md": page(client) for client in CLIENTS}
    return {"README.md": index(), **found}


def index() -> str:
    """The list of all clients."""
    lines = [
        "# MCP clients",
        "",
        "Made by `eval/docs.py` from the table that `roster init`, `roster sync` and `roster eject` work by.",
        "",
        "| client | user's file (on Linux) | how the row was checked |",
        "|---|---|---|",
    ]
    for client in CLIENTS:
        paths = [path for place in client.places if place.scope is Scope.USER for path in shown(place, "linux")]
        named = ", ".join(f"`{path}`" for path in paths)
        lines.append(f"| [{client.title}]({client.id}.md) | {named} | {SURE[client.confidence]} |")
    return "\n".join([*lines, ""])


def page(client: Client) -> str:
    """Everything about one client."""
    return "\n".join([*_head(client), *_files(client), *_entry(client), *_more(client), ""])


def _head(client: Client) -> Iterator[str]:
    yield from (f"# {client.title}", "")
    yield f"`--client {client.id}` names it. This row is {SURE[client.confidence]}."
    if client.notes:
        yield from ("", client.notes)


def _files(client: Client) -> Iterator[str]:
    yield from ("", "## Where it keeps its servers", "")
    yield from ("| counts for | system | file | under |", "|---|---|---|---|")
    for place in client.places:
        per_system = {SYSTEMS[name]: shown(place, name) for name in SYSTEMS}
        same = len({"".join(paths).replace("\\", "/") for paths in per_system.values()}) == 1
        for system, paths in [("any", per_system["Linux"])] if same else per_system.items():
            files = " or ".join(f"`{path}`" for path in paths)
            yield f"| {SCOPES[place.scope]} | {system} | {files} | `{_under(place)}` |"
    if any(len(shown(place, "linux")) > 1 for place in client.places):
        yield from ("", "Of several files the first that is there is meant.")
        if any(path.startswith("$") for place in client.places for path in shown(place, "linux")):
            yield "One that begins with a variable is the only one where that variable is set."
    if any(
        path.startswith(("@xdg", "@app")) for place in client.places for paths in place.paths.values() for path in paths
    ):
        yield from ("", "`$XDG_CONFIG_HOME` counts instead of `~/.config` where it is set.")
    if any(place.scope is Scope.PROJECT for place in client.places):
        yield from (
            "",
            "A project's file may be shared: `roster sync` leaves it alone unless `--project DIR` names the project.",
        )
    if any(place.many for place in client.places):
        yield "Servers in one of several files that make one list are never taken out: do that by hand."
    if any(place.live for place in client.places):
        yield from (
            "",
            "The client writes this file while it runs: `roster eject` takes Roster out again server by server if "
            "anything else was changed meanwhile.",
        )


def _entry(client: Client) -> Iterator[str]:
    place = next((place for place in client.places if place.scope is Scope.USER), client.places[0])
    short = ["/path/to/python", "-P", "-m", "roster", "serve"]
    command = short if client.gui else ["/path/to/roster", "serve"]
    variables = [VARIABLE] if client.withholds else []
    entry = to_client(client.dialect, command, {}, [VARIABLE])
    spot = Spot(place.format, place.keys)
    yield from ("", "## What `roster sync` writes", "")
    yield "The servers that Roster routes go, and this comes in the place of the first one:"
    yield from ("", f"```{place.format.value}", edited("", spot, (), ("roster", entry)).rstrip("\n"), "```", "")
    yield "The paths are those of your machine; a `ROSTER_HOME` of your own is passed on."
    if client.gui:
        yield "It is started from a menu, with a short `PATH`: so the interpreter is named in full."
    if VARIABLE in json.dumps(entry):
        yield f"`{VARIABLE}` stands for the variables that the routed servers refer to."
    if variables:
        yield "This client hands its servers few variables: put those that servers refer to into the entry's `env`."
    yield from (
        "",
        "A server stays if it is disabled, if only the client can start it, if roster.json does not run the same with",
    )
    yield "the same values, or if `--keep NAME` asks for it. `roster sync --dry-run` names each with the reason."


def _more(client: Client) -> Iterator[str]:
    yield from ("", "## In and out", "", "```sh", f"roster init --client {client.id}")
    yield f"roster sync --client {client.id} --dry-run"
    yield from (f"roster sync --client {client.id}", f"roster eject --client {client.id}", "```", "")
    yield "Restart the client after `sync` and after `eject`. By hand, put the entry above into the file yourself"
    yield "and take the routed servers out; to undo that, the other way round. `eject` undoes only what `sync` did."
    if client.skills:
        named = ", ".join(f"`{_plain(path, 'linux')}`" for path in client.skills)
        yield from ("", f"Its skills lie in {named}; five mode drafts them beside the tools.")


def _under(place: Place) -> str:
    return ".".join("[]" if key == LIST else key for key in place.keys).replace(".[]", "[]")


def shown(place: Place, system: str) -> list[str]:
    """A place's paths on a system, as people write them."""
    templates = place.paths.get(system) or place.paths.get("", ())
    return [_plain(path, system) for path in templates]


def _plain(template: str, system: str) -> str:
    path = template.replace("@app", APPS[system]).replace("@xdg", "~/.config").replace("@project/", "")
    return path.replace("/", "\\") if system == "win32" else path


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    made = pages()
    if args.check:
        wrong = [name for name, text in made.items() if not _is(FOLDER / name, text)]
        wrong += [path.name for path in FOLDER.glob("*.md") if path.name not in made]
        for name in wrong:
            print(f"docs/clients/{name} is not what the table says: run eval/docs.py", file=sys.stderr)
        return 1 if wrong else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


if __name__ == "__main__":
    sys.exit(main())

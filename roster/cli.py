"""The `roster` command: parse, call one service, print. Data goes to stdout, chatter to stderr."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from roster.errors import ConfigError, NeedError, NeedSetError, RosterError
from roster.evaluation.command import EvalCommand, eval_command

__all__ = ["app", "main"]

app = typer.Typer(
    name="roster",
    help="One MCP server in front of all your MCP servers: state a need, get the best tools, call one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def main() -> None:
    """Run the command line; our own errors become one line on stderr and exit status 1, or 2 when misused."""
    try:
        app()
    except RosterError as error:
        _fail(error)
    except (OSError, sqlite3.Error) as error:
        # The disk, the home folder or the database, in the system's own words; nothing of ours is in them.
        print(f"roster: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _fail(error: RosterError) -> NoReturn:
    print(f"roster: {error}", file=sys.stderr)
    raise SystemExit(2 if isinstance(error, ConfigError | NeedError | NeedSetError) else 1)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=not _unicode_out(), indent=1))


def _ask(question: str) -> None:
    """Go on only after a yes on a terminal."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is nobody to ask: add --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print("roster: nothing was changed", file=sys.stderr)
        raise typer.Exit(1)


def _unicode_out() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _log_to_stderr(level: int) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=level,
        format="roster: %(levelname)s: %(message)s",
    )
    # The SDK logs what a backend wrote when it cannot read it, and that can hold anything; so do HTTP clients' URLs.
    for name in ("mcp", "client", "httpx2", "httpcore2", "uvicorn", "uvicorn.error", "uvicorn.access", "sse_starlette"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@app.command()
def serve(
    five: Annotated[bool, typer.Option("--five", help="Show the client two tools: draft and call.")] = False,
    transparent: Annotated[bool, typer.Option("--transparent", help="Show the client every tool.")] = False,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve any number of clients over HTTP instead of one here."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")] = False,
) -> None:
    """Serve one MCP client on stdin and stdout, or many over HTTP. The mode is the config's unless named here."""
    if five and transparent:
        raise typer.BadParameter("--five and --transparent exclude each other")
    _log_to_stderr(logging.DEBUG if verbose else logging.WARNING)
    from roster import serve as service

    if http is not None:
        service.serve_http(http, five=five, transparent=transparent)
    else:
        service.serve_stdio(five=five, transparent=transparent)


Clients = Annotated[
    list[str] | None, typer.Option("--client", help="Only this client (claude-code, cursor, …); repeatable.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done and do nothing.")]


@app.command()
def init(
    client: Clients = None,
    project: Annotated[
        Path | None, typer.Option("--project", help="Import this project's servers too; else the directory's.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Import the servers of every MCP client on this machine into roster.json. Their files stay as they are."""
    from roster.clients import commands

    out = _print_json if as_json else None
    status = commands.init(clients=client or [], project=project, dry_run=dry_run, out=out)
    if out is None and not dry_run:
        _short_receipt(project)
    raise typer.Exit(status)


def _short_receipt(project: Path | None) -> None:
    """What the clients' tools cost, after an import; that it cannot be told costs the import nothing."""
    from roster.clients.machine import this_machine
    from roster.config import find_home
    from roster.errors import RosterError
    from roster.receipt.short import short

    with suppress(RosterError):
        print(*short(this_machine(), find_home(), project), sep="\n")


@app.command()
def sync(
    client: Clients = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Leave this server in the clients; repeatable.")
    ] = None,
    project: Annotated[
        Path | None, typer.Option("--project", help="Change this project's own files too, which may be shared.")
    ] = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace the servers that Roster routes by Roster in each client's file. Shows how first; `eject` undoes it."""
    from roster.clients import commands

    out = _print_json if as_json else None
    ask = None if yes else _ask
    raise typer.Exit(
        commands.sync(clients=client or [], keep=keep or [], project=project, dry_run=dry_run, ask=ask, out=out)
    )


@app.command()
def eject(
    client: Clients = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write the bytes from before the first sync, whatever changed since.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give the clients their files back as they were before `sync`. Needs neither roster.json nor a network."""
    from roster.clients import commands

    out = _print_json if as_json else None
    raise typer.Exit(commands.eject(clients=client or [], force=force, dry_run=dry_run, out=out))


@app.command()
def receipt(
    client: Clients = None,
    project: Annotated[
        Path | None, typer.Option("--project", help="Count this project's servers too; else the directory's.")
    ] = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Ask the servers that never were for their tools.")
    ] = False,
    named: Annotated[bool, typer.Option("--named", help="Call servers and tools by name, not by number.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write an SVG picture to this file as well.")] = None,
    as_json: AsJson = False,
) -> None:
    """What each MCP client's context costs, now and with Roster. Changes no file of theirs; shows no name unasked."""
    _log_to_stderr(logging.ERROR)  # what did not answer is said in one line
    from roster.receipt import command

    out = _print_json if as_json else None
    command.receipt(clients=client or [], project=project, connect=connect, named=named, svg=svg, out=out)


@app.command()
def draft(
    need: Annotated[str, typer.Argument(help="What to do next, in plain words.")],
    k: Annotated[int, typer.Option("-k", help="How many cards at most (1 to 10).")] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="Show every stage's numbers for each card.")] = False,
    as_json: AsJson = False,
) -> None:
    """What five mode would answer to a need, from what is on file. Connects to nothing."""
    from roster import commands

    commands.draft(need, k, explain=explain, out=_print_json if as_json else None)


@app.command()
def reindex(
    full: Annotated[bool, typer.Option("--full", help="Embed everything anew.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="Embed for this model instead of the configured one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask every server for its tools, embed what is new or changed, and swap the index in whole."""
    _log_to_stderr(logging.ERROR)  # what failed is part of the figures
    from roster import commands

    commands.reindex(full=full, model=model, out=_print_json if as_json else None)


@app.command()
def status(
    check: Annotated[bool, typer.Option("--check", help="Connect to every server first; 1 if one fails.")] = False,
    watch: Annotated[
        float | None, typer.Option("--watch", help="Show it anew every so many seconds.", min=0.5, max=3600)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Servers, cards, index, encoder, quarantine and config problems, as last known. Connects to nothing unasked."""
    from roster import statuspage

    if not statuspage.status(check=check, watch_s=watch, out=_print_json if as_json else None):
        raise typer.Exit(1)


@app.command()
def drift(
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="A card's id, or a quoted glob.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every event there is, not the newest alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """What changed in the definitions of tools and skills, newest first; with an id how it changed."""
    from roster import driftreport

    driftreport.drift(id_, everything=everything, out=_print_json if as_json else None)


@app.command()
def unquarantine(
    ids: Annotated[list[str] | None, typer.Argument(help="Card ids or quoted globs to let in again.")] = None,
    server: Annotated[str | None, typer.Option("--server", help="All cards of this server.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask about what a person should look at.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let cards whose definition changed into drafts again, after you have looked at them."""
    if not ids and server is None:
        raise typer.BadParameter("which cards is missing: give ids, quoted globs, or --server NAME")
    from roster import quarantine

    quarantine.unquarantine(ids or [], server=server, ask=None if yes else _ask, out=_print_json if as_json else None)


@app.command()
def lint(
    path: Annotated[
        Path | None, typer.Argument(help="A roster.json or a folder with one; this home if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the config and the failure kinds that it and its tools declare. Connects to nothing; 1 on errors."""
    from roster import commands

    if commands.lint(path, out=_print_json if as_json else None):
        raise typer.Exit(1)


@app.command()
def demo(
    as_json: AsJson = False,
    keep: Annotated[Path | None, typer.Option("--keep", help="Work in this folder and leave it there.")] = None,
) -> None:
    """A five-mode session over five small servers that come with Roster: need, draft, call, result."""
    from roster.demo.session import run_demo

    run_demo(keep=keep, out=_print_json if as_json else None)


@app.command()
def ratings(
    server: Annotated[str | None, typer.Option("--server", help="Only the cards of this server.")] = None,
    as_json: AsJson = False,
) -> None:
    """How each card has worked here: calls, success rate and its lower bound, latency, failures by kind."""
    from roster import records

    records.ratings(server=server, out=_print_json if as_json else None)


@app.command()
def scorecard(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The card's id.")], as_json: AsJson = False
) -> None:
    """One card's record by class and failure kind, in all and under each definition it has had."""
    from roster import records

    records.scorecard(id_, out=_print_json if as_json else None)


history = typer.Typer(help="What is recorded of calls, how much of it, and within which limits.")
app.add_typer(history, name="history", invoke_without_command=True)


@history.callback()
def _history(ctx: typer.Context, as_json: AsJson = False) -> None:
    if ctx.invoked_subcommand is None:
        from roster import records

        records.history(out=_print_json if as_json else None)


@history.command("clear")
def clear_history(
    needs: Annotated[bool, typer.Option("--needs", help="Only the vectors of needs; ratings stay.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget what is recorded of calls, for good. Cards and their vectors stay."""
    if not yes:
        _ask(f"Forget {'the vectors of all needs' if needs else 'all outcomes, needs and suggestions'}?")
    from roster import records

    records.clear_history(needs_only=needs, out=_print_json if as_json else None)


token = typer.Typer(help="Bearer tokens for `roster serve --http`, and the servers that each of them sees.")
app.add_typer(token, name="token", invoke_without_command=True)


@token.callback()
def _token(ctx: typer.Context, as_json: AsJson = False) -> None:
    if ctx.invoked_subcommand is None:
        list_tokens(as_json=as_json)


@token.command("add")
def add_token(
    name: Annotated[str, typer.Argument(help="What to call it: a person, a program, a machine.")],
    servers: Annotated[
        str | None, typer.Option("--servers", metavar="A,B", help="The only servers it sees; all if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and show it, this once."""
    from roster import token_commands

    token_commands.add(name, servers, out=_print_json if as_json else None)


@token.command("list")
def list_tokens(as_json: AsJson = False) -> None:
    """The tokens by name, and what each of them sees."""
    from roster import token_commands

    token_commands.show(out=_print_json if as_json else None)


@token.command("remove")
def remove_token(name: Annotated[str, typer.Argument(help="Its name.")], as_json: AsJson = False) -> None:
    """Forget a token: whoever uses it is refused from the next request on."""
    from roster import token_commands

    token_commands.remove(name, out=_print_json if as_json else None)


app.command("eval", cls=EvalCommand)(eval_command)


def _version(value: bool) -> None:
    if value:
        from roster import __version__

        print(f"roster {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # One thread unless asked otherwise: set before numpy is imported anywhere, and only where unset.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

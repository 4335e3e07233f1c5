"""What commands in a skill, or in a tool's text, would do to the machine that runs them. Pure, by patterns alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from roster.review.findings import Rule, Severity

__all__ = ["commands_in"]

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_SH = r"(?:(?:sudo (?:-\w+ )?)?(?:/bin/|/usr/bin/env )?(?:ba|z|da|k|fi)?sh\b|(?:sudo )?(?:python3?|perl|ruby|node)\b)"
_GETS = r"\b(?:curl|wget)\b[^\n|;&]{0,300}"
_IEX = r"(?:iex|invoke-expression)\b"
_PIPE = _any(
    rf"{_GETS}\|\s*{_SH}",
    rf"\b(?:ba)?sh\b[^\n]{{0,20}}(?:<\(|\$\()\s*{_GETS}",
    rf"\b{_IEX}[^\n]{{0,80}}(?:downloadstring|iwr|invoke-webrequest|irm)",
    rf"(?:downloadstring|\biwr\b|\birm\b|invoke-webrequest)[^\n|]{{0,200}}\|\s*{_IEX}",
    # Saved, perhaps made executable, and run by the name it was saved under.
    rf"{_GETS}(?:-o|>)\s?(\S{{1,80}})[^\n]{{0,40}}(?:&&|;)\s*(?:chmod [^\n]{{0,80}}(?:&&|;)\s*)?(?:{_SH})? ?\1",
)
_FETCH_RUN = _any(
    r"\b(?:download|fetch|get|grab)\b[^\n.]{0,40}https?://\S{1,200}[^\n]{0,40}\b(?:and|then)\b[^\n]{0,20}"
    r"\b(?:run|execute|start|launch)\b"
)
_PLAIN_HTTP = _any(r"http://(?!localhost|127\.|0\.0\.0\.0)", r"https?://\d{1,3}(?:\.\d{1,3}){3}", "downloadstring")
_RUN = r"(?:\b(?:exec|eval|system|popen|Function|__import__|child_process)\b[^\n;]{0,8}\()"
_DECODES = (
    r"(?:b64decode|a2b_base64|b32decode|b85decode|atob|fromhex|unhexlify|decompress|marshal\.loads|fromcharcode"
    r"|'base64'|\"base64\"|rot.?13|frombase64string|unescape)"
)
_UNBASE64 = r"\bbase64 (?:-d|-D|--decode)\b"
_DECODED = _any(
    rf"{_RUN}[^\n;]{{0,160}}{_DECODES}",
    rf"{_UNBASE64}[^\n|]{{0,60}}\|\s*{_SH}",
    rf"\beval\b[^\n]{{0,10}}\$\([^\n]{{0,400}}{_UNBASE64}",
    r"\bpowershell(?:\.exe)?\b[^\n]{0,80}\s-(?:e|ec|enc|encodedcommand)\s+[A-Za-z0-9+/=]{20}",
    r"\b(?:exec|eval)\s*\(\s*(?:''|\"\")?\.?join\s*\([^\n]{0,40}chr\b",
    rf"\bxxd -r\b[^\n|]{{0,60}}\|\s*{_SH}",
)
_SHELLS = _any(
    r"/dev/(?:tcp|udp)/[\w.$\{\}-]{1,80}/[\d$]",
    r"\b(?:nc|ncat|netcat)\b[^\n]{0,60}\s-\w{0,4}[ec]\s?\S{0,40}(?:sh|cmd)",
    r"\bbash -i\s*(?:>&|&>)",
    r"\bmkfifo\b[^\n]{0,120}\bnc\b",
    r"\bos\.dup2\s*\([^\n]{0,60}\bfileno\b",
    r"\bsocat\b[^\n]{0,120}\bexec:[^\n]{0,20}sh",
    r"\bpty\.spawn\s*\([^\n]{0,30}sh\b",
)
_STEP = r"[/\\'\", ]{1,4}"  # between the parts of a path, also where code joins them
_STORES = _any(
    r"\.ssh\b",
    rf"\.aws{_STEP}credentials",
    r"\.gnupg\b",
    r"\.netrc\b|\.npmrc\b|\.pypirc\b|\.git-credentials",
    rf"\.kube{_STEP}config|\.docker{_STEP}config\.json|\.config{_STEP}gcloud",
    r"Login Data|cookies\.sqlite|[/\\]Cookies\b|logins\.json|Keychains?[/\\]",
    r"wallet\.dat|id_rsa|id_ed25519",
    r"\bsecurity (?:find-generic-password|dump-keychain|find-internet-password)",
    r"(?:json\.dumps|str|dict)\(\s*(?:dict\()?os\.environ|json\.stringify\(process\.env\)|\b(?:env|printenv)\b\s*\|",
)
_CLIENT = _any(r"\.(?:npmrc|pypirc|netrc|kube|docker)")
_OUT = _any(
    r"\b(?:requests|httpx)\.(?:post|put)",
    r"\burlopen\s*\(|\burllib\.request",
    r"\bfetch\s*\(|\baxios(?:\.post)?\s*\(|\bhttps?\.request\s*\(",
    r"\bcurl\b[^\n]{0,200}(?:\s-(?:d|F|T)\b|--data|--upload|-X ?(?:POST|PUT)|\$\(|\$\{?\w)",
    r"\bwget\b[^\n]{0,120}--post",
    r"\b(?:nc|ncat)\b\s+\S{1,100}\s+\d",
    r"\bscp\b[^\n]{0,120}\w@",
    r"\bInvoke-(?:WebRequest|RestMethod)\b",
    r"\bsmtplib\b|\bsocket\.(?:socket|create_connection|gethostbyname)",
    r"\bnslookup\b|\bdig\b \S{0,80}\$",
)
_HOME = r"(?:~|\$HOME|\$\{HOME\})?/?"
_STARTUP = rf"{_HOME}\.(?:bashrc|zshrc|bash_profile|profile|zprofile|zshenv|config/fish/config\.fish)"
_RUNS = r"(?:curl|wget|nc|base64|eval|python|bash -|source|nohup|/tmp/|sh -c|\. )"
_PERSISTS = _any(
    rf"{_RUNS}[^\n]{{0,200}}>>?\s*[\"']?{_STARTUP}",
    rf">>\s*[\"']?{_HOME}\.ssh/authorized_keys",
    rf"\b(?:add|append|write|put|insert)\b[^\n]{{0,40}}[`\"']{_RUNS}[^\n]{{0,80}}[`\"'][^\n]{{0,40}}{_STARTUP}",
    r"\b(?:crontab|cron\.d)\b[^\n]{0,10}",
    r"(?:LaunchAgents|LaunchDaemons)/\S{1,120}\.plist",
    r"\bschtasks\b[^\n]{0,40}/create",
    r"CurrentVersion\\+Run\b",
)
_SCHEDULE = _any("crontab", r"cron\.d", "launch", "schtasks", "currentversion")
_SETS_CRON = _any(r"\|\s*crontab\s+-", r">>?\s*/etc/cron", r"crontab\s+\S+\.(?:txt|cron)")
_TRUST = _any(
    r"(?:CLAUDE\.md|AGENTS\.md|\.cursorrules|\.claude/settings(?:\.local)?\.json|settings\.json)[^\n]{0,160}"
    r"\b(?:allow|allows|accept|approve|turned off|disabled?|bypass|skip|trust|unrestricted|without asking)"
)


def commands_in(text: str, *, code: bool) -> Iterator[tuple[Rule, Severity, int, int]]:
    """(rule, severity, start, end) of commands that would harm; at most one of each rule.

    code: the text is a script; otherwise prose, in which a path that is only mentioned counts for nothing.
    """
    if match := _PIPE.search(text) or (None if code else _FETCH_RUN.search(text)):
        worse = _PLAIN_HTTP.search(match.group()) is not None
        yield Rule.PIPES_TO_SHELL, HIGH if worse else MEDIUM, *match.span()
    if match := _DECODED.search(text):
        yield Rule.RUNS_DECODED, HIGH, *match.span()
    if match := _SHELLS.search(text):
        yield Rule.REVERSE_SHELL, HIGH, *match.span()
    yield from _credentials(text, code)
    yield from _persistence(text)


def _credentials(text: str, code: bool) -> Iterator[tuple[Rule, Severity, int, int]]:
    """A store of credentials and something that sends: in one script, or, in prose, on one line."""
    for piece in re.finditer(r"[^\n]+", text) if not code else re.finditer(r"(?s).+", text):
        stores = list(_STORES.finditer(piece.group()))
        if stores and _OUT.search(piece.group()):
            # A publishing tool has business with .pypirc; nothing has any with a private key.
            worst = next((store for store in stores if not _CLIENT.search(store.group())), None)
            start, end = (worst or stores[0]).span()
            severity = HIGH if worst else MEDIUM
            yield Rule.TAKES_CREDENTIALS, severity, piece.start() + start, piece.start() + end
            return


def _persistence(text: str) -> Iterator[tuple[Rule, Severity, int, int]]:
    best: tuple[Severity, int, int] | None = None
    for match in _PERSISTS.finditer(text):
        found = match.group()
        if _SCHEDULE.search(found):
            line = text[text.rfind("\n", 0, match.start()) + 1 : match.end() + 300].split("\n")[0]
            severity = (
                MEDIUM if re.search(r"curl|wget|/dev/tcp|base64|\bnc\b", line) and _SETS_CRON.search(line) else LOW
            )
        else:
            severity = (
                HIGH if "authorized_keys" in found or re.search(r"curl|wget|\bnc\b|base64|eval", found) else MEDIUM
            )
        if best is None or severity.rank < best[0].rank:
            best = (severity, *match.span())
    if trust := _TRUST.search(text):
        line = text[text.rfind("\n", 0, trust.start()) + 1 : trust.end()]
        if re.search(r"\b(?:add|append|write|put|insert|set|change|edit)\b", line, re.IGNORECASE) and (
            best is None or best[0] is LOW
        ):
            best = (MEDIUM, *trust.span())
    if best is not None:
        yield Rule.PERSISTS, *best

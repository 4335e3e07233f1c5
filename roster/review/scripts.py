"""What commands in a skill, or in a tool's text, would do to the machine that runs them. Pure, by patterns alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from roster.review.findings import Rule, Severity

__all__ = ["commands_in"]

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW

_SH = r"(?:sudo (?:-\w+ )?)?(?:/bin/|/usr/bin/env )?(?:ba|z|da|k|fi)?sh\b|(?:sudo )?(?:python3?|perl|ruby|node)\b"
_GETS = r"\b(?:curl|wget)\b[^\n|;&]{0,300}"
_PIPE = re.compile(rf"{_GETS}\|\s*(?:{_SH})|\b(?:ba)?sh\b[^\n]{{0,20}}(?:<\(|\$\()\s*{_GETS}"
                   r"|\b(?:iex|invoke-expression)\b[^\n]{0,80}(?:downloadstring|iwr|invoke-webrequest|irm)"
                   r"|(?:downloadstring|\biwr\b|\birm\b|invoke-webrequest)[^\n|]{0,200}\|\s*(?:iex|invoke-expression)\b"
                   rf"|{_GETS}(?:-o|-O|>)\s?(\S{{1,80}})[^\n]{{0,40}}(?:&&|;)\s*(?:chmod [^\n]{{0,80}}(?:&&|;)\s*)?(?:{_SH})? ?\1",
                   re.IGNORECASE)  # fmt: skip
_FETCH_RUN = re.compile(
    r"\b(?:download|fetch|get|grab)\b[^\n.]{0,40}https?://\S{1,200}[^\n]{0,40}\b(?:and|then)\b[^\n]{0,20}\b(?:run|execute|start|launch)\b",
    re.IGNORECASE,
)
_PLAIN_HTTP = re.compile(
    r"http://(?!localhost|127\.|0\.0\.0\.0)|https?://\d{1,3}(?:\.\d{1,3}){3}|downloadstring", re.IGNORECASE
)
_DECODES = r"(?:b64decode|a2b_base64|b32decode|b85decode|atob|fromhex|unhexlify|decompress|marshal\.loads|fromcharcode|'base64'|\"base64\"|rot.?13|frombase64string|unescape)"
_DECODED = re.compile(
    rf"(?:\b(?:exec|eval|system|popen|Function|__import__|child_process)\b[^\n;]{{0,8}}\()[^\n;]{{0,160}}{_DECODES}"
    r"|\bbase64 (?:-d|-D|--decode)\b[^\n|]{0,60}\|\s*(?:" + _SH + r")"
    r"|\beval\b[^\n]{0,10}\$\([^\n]{0,2000}\bbase64 (?:-d|-D|--decode)"
    r"|\bpowershell(?:\.exe)?\b[^\n]{0,80}\s-(?:e|ec|enc|encodedcommand)\s+[A-Za-z0-9+/=]{20}"
    r"|\b(?:exec|eval)\s*\(\s*(?:''|\"\")?\.?join\s*\([^\n]{0,40}chr\b"
    r"|\bxxd -r\b[^\n|]{0,60}\|\s*(?:" + _SH + r")",
    re.IGNORECASE,
)
_SHELLS = re.compile(
    r"/dev/(?:tcp|udp)/[\w.$\{\}-]+/[\d$]|\b(?:nc|ncat|netcat)\b[^\n]{0,60}\s-\w*[ec]\s?\S*(?:sh|cmd)|\bbash -i\s*(?:>&|&>)"
    r"|\bmkfifo\b[^\n]{0,120}\bnc\b|\bos\.dup2\s*\([^\n]{0,60}\bfileno\b|\bsocat\b[^\n]{0,120}\bexec:[^\n]{0,20}sh"
    r"|\bpty\.spawn\s*\([^\n]{0,30}sh\b",
    re.IGNORECASE,
)
_STORES = re.compile(
    r"(?:~|\$HOME|\$\{HOME\}|%USERPROFILE%|home\(\)|homedir\(\))?[/\\'\", ()+]{0,6}"
    r"(?:\.ssh\b|\.aws[/\\'\", ]{1,4}credentials|\.gnupg\b|\.netrc\b|\.kube[/\\'\", ]{1,4}config|\.docker[/\\'\", ]{1,4}config\.json|\.git-credentials"
    r"|\.config[/\\]gcloud|\.npmrc\b|\.pypirc\b|Login Data|cookies\.sqlite|[/\\]Cookies\b|Keychains?\b[/\\]|wallet\.dat|id_rsa|id_ed25519|logins\.json)"
    r"|\bsecurity (?:find-generic-password|dump-keychain|find-internet-password)"
    r"|(?:json\.dumps|str|dict)\(\s*(?:dict\()?os\.environ|json\.stringify\(process\.env\)|\b(?:env|printenv)\b\s*\|",
    re.IGNORECASE,
)
_CLIENT = re.compile(r"\.(?:npmrc|pypirc|netrc|kube|docker)", re.IGNORECASE)
_OUT = re.compile(
    r"\brequests\.(?:post|put)|\bhttpx\.(?:post|put)|\burlopen\s*\(|\burllib\.request|\bfetch\s*\(|\baxios(?:\.post)?\s*\(|\bhttps?\.request\s*\("
    r"|\bcurl\b[^\n]{0,200}(?:\s-(?:d|F|T)\b|--data|--upload|-X ?(?:POST|PUT)|\$\(|\$\{?\w)|\bwget\b[^\n]{0,120}--post|\b(?:nc|ncat)\b\s+\S+\s+\d"
    r"|\bscp\b[^\n]{0,120}\w@|\bInvoke-(?:WebRequest|RestMethod)\b|\bsmtplib\b|\bsocket\.(?:socket|create_connection|gethostbyname)|\bnslookup\b|\bdig\b \S*\$",
    re.IGNORECASE,
)
_STARTUP = r"(?:~|\$HOME|\$\{HOME\})?/?\.(?:bashrc|zshrc|bash_profile|profile|zprofile|zshenv|config/fish/config\.fish)"
_RUNS = r"(?:curl|wget|nc|base64|eval|python|bash -|source|nohup|/tmp/|sh -c|\. )"
_PERSISTS = re.compile(
    rf"{_RUNS}[^\n]{{0,200}}>>?\s*[\"']?{_STARTUP}|>>\s*[\"']?(?:~|\$HOME|\$\{{HOME\}})?/?\.ssh/authorized_keys"
    rf"|\b(?:add|append|write|put|insert)\b[^\n]{{0,40}}[`\"']{_RUNS}[^\n]{{0,80}}[`\"'][^\n]{{0,40}}{_STARTUP}"
    r"|\b(?:crontab|cron\.d)\b[^\n]{0,10}|(?:LaunchAgents|LaunchDaemons)/\S+\.plist|\bschtasks\b[^\n]{0,40}/create"
    r"|CurrentVersion\\+Run\b",
    re.IGNORECASE,
)
_SCHEDULE = re.compile(r"crontab|cron\.d|launch|schtasks", re.IGNORECASE)
_SETS_CRON = re.compile(r"\|\s*crontab\s+-|>>?\s*/etc/cron|crontab\s+\S+\.(?:txt|cron)", re.IGNORECASE)
_TRUST = re.compile(
    r"(?:CLAUDE\.md|AGENTS\.md|\.cursorrules|\.claude/settings(?:\.local)?\.json|settings\.json)[^\n]{0,160}"
    r"\b(?:allow|allows|accept|approve|turned off|disabled?|bypass|skip|trust|unrestricted|without asking)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)


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

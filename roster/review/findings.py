"""What a review says: a finding, how serious it is, and what each rule means to the person who decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MESSAGES", "Finding", "Rule", "Severity"]


class Severity(StrEnum):
    """high: keep it out of drafts until a person looked. medium: show it. low: worth a line in a full report."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 for the most serious."""
        return list(Severity).index(self)


class Rule(StrEnum):
    """What was found."""

    OVERRIDES = "overrides-instructions"
    CONCEALS = "conceals-from-user"
    SKIPS_APPROVAL = "skips-approval"
    DEMANDS_SECRETS = "demands-secrets"
    SENDS_OUT = "sends-out"
    WANTS_CONTEXT = "wants-context"
    IMAGE_LEAK = "image-leak"
    OTHER_TOOLS = "orders-about-other-tools"
    RUNS_FIRST = "runs-first"
    OBEYS_OUTPUT = "obeys-output"
    STANDING_ORDER = "standing-order"
    PREFERS_ITSELF = "prefers-itself"
    ENCODED = "encoded-orders"
    FAKE_MARKUP = "fake-markup"
    TAGS = "tag-characters"
    SELECTORS = "variation-selectors"
    BIDI = "bidi-controls"
    ZERO_WIDTH = "zero-width"
    CONTROLS = "control-characters"
    MIXED_SCRIPT = "mixed-script"
    PADDING = "padding"
    PARTLY_READ = "partly-read"
    PIPES_TO_SHELL = "pipes-to-shell"
    RUNS_DECODED = "runs-decoded"
    REVERSE_SHELL = "reverse-shell"
    TAKES_CREDENTIALS = "takes-credentials"
    PERSISTS = "persists"
    LOOKALIKE_NAME = "look-alike-name"
    LOOKALIKE_SERVER = "look-alike-server"


MESSAGES = {
    Rule.OVERRIDES: "It tells the model to drop the instructions it was given.",
    Rule.CONCEALS: "It asks for something to be kept from the user.",
    Rule.SKIPS_APPROVAL: "It asks for actions without the user's approval, or for protections to be switched off.",
    Rule.DEMANDS_SECRETS: "It asks the model to fetch secrets and hand them over.",
    Rule.SENDS_OUT: "It asks for the conversation or the user's data to be sent somewhere.",
    Rule.WANTS_CONTEXT: "It takes the conversation or the system prompt as an argument.",
    Rule.IMAGE_LEAK: "It asks for an image whose address carries data: showing it sends the data.",
    Rule.OTHER_TOOLS: "It gives orders about the tools of another server.",
    Rule.RUNS_FIRST: "It wants to be called before everything else, or whatever the user asked for.",
    Rule.OBEYS_OUTPUT: "It asks the model to follow orders that come out of a tool.",
    Rule.STANDING_ORDER: "It lays down what the model's later answers must contain.",
    Rule.PREFERS_ITSELF: "It asks to be chosen over other tools, whatever the task.",
    Rule.ENCODED: "It carries an encoded text that is, or is to be used as, an order.",
    Rule.FAKE_MARKUP: "It imitates the markup of system messages.",
    Rule.TAGS: "It holds invisible tag characters, which models can read and people cannot see.",
    Rule.SELECTORS: "It holds a run of invisible variation selectors, which can carry any data.",
    Rule.BIDI: "It holds direction controls, so that it reads otherwise than it is.",
    Rule.ZERO_WIDTH: "It holds characters without width inside words, which break them up unseen.",
    Rule.CONTROLS: "It holds control characters, which can hide or rewrite text on a terminal.",
    Rule.MIXED_SCRIPT: "A word mixes Latin letters with look-alikes from another script.",
    Rule.PADDING: "A long empty stretch pushes what follows out of sight.",
    Rule.PARTLY_READ: "It is too long to be read whole: the middle was not reviewed.",
    Rule.PIPES_TO_SHELL: "It runs a script straight from the network.",
    Rule.RUNS_DECODED: "It runs code that is kept unreadable until then.",
    Rule.REVERSE_SHELL: "It opens a shell on this machine to somebody elsewhere.",
    Rule.TAKES_CREDENTIALS: "It reads stored credentials and talks to the network.",
    Rule.PERSISTS: "It changes what runs at sign-in, on a schedule, or in later sessions.",
    Rule.LOOKALIKE_NAME: "Its name looks like that of another server's tool.",
    Rule.LOOKALIKE_SERVER: "Its server's name looks like that of another server with the same tools.",
}
"""One sentence a rule, for a person to judge by."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. where: the field, such as `inputSchema.properties.city.description` or `files/setup.sh`.

    shown: a bounded excerpt with everything hidden made visible, for display only.
    """

    rule: Rule
    severity: Severity
    where: str
    message: str
    shown: str

"""The review of tool and skill texts, offline: what in them is hidden, harmful, or an order to the model."""

from roster.review.cards import Known, known, review
from roster.review.findings import MESSAGES, Finding, Rule, Severity
from roster.review.names import shadowing

__all__ = ["MESSAGES", "Finding", "Known", "Rule", "Severity", "known", "review", "shadowing"]

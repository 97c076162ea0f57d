"""A trace as HTML for notebooks: its input and output, its stacks, and every answer with its probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.inside.named import MOST_ROWS, html_table

if TYPE_CHECKING:
    from regard.inside.trace import Trace


def as_html(trace: Trace) -> str:
    """Two tables. Answers are numbered from 0, as in Python; of many, the last ones are shown, as in pictures."""
    subject, p_AW = trace.subject, trace.p_AW
    stacks = "; ".join(map(str, trace.stacks))
    facts = [["input", subject.input_text], ["output", trace.output_text], ["stacks", stacks]]
    facts.append(["difference", f"{trace.difference:.1e}"])
    answers = list(enumerate(subject.answers))[-MOST_ROWS:]
    rows = [[number, each.label, f"{float(p_AW[number, each.token]):.3g}"] for number, each in answers]
    count = len(subject.answers)
    caption = "Answers" if len(rows) == count else f"Answers, the last {len(rows)} of {count:,}"
    head = ["number", "answer", "probability"]
    return html_table("Trace", [], facts, named_rows=True) + html_table(caption, head, rows)

"""Sources that are too long for a model: remembered while it works, and told in one warning for each kind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from regard import console

NAMED = 5  # lines
ADVICE = "--split-sentences translates each sentence of a line by itself."


@dataclass
class LongSources:
    """Lengths are in tokens, <end> among them."""

    positions: int  # the most that the model can read; what comes after is dropped
    trained: int  # the longest sentence of its training
    what: str = "line"  # what is translated as a whole
    advice: str = ADVICE
    limit: str = "positions of the model"
    done: str = "translated"
    kept: str = "beginning"  # the part that is read of what is too long
    cut: list[str] = field(default_factory=list)  # the first few
    long: list[str] = field(default_factory=list)
    cut_count: int = 0
    long_count: int = 0

    def notice(self, line: int, tokens: int) -> None:
        """A sentence of this line, counted from 1, has so many tokens."""
        if tokens > self.positions:
            self.cut_count += 1
            if len(self.cut) < NAMED:
                self.cut.append(f"line {line:,} ({tokens - self.positions:,} tokens dropped)")
        elif tokens > self.trained:
            self.long_count += 1
            if len(self.long) < NAMED:
                self.long.append(f"line {line:,} ({tokens:,} tokens)")

    def take(self) -> dict[str, Any]:
        """All of it as JSON; nothing is remembered from here on."""
        taken = asdict(self)
        self.cut, self.long, self.cut_count, self.long_count = [], [], 0, 0
        return taken

    def add(self, taken: dict[str, Any]) -> LongSources:
        """With what comes after it in the same input."""
        more = LongSources(**taken)
        return replace(
            self,
            cut=[*self.cut, *more.cut][:NAMED],
            long=[*self.long, *more.long][:NAMED],
            cut_count=self.cut_count + more.cut_count,
            long_count=self.long_count + more.long_count,
        )

    def warn(self) -> None:
        if self.cut_count:
            console.warn(
                f"{_count(self.cut_count, self.what)} longer than the {self.positions:,} {self.limit}, and "
                f"only the {self.kept} was {self.done}: {_named(self.cut, self.cut_count)}. {self.advice}".rstrip()
            )
        if self.long_count:
            console.warn(
                f"{_count(self.long_count, self.what)} longer than any sentence that the model was trained on "
                f"({self.trained:,} tokens), and may be {self.done} badly: {_named(self.long, self.long_count)}. "
                f"{self.advice}".rstrip()
            )


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s are' if count > 1 else ' is'}"


def _named(first: list[str], count: int) -> str:
    return ", ".join(first) + (" …" if count > len(first) else "")

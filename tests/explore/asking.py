"""Questions as the page asks them."""

from typing import Any

from regard.explore.questions import answer
from regard.explore.session import Session


def ask(task: Any, question: str, first: dict[str, Any], /, **options: Any) -> Any:
    session = Session([task], first)
    try:
        return answer(session, 0, session.first, question, options)
    finally:
        session.close()

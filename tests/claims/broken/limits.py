from __future__ import annotations

from broken.ways import put

OUTCOMES = {"longer-than-trained": "depends", "fixed-depth": "depends"}
BROKEN = {
    "longer-than-trained": put("RECURRENT", "attention"),
    "feedback": put("FEEDBACK", "none"),
    "fixed-depth": put("RECURRENT", "attention"),
}

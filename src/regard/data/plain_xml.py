"""Plain XML: elements and text, and nothing that a document could define.

A doctype can define entities, which stand for text, for each other a billion times over, or for files of this machine.
Data needs none of that: a document that has one is refused at its first sign, before anything is expanded.
"""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

LARGEST = 16 * 2**20  # bytes
DEEPEST = 64  # elements within elements


class BadXml(Exception):
    """A document that cannot be used, and why, in a short sentence."""


def parse_xml(content: bytes) -> Element:
    """The root of a document."""
    if len(content) > LARGEST:
        raise BadXml(f"It is larger than {LARGEST // 2**20} MB.")
    parser, tree = expat.ParserCreate(), _Tree()
    parser.StartElementHandler, parser.EndElementHandler = tree.start, tree.end
    parser.CharacterDataHandler = tree.builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
    parser.UnparsedEntityDeclHandler = parser.ExternalEntityRefHandler = _refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise BadXml(f"It is not valid XML: {error}.") from None
    return tree.builder.close()


class _Tree:
    def __init__(self) -> None:
        self.builder, self.depth = TreeBuilder(), 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadXml(f"Its elements lie more than {DEEPEST} deep.")
        self.builder.start(name, attributes)

    def end(self, name: str) -> None:
        self.depth -= 1
        self.builder.end(name)


def _refuse(*declared: Any) -> int:
    raise BadXml("It has a doctype or entities, which are not read.")

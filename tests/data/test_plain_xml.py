"""XML from anyone: elements and text are read, definitions are refused."""

from __future__ import annotations

import pytest

from regard.data.plain_xml import DEEPEST, BadXml, parse_xml

LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [
 <!ENTITY lol "lol">
%s
]>
<annotation><filename>&lol9;</filename></annotation>""" % b"\n".join(
    b' <!ENTITY lol%d "%s">' % (n, b"&lol%s;" % (str(n - 1).encode() if n > 1 else b"") * 10) for n in range(1, 10)
)


def test_elements_and_text_are_read():
    root = parse_xml("<a><b x='1'>grün &lt; 3</b><b/></a>".encode())
    assert [(child.tag, child.text, child.get("x")) for child in root] == [("b", "grün < 3", "1"), ("b", None, None)]


@pytest.mark.parametrize(
    "content",
    [
        LAUGHS,
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        b'<!DOCTYPE a SYSTEM "http://example.org/a.dtd"><a/>',
        b"<!DOCTYPE a><a/>",
    ],
)
def test_a_doctype_is_refused_before_anything_is_expanded(content):
    with pytest.raises(BadXml, match="doctype or entities"):
        parse_xml(content)


@pytest.mark.parametrize("content", [b"", b"<a>", b"<a></b>", b"\x00\x01", b"<a>&x;</a>"])
def test_what_is_not_xml_is_refused(content):
    with pytest.raises(BadXml, match="not valid XML"):
        parse_xml(content)


def test_elements_may_not_lie_too_deep():
    parse_xml(b"<a>" * DEEPEST + b"</a>" * DEEPEST)
    with pytest.raises(BadXml, match="deep"):
        parse_xml(b"<a>" * (DEEPEST + 1) + b"</a>" * (DEEPEST + 1))

import random
import time

import pytest

from service.text.markup_tokens import Kind, MarkupError, html_tokens, shown_raw, xml_tokens
from tests.service.text.markup_documents import Maker


def written(tokens):
    return "".join(map(shown_raw, tokens))


def test_html_that_is_well_formed_comes_back_byte_for_byte():
    for seed in range(100):
        document = Maker(seed).document()
        tokens = html_tokens(document)
        assert written(tokens) == document, seed
        assert all(document[token.start : token.end] == token.raw for token in tokens), seed


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" "x.dtd">\r\n<P CLASS = a\r\n id=\'b\'>x<BR/>\ry</P >',
        "<p>&eacute;&#233;&#xE9;&bogus; &amp &copy;🙂</p>",
        "<!-- a -- > b --><![CDATA[x]]><?php echo '>' ?>",
        '<script>if (a < b && c) "</p>"; <!-- </script><style>a > b {}</style><textarea><b></textarea>',
        "<title>a &lt; b</title>",
        "3 > 2 & 1",
    ],
)
def test_odd_html_comes_back_byte_for_byte(document):
    assert written(html_tokens(document)).replace("&lt;b>", "<b>") == document


@pytest.mark.parametrize(
    ("document", "repaired"),
    [
        ("<p>The cat <b>sleeps <p>The dog eats", "<p>The cat <b>sleeps </b></p><p>The dog eats</p>"),
        ("<b><i>x</b></i>", "<b><i>x</i></b>"),
        ("<b><p>x</b></p>", "<b><p>x</p></b>"),
        ("<ul><li>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>"),
        ("<dl><dt>a<dd>b<dt>c</dl>", "<dl><dt>a</dt><dd>b</dd><dt>c</dt></dl>"),
        (
            "<table><tr><td>a<td>b<tr><td><table><tr><td>c</table></table>",
            "<table><tr><td>a</td><td>b</td></tr><tr><td><table><tr><td>c</td></tr></table></td></tr></table>",
        ),
        ("<select><option>a<option>b</select>", "<select><option>a</option><option>b</option></select>"),
        ("<p>a<div>b</div>c</p>", "<p>a</p><div>b</div>c"),
        ("<div>a</span></p>b</div>", "<div>ab</div>"),
        ("<div><table><tr><td></div>x", "<div><table><tr><td>x</td></tr></table></div>"),
        ("a < b <1> <a", "a &lt; b &lt;1> &lt;a"),
        ('x <a href="y', 'x &lt;a href="y'),
        ("x<!-- y", "x<!-- y-->"),
        ("<p>word</p", "<p>word</p>"),
        ("<div><b>word</B ", "<div><b>word</B ></div>"),
        ("<p>word</", "<p>word&lt;/</p>"),
        ("<p>word</i", "<p>word</p>"),
        ("<!--", "<!---->"),
        ("a</>b", "ab"),
        ("</p>", ""),
        ("<i class=icon/>x", "<i class=icon/>x</i>"),
        ("<i/>x", "<i/>x"),
    ],
)
def test_what_is_wrong_is_put_right_with_as_little_as_possible(document, repaired):
    assert written(html_tokens(document)) == repaired
    assert written(html_tokens(repaired)) == repaired


@pytest.mark.parametrize("tag", ["div", "b", "p", "td", "li"])
def test_deep_documents_take_linear_time(tag):
    document = f"<{tag}>" * 40_000 + "x"
    begin = time.process_time()
    tokens = html_tokens(document)
    assert time.process_time() - begin < 20  # each looking at all that are open: minutes
    assert (
        sum(token.kind is Kind.OPEN for token in tokens) == sum(token.kind is Kind.CLOSE for token in tokens) == 40_000
    )


def test_any_soup_of_tags_becomes_nested_and_loses_no_text():
    bits = "<p> </p> <b> </b> <i> </i> <li> </li> <td> </td> <table> </table> <br/> <div> </div>".split()
    bits += ["word", "&amp;", "<", ">", "🙂", "\r\n"]
    drawn = random.Random(5)
    for _ in range(2_000):
        document = "".join(drawn.choice([*bits, " one ", " two "]) for _ in range(drawn.randint(0, 20)))
        tokens = html_tokens(document)
        stack = []
        for token in tokens:
            if token.kind is Kind.OPEN:
                stack.append(token.name)
            elif token.kind is Kind.CLOSE:
                assert stack.pop() == token.name, document
        assert stack == [], document
        for word in ("one", "two", "word", "🙂"):
            assert written(tokens).count(word) >= document.count(word)


@pytest.mark.parametrize(
    "bit",
    ["<", "<a ", "&", "<!--", "<b>", "</b>", "<p>", "<td><table>", "<![CDATA[", "<script>", "<li>x", "\r", '<a b="'],
)
def test_the_time_is_linear_for_the_worst_of_documents(bit):
    started = time.process_time()
    html_tokens(bit * (40_000 // len(bit)))
    assert time.process_time() - started < 30


@pytest.mark.parametrize(
    "document",
    [
        "plain &amp; simple",
        'Press <x k="1">Continue</x> to 🙂 <y/>.',
        '<?xml version="1.0" encoding="iso-8859-1"?>\n<!DOCTYPE a [<!ENTITY x "y<b/>">]>\n'
        '<a xmlns:n="u">é&amp;<n:b/>&x;</a>\n',
        "<a><![CDATA[<b> & ]]><!-- c --><?pi x?>\r\n</a>",
        '<!DOCTYPE a SYSTEM "http://127.0.0.1/x.dtd"><a>&foo;&nbsp;</a>',
        "<a></a><a />",
        "",
    ],
)
def test_xml_comes_back_byte_for_byte(document):
    tokens = xml_tokens(document)
    assert written(tokens) == document
    assert all(document[token.start : token.end] == token.raw for token in tokens)


def test_tokens_of_xml_say_what_they_stand_for():
    tokens = xml_tokens("<a><b/>x&lt;&nbsp;&foo;<![CDATA[<c>]]></a>")
    assert [(token.kind, token.text) for token in tokens] == [
        (Kind.OPEN, ""),
        (Kind.VOID, ""),
        (Kind.TEXT, "x"),
        (Kind.REFERENCE, "<"),
        (Kind.REFERENCE, "\xa0"),
        (Kind.REFERENCE, "\ufffc"),
        (Kind.CDATA, "<c>"),
        (Kind.CLOSE, ""),
    ]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("a < b", "not well-formed (invalid token), in line 1, column 4"),
        ("<a>", "mismatched tag, in line 1"),
        ("<a>\n</b>", "mismatched tag, in line 2, column 3"),
        ("a & b", "not well-formed"),
        ("<a b=c/>", "not well-formed"),
        ("\x01", "not well-formed"),
        ("<a><![CDATA[x</a>", "unclosed CDATA section"),
        ("</gossamer><gossamer>", "junk after document element"),
    ],
)
def test_xml_that_is_not_well_formed_is_an_error_with_its_place(document, reason):
    with pytest.raises(MarkupError) as caught:
        xml_tokens(document)
    assert reason in str(caught.value)


def test_entities_are_not_replaced():
    bomb = (
        '<!DOCTYPE a [<!ENTITY a "' + "x" * 1000 + '"><!ENTITY b "' + "&a;" * 1000 + '">]><a>' + "&b;" * 1000 + "</a>"
    )
    tokens = xml_tokens(bomb)
    assert written(tokens) == bomb
    assert {token.text for token in tokens if token.kind is Kind.REFERENCE} == {"\ufffc"}


def test_an_entity_from_elsewhere_is_a_reference_and_not_read():
    document = '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd"><!ENTITY y "z">]><r>The &x; cat &y;</r>'
    tokens = [token for token in xml_tokens(document) if token.kind in (Kind.TEXT, Kind.REFERENCE)]
    assert [(token.raw, token.text) for token in tokens] == [
        ("The ", "The "),
        ("&x;", "\ufffc"),
        (" cat ", " cat "),
        ("&y;", "\ufffc"),
    ]

from collections import Counter

import pytest

from model.words import split_words
from service.text.markup import Rules, read_html, read_xml
from service.text.tags import Element, Kept, Vote, place_tags
from tests.service.text.markup_documents import Maker, Outline


def reversed_words(text, kept):
    """A translation that can be told from its source, in another order; with what comes from where."""
    units, done = [], 0
    for left, right in [*kept, (len(text), len(text))]:
        units += [(done + start, done + end) for start, end in split_words(text[done:left])]
        units += [(left, right)] if left < right else []
        done = right
    out, votes, places, length = [], [], {}, 0
    for start, end in reversed(units):
        is_kept = (start, end) in kept
        word = text[start:end] if is_kept else text[start:end].upper()
        if is_kept:
            places[start, end] = (length, length + len(word))
        votes.append(Vote(length, length + len(word), start, end))
        out.append(word)
        length += len(word) + 1
    return " ".join(out), votes, places


def translate(document, read=read_html, change=reversed_words, with_votes=True, rules=None, split=True):
    markup = read(document, rules)
    rendered = {}
    order = sorted(range(len(markup.units)), key=lambda index: markup.units[index].place != "attribute")
    for index in order:
        unit = markup.units[index]
        if not unit.is_translatable:
            continue
        segments, texts = [], []
        for start, end in sentences(unit) if split else [(0, len(unit.text))]:
            segment = markup.segment(unit, start, end)
            source = unit.text[start:end]
            text, votes, places = change(source, segment.kept)
            kept = [Kept(*places[span], *span, segment.kept_tokens[at]) for at, span in enumerate(segment.kept)]
            segments.append(segment)
            texts.append((text, place_tags(source, text, segment.items, votes if with_votes else [], kept)))
        rendered[index] = markup.render(unit, segments, texts, rendered)
    return markup.write(rendered)


def sentences(unit):
    """Parts that end at full stops outside what is kept, without blanks around them."""
    spans, start = [], 0
    inside = {place for left, right in unit.kept for place in range(left, right)}
    for place, char in enumerate(unit.text):
        if char == "." and place not in inside:
            spans.append((start, place + 1))
            start = place + 1
    spans.append((start, len(unit.text)))
    blank = " \xa0"
    for start, end in spans:
        text = unit.text[start:end]
        if text.strip(blank):
            yield start + len(text) - len(text.lstrip(blank)), end - len(text) + len(text.rstrip(blank))


def upper(text, kept):
    """Every word in its place."""
    chars = list(text.upper())
    for start, end in kept:
        chars[start:end] = text[start:end]
    votes = [Vote(start, end, start, end) for start, end in split_words(text)]
    return "".join(chars), votes, {span: span for span in kept}


def same_place(text, kept):
    return text, *upper(text, kept)[1:]


@pytest.mark.parametrize(
    ("change", "with_votes", "num_documents"),
    [(reversed_words, True, 300), (upper, True, 50), (reversed_words, False, 50)],
)
def test_three_hundred_documents_keep_their_tags(change, with_votes, num_documents):
    for seed in range(num_documents):
        document = Maker(seed).document()
        before, after = Outline(document), Outline(translate(document, change=change, with_votes=with_votes))
        assert before.faults == [], (seed, document)
        assert after.faults == [], (seed, document)
        assert Counter(after.tags) == Counter(before.tags), (seed, document)
        assert sorted(after.paths) == sorted(before.paths), (seed, document)
        assert sorted(after.attributes) == sorted(before.attributes), (seed, document)
        assert Counter(after.others) == Counter(before.others), (seed, document)
        letters = [Counter("".join(outline.words).lower()) for outline in (before, after)]
        assert letters[0] == letters[1], (seed, document)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "Plain text. Two sentences.",
        "<p>The <b>red</b> car is <a href='/x?a=1&amp;b=2'>very fast</a>.</p>\n",
        "<p>I <em>really <strong>want</strong> this</em> book.</p>",
        "<p>\n   The <b>old</b>\n   house.\n</p>\r\n<!-- c --><hr/>".replace(
            "<b>old</b>\n   house", "<b>old</b> house"
        ),
        "<div><b>One.  <i>Two</i></b> three.\n\n Four</div>",
        '<p>Press <img src="a.png"> to go on, <i class="x"></i> or <br>wait.</p>',
        "<p>a&nbsp;b &eacute;t&eacute; &mdash; &lt;b&gt; &amp; c</p><p>c > d</p>",
        "<p>My name is <span translate='no'>Rose <b>Field</b></span> and <code>a &lt; b</code> runs.</p>",
        '<img alt="a &amp; b" title=\'it is "so"\'><input placeholder="name" value="42"/>',
        "<a href=x><div>Block in <i>a</i> link</div></a>",
        "<p>Click <a id=x></a>here<!-- c --> now<wbr> and then.</p>",
        "<ruby>word<rt>sound</rt></ruby> is <custom-tag>new</custom-tag>.",
    ],
)
def test_words_that_stay_where_they_are_leave_the_document_as_it_is(document):
    assert translate(document, change=same_place) == document


@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ("<p>The <b>red</b> car</p>", "<p>CAR <b>RED</b> THE</p>"),
        ('<input type="Submit" value="Send it">', '<input type="Submit" value="IT SEND">'),
        ("<input value=Go type=button>", '<input value="GO" type=button>'),
        ('<input type="text" value="My name">', '<input type="text" value="My name">'),
        ('<button value="my value">Go on</button>', '<button value="my value">ON GO</button>'),
        ("<p><b>All of it</b></p>", "<p><b>IT OF ALL</b></p>"),
        ("<p><b>Old</b> house</p>", "<p>HOUSE <b>OLD</b></p>"),
        ("<p>I <em>really <strong>want</strong> it</em></p>", "<p><em>IT <strong>WANT</strong> REALLY</em> I</p>"),
        ("<p><i>One. Two</i> three</p>", "<p><i>. ONE THREE TWO</i></p>"),
        ("<p>see <img src=a> now</p>", "<p><img src=a> NOW SEE</p>"),
        ("<p>one<br>two three</p>", "<p>ONE<br>THREE TWO</p>"),
        ("<td>a b</td><td>c d</td>", "<td>B A</td><td>D C</td>"),
        ("<p>use <code>x y</code> here</p>", "<p>HERE <code>x y</code> USE</p>"),
        ("<p>use <i class=notranslate>x <b>y</b></i> here</p>", "<p>HERE <i class=notranslate>x <b>y</b></i> USE</p>"),
        ("<p translate=no>a b <i translate=yes>c d</i></p>", "<p translate=no>a b <i translate=yes>D C</i></p>"),
        ("<a title='a b' href='c d'>e f</a>", "<a title='B A' href='c d'>F E</a>"),
        ("<p title=ab>x</p>", '<p title="AB">X</p>'),
        ("<p TITLE='a' title='b'>x</p>", "<p TITLE='A' title='b'>X</p>"),
        ("<p>a &lt; b &amp;&nbsp;c</p>", None),
        ("<svg><title>a b</title></svg> c d", "<svg><title>a b</title></svg> D C"),
        ("<textarea>a b</textarea><pre>c d</pre><script>e f</script>g h", None),
        ("<title>a b</title>", "<title>B A</title>"),
        ("<noscript><p>a b</p></noscript>", "<noscript><p>B A</p></noscript>"),
        ("<p>12 : 30</p><b>🙂</b>", "<p>12 : 30</p><b>🙂</b>"),
    ],
)
def test_tags_follow_their_words(document, changed):
    if changed is not None:
        assert translate(document) == changed
    else:
        before, after = Outline(document), Outline(translate(document))
        assert (sorted(after.paths), after.faults) == (sorted(before.paths), [])


def test_an_element_without_a_word_of_its_own_gets_the_nearest():
    document = "<p>see <a href=x>this</a> page</p>"
    assert translate(document, change=lambda text, kept: ("VOIR PAGE", [Vote(0, 4, 0, 3), Vote(5, 9, 9, 13)], {})) in (
        "<p>VOIR <a href=x>PAGE</a></p>",
        "<p><a href=x>VOIR</a> PAGE</p>",
    )


def placed(source, text, word, votes):
    start = source.index(word)
    links = [Vote(*place(text, ours), *place(source, theirs), weight) for ours, theirs, weight in votes]
    placement = place_tags(source, text, [Element(start, start + len(word), (), (1,), (2,))], links)
    (left, *_), (right, *_) = placement.insertions
    return text[left:right]


def place(text, part):
    return text.index(part), text.index(part) + len(part)


def test_an_element_reaches_as_far_as_the_words_of_those_in_it():
    # The adjectives stand around their noun: the outer element holds it, too.
    votes = [Vote(0, 6, 0, 3), Vote(7, 13, 8, 13), Vote(14, 19, 4, 7)]
    red = Element(4, 7, (), (1,), (2,))
    around = place_tags("big red house", "grande maison rouge", (Element(0, 7, (red,), (0,), (3,)),), votes)
    assert around.insertions == ((0, (0,), 0), (14, (1,), 14), (19, (2,), 19), (19, (3,), 19))
    # But not over another element's.
    items = (Element(0, 7, (red,), (0,), (3,)), Element(8, 13, (), (4,), (5,)))
    around = place_tags("big red house", "grande maison rouge", items, votes)
    assert [tokens for place, tokens, _ in around.insertions if place == 7] == [(4,)]


def test_a_sure_link_counts_more_than_one_of_an_ending():
    votes = [("La", "'s", 0.97), ("maison", "house", 0.98), ("mon", "My", 0.8), ("frère", "brother", 0.9)]
    assert placed("My brother's house", "La maison de mon frère", "brother's", votes) == "frère"
    votes = [("Je", "I", 0.5), ("ne", "not", 0.5), ("sais", "know", 0.97), ("pas", "not", 0.62)]
    assert placed("I do not know.", "Je ne sais pas.", "not", votes) == "pas"


def test_a_mark_is_no_word_for_an_element_of_words():
    votes = [("Merci", "Thank", 0.9), (".", ".", 0.98)]
    assert placed("Thank you.", "Merci.", "you", votes) == "Merci"
    assert placed("Thank you.", "Merci.", ".", votes) == "."


def test_punctuation_goes_into_an_element_only_if_it_was_there():
    def change(text, kept):
        return ", ICI .", [Vote(0, 1, 6, 10), Vote(2, 5, 6, 10), Vote(6, 7, 6, 10)], {}

    assert translate("<p>click <a>here</a></p>", change=change) == "<p>, <a>ICI</a> .</p>"
    assert "<a>, ICI .</a>" in translate("<p>click <a>«here»</a></p>", change=change)


def test_no_tag_stands_in_a_placeholder():
    # Attention sees the bracket in the bold words, and the name outside of them.
    def change(text, kept):
        return "{name} {name} OLD", [Vote(0, 6, 0, 6), Vote(7, 8, 7, 13), Vote(8, 13, 0, 6), Vote(14, 17, 14, 17)], {}

    changed = translate("<p>{name} <b>{name} old</b></p>", change=change)
    assert changed.count("{name}") == 2
    assert Outline(changed).faults == []


def test_what_is_kept_leaves_its_place_rather_than_its_element():
    # The translation puts the code outside the words that are bold.
    def change(text, kept):
        votes = [Vote(0, 3, 0, 3), Vote(4, 7, 8, 11), Vote(8, 11, 16, 19)]
        return "ONE TWO SIX run", votes, {kept[0]: (12, 15)}

    document = "<p>one <b>two <code>run</code> two</b> six</p>"
    changed = translate(document, change=change)
    assert changed.count("run") == 1
    assert sorted(Outline(changed).paths) == sorted(Outline(document).paths)


@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ("<r><p>a b</p><p>c <i>d</i> e</p></r>", "<r><p>B A</p><p>E <i>D</i> C</p></r>"),
        ("a <x>b</x> c", "C <x>B</x> A"),
        (
            "<r>\n  <Title>a b</Title>\n  <script>c d</script>\n</r>",
            "<r>\n  <Title>B A</Title>\n  <script>D C</script>\n</r>",
        ),
        ("<r><![CDATA[a b]]></r>", "<r><![CDATA[B A]]></r>"),
        ("<r k='a b' title='c d'>e</r>", "<r k='a b' title='c d'>E</r>"),
        ("<r xmlns:n='u'><n:p translate='no'>a b</n:p></r>", "<r xmlns:n='u'><n:p translate='no'>a b</n:p></r>"),
        ("<r>a &amp; b</r>", "<r>B &amp; A</r>"),
        ("<r>a &lt;b&gt;</r>", "<r>&gt; B &lt; A</r>"),
    ],
)
def test_xml_is_read_by_its_structure(document, changed):
    assert translate(document, read=read_xml) == changed


def test_the_end_of_a_cdata_section_cannot_come_from_a_translation():
    changed = translate("<r><![CDATA[a b]]></r>", read=read_xml, change=lambda text, kept: ("x]]>y", [], {}))
    assert changed == "<r><![CDATA[x]]]]><![CDATA[>y]]></r>"
    read_xml(changed)


def test_rules_say_which_elements_are_what():
    rules = Rules(
        is_xml=True, untranslated=frozenset({"k"}), splitting=frozenset({"s"}), non_splitting=frozenset({"n"})
    )
    assert [unit.text for unit in read_xml("<r>a <k>b</k> c<s>d</s>e</r>", rules).units] == ["a b c", "d", "e"]
    assert [unit.text for unit in read_xml("<r><n>a</n><n>b</n></r>", rules).units] == ["ab"]
    named = Rules(is_xml=True, attributes=("alt", "title"))
    document = "<r title='a &amp; b'>c <i Alt='d' alt=\"e &lt; f\"/> g</r>"
    assert [unit.text for unit in read_xml(document, named).units] == ["a & b", "e < f", "c g"]
    assert [unit.text for unit in read_xml(document).units] == ["c g"]
    read_xml(read_xml(document, named).write({}))
    flat = Rules(is_xml=True, finds_structure=False)
    assert [unit.text for unit in read_xml("<r><p>a</p> <p>b</p></r>", flat).units] == ["a b"]


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ("<button>Yes</button><button>No</button>", ["Yes", "No"]),
        ("<li><a>Home</a> | <a>My <b>News</b></a>&nbsp;<a>Contact</a></li>", ["Home", "My News", "Contact"]),
        ("<p>See</p><label>Name</label> <input> <label>Age</label>", ["See", "Name", "Age"]),
        ("<p><a>Terms</a> and <a>privacy</a></p>", ["Terms and privacy"]),  # a sentence
        ("<p><a>All of it</a>.</p>", ["All of it."]),
        ("Press <button>Save</button> <button>Open</button>", ["Press Save Open"]),
        ("<b>Yes</b> <i>No</i>", ["Yes No"]),
        ("<b><a>Yes</a></b> <a>No", ["Yes", "No"]),  # it is closed at the end
    ],
)  # fmt: skip
def test_controls_side_by_side_are_texts_of_their_own(document, texts):
    markup = read_html(document)
    assert markup.write({}).startswith(document)
    assert [unit.text.strip() for unit in markup.units if any(map(str.isalnum, unit.text))] == texts


def test_the_text_of_a_document_has_no_markup():
    document = "<title>One</title><p>Two <b>three</b> &amp; 4</p><script>no</script><img alt='five'><p>6</p>"
    assert read_html(document).text == "One\nTwo three & 4\nfive"


def test_what_is_kept_alone_is_not_translated_and_no_text():
    markup = read_html("<p><code>one two</code> 3</p><p>four <kbd>five</kbd></p>")
    assert [unit.is_translatable for unit in markup.units] == [False, True]
    assert markup.text == "four five"


@pytest.mark.parametrize(
    "document",
    [
        "<p>5&nbsp;m, 6&#160;m and 7&#xA0;m</p>",
        "<p>Fish &amp; chips &#38; tea</p>",
        "<p>&eacute;t\u00e9</p>",
        "<p>&ldquo;a&rdquo; “b”</p>",
        "<p>a &amp; b &unknown; c</p>",
        "<p>a&nbsp;<b>b</b>&#160;c\u00a0d</p>",
        "<img alt='5&nbsp;m or 6&#xA0;m'>",
        "<p>a &lt; b &#60; c</p>",
        "<p>x&nbsp;&nbsp;y</p>",
    ],
)
def test_each_reference_is_written_as_it_was(document):
    assert translate(document, change=same_place) == document


def test_references_of_another_number_are_written_as_the_first():
    changed = translate("<p>5&nbsp;m, 6&#160;m</p>", change=lambda text, kept: ("x\u00a0y", [], {}))
    assert changed == "<p>x&nbsp;y</p>"

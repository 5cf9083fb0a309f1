import io
import zipfile

import docx
import pptx
import pytest
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import RGBColor
from pptx.util import Inches

from service.text.documents.formats import open_document
from service.text.languages import Languages
from tests.service.text.documents.translators import shout, translated


def opened(name, document):
    data = io.BytesIO()
    document.save(data)
    return open_document(name, data.getvalue(), max_expanded_bytes=1 << 24)


def reopened(name, data):
    return docx.Document(io.BytesIO(data)) if name.endswith(".docx") else pptx.Presentation(io.BytesIO(data))


def runs_of(paragraph):
    return [(run.text, bool(run.bold), bool(run.italic)) for run in paragraph.runs]


def paragraph_with(*runs):
    document = docx.Document()
    paragraph = document.add_paragraph()
    for text, style in runs:
        run = paragraph.add_run(text)
        run.bold = "b" in style or None
        run.italic = "i" in style or None
    return document, paragraph


def add_hyperlink(paragraph, text):
    link = OxmlElement("w:hyperlink")
    link.set(qn("w:anchor"), "place")
    run = OxmlElement("w:r")
    content = OxmlElement("w:t")
    content.text = text
    run.append(content)
    link.append(run)
    paragraph._p.append(link)
    return link


def test_everything_that_is_written_is_translated_and_nothing_else_changes():
    document = docx.Document()
    document.add_heading("A title", 1)
    document.add_paragraph("First paragraph.", style="List Bullet")
    table = document.add_table(2, 2)
    table.cell(0, 1).text = "In a cell."
    document.sections[0].header.paragraphs[0].text = "Page header"
    document.sections[0].footer.paragraphs[0].text = "Page footer"
    result = reopened("a.docx", translated(opened("a.docx", document)))
    assert [(p.text, p.style.name) for p in result.paragraphs] == [
        ("A TITLE", "Heading 1"),
        ("FIRST PARAGRAPH.", "List Bullet"),
    ]
    assert result.tables[0].cell(0, 1).text == "IN A CELL."
    assert result.sections[0].header.paragraphs[0].text == "PAGE HEADER"
    assert result.sections[0].footer.paragraphs[0].text == "PAGE FOOTER"


def test_other_files_in_the_archive_come_back_byte_for_byte():
    data = io.BytesIO()
    docx.Document().save(data)
    result = open_document("a.docx", data.getvalue(), max_expanded_bytes=1 << 24).render([])
    with zipfile.ZipFile(data) as before, zipfile.ZipFile(io.BytesIO(result)) as after:
        assert after.namelist() == before.namelist()
        for name in before.namelist():
            if not name.startswith("word/document"):
                assert after.read(name) == before.read(name)
            assert after.getinfo(name).date_time == before.getinfo(name).date_time


def test_runs_that_look_the_same_are_one_text():
    document, paragraph = paragraph_with(("The sp", ""), ("id", ""), ("er.", ""))
    paragraph.runs[1]._r.get_or_add_rPr().append(OxmlElement("w:noProof"))
    found = opened("a.docx", document)
    assert [(part.text, part.format) for part in found.parts] == [("The spider.", "text")]
    assert runs_of(reopened("a.docx", translated(found)).paragraphs[0]) == [("THE SPIDER.", False, False)]


def test_other_formatting_is_an_element_whose_place_the_translator_finds():
    document, paragraph = paragraph_with(("The ", ""), ("red", "b"), (" & ", ""), ("fast", "i"), (" car.", ""))
    paragraph.runs[1].font.color.rgb = RGBColor(255, 0, 0)
    found = opened("a.docx", document)
    (part,) = found.parts
    assert part.format == "html"
    assert part.text == 'The <span data-g="1">red</span> &amp; <span data-g="2">fast</span> car.'
    result = found.render(['La voiture <span data-g="2">rapide</span> &lt; <span data-g="1">rouge</span>.'])
    (paragraph,) = reopened("a.docx", result).paragraphs
    assert runs_of(paragraph) == [
        ("La voiture ", False, False),
        ("rapide", False, True),
        (" < ", False, False),
        ("rouge", True, False),
        (".", False, False),
    ]
    assert paragraph.runs[3].font.color.rgb == RGBColor(255, 0, 0)


def test_a_paragraph_of_one_formatting_other_than_plain_is_plain_text_and_keeps_it():
    document, _ = paragraph_with(("All bold.", "b"))
    found = opened("a.docx", document)
    assert [part.format for part in found.parts] == ["text"]
    assert runs_of(reopened("a.docx", translated(found)).paragraphs[0]) == [("ALL BOLD.", True, False)]


def test_tabs_and_line_breaks_part_a_paragraph_and_stay():
    document, _ = paragraph_with(("Name:\tAda\nNext line", "b"))
    found = opened("a.docx", document)
    assert [part.text for part in found.parts] == ["Name:", "Ada", "Next line"]
    (paragraph,) = reopened("a.docx", translated(found)).paragraphs
    assert paragraph.text == "NAME:\tADA\nNEXT LINE"
    assert all(run.bold for run in paragraph.runs)


def test_links_stay_links_around_their_words():
    document, paragraph = paragraph_with(("See ", ""))
    add_hyperlink(paragraph, "the page")
    paragraph.add_run(" please.")
    found = opened("a.docx", document)
    assert found.parts[0].text == 'See <span data-g="1">the page</span> please.'
    (paragraph,) = reopened("a.docx", found.render(['<span data-g="1">La page</span>, svp.'])).paragraphs
    assert paragraph.text == "La page, svp."
    (link,) = paragraph.hyperlinks
    assert (link.text, link.fragment) == ("La page", "place")
    document, paragraph = paragraph_with()
    add_hyperlink(paragraph, "Only a link")
    found = opened("a.docx", document)
    assert [part.format for part in found.parts] == ["text"]
    assert reopened("a.docx", translated(found)).paragraphs[0].hyperlinks[0].text == "ONLY A LINK"


def add_field(paragraph, instruction, result):
    for kind, content in (("begin", None), (None, instruction), ("separate", None), ("text", result), ("end", None)):
        run = paragraph.add_run()
        if kind in ("begin", "separate", "end"):
            element = OxmlElement("w:fldChar")
            element.set(qn("w:fldCharType"), kind)
        else:
            element = OxmlElement("w:instrText" if kind is None else "w:t")
            element.text = content
        run._r.append(element)


def test_fields_are_kept_whole():
    document, paragraph = paragraph_with(("Page ", ""))
    add_field(paragraph, "PAGE", "7")
    paragraph.add_run(" of the book.")
    found = opened("a.docx", document)
    assert found.parts[0].text == 'Page <img data-g="1"> of the book.'
    (paragraph,) = reopened("a.docx", found.render(['<img data-g="1">e page du livre.'])).paragraphs
    kinds = [
        child.get(qn("w:fldCharType")) or child.tag.rpartition("}")[2] for run in paragraph.runs for child in run._r
    ]
    assert [kind for kind in kinds if kind != "rPr"] == ["begin", "instrText", "separate", "t", "end", "t"]
    assert paragraph.text == "7e page du livre."


@pytest.mark.parametrize(
    "translation",
    [
        "Une voiture rouge.",  # the element was lost
        'Une <span data-g="1">voi</span>tu<span data-g="1">re</span>.',  # doubled
        'Une <span data-g="9">voiture</span> <span data-g="1">rouge</span>.',  # made up
        'Une <b>voiture</b> <span data-g="1">rouge</span> <img data-g="2">.',
        'Une <span data-g="1">voiture <img data-g="2"></span> rouge.',  # one in the other
    ],
)
def test_no_word_and_no_picture_is_lost_whatever_comes_back(translation):
    document, paragraph = paragraph_with(("A ", ""), ("red", "b"), (" car ", ""))
    paragraph.add_run()._r.append(OxmlElement("w:drawing"))
    paragraph.add_run("here.")
    found = opened("a.docx", document)
    assert found.parts[0].text == 'A <span data-g="1">red</span> car <img data-g="2">here.'
    (paragraph,) = reopened("a.docx", found.render([translation])).paragraphs
    words = "".join(paragraph.text.split())
    assert words in ("Unevoiturerouge.", "Unevoiture.")
    assert len(paragraph._p.findall(".//" + qn("w:drawing"))) == 1


def test_characters_that_xml_has_not_are_left_out():
    document, _ = paragraph_with(("Text", ""))
    result = opened("a.docx", document).render(["a\x00b\x0bc\ufffe"])
    assert reopened("a.docx", result).paragraphs[0].text == "abc"


def presentation():
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "The title"
    body = slide.placeholders[1].text_frame
    body.text = "First point"
    paragraph = body.add_paragraph()
    paragraph.level = 1
    for text, bold in (("A ", None), ("red", True), (" car", None)):
        run = paragraph.add_run()
        run.text, run.font.bold = text, bold
    table = slide.shapes.add_table(1, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    table.cell(0, 1).text = "In a cell"
    slide.notes_slide.notes_text_frame.text = "Some notes"
    return deck


def test_slides_tables_and_notes_are_translated_with_their_formatting():
    found = opened("a.pptx", presentation())
    assert 'A <span data-g="1">red</span> car' in [part.text for part in found.parts]
    texts = {part.text: shout(part) for part in found.parts}
    texts['A <span data-g="1">red</span> car'] = 'Une voiture <span data-g="1">rouge</span>'
    slide = reopened("a.pptx", found.render([texts[part.text] for part in found.parts])).slides[0]
    assert slide.shapes.title.text == "THE TITLE"
    first, second = slide.placeholders[1].text_frame.paragraphs
    assert first.text == "FIRST POINT"
    assert (second.level, [(run.text, run.font.bold) for run in second.runs]) == (
        1,
        [("Une voiture ", None), ("rouge", True)],
    )
    assert slide.shapes[2].table.cell(0, 1).text == "IN A CELL"
    assert slide.notes_slide.notes_text_frame.text == "SOME NOTES"


def test_hyphens_that_are_elements_stay_within_their_words():
    document, paragraph = paragraph_with(("A non", ""))
    run = paragraph.runs[0]._r
    run.append(OxmlElement("w:noBreakHyphen"))
    for text in ("stop soft", None, "ware."):
        content = OxmlElement("w:softHyphen" if text is None else "w:t")
        content.text = text
        run.append(content)
    taken = opened("a.docx", document)
    assert [(part.text, part.format) for part in taken.parts] == [("A non\u2011stop soft\u00adware.", "text")]
    (result,) = reopened("a.docx", translated(taken)).paragraphs
    assert result.text == "A NON\u2011STOP SOFT\u00adWARE."


def test_word_files_say_which_language_they_are_in_now():
    document, paragraph = paragraph_with(("The red car. ", ""), ("Das Auto.", ""))
    for run, code in zip(paragraph.runs, ("en-GB", "de-DE"), strict=True):
        language = OxmlElement("w:lang")
        language.set(qn("w:val"), code)
        language.set(qn("w:eastAsia"), "en-US")
        run._r.get_or_add_rPr().append(language)
    document.core_properties.language = "en-US"
    found = opened("a.docx", document)
    result = reopened("a.docx", found.render([part.text for part in found.parts], Languages("en", "fr")))
    codes = [node.get(qn("w:val")) for node in result.paragraphs[0]._p.iter(qn("w:lang"))]
    assert set(codes) <= {"fr", "de-DE"} and "fr" in codes
    assert {node.get(qn("w:val")) for node in result.styles.element.iter(qn("w:lang"))} == {"fr"}
    assert result.core_properties.language == "fr"


def test_slides_say_which_language_they_are_in_now():
    slides = pptx.Presentation()
    box = slides.slides.add_slide(slides.slide_layouts[6]).shapes.add_textbox(
        Inches(1), Inches(1), Inches(5), Inches(1)
    )
    for text, code in (("The red car.", "en-US"), ("Das Auto.", "de-DE")):
        run = box.text_frame.add_paragraph().add_run()
        run.text = text
        run._r.get_or_add_rPr().set("lang", code)
    found = opened("a.pptx", slides)
    result = reopened("a.pptx", found.render([part.text for part in found.parts], Languages("en", "fr")))
    paragraphs = result.slides[0].shapes[0].text_frame.paragraphs
    assert [run._r.rPr.get("lang") for paragraph in paragraphs for run in paragraph.runs] == ["fr", "de-DE"]
    default = result.part.blob.decode()
    assert 'lang="en-US"' not in default and 'lang="fr"' in default

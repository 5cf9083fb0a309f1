"""HTML documents made by chance, and what is in them."""

import html
import random
from html.parser import HTMLParser

VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
INLINE = "a b i em strong span u small sup abbr mark q cite x-name font".split()
WORDS = (
    "the old house stands near river and we see a small dog every morning when rain falls on green hill because "
    "nobody knows where this train goes after dark people often ask for more light in winter"
).split()
ENTITIES = ["&amp;", "&lt;b&gt;", "&nbsp;", "&copy;", "&#233;", "&mdash;", "&quot;"]
SPACES = [" ", " ", " ", "\n    ", "  ", "\t"]


class Maker:
    """Makes one document; every element has an id of its own, so that it can be found again."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0

    def document(self):
        blocks = "".join(self.block(0) for _ in range(self.random.randint(1, 3)))
        if self.random.random() < 0.2:
            title = f"<title>{self.words(3)}</title>"
            return f"<!DOCTYPE html>\n<html><head><meta charset=utf-8>{title}</head>\n<body>{blocks}</body></html>\n"
        return blocks

    def identity(self):
        self.count += 1
        return f' id="e{self.count}"'

    def words(self, most):
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, most)))

    def block(self, depth):
        kind = self.random.random()
        if kind < 0.15 and depth < 3:
            inner = "".join(self.block(depth + 1) for _ in range(self.random.randint(1, 3)))
            return f"<div{self.identity()}>\n  {inner}</div>\n"
        if kind < 0.25:
            items = "".join(f"<li{self.identity()}>{self.inline(2)}</li>" for _ in range(self.random.randint(1, 3)))
            return f"<ul{self.identity()}>{items}</ul>\n"
        if kind < 0.32:
            cells = "".join(f"<td{self.identity()}>{self.inline(2)}</td>" for _ in range(2))
            return f"<table{self.identity()}><tbody><tr>{cells}</tr></tbody></table>"
        if kind < 0.4:
            return self.random.choice(
                [
                    '<script>if (a < b) { say("<p>no</p>"); }</script>',
                    f"<pre{self.identity()}>the  old\n house</pre>",
                    "<!-- a comment, with <b> -->",
                    "<style>p > b { color: red }</style>",
                    f'<p{self.identity()} translate="no">the old <b>house</b></p>',
                    "<hr>",
                ]
            )
        name = self.random.choice(["p", "p", "p", "h2", "blockquote", "section"])
        return f"<{name}{self.identity()}>{self.inline(0)}</{name}>\n"

    def inline(self, depth):
        parts = []
        for _ in range(self.random.randint(1, 6)):
            kind = self.random.random()
            if kind < 0.5 or depth > 2:
                parts.append(self.words(5))
            elif kind < 0.75:
                name = self.random.choice(INLINE)
                extra = ' href="/x?a=1&amp;b=2" title="the green hill"' if name == "a" else ""
                parts.append(f"<{name}{self.identity()}{extra}>{self.inline(depth + 1)}</{name}>")
            elif kind < 0.8:
                parts.append(self.random.choice(ENTITIES))
            elif kind < 0.9:
                parts.append(
                    self.random.choice(
                        [
                            "<br>",
                            f'<img{self.identity()} src=a.png alt="a small dog">',
                            f"<i{self.identity()} class=icon></i>",
                            "<!-- inline -->",
                            "<wbr>",
                            f"<input{self.identity()} placeholder='the name' value=\"42\"/>",
                            f"<svg{self.identity()}><path d='M0 0'/><title>the rain</title></svg>",
                        ]
                    )
                )
            elif kind < 0.95:
                parts.append(f"<code{self.identity()}>run(x) &amp; y</code>")
            else:
                parts.append(f'<span{self.identity()} class="a notranslate">Rose <b{self.identity()}>Field</b></span>')
            parts.append(self.random.choice([*SPACES, "", ". ", ", "]))
        return "".join(parts)


class Outline(HTMLParser):
    """What is checked of a document: its tags, how they are nested, attributes, comments and words.

    Attributes:
        paths: For each element in order of opening, the names and ids on the way to it.
        tags: All tags.
        attributes: (path, attributes) of every element.
        others: Comments, declarations, and the contents of scripts and styles.
        faults: What is not well-formed.
        words: All words that are read, in order.
    """

    def __init__(self, document, translated=("alt", "title", "placeholder", "aria-label")):
        super().__init__(convert_charrefs=True)
        self.translated = translated
        self.stack, self.paths, self.tags, self.attributes, self.others = [], [], [], [], []
        self.faults, self.texts, self.translations = [], [], []
        self.feed(document)
        self.close()
        self.faults += [f"<{name}> is not closed" for name in self.stack]

    def handle_starttag(self, tag, attrs):
        identity = dict(attrs).get("id", "")
        self.paths.append((*self.stack, f"{tag}#{identity}"))
        self.tags.append(tag)
        kept = tuple((name, "" if name in self.translated else value) for name, value in attrs)
        self.attributes.append((f"{tag}#{identity}", kept))
        self.translations += [value for name, value in attrs if name in self.translated]
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.stack.append(f"{tag}#{identity}")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        self.tags.append("/" + tag)
        if not self.stack or self.stack[-1].partition("#")[0] != tag:
            self.faults.append(f"</{tag}> ends {self.stack[-1:]}")
        elif self.stack:
            self.stack.pop()

    def handle_data(self, data):
        (self.others if self.cdata_elem else self.texts).append(data)

    def handle_comment(self, data):
        self.others.append(f"<!--{data}-->")

    def handle_decl(self, decl):
        self.others.append(f"<!{decl}>")

    @property
    def words(self):
        return " ".join(self.texts).split()


def escaped(text):
    return html.escape(text, quote=False)
